# SPDX-License-Identifier: Apache-2.0
"""The command line of `hb bench`: reads options, lists the tables, runs a suite or shows a file."""
import argparse
import difflib
import logging
import os
import re
import shlex
import shutil
import signal
import sys
import time

from hbbench import results, tables
from hbbench.merge import merge_files
from hbbench.process import Failed, Interrupted
from hbbench.run import run_suite
from hbbench.tables import CASES, SUITES, WAYS, Plan, Refused, find_way

HELP = """\
usage: hb bench list
       hb bench run SUITE [OPTION...]
       hb bench report FILE [--json] [--report FILE]
       hb bench merge FILE FILE... [--sharing WAY[,WAY...]] [--json] [--report FILE] [--out DIR]

Measures services beside low-priority programs under each way of sharing a GPU.
All ways are measured in turns, on a real GPU, or on a simulated one where there
is none. Report shows a file again that run wrote (.json, .json.gz). Merge puts
files of one suite together that were measured in several calls: their cases,
and the rounds of the cases that are in several of them. With --sharing, merge
keeps only those ways of sharing (and exclusive).

  --gpu sim|N      a simulated GPU, or the N-th real one (the first real one)
  --sharing WAY[,WAY...]|all[,-WAY...]
                   what to compare with exclusive; -WAY: all but that (the suite's);
                   ENGINE:KEY=VALUE is an engine with another setting
  --case NAME[,NAME...]
                   some cases of the suite (all)
  --rounds N       how often everything is measured (the suite's)
  --seconds S      length of a window (the suite's)
  --halves         low priority comes and goes in each window, which has six parts
                   of that length; for machines whose processors change their speed
  --limit S        ends within S seconds, with what was measured by then (none)
  --xsched DIR     where XSched was installed to, for the way of sharing xsched
  --hami DIR       where bench/build_peers.sh built HAMi-core into, for hami_20 to hami_80
  --nvshare DIR    where bench/build_peers.sh built nvshare into, for nvshare
  --json           everything as JSON instead of a table, raw values included
  --report FILE    a page of plots, self-contained HTML
  --out DIR        writes DIR/SUITE.json.gz and DIR/SUITE.html

exit status: 0 done, 1 something failed, 2 bad command line or input
"""
SECONDS, LIMIT, ROUNDS = (0.01, 600), (1, 86400), (1, 100)
BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def nearest(word, names):
    """The known word that was probably meant, or None."""
    found = difflib.get_close_matches(word, list(names), 1, 0.6)
    return found[0] if found else next((name for name in names if len(word) > 2 and name.startswith(word)), None)


class Parser(argparse.ArgumentParser):
    """Reports errors in the form of every other command of hb."""

    def error(self, message):
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        missing = re.match(r"argument (--[\w-]+): expected one argument", message)
        if unknown:
            like = nearest(unknown[1], ["--help", *self._option_string_actions])
            message = f"no option '{unknown[1]}'" + (f"; did you mean '{like}'?" if like else "")
        elif missing:
            message = f"{missing[1]} needs a value"
        raise Refused(message)


def number_in(name, text, limits, kind=float):
    """The option's value, or an error that names the range."""
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not limits[0] <= value <= limits[1]:
        raise Refused(f"--{name} {text}: give a number from {limits[0]} to {limits[1]}")
    return value


def read_words(argv):
    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("words", nargs="*")
    for name in ("case", "gpu", "limit", "out", "report", "rounds", "seconds", "sharing", *tables.PEERS):
        parser.add_argument("--" + name)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--halves", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    return parser.parse_intermixed_args(argv)


def read_verb(words):
    """(verb, its words)"""
    verbs = {"list": None, "run": "which suite?", "report": "which file?", "merge": "which files?"}
    if not words:
        raise Refused("list, run, report or merge?")
    verb = words[0]
    if verb not in verbs:
        like = nearest(verb, verbs)
        raise Refused(f"no '{verb}'; " + (f"did you mean '{like}'?" if like else "there are list, run, report and merge"))
    if verbs[verb] and len(words) == 1:
        raise Refused(f"{verb}: {verbs[verb]}")
    most = 2 if verbs[verb] else 1
    if len(words) > most and verb != "merge":
        raise Refused(f"'{words[most]}': only one at a time")
    return verb, words[1:]


