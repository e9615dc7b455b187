# SPDX-License-Identifier: Apache-2.0
"""What programs of a measurement run in: a folder of their own, daemons, an MPS server, servers of other systems.

A caretaker process watches the harness. When the harness ends, however it does, the caretaker tells every MPS server in
the folder to quit, waits for the daemons, and removes the folder.
"""
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from hbbench import core_split
from hbbench.process import Failed, Process, run_command
from hbbench.tables import HAMI, HB, MPS, MPS_PRIO, NATIVE, NVSHARE, XSCHED

STEP_S, PYTHON_S, DAEMON_END_S = 15, 60, 20
CARETAKER_S = 60
FOLDER_MAX = 40  # longer names leave no room for the names of sockets
SLO_SHARE = 99   # percent of requests that the objective is set for
TRIPLET = f"{os.uname().machine}-linux-gnu"
BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLACES = {
    "hbd": ["src/daemon", "../sbin", "../libexec/hummingbird", "."],
    "cuda-tenant": ["bench/tenant", "../libexec/hummingbird", "."],
    "hb-sim-mps-control": ["src/simcuda", "../sbin", "../libexec/hummingbird", "."],
    "libcuda.so.1": ["src/simcuda", f"../lib/{TRIPLET}/hummingbird/simcuda", "../lib64/hummingbird/simcuda",
                     "../lib/hummingbird/simcuda"],
}
OTHER_SERVICES_S = 1.5  # the daemon counts a service as at work for about a second after its last launch
NVSHARE_SOCKET = "/var/run/nvshare/scheduler.sock"  # fixed in nvshare's source
BENCH_SHIM = "bench/shim"  # the shim that also has the rules of baselines, in the build folder; it is never installed


def find_part(hb, name):
    """A file of ours, seen from the folder of `hb`: the build tree first, then an installation."""
    folder = os.path.dirname(os.path.realpath(hb))
    for place in PLACES[name]:
        path = os.path.normpath(os.path.join(folder, place, name))
        if os.path.exists(path):
            return path
    raise Failed(f"{name} is not found beside {hb}")


