# SPDX-License-Identifier: Apache-2.0
"""What the harness can measure: ways of sharing, programs, cases and suites, one row each.

A new measurement is a new row here. Nothing in this file starts a process.
"""
import dataclasses
import re

REFERENCE, TEMPORAL, SPATIAL, ENGINE = CLASSES = ("reference", "temporal", "spatial", "engine")
NATIVE, MPS, MPS_PRIO, HB = ("native", "mps", "mps, high stream", "hb run")
XSCHED, HAMI, NVSHARE = ("xsched", "hami", "nvshare")
# Other systems: the option that names their folder, a file that must be there, and what the folder is.
PEERS = {XSCHED: ("bin/xserver", "XSched was installed to"), HAMI: ("libvgpu.so", "bench/build_peers.sh built HAMi-core into"),
         NVSHARE: ("nvshare-scheduler", "bench/build_peers.sh built nvshare into")}


class Refused(Exception):
    """The command line, a table or a file is wrong; the text says what and what to do."""


@dataclasses.dataclass(frozen=True)
class Way:
    """A way of sharing a GPU."""
    name: str
    kind: str             # one of CLASSES: the reference, a temporal or spatial baseline, or an engine of ours
    mode: str = ""        # its name in `hb sim --sharing`; "" = not in virtual time
    high: str = ""        # where the services run as processes; "" = not with processes
    low: str = ""         # where the programs of low priority run
    limit: int = 100      # percent of the SMs that MPS gives to low priority, or of the GPU's time that HAMi-core gives
    engine: str = ""      # engine of the daemon; ways with one engine share one daemon and its programs
    settings: tuple = ()  # further (key, value) lines of that daemon's configuration while this way is measured
    options: tuple = ()   # further options of `hb run` for the service
    levers: tuple = ()    # (variable, value) for the benchmarks' shim (bench/shim), in which both sides then run
    variables: tuple = () # (variable, value) of the programs of low priority


WAYS = [
    Way("exclusive", REFERENCE, "exclusive", NATIVE, NATIVE),
    Way("timeslice", TEMPORAL, "timeslice", NATIVE, NATIVE),
    Way("ts1", TEMPORAL, "ts1"),
    # REEF: low priority waits while a request is served, with at most 0.3 ms of its work in flight.
    Way("reef", TEMPORAL, "reef", HB, HB, engine="spatial", settings=(("window", "300us"),),
        levers=(("HB_BENCH_ALLOWANCE_PERCENT", "0"),)),
    Way("xsched", TEMPORAL, "", XSCHED, XSCHED),
    Way("nvshare", TEMPORAL, "", NVSHARE, NVSHARE),
    Way("mps", SPATIAL, "mps", MPS, MPS),
    Way("mps_prio", SPATIAL, "mps_prio", MPS_PRIO, MPS),
    Way("mps_88", SPATIAL, "mps_88", MPS_PRIO, MPS, limit=88),
    Way("mps_60", SPATIAL, "mps_60", MPS_PRIO, MPS, limit=60),
    # HAMi-core: each side is a container of its own; low priority gets this percentage of the GPU's time.
    Way("hami_20", SPATIAL, "", HAMI, HAMI, limit=20),
    Way("hami_50", SPATIAL, "", HAMI, HAMI, limit=50),
    Way("hami_80", SPATIAL, "", HAMI, HAMI, limit=80),
    # Orion: beside a request runs what Orion's rule allows, with at most 0.1 ms of low-priority work in flight.
    Way("orion", SPATIAL, "orion", HB, HB, engine="spatial", settings=(("window", "100us"),),
        levers=(("HB_BENCH_ORION", "FOLDER/orion"),)),
    Way("temporal", ENGINE, "temporal", HB, HB, engine="temporal"),
    Way("no_signs", ENGINE, "", HB, HB, engine="temporal", options=("--no-signs",)),
    Way("spatial", ENGINE, "spatial", HB, HB, engine="spatial"),
    Way("turns", ENGINE, "", HB, HB, engine="turns"),
]