def read_peers(args):
    """{other system: its folder} of the options, absolute because programs may start elsewhere."""
    folders = {peer: getattr(args, peer) for peer in tables.PEERS if getattr(args, peer)}
    for peer, folder in folders.items():
        needed, what = tables.PEERS[peer]
        if not os.access(os.path.join(folder, needed), os.R_OK):
            raise Refused(f"--{peer} {folder}: there is no {needed}; give the folder that {what}")
    return {peer: os.path.abspath(folder) for peer, folder in folders.items()}


class Options:
    """The choices for a run, which run.py and measure.py read."""

    def __init__(self, args, suite, hb, command):
        self.suite, self.hb, self.command = suite, hb, command
        self.peers = read_peers(args)
        self.warm_up = suite.warm_up
        self.halves = args.halves
        self.choose_gpu(args.gpu)
        self.rounds = number_in("rounds", args.rounds, ROUNDS, int) if args.rounds else suite.rounds
        usual = suite.simulated_s if self.simulated else suite.real_s
        self.seconds = number_in("seconds", args.seconds, SECONDS) if args.seconds else usual
        self.requests = 0 if self.simulated or args.seconds or args.halves else suite.requests
        self.deadline = time.monotonic() + number_in("limit", args.limit, LIMIT) if args.limit else None
        self.only = args.case.split(",") if args.case else None
        self.plans = [Plan(case, self.simulated) for case in CASES if case.suite == suite.name]
        for name in self.only or []:
            self.check_case(name)
        self.ways = self.choose_ways(args.sharing)

    def choose_gpu(self, text):
        if text is not None and not re.fullmatch(r"sim|\d+", text):
            raise Refused(f"--gpu {text}: give sim or the number of a GPU")
        none = not os.path.exists("/dev/nvidiactl")
        self.simulated = text == "sim" if text is not None else none
        if none and not self.simulated and not os.path.exists("/dev/dxg"):
            raise Refused(f"--gpu {text}: no NVIDIA GPU is here; --gpu sim measures a simulated one")
        if text is not None and not self.simulated:
            os.environ["CUDA_VISIBLE_DEVICES"] = text

    def check_case(self, name):
        names = [plan.case.name for plan in self.plans]
        if name not in names:
            like = nearest(name, names)
            raise Refused(f"--case {name}: not in {self.suite.name}; "
                          + (f"did you mean '{like}'?" if like else "'hb bench list' shows them"))

    def chosen_way(self, name):
        """A way that the user names must exist and be possible."""
        way = find_way(name)
        if not way:
            like = nearest(name, [one.name for one in WAYS])
            raise Refused(f"--sharing {name}: not known; " + (f"did you mean '{like}'?" if like else "'hb bench list' shows them"))
        if not any(plan.can(way) for plan in self.plans if not self.only or plan.case.name in self.only):
            raise Refused(f"--sharing {name}: not possible in {self.suite.name} on {'a simulated' if self.simulated else 'a real'} GPU")
        if way.high in tables.PEERS and way.high not in self.peers:
            raise Refused(f"--sharing {name}: --{way.high} must name the folder that {tables.PEERS[way.high][1]}")
        return way

    def choose_ways(self, text):
        """exclusive is always measured, because the other ways are compared with it."""
        ways = [WAYS[0]]
        for word in (text or self.suite.sharing).split(","):
            if word == "all":
                ways += [way for way in WAYS if way.high not in tables.PEERS or way.high in self.peers]
            elif word.startswith("-") and find_way(word[1:]):
                ways = [way for way in ways if way.name != word[1:] or way.kind == tables.REFERENCE]
            else:
                ways.append(self.chosen_way(word) if text else find_way(word))
        return list(dict.fromkeys(ways))


def print_list():
    for suite in SUITES:
        print(f"{suite.name:<13}{suite.help}")
        for case in CASES:
            if case.suite == suite.name:
                print(f"  {case.name:<26} {case.high}" + (f" beside {case.low}" if case.low else "")
                      + (" (killed)" if case.kill else ""))
    print("\nways of sharing:")
    for way in WAYS:
        where = (f"processes, with --{way.high}" if way.high in tables.PEERS else "recorded programs" if not way.high
                 else "recorded programs, processes" if way.mode else "processes")
        print(f"  {way.name:<13}{way.kind:<11}{where}")