def simulated_driver(hb):
    """Folder of the simulated libcuda.so.1."""
    given = os.environ.get("HB_SIMCUDA_DIR")
    return given or os.path.dirname(find_part(hb, "libcuda.so.1"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(address, unix_type=socket.SOCK_SEQPACKET):
    """Whether something listens at this address: a path, or (host, port)."""
    kind = (socket.AF_UNIX, unix_type) if isinstance(address, str) else (socket.AF_INET, socket.SOCK_STREAM)
    with socket.socket(*kind) as probe:
        probe.settimeout(1)
        try:
            probe.connect(address)
        except OSError:
            return False
        return True


# --- the caretaker ---------------------------------------------------------------------------------------------------

def quit_servers(folder, control):
    """Sends each MPS server in the folder the command to quit. Returns how many servers and daemons still run. The pipe folder
    of a server has a name that ends in "mps"."""
    alive = 0
    for pipe in glob.glob(f"{folder}/**/*mps/control", recursive=True):
        alive += 1
        subprocess.run([control], input="quit\n", text=True, env=dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=os.path.dirname(pipe)),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=STEP_S, check=False)
    return alive + sum(answers(path) for path in glob.glob(f"{folder}/**/hbd.sock", recursive=True))


def take_care(folder, control, pipe):
    """The caretaker's whole run. An orderly end is announced by a byte; after a crash it waits longer."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    # A reader of our output must not wait for the caretaker.
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    orderly = os.read(pipe, 1) == b"q"
    signal.alarm(CARETAKER_S)
    calm, needed, end = 0, 1 if orderly else 10, time.monotonic() + (3 if orderly else 20)
    while control and calm < needed and time.monotonic() < end:
        try:
            calm = 0 if quit_servers(folder, control) else calm + 1
        except (OSError, subprocess.SubprocessError):
            calm = 0
        if calm < needed:
            time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def start_caretaker(folder, control):
    """(pid, the pipe's end whose closing wakes it)."""
    ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ends[1])
            take_care(folder, control, ends[0])
        finally:
            os._exit(0)
    os.close(ends[0])
    return pid, ends[1]


# --- daemons ---------------------------------------------------------------------------------------------------------

class Daemon:
    """A daemon with one engine, for all ways of sharing that use it."""

    def __init__(self, stage, way):
        self.stage, self.engine, self.settings = stage, way.engine, ()
        self.options = None  # of `hb run` for the services that were measured last
        self.folder = os.path.join(stage.folder, way.engine)
        self.socket, self.config = (os.path.join(self.folder, name) for name in ("hbd.sock", "hbd.yaml"))
        os.makedirs(self.folder, 0o700, exist_ok=True)
        self.write_config()
        words = [find_part(stage.hb, "hbd"), "--foreground", "--socket", self.socket, "--config", self.config]
        self.name = f"hbd (engine {way.engine})"
        self.process = Process(self.name, words + (["--gpu", "sim"] if stage.simulated else []), stage.environment(),
                               stage.folder, stage.limits, signal.SIGTERM)
        stage.wait_until(self.process, lambda: answers(self.socket), "there is no socket in time")

    def write_config(self):
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(f"engine: {self.engine}\n" + "".join(f"{key}: {value}\n" for key, value in self.settings))

    def note_services(self, way):
        """Returns the seconds to wait before these services are measured: foresight pauses until the daemon no longer counts
        the other services as at work."""
        wait = self.options not in (None, way.options)
        self.options = way.options
        return OTHER_SERVICES_S if wait and not self.stage.simulated else 0.0

    def run_hb(self, *words):
        """Output of an `hb` command that talks to this daemon."""
        try:
            done = subprocess.run([self.stage.hb, *words], env=dict(self.stage.environment(), HB_SOCKET=self.socket),
                                  capture_output=True, text=True, timeout=STEP_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{self.name}: no answer to hb {words[0]} within {STEP_S} s") from error
        if done.returncode:
            raise Failed(f"{self.name}: {done.stderr.strip()}")
        return done.stdout

    def status(self):
        return json.loads(self.run_hb("status", "--json"))

    def set(self, settings):
        if settings == self.settings:
            return
        self.settings = settings
        self.write_config()
        self.process.child.send_signal(signal.SIGHUP)
        # One loop serves signals and clients, so the daemon has read the file when it answers a second time.
        self.status()
        self.status()

    def tenant(self, pid):
        for tenant in self.status()["tenants"]:
            if tenant["pid"] == pid:
                return tenant
        raise Failed(f"{self.name}: there is no tenant of process {pid}")

    def set_slo(self, pid, slo_ns):
        """Sets the objective of the service with this process id; 0 = none."""
        self.run_hb("set", str(self.tenant(pid)["id"]), "--slo", f"{slo_ns / 1e6:.6f}ms" if slo_ns else "none")

    def verify(self):
        """Raises unless the GPUs in use are shared by this engine."""
        status = self.status()
        why = (status["daemon"].get("mps") or {}).get("why")
        for gpu in status["gpus"]:
            if gpu.get("high", 0) + gpu.get("low", 0) and gpu["engine"] != self.engine:
                raise Failed(f"{self.name}: the GPU is shared by the engine {gpu['engine']} instead"
                             + (f", since {why}" if why else ""))


# --- the stage -------------------------------------------------------------------------------------------------------

class Stage:
    def __init__(self, hb, simulated, peers, limits):
        self.hb, self.simulated, self.peers, self.limits = hb, simulated, peers or {}, limits
        self.daemons, self.mps, self.peer_servers = {}, False, {}
        self.driver = simulated_driver(hb) if simulated else ""
        # Without MPS the ways of sharing that need it fail with a message.
        self.control = find_part(hb, "hb-sim-mps-control") if simulated else shutil.which("nvidia-cuda-mps-control")
        base = os.environ.get("TMPDIR", "")
        self.folder = tempfile.mkdtemp(prefix="hb-bench-", dir=base if base.startswith("/") and len(base) < FOLDER_MAX else "/tmp")
        self.caretaker, self.pipe = start_caretaker(self.folder, self.control)

    def close(self):
        for daemon in self.daemons.values():
            daemon.process.stop(DAEMON_END_S, signal.SIGTERM)
        for server in self.peer_servers.values():
            server.stop(1, signal.SIGTERM)
        os.write(self.pipe, b"q")
        os.close(self.pipe)
        end = time.monotonic() + self.limits.left(CARETAKER_S)
        while os.waitpid(self.caretaker, os.WNOHANG)[0] == 0 and time.monotonic() < end:
            time.sleep(0.005)

    def lever_environment(self, levers):
        """Settings of the benchmarks' shim, which replaces the product's in this program. FOLDER is the stage's."""
        path = os.path.join(os.path.dirname(os.path.realpath(self.hb)), BENCH_SHIM)
        if not os.path.exists(os.path.join(path, "libcuda.so.1")):
            raise Failed(f"{path}/libcuda.so.1 is not found; this way of sharing needs the build folder of the source tree")
        return {"HB_SHIM_DIR": path} | {key: value.replace("FOLDER", self.folder) for key, value in levers}

    def environment(self, **more):
        """The environment of every process of the stage. HB_LOG=info is meant for the harness, because logging slows programs."""
        common = dict(os.environ, PYTHONUNBUFFERED="1", HB_LOG="warning", HB_BENCH_LOCK=os.path.join(self.folder, "lock"),
                      HB_BENCH_LOAD=os.path.join(BENCH, "request_load.py"))
        if self.simulated:
            common["HB_SIM_GPU"] = os.path.join(self.folder, "gpu")
        return common | more

    def wait_until(self, process, condition, what):
        """Polls until a process that was just started is ready."""
        end = time.monotonic() + STEP_S
        while not condition():
            process.check()
            if time.monotonic() > end:
                raise Failed(process.complaint(what))
            self.limits.sleep_until(time.monotonic() + 0.01)

    # --- places

    def native_place(self):
        """A pipe folder without a server: the program runs outside MPS, also where another user runs a server."""
        more = {"CUDA_MPS_PIPE_DIRECTORY": os.path.join(self.folder, "none")}
        return more | ({"LD_LIBRARY_PATH": self.driver} if self.simulated else {})

    def mps_place(self, way, high):
        folder = os.path.join(self.folder, "own-mps")
        more = self.native_place() | {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        if not self.mps:
            if not self.control:
                raise Failed("nvidia-cuda-mps-control is not on PATH; leave out the ways of sharing with mps (--sharing)")
            os.makedirs(folder, 0o700, exist_ok=True)
            run_command("nvidia-cuda-mps-control", [self.control, "-d"], self.environment(**more), "", self.folder,
                        self.limits, STEP_S)
            self.mps = True
        if high and way.high == MPS_PRIO:
            more["HB_BENCH_STREAM"] = "high"
        if not high and way.limit < 100:
            more["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(way.limit)
        return more

    def daemon_of(self, way):
        if way.engine not in self.daemons:
            self.daemons[way.engine] = Daemon(self, way)
        return self.daemons[way.engine]

    def hb_place(self, way, high, options):
        """(words before the program, environment)."""
        words = [self.hb, "run", *(["--gpu", "sim"] if self.simulated else []), "--priority", "high" if high else "low",
                 *(way.options if high else ()), *options, "--"]
        # A daemon that `hb run` started would outlive the harness.
        more = {"HB_SOCKET": self.daemon_of(way).socket, "HB_START_DAEMON": "0"} | ({} if high else dict(way.variables))
        return words, more | (self.lever_environment(way.levers) if way.levers else {})

    def start_xserver(self):
        port = free_port()
        folder = self.peers[XSCHED]
        environment = self.environment(LD_LIBRARY_PATH=os.path.join(folder, "lib"))
        server = Process("xserver", [os.path.join(folder, "bin/xserver"), "HPF", str(port)], environment, self.folder, self.limits)
        self.peer_servers[XSCHED] = server
        self.wait_until(server, lambda: answers(("127.0.0.1", port)), f"does not listen on port {port}")

    def xsched_place(self, high):
        """The settings of XSched's own example of transparent scheduling."""
        if XSCHED not in self.peer_servers:
            self.start_xserver()
        path = ":".join(filter(None, [os.path.join(self.peers[XSCHED], "lib"), self.driver]))
        more = self.native_place() | {
            "LD_LIBRARY_PATH": path, "XSCHED_SCHEDULER": "GLB", "XSCHED_AUTO_XQUEUE": "ON", "XSCHED_AUTO_XQUEUE_LEVEL": "1",
            "XSCHED_AUTO_XQUEUE_PRIORITY": "1" if high else "0", "XSCHED_AUTO_XQUEUE_THRESHOLD": "16" if high else "4",
            "XSCHED_AUTO_XQUEUE_BATCH_SIZE": "8" if high else "2"}
        driver = os.path.join(self.driver, "libcuda.so.1") if self.simulated else find_driver()
        # XSched searches for the driver in a list of its own.
        return more | ({"XSCHED_CUDA_LIB": driver} if driver else {})

    def hami_place(self, way, high):
        """As in two containers: each side has a file of its own for what its processes share. HAMi-core's priorities need its
        monitor; without it the limit of low priority is all that differs."""
        more = self.native_place() | {
            "LD_PRELOAD": os.path.join(self.peers[HAMI], "libvgpu.so"), "CUDA_TASK_PRIORITY": "0" if high else "1",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": os.path.join(self.folder, f"hami-{'high' if high else way.limit}.cache"),
            "LIBCUDA_LOG_LEVEL": "0"}
        return more | ({} if high else {"CUDA_DEVICE_SM_LIMIT": str(way.limit), "GPU_CORE_UTILIZATION_POLICY": "force"})

    def start_nvshare(self):
        """Its scheduler, with the shortest turn that it can (1 s; by default 30 s)."""
        if os.geteuid() != 0 and not os.access(os.path.dirname(NVSHARE_SOCKET), os.W_OK):
            raise Failed(f"nvshare-scheduler needs root, because its socket is {NVSHARE_SOCKET}")
        if answers(NVSHARE_SOCKET, socket.SOCK_STREAM):
            raise Failed(f"a scheduler of nvshare runs already ({NVSHARE_SOCKET}); end it first")
        folder = self.peers[NVSHARE]
        server = Process("nvshare-scheduler", [os.path.join(folder, "nvshare-scheduler")], self.environment(), self.folder, self.limits)
        self.peer_servers[NVSHARE] = server
        self.wait_until(server, lambda: answers(NVSHARE_SOCKET, socket.SOCK_STREAM), f"does not listen at {NVSHARE_SOCKET}")
        run_command("nvsharectl", [os.path.join(folder, "nvsharectl"), "-T", "1"], self.environment(), "", self.folder, self.limits,
                    STEP_S)

    def nvshare_place(self):
        """Programs take turns in the order in which they ask; there are no priorities."""
        if NVSHARE not in self.peer_servers:
            self.start_nvshare()
        return self.native_place() | {"LD_PRELOAD": os.path.join(self.peers[NVSHARE], "libnvshare.so")}

    def place(self, way, high, options):
        """(words before the program, environment)."""
        where = way.high if high else way.low
        if where == HB:
            return self.hb_place(way, high, options)
        if where == XSCHED:
            return [], self.xsched_place(high)
        if where == HAMI:
            return [], self.hami_place(way, high)
        if where == NVSHARE:
            return [], self.nvshare_place()
        return [], self.native_place() if where == NATIVE else self.mps_place(way, high)

    # --- programs

    def start_program(self, name, program, high, way):
        before, more = self.place(way, high, program.options)
        label = f"{name} ({'high' if high else 'low'}, {place_name(way, high)})"
        return Process(label, before + self.command_of(program), self.environment(**more), self.folder, self.limits,
                       cpus=core_split.choose(high))

    def command_of(self, program):
        kind, arguments = ("work", program.simulated) if self.simulated else program.real.split(" ", 1)
        if kind == "torch":
            return ["python3", os.path.join(BENCH, "torch_program.py"), *arguments.split()]
        return [find_part(self.hb, "cuda-tenant"), "bench", *arguments.split()]

    def missing_modules(self, name, program):
        """Text about the Python modules that the program lacks; "" = it has all."""
        words = self.command_of(program)
        try:
            done = subprocess.run(words[:2] + ["--check"] + words[2:], capture_output=True, text=True, timeout=PYTHON_S, check=False)
            lacks = json.loads(done.stdout)["modules"] if not done.returncode else None
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            return f"python3 cannot run {words[1]}: {error}"
        if lacks is None:
            return f"python3 cannot run {words[1]}: {done.stderr.strip()[-200:]}"
        return f"python3 has no module {lacks}, which {name} needs" if lacks else ""


def find_driver():
    """Path of the libcuda.so.1 that this process would load; "" = there is none."""
    import ctypes  # pylint: disable=import-outside-toplevel
    try:
        ctypes.CDLL("libcuda.so.1")
        with open("/proc/self/maps", encoding="utf-8") as maps:
            return next((line.split()[-1] for line in maps if "libcuda.so" in line), "")
    except OSError:
        return ""


def place_name(way, high):
    """A name that is different for different places; ways of sharing with the same place share their programs."""
    where = way.high if high else way.low
    if where == HB:
        return " ".join([f"hb run, {way.engine}", *(f"{key}={value}" for key, value in way.levers),
                         *(way.options if high else (f"{key}={value}" for key, value in way.variables))])
    if where == HAMI and not high:
        return f"hami, {way.limit}%"
    return f"mps, {way.limit}%" if where == MPS and not high and way.limit < 100 else where
