#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the shape of the source tree. Called by tools/lint.sh.

usage: check_structure.py CHECK

  tags     every struct and enum tag of src/ and include/ is defined once
  sources  no meson.build compiles a source of another folder (no ../)
  statics  no one-word name of a static function appears in more than two files
  house    comments, documents and messages avoid this project's old private words
  titles   commit titles read "area: imperative summary", at most 60 characters
  layers   a folder of src/ includes only from the folders that its row of
           docs/architecture.md ("may use") names

Prints a line for each finding. Exits 1 if there was one.
"""
import collections
import os
import re
import subprocess
import sys

# The last commit before the rule for titles.
FIRST_TITLE = "4aeb9313feba26bda714c4ecd5f4befe24e4576f"
TITLE_LENGTH = 60

# Words with which this project once said what the field has usual words for. The second column is the word to use.
HOUSE_WORDS = (
    (r"whoever|whosever", "the process that ..."),
    (r"heed(?:s|ed|ing)?", "handle, obey"),
    (r"mend(?:s|ed|ing)?", "fix, repair"),
    (r"crowded", "over budget, overloaded"),
    (r"goes on|go on", "continues"),
    (r"(?:is|are|was|were) told", "is reported, is notified"),
    (r"in lots", "in batches"),
    (r"speaks? for", "reports on behalf of"),
    (r"bell", "doorbell"),
    (r"beats?", "tick, heartbeat"),
    (r"tells nothing|told nothing", "reports nothing"),
    (r"of its own accord", "by itself"),
)
PROSE = (".c", ".h", ".def", ".py", ".sh", ".md", ".mdoc", ".1", ".3", ".5", ".8", ".build", ".yaml", ".S")
# Pages about these words, and data that others made.
NOT_PROSE = ("tools/check_structure.py", "data/traces/", "bench/results/", "tests/fuzz/", "LICENSE")


def git(*words):
    return subprocess.run(("git",) + words, capture_output=True, text=True, check=False)


def files(*patterns):
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns).stdout.splitlines()
    return [path for path in listed if os.path.isfile(path)]


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def without_comments(text):
    """The same text and line numbers, with comments blanked."""
    return re.sub(r"/\*.*?\*/", lambda found: re.sub(r"[^\n]", " ", found.group(0)), text, flags=re.S)


def check_tags():
    places = collections.defaultdict(list)
    for path in files("src/*.c", "src/*.h", "include/*.h"):
        for found in re.finditer(r"^\s*(?:typedef |static |const )*(struct|enum|union) (\w+) *\{", without_comments(read(path)), re.M):
            places[found.group(2)].append(path)
    for tag, paths in sorted(places.items()):
        if len(paths) > 1:
            yield f"{tag}: defined in {', '.join(paths)}; a tag names one type in the whole tree"


def check_sources():
    for path in files("*meson.build"):
        for number, line in enumerate(read(path).splitlines(), 1):
            found = re.search(r"'(\.\./[^']*\.(?:c|S|cpp))'", line)
            if found:
                yield f"{path}:{number}: compiles {found.group(1)} of another folder; link that folder's library"


def check_statics():
    places = collections.defaultdict(set)
    for path in files("src/*.c"):
        for found in re.finditer(r"^static (?:[\w ]+[ *])?\**([a-z0-9]+)\(", without_comments(read(path)), re.M):
            places[found.group(1)].add(path)
    for name, paths in sorted(places.items()):
        if len(paths) > 2:
            yield f"static {name}(): in {', '.join(sorted(paths))}; name the object, too"


def prose_of(path, line):
    """The part of a line that people read: comments and texts of code, all of a document."""
    if path.endswith((".md", ".mdoc", ".1", ".3", ".5", ".8")):
        return line
    if path.endswith((".c", ".h", ".def", ".S")):
        comment = re.search(r"/\*.*", line)
        continued = re.match(r"\s*\*[ /]", line)
        return " ".join([line if continued else "", comment.group(0) if comment else ""] + re.findall(r'"([^"]{12,})"', line))
    comment = re.search(r"(?:^|\s)#.*", line)
    return " ".join([comment.group(0) if comment else ""] + re.findall(r'"([^"]{12,})"', line))


def check_house():
    words = [(re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.I), better) for pattern, better in HOUSE_WORDS]
    for path in files():
        if not path.endswith(PROSE) or path.startswith(NOT_PROSE):
            continue
        for number, line in enumerate(read(path).splitlines(), 1):
            text = prose_of(path, line)
            for word, better in words:
                found = word.search(text)
                if found:
                    yield f"{path}:{number}: '{found.group(0)}': write {better}: {line.strip()[:100]}"


def check_titles():
    if git("merge-base", "--is-ancestor", FIRST_TITLE, "HEAD").returncode:
        print(f"history does not reach {FIRST_TITLE}: titles are not checked")
        return
    for line in git("log", "--no-merges", "--format=%h %s", f"{FIRST_TITLE}..HEAD").stdout.splitlines():
        commit, title = line.split(" ", 1)
        if len(title) > TITLE_LENGTH:
            yield f"{commit}: title of {len(title)} characters, at most {TITLE_LENGTH}: {title}"
        if not re.match(r"[\w./ ,-]+: \S", title) or ";" in title:
            yield f"{commit}: title is not 'area: imperative summary' with one subject: {title}"


def layer_rows():
    """Folder -> the words of its "may use" column."""
    rows = {}
    for line in read("docs/architecture.md").splitlines():
        found = re.match(r"\| \[`src/([\w/]+)`\].*\|([^|]*)\|$", line)
        if found:
            rows[found.group(1)] = found.group(2)
    return rows


def check_layers():
    rows = layer_rows()
    folders = sorted({os.path.dirname(path)[4:] for path in files("src/*.c", "src/*.h")})
    for folder in folders:
        if folder not in rows:
            yield f"docs/architecture.md: no row for src/{folder}"
    for path in files("src/*.c", "src/*.h"):
        folder = os.path.dirname(path)[4:]
        allowed = rows.get(folder, "everything")
        if allowed.strip() == "everything":
            continue
        for other in re.findall(r'^#include "([\w/]+)/[\w.-]+"', read(path), re.M):
            if other in folders and other != folder and f"`{other}`" not in allowed:
                yield f"{path}: includes from src/{other}; docs/architecture.md lets src/{folder} use{allowed.rstrip()}"


def main():
    checks = {name[6:]: function for name, function in globals().items() if name.startswith("check_")}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    findings = list(checks[sys.argv[1]]())
    print("\n".join(findings))
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