def find_hb():
    """The program that was called as `hb bench`; else the one of the build tree."""
    return os.environ.get("HB_BENCH_HB") or shutil.which("hb") or os.path.join(BENCH, "../build/hb")


def write_page(path, result):
    results.write_file(path, results.page_text(results.page_frame(find_hb()), result))


class Output:
    """The files that are written, the ones in --out also after each case."""

    def __init__(self, args, suite):
        self.report, self.folder, self.suite = args.report, args.out, suite
        try:
            if self.folder:
                os.makedirs(self.folder, exist_ok=True)
            if self.report:
                with open(self.report, "ab"):
                    pass
        except OSError as error:
            raise results.BadFile(f"{error.filename}: {error.strerror}") from error

    def keep(self, result):
        if self.folder:
            results.write_file(os.path.join(self.folder, self.suite + ".json.gz"), results.to_text(result))
            write_page(os.path.join(self.folder, self.suite + ".html"), result)

    def finish(self, args, result):
        if self.report:
            write_page(self.report, result)
        if args.json:
            sys.stdout.write(results.to_text(result))
        else:
            results.print_table(result)


def run_serve(args, suite, hb):
    """The suite `serve` has no programs beside each other but requests with deadlines; bench/serving.py measures it."""
    if args.json or args.report or any(getattr(args, peer) for peer in tables.PEERS) or args.rounds or args.sharing or args.case:
        raise Refused("serve takes --gpu, --seconds, --limit and --out")
    options = Options(args, suite, hb, "")
    if options.simulated and options.deadline:
        raise Refused("--limit: serve in virtual time is always complete; fewer --seconds make it shorter")
    words = [os.path.join(BENCH, "serving.py"), "--hb", hb, "--seconds", f"{options.seconds:g}"]
    words += [] if options.simulated else ["--live", "torch"]
    words += ["--budget", f"{options.deadline - time.monotonic():.3f}"] if options.deadline else []
    if args.out:
        os.makedirs(args.out, exist_ok=True)
        words += ["--results", os.path.join(args.out, "serve.json"), "--keep", os.path.join(args.out, "serve")]
    os.execv(sys.executable, [sys.executable, *words])


def run(args, name, argv):
    suite = next((suite for suite in SUITES if suite.name == name), None)
    if not suite:
        like = nearest(name, [one.name for one in SUITES])
        raise Refused(f"no suite '{name}'; " + (f"did you mean '{like}'?" if like else "'hb bench list' shows them"))
    hb = find_hb()
    if suite.name == "serve":
        run_serve(args, suite, hb)
    options = Options(args, suite, hb, "hb bench " + shlex.join(argv))
    output = Output(args, suite.name)
    result, interrupted = run_suite(options, output.keep)
    output.finish(args, result)
    if interrupted:
        raise Interrupted("interrupted; what had been measured before is kept")
    return 1 if any(case["failed"] or case["dropped"] for case in result["cases"]) else 0


def report(args, path):
    result = results.load(path)
    Output(args, "").finish(args, result)
    return 0


def merge(args, paths):
    result = merge_files(paths, args.sharing.split(",") if args.sharing else ())
    output = Output(args, result["suite"])
    output.keep(result)
    output.finish(args, result)
    return 0


def main(argv):
    """Returns the exit status."""
    logging.basicConfig(format="hb bench: %(message)s", level=os.environ.get("HB_LOG", "warning").upper()
                        if os.environ.get("HB_LOG", "warning") in ("debug", "info", "warning", "error") else "WARNING")
    try:
        args = read_words(argv)
        if args.help:
            print(HELP, end="")
            return 0
        verb, words = read_verb(args.words)
        if verb != "run":
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `hb bench list | head` ends without a message
        if verb == "list":
            print_list()
            return 0
        if verb == "merge":
            return merge(args, words)
        return run(args, words[0], argv) if verb == "run" else report(args, words[0])
    except Refused as why:
        print(f"hb bench: {why}", file=sys.stderr)
        if not isinstance(why, results.BadFile):
            print("'hb bench --help' explains the options", file=sys.stderr)
        return 2
    except (Failed, Interrupted) as why:
        print(f"hb bench: {why}", file=sys.stderr)
        return 1