def find_way(name):
    """The row of that name, or None. NAME:KEY=VALUE[:KEY=VALUE...] is an engine with other settings; a KEY that begins with
    HB_BENCH_ is a lever, and another one that begins with HB_ a variable of the programs of low priority."""
    base, *changes = name.split(":")
    way = next((way for way in WAYS if way.name == base), None)
    if not way or not changes or way.kind != ENGINE:
        return way if not changes else None
    pairs = tuple(tuple(change.split("=", 1)) for change in changes)
    if any(len(pair) < 2 for pair in pairs):
        return None
    levers = tuple(pair for pair in pairs if pair[0].startswith("HB_BENCH_"))
    variables = tuple(pair for pair in pairs if pair[0].startswith("HB_") and pair not in levers)
    settings = tuple(pair for pair in pairs if pair not in levers + variables)
    return dataclasses.replace(way, name=name, mode=":".join([way.mode] + changes) if way.mode and settings == pairs else "",
                               settings=way.settings + settings, levers=way.levers + levers, variables=variables)


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that the harness starts. `trace` stands for it in virtual time, `simulated` are the arguments of
    `cuda-tenant bench` on a simulated GPU, `real` says what runs on a real GPU: "work ARGUMENTS" (cuda-tenant bench) or
    "torch ARGUMENTS" (torch_program.py). "" = the program is not there. `options`: further options of `hb run`."""
    trace: str
    simulated: str
    real: str
    options: tuple = ()

    def has_sockets(self):
        """Whether its requests come over sockets, so that their bytes announce them (socket_service.py)."""
        return self.real.endswith(" --sockets")


def small(arguments, simulated="", options=()):
    """A program of cuda-tenant, the same on a simulated and on a real GPU unless `simulated` says otherwise."""
    return Program("", simulated or arguments, "work " + arguments, options)


PREPARATIONS_US = (0, 50, 100, 150, 200, 250, 400)

PROGRAMS = {
    "resnet50_b1": Program("resnet50_b1", "infer 280 2.7", "torch infer resnet50"),
    "resnet50_b1_graph": Program("resnet50_b1:graph", "infer 280 2.7", "torch infer resnet50 --graph"),
    # Requests come over sockets, are prepared on the CPU for 200 us, and are copied to the GPU (301 KB for an image).
    "resnet50_b1_sockets": Program("resnet50_b1:graph", "served 280 2.7 301 200", "torch infer resnet50 --graph --sockets"),
    "llama8_decode_b8_sockets": Program("llama8_decode_b8", "", "torch decode llama8 --batch 8 --sockets"),
    "llama8_prefill_b1_sockets": Program("", "", "torch prefill llama8 --batch 1 --sockets"),
    "resnet50_http": Program("", "", "torch http resnet50"),
    "resnet50_http_hostile": Program("", "", "torch http resnet50 --hostile"),
    "resnet50_train_b128": Program("resnet50_train_b128", "", "torch train resnet50 --batch 128"),
    # Small enough that twenty of them fit on a GPU: four, in five places.
    "resnet50_train_b32": Program("", "", "torch train resnet50 --batch 32"),
    "llama8_decode_b8": Program("llama8_decode_b8", "", "torch decode llama8 --batch 8"),
    "llama8_train_b4": Program("llama8_train_b4", "", "torch finetune llama8 --batch 4"),
    # The models of DISB; recorded ones stand for them in virtual time.
    "vgg19": Program("resnet50_b8", "", "torch infer vgg19 --graph"),
    "resnet152": Program("resnet50_b8", "", "torch infer resnet152 --graph"),
    "densenet201": Program("resnet50_b1", "", "torch infer densenet201 --graph"),
    "inception_v3": Program("resnet50_b1", "", "torch infer inception_v3 --graph"),
    "bert": Program("llama8_decode_b8", "", "torch infer bert"),
    # The same as services, as graphs, with requests as above.
    **{f"{name}_sockets": Program(trace, "", f"torch infer {name} --graph --sockets")
       for name, trace in (("vgg19", "resnet50_b8:graph"), ("resnet152", "resnet50_b8:graph"),
                           ("densenet201", "resnet50_b1:graph"), ("inception_v3", "resnet50_b1:graph"), ("bert", "resnet50_b1:graph"))},
    "gemm": Program("", "persistent 1400", "torch gemm 8192"),
    # Kernels of about 1 ms with long grids of short blocks, which do not wait for each other.
    "pool": Program("", "stencil 256", "torch pool 16"),
    "reduce": Program("", "spin 1000", "torch reduce 512"),
    "softmax": Program("", "spin 1000", "torch softmax 262144"),
    "launch": small("launch own"),
    "launch_null_stream": small("launch null"),
    "launch_per_thread": small("launch thread"),
    "launch_graph": small("launch graph"),
    "launch_copy": small("launch copy"),
    "preempt": small("preempt 20"),
    "kernel_20us": small("kernel 20 264 3000"),
    "kernel_20us_16_blocks": small("kernel 20 16 3000"),
    "hinted_20us": small("hinted 20 264 3000 300"),
    **{f"prepared_{us}us": small(f"hinted 20 264 3000 {us}") for us in PREPARATIONS_US},
    "every_sm": small("every_sm 3000"),
    "copy_h2d": small("copy 600 h2d 2000"),
    "copy_d2h": small("copy 600 d2h 2000"),
    "copies_h2d": small("copies 16 h2d", "copies 4 h2d"),
    "copies_d2h": small("copies 16 d2h", "copies 4 d2h"),
    "copies_h2d_weight3": small("copies 16 h2d", "copies 4 h2d", ("--pcie-weight", "3")),
    "spin_5us": small("spin 5"),
    "spin_200us": small("spin 200"),
    "spin_1ms": small("spin 1000"),
    "spin_2ms": small("spin 2000"),
    "spin_80ms": small("spin 80000"),
    "endless": small("endless"),
    "cooperative": small("cooperative 500"),
    "persistent": small("persistent 1400"),
    "graph_1000": small("graph 1000 5"),
    "thrash": small("thrash 512", "thrash 64"),
    "stencil": small("stencil 1024", "stencil 256"),
    "transcode": small("transcode 8 200"),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """Services beside programs that run without pause. `high`: PROGRAM@ARRIVALS, comma-separated; ARRIVALS as in `hb sim`:
    60/s, 60/s:periodic[=PHASE], or closed (one request after another). `low`: program names, comma-separated. `kill`: the
    first low-priority program is killed in the middle of every window."""
    suite: str
    name: str
    high: str
    low: str = ""
    kill: bool = False


def engine_cases():
    """The rows of README: each service at each rate beside each training; cases with the same programs are neighbours."""
    for low, beside in (("llama8_train_b4", "llm-training"), ("resnet50_train_b128", "training")):
        for program, how in (("resnet50_b1", "eager"), ("resnet50_b1_graph", "graph")):
            for rate in (60, 150):
                yield Case("engines", f"{how}-{rate}-beside-{beside}", f"{program}@{rate}/s", low)


def combinations():
    """Two services at two rates beside two trainings: the table of docs/spatial.md."""
    for high in ("resnet50_b1@60/s", "resnet50_b1@220/s", "llama8_decode_b8@60/s", "llama8_decode_b8@130/s"):
        for low in ("resnet50_train_b128", "llama8_train_b4"):
            yield Case("combinations", f"{high.split('/')[0].replace('@', '-')}-beside-{low.split('_')[0]}", high, low)


FIVE = "vgg19,resnet152,densenet201,inception_v3,bert"
FIVE_SERVICES = [name + "_sockets" for name in FIVE.split(",")]


def paper_cases():
    """The settings of the papers in docs/evaluation.md; the case names begin with the paper. Low priority runs without pause."""
    services = ",".join(f"{name}@20/s" for name in FIVE_SERVICES)
    yield Case("paper", "hummingbird-image", "resnet50_b1_sockets@120/s", "resnet50_train_b128")
    yield Case("paper", "hummingbird-decode", "llama8_decode_b8_sockets@60/s", "llama8_train_b4")
    yield Case("paper", "gpreempt-a", "vgg19_sockets@100/s:periodic", "resnet152")
    yield Case("paper", "gpreempt-b", "vgg19_sockets@220/s:periodic", "resnet152")
    yield Case("paper", "missile-services", services, "resnet50_train_b128")


CASES = [
    Case("micro", "launch", "launch@closed"),
    Case("micro", "preempt-5us", "preempt@closed", "spin_5us"),
    Case("micro", "preempt-200us", "preempt@closed", "spin_200us"),
    Case("micro", "preempt-2ms", "preempt@closed", "spin_2ms"),
    Case("micro", "preempt-endless", "preempt@closed", "endless"),
    *engine_cases(),
    # Programs that two neighbouring cases share keep running between them.
    Case("pairs", "resnet50-beside-training", "resnet50_b1_sockets@120/s", "resnet50_train_b128"),
    Case("pairs", "resnet50-beside-transcode", "resnet50_b1_sockets@120/s", "transcode"),
    Case("pairs", "resnet50-beside-stencil", "resnet50_b1_sockets@120/s", "stencil"),
    Case("pairs", "decode-beside-finetune", "llama8_decode_b8_sockets@60/s", "llama8_train_b4"),
    Case("pairs", "prefill-beside-finetune", "llama8_prefill_b1_sockets@60/s", "llama8_train_b4"),
    *paper_cases(),
    *combinations(),
    *(Case("splitting", f"beside-{low}", "kernel_20us@closed", low) for low in ("pool", "reduce", "softmax", "gemm")),
    *(Case("splitting", f"graph-beside-{low}", "resnet50_b1_graph@150/s", low) for low in ("pool", "softmax")),
    Case("preparation", "no-hint", "kernel_20us@closed", "resnet152"),
    *(Case("preparation", f"hint-{us}us", f"prepared_{us}us@closed", "resnet152") for us in PREPARATIONS_US),
    Case("preparation", "hint-200us-beside-spin", "prepared_200us@closed", "spin_200us"),
    # Rates and models of DISB as GPreempt runs it; low priority without pause as in DISB itself.
    Case("disb", "A", "vgg19_sockets@100/s:periodic", "resnet152"),
    Case("disb", "B", "vgg19_sockets@220/s:periodic", "resnet152"),
    Case("disb", "C", "vgg19_sockets@100/s:periodic", FIVE),
    Case("disb", "D", ",".join(f"{name}@20/s:periodic" + (f"=0.{2 * i}" if i else "")
                               for i, name in enumerate(FIVE_SERVICES)), FIVE),
    Case("disb", "E", ",".join(f"{name}@20/s" for name in FIVE_SERVICES), FIVE),
    Case("adversary", "endless", "preempt@closed", "endless"),
    Case("adversary", "80ms-kernels", "preempt@closed", "spin_80ms"),
    Case("adversary", "cooperative", "preempt@closed", "cooperative"),
    Case("adversary", "persistent", "preempt@closed", "persistent"),
    Case("adversary", "gemm", "preempt@closed", "gemm"),
    Case("adversary", "graph-1000", "preempt@closed", "graph_1000"),
    Case("adversary", "thrash", "preempt@closed", "thrash"),
    Case("adversary", "kill", "preempt@closed", "spin_200us", True),
    Case("calls", "own-stream", "launch@closed"),
    Case("calls", "null-stream", "launch_null_stream@closed"),
    Case("calls", "per-thread", "launch_per_thread@closed"),
    Case("calls", "graph", "launch_graph@closed"),
    Case("calls", "copy", "launch_copy@closed"),
    Case("kernels", "beside-1", "kernel_20us@closed", "resnet50_train_b128"),
    Case("kernels", "beside-2", "kernel_20us@closed", ",".join(["resnet50_train_b32"] * 2)),
    Case("kernels", "beside-4", "kernel_20us@closed", ",".join(["resnet50_train_b32"] * 4)),
    Case("kernels", "16-blocks", "kernel_20us_16_blocks@closed", "spin_1ms"),
    Case("kernels", "last-block-leaves", "every_sm@closed", "resnet50_train_b128"),
    Case("copies", "h2d", "copy_h2d@closed", "copies_h2d"),
    Case("copies", "d2h", "copy_d2h@closed", "copies_d2h"),
    Case("copies", "weights", "copy_h2d@closed", "copies_h2d,copies_h2d_weight3"),
    Case("foresight", "plain-kernel", "kernel_20us@closed", "llama8_train_b4"),
    Case("foresight", "hinted-kernel", "hinted_20us@closed", "llama8_train_b4"),
    Case("foresight", "http-beside-llm", "resnet50_http@60/s", "llama8_train_b4"),
    Case("foresight", "http-quiet", "resnet50_http@1/s", "llama8_train_b4"),
    Case("foresight", "http-hostile", "resnet50_http_hostile@10000/s", "llama8_train_b4"),
    Case("foresight", "http-beside-training", "resnet50_http@60/s", "resnet50_train_b128"),
]


@dataclasses.dataclass(frozen=True)
class Suite:
    """Cases that are measured together. The numbers and ways hold unless the command line says otherwise."""
    name: str
    rounds: int
    real_s: float       # length of a window on a real GPU
    simulated_s: float  # and on a simulated one
    sharing: str        # "all" = what works in a case, "-NAME" = but this one
    help: str
    warm_up: int = 0    # rounds that are measured first and thrown away, for engines that have to learn a service
    requests: int = 0   # windows on a real GPU are so long that each service gets as many in all rounds together; 0 = real_s


SUITES = [
    Suite("micro", 5, 0.9, 1, "all,-orion,-mps_88,-no_signs",
          "what a launch costs; how long a kernel waits for the GPU beside kernels of 5 us to endless"),
    Suite("engines", 2, 2, 4, "timeslice,mps_prio,mps_88,mps_60,temporal,spatial",
          "the tables of README: resnet50 eager and as a graph beside two trainings"),
    Suite("pairs", 3, 3, 4, "timeslice,mps_prio,reef,orion,temporal,spatial",
          "a service with sockets beside a training, a fine-tune, a transcoder, a stencil", warm_up=1, requests=1000),
    Suite("combinations", 1, 3, 10, "timeslice,mps,mps_prio,mps_88,mps_60,reef,orion,temporal,spatial",
          "two services at two rates beside two trainings; the table of docs/spatial.md"),
    Suite("disb", 3, 2, 1, "timeslice,mps_prio,reef,orion,temporal,spatial",
          "the patterns A to E of DISB: one or five services beside one or five models"),
    Suite("paper", 5, 3, 4, "timeslice,mps,mps_prio,mps_60,reef,orion,temporal,spatial",
          "the claims of the papers on sharing a GPU, each with its target (docs/evaluation.md)", warm_up=1, requests=1000),
    Suite("splitting", 5, 2, 1, "spatial:HB_SPLIT=0,spatial,spatial:HB_MASKS=0:HB_SPLIT=0,spatial:HB_MASKS=0",
          "a small kernel beside kernels of a millisecond, with and without splitting and masks"),
    Suite("preparation", 3, 2, 1, "timeslice,temporal", "a small kernel that is announced while its request is prepared", warm_up=1),
    Suite("adversary", 3, 1, 1, "timeslice,mps_prio,reef,temporal,turns,spatial",
          "beside programs that are hard to preempt, or die"),
    Suite("calls", 5, 0.3, 0.3, "temporal,spatial", "what Hummingbird adds to a call of the driver"),
    Suite("kernels", 3, 3, 1, "mps,reef,temporal,spatial", "a small kernel now and then beside one, two and four trainings"),
    Suite("copies", 3, 3, 1, "temporal,spatial", "a copy of 600 KB now and then beside programs that copy without pause"),
    Suite("foresight", 3, 4, 1, "no_signs,temporal", "hints from a client and signs from sockets", warm_up=1),
    Suite("serve", 1, 1.6, 4, "all",
          "requests of two priorities with deadlines against serving policies, at 60 to 110 % of capacity"),
]

ARRIVALS = re.compile(r"closed|(?P<rate>\d+(\.\d+)?)/s(?P<periodic>:periodic(=(?P<phase>0?\.\d+|0))?)?")


@dataclasses.dataclass
class Service:
    """One service of a plan."""
    name: str
    program: Program
    arrivals: str
    rate_per_s: float  # 0 = closed
    periodic: bool
    phase: float

    def kind(self):
        """The word for its arrivals that programs are sent."""
        return "closed" if not self.rate_per_s else "periodic" if self.periodic else "poisson"


class Plan:
    """A case made ready to run: its programs, and the world in which it runs: "processes", "virtual", or "skipped"."""

    def __init__(self, case, simulated):
        self.case, self.simulated, self.skipped = case, simulated, ""
        self.high = [self.read_service(text) for text in case.high.split(",") if text]
        self.low = [(name, self.find_program(name)) for name in case.low.split(",") if name]
        self.choose_world()

    def find_program(self, name):
        if name not in PROGRAMS:
            raise Refused(f"the case {self.case.suite}/{self.case.name} is wrong: there is no program '{name}'")
        return PROGRAMS[name]

    def read_service(self, text):
        name, _, arrivals = text.partition("@")
        found = ARRIVALS.fullmatch(arrivals)
        if not found or found["rate"] and not float(found["rate"]):
            raise Refused(f"the case {self.case.suite}/{self.case.name} is wrong: '{text}' has no arrivals such as 60/s")
        return Service(name, self.find_program(name), arrivals, float(found["rate"] or 0), bool(found["periodic"]),
                       float(found["phase"] or 0))

    def programs(self):
        """(name, Program) of all of them, services first."""
        return [(service.name, service.program) for service in self.high] + self.low

    def choose_world(self):
        """On a simulated GPU recordings come first, because they are complete programs."""
        no_trace = [name for name, program in self.programs() if not program.trace]
        real_only = [name for name, program in self.programs() if not program.simulated]
        if not self.simulated or (no_trace and not real_only):
            self.world = "processes"
        elif not no_trace and not self.case.kill:
            self.world = "virtual"
        else:
            other = f", and {real_only[0]} has only that" if real_only[0] not in no_trace else ""
            self.skip(f"there is no recorded trace of {no_trace[-1]}{other}; it needs a real GPU")

    def skip(self, why):
        self.world, self.skipped = "skipped", why

    def can(self, way):
        """Whether the case can run under this way of sharing."""
        return bool(way.mode) if self.world == "virtual" else self.world == "processes" and bool(way.high)

    def label(self, name):
        """The program's name, with the one that stands for it: "vgg19 (as resnet50_b8)"."""
        program, used = PROGRAMS[name], None
        if self.world == "virtual":
            used = program.trace
        elif self.simulated and program.real.split(" ", 1)[0] == "torch":
            used = program.simulated
        return f"{name} (as {used})" if used and not name.startswith(used.split(":")[0]) else name

    def needs_python(self):
        """Names of its programs that need PyTorch."""
        return [name for name, program in self.programs() if not self.simulated and program.real.startswith("torch ")]
