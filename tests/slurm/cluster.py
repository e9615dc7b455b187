# SPDX-License-Identifier: Apache-2.0
"""A Slurm cluster on this machine: slurmctld and two slurmd on 127.0.0.1, each with a
daemon of Hummingbird and a simulated GPU of its own. Needs root (slurmd starts jobs of
other users) and Debian's packages slurmctld, slurmd and slurm-client.

    with Cluster() as cluster:
        job = cluster.submit("service", "--partition=online", script)
"""
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile

from stack import BUILD, HB, HBD, LIMIT, ask_status, wait_until

PLUGIN = os.path.join(BUILD, "src/slurm/hb_spank.so")
PLUGINS = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
NODES = ("n1", "n2")
PARTITIONS = {"online": "high", "batch": "low", "plain": None}
USER = "nobody"

RULES = """mps: false
rules:
  - {name: jobs, registered_by: root, priority: high}
  - {name: others, priority: low}
"""

SLURM_CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdDebug=info
PluginDir={plugins}
PlugStackConfig={folder}/{plugstack}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu,shard
ReturnToService=2
KillWait=2
SchedulerParameters=sched_interval=1
MessageTimeout=30
NodeName=n1 Gres=gpu:1,shard:16 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus} RealMemory=100
NodeName=n2 Gres=gpu:1,shard:16 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus} RealMemory=100
PartitionName=online Nodes=n[1-2] State=UP OverSubscribe=FORCE:60
PartitionName=batch Nodes=n[1-2] State=UP OverSubscribe=FORCE:60
PartitionName=plain Nodes=n[1-2] State=UP OverSubscribe=FORCE:60 Default=YES
"""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def missing():
    """Returns what prevents the cluster; "" = nothing."""
    for program in ("slurmctld", "slurmd", "srun", "sbatch", "unshare", "setpriv"):
        if not shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin"):
            return f"{program} is not installed; run: apt-get install slurmctld slurmd slurm-client"
    if os.geteuid():
        return "slurmd needs root"
    if not os.path.exists(PLUGIN):
        return f"{PLUGIN} was not built: libslurm-dev is not installed"
    user = pwd.getpwnam(USER)
    done = subprocess.run(["setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups", HB, "--version"],
                          capture_output=True, check=False)
    return f"user {USER} may not run {HB}" if done.returncode else ""


class Cluster:
    def __init__(self, arguments="high=online low=batch", rules=RULES, spank=True, extra=""):
        self.folder = tempfile.mkdtemp(prefix="hb-slurm-", dir="/tmp")
        os.chmod(self.folder, 0o755)
        self.processes, self.daemons = [], {}
        self.host = socket.gethostname().split(".")[0]
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HB_START_DAEMON": "0",
                            "SLURM_CONF": self.path("slurm.conf")}
        for folder in ("state", "out", *(f"{name}-{node}" for node in NODES for name in ("spool", "gpu", "run"))):
            os.mkdir(self.path(folder))
        for folder in ("out", *(f"gpu-{node}" for node in NODES)):
            os.chmod(self.path(folder), 0o777)
        for node in NODES:
            os.chmod(self.path(f"run-{node}"), 0o755)
        self.write("rules.yaml", rules)
        facts = {"folder": self.folder, "host": self.host, "plugins": PLUGINS, "ports": free_ports(3),
                 "cpus": os.cpu_count()}
        for node in ("", *NODES):
            plugstack = f"plugstack{node}.conf"
            line = f"required {PLUGIN} hb={HB} gpu=sim socket={self.socket(node or 'n1')} {arguments}\n"
            self.write(plugstack, line if spank else "")
            self.write(f"slurm{node}.conf", SLURM_CONF.format(**facts, plugstack=plugstack) + extra)
        for node in NODES:
            shutil.copy(self.path(f"slurm{node}.conf"), self.path(f"run-{node}/slurm.conf"))
            self.write(f"run-{node}/gres.conf", f"NodeName={node} Name=gpu File=/dev/zero\nNodeName={node} Name=shard Count=16\n")
        self.write("gres.conf", "".join(f"NodeName={node} Name=gpu File=/dev/zero\nNodeName={node} Name=shard Count=16\n"
                                        for node in NODES))

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        try:
            with open(self.path(name), encoding="utf-8", errors="backslashreplace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def socket(self, node):
        return self.path(f"run-{node}/hbd.sock")

    # --- the processes of the cluster -----------------------------------------------------------

    def spawn(self, command, log, **variables):
        with open(self.path(log), "ab") as file:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                       env=self.environment | variables, start_new_session=True)
        self.processes.append(process)
        return process

    def start_daemon(self, node):
        """Starts the node's daemon. Users reach its socket because it belongs to their group."""
        nobody = pwd.getpwnam(USER)
        self.daemons[node] = self.spawn(
            ["unshare", "-m", "sh", "-c", 'mount --bind "$HB_GROUPS" /etc/group && exec "$@"', "sh", HBD, "--foreground",
             "--system", "--gpu", "sim", "--socket", self.socket(node), "--config", self.path("rules.yaml")],
            f"hbd-{node}.log", HB_SIM_GPU=self.path(f"gpu-{node}"), HB_GROUPS=self.path("groups"))
        self.write("groups", f"root:x:0:\nhummingbird:x:{nobody.pw_gid}:\n")
        wait_until("the daemon answers", lambda: self.status(node))

    def start_slurmd(self, node):
        return self.spawn(["slurmd", "-D", "-N", node, "-f", self.path(f"run-{node}/slurm.conf")], f"slurmd-{node}.out",
                          HB_SIM_GPU=self.path(f"gpu-{node}"))

    def __enter__(self):
        try:
            for node in NODES:
                open(self.path("groups"), "a", encoding="utf-8").close()
                self.write("groups", f"root:x:0:\nhummingbird:x:{pwd.getpwnam(USER).pw_gid}:\n")
                self.start_daemon(node)
            self.spawn(["slurmctld", "-D", "-f", self.path("slurm.conf")], "slurmctld.out")
            self.slurmd = {node: self.start_slurmd(node) for node in NODES}
            wait_until("both nodes are idle", lambda: self.states() == {"n1": "idle", "n2": "idle"}, 60)
        except BaseException:
            self.show_logs()
            self.stop()
            raise
        return self

    def states(self):
        done = self.run("sinfo", "-h", "-N", "-o", "%N %T", user=None)
        return dict(line.split() for line in done.stdout.splitlines())

    def __exit__(self, kind, value, trace):
        if kind:
            self.show_logs()
        self.stop()

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self.own_processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.folder, ignore_errors=True)

    def own_processes(self):
        """The pids of processes whose environment names this cluster: slurmstepd, tasks, simulated GPUs."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if self.folder.encode() in file.read() and int(pid) != os.getpid():
                        found.append(int(pid))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return found

    def show_logs(self):
        for where, _, names in os.walk(self.folder):
            for name in sorted(names):
                if name.endswith((".log", ".out", ".txt")):
                    text = self.read(os.path.join(where, name))
                    print(f"--- {name}\n{text[-3000:]}", flush=True)

    # --- users ------------------------------------------------------------------------------------

    @staticmethod
    def as_user(command, user):
        ids = pwd.getpwnam(user)
        return ["setpriv", "--reuid", str(ids.pw_uid), "--regid", str(ids.pw_gid), "--clear-groups", "--", *(str(word) for word in command)]

    def spawn_as_user(self, *command):
        """Starts a command of the user in its folder, with its output in out/spawned.txt."""
        return self.spawn(["env", "-C", self.path("out"), *self.as_user(command, USER)], "out/spawned.txt")

    def run(self, *command, user=USER, **variables):
        """Runs a command of a user to its end."""
        words = self.as_user(command, user) if user else [str(word) for word in command]
        return subprocess.run(words, env=self.environment | variables, capture_output=True, text=True, timeout=LIMIT,
                              check=False, cwd=self.path("out"))

    def submit(self, name, *options, script):
        """Submits a batch job of the user. Returns its id; its output is out/NAME.txt."""
        self.write(f"out/{name}.sh", f"#!/bin/bash\n{script}\n")
        done = self.run("sbatch", "--parsable", f"--job-name={name}", f"--output={self.path('out')}/{name}.txt", "--no-requeue",
                        *options, self.path(f"out/{name}.sh"))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def output(self, name):
        return self.read(f"out/{name}.txt")

    def job_state(self, job):
        done = self.run("scontrol", "-o", "show", "job", job, user=None)
        fields = dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)
        return fields.get("JobState", "")

    def wait_for_state(self, job, *states):
        return wait_until(f"job {job} is {' or '.join(states)}", lambda: self.job_state(job) in states and self.job_state(job))

    # --- Hummingbird ------------------------------------------------------------------------------

    def status(self, node):
        return ask_status(self.socket(node))

    def tenants(self, node="n1"):
        status = self.status(node)
        return {tenant["command"].split(" ", 2)[1]: tenant for tenant in status["tenants"]} if status else None

    def wait_until_empty(self, *nodes):
        for node in nodes or NODES:
            wait_until(f"{node} has no tenant and no memory", lambda node=node: self.is_empty(node))

    def is_empty(self, node):
        status = self.status(node)
        return status is not None and not status["tenants"] and all(gpu["low_memory"] == 0 for gpu in status["gpus"])


def belongs_to(pid, folder):
    """Whether the environment or an open file of the process is of this folder. slurmstepd writes its title over its environment."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        if folder.encode() in file.read():
            return True
    return any(os.readlink(f"/proc/{pid}/fd/{fd}").startswith(folder) for fd in os.listdir(f"/proc/{pid}/fd"))


def processes_named(name, folder):
    """The pids of processes with this name that belong to the folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                if file.read().strip() == name and belongs_to(pid, folder):
                    found.append(int(pid))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found
