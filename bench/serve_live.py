# SPDX-License-Identifier: Apache-2.0
"""The part of bench/serving.py that runs against a living `hb serve`: models in PyTorch on a GPU, or recorded programs on
the simulated GPU in real time. One server with a worker process for each model and priority, all clients of one MPS server
where there is a GPU; policies are changed while nothing runs (POST /v2/policy/NAME), so every policy meets the same
processes and the same requests. With an engine (Place), workers run under a daemon with it instead, as `hb serve` is shipped,
on one or several GPUs. Each change divides the server's journal, from which build/bench/journal/journal-errors
computes the prediction errors. Standard library and hbbench only.
"""
import asyncio
import contextlib
import dataclasses
import functools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "llm")]
import llm_load  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.process import Failed  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.stage import answers, find_part  # noqa: E402  pylint: disable=wrong-import-position

# name -> largest batch, bytes of an item to the GPU and back, demands alone of 1 and of the largest batch: SMs, memory
MODELS = {
    "classify": (16, 602112, 4000, "[0.5, 0.9]", "[0.3, 0.5]"),
    "detect": (4, 12902400, 113400, "[0.9, 1]", "[0.4, 0.5]"),
    "stream": (2, 25165824, 16777216, "[0.8, 1]", "[0.5, 0.5]"),
    "bert": (16, 1024, 4096, "[0.3, 0.9]", "[0.5, 0.3]"),
    "speech": (4, 960000, 3072000, "[0.8, 1]", "[0.3, 0.3]"),
    "decode": (16, 8, 1024, "[0.5, 0.5]", "[0.8, 0.8]"),
}
# The second mix copies much. A model whose name differs from its network runs that network and copies as much more as such a service does:
# 16 frames of a video, embeddings of 512 candidates, keys and values of 4096 tokens from the host, those of a prompt to it.
COPIES = {
    "clip": (8, 10235904, 4000, "[0.5, 0.9]", "[0.3, 0.5]"),
    "detect": MODELS["detect"],
    "stream": MODELS["stream"],
    "recommend": (8, 6816768, 4096, "[0.3, 0.9]", "[0.5, 0.3]"),
    "prefill": (4, 960000, 36626432, "[0.8, 1]", "[0.3, 0.3]"),
    "resume": (4, 134217736, 1024, "[0.5, 0.5]", "[0.8, 0.8]"),
}
NETWORK = {"clip": "classify", "recommend": "bert", "prefill": "speech", "resume": "decode"}
# serve_worker.py launches a batch in 8 pieces, 2 of them ahead; on average the first of the 2 is half done.
STOP_SHARE = 1.5 / 8
PRIORITIES = ("high", "low")
HIGH_SHARE = 0.4
DEADLINES = {"high": 4, "low": 8}  # times the latency of one request alone
WARM_S, DRAIN_S = 0.3, 3.0
BURST_RATIO, BURST_STATE_S = 5, 0.1
CONNECTIONS = 192
PROFILE_RUNS = 4
CAPACITY_S, CAPACITY_OUTSTANDING = 1.2, 6
READY_S = 75
MEASURED_S = 300  # for all trials of demand; each starts the worker twice
ANSWER_S = 30.0  # limit of each wait for an answer
LEARN_S = 2.0


def say(text):
    print("serve_live: " + text, file=sys.stderr, flush=True)


# ---- the server ----

def worker_command(name, models):
    """Text of a model file: the network, and, where the model's name differs, the bytes that an item copies besides its own."""
    network = NETWORK.get(name, name)
    more = "" if network == name else " %d %d" % tuple(models[name][i] - MODELS[network][i] for i in (1, 2))
    return "%s %s %s%s" % (sys.executable, os.path.join(HERE, "serve_worker.py"), network, more)


@dataclasses.dataclass
class Place:
    """Says where the workers run: under a daemon with this engine, or, if `engine` is "", as clients of an MPS server of the
    benchmark. With `measured` the server measures the models' demands when it loads them."""
    engine: str = ""
    gpus: int = 1
    measured: bool = False
    simulated: bool = False

    def options(self):
        """Of hb serve."""
        gpu = ["--gpu", "none"] if not self.engine else ["--gpu", "sim"] if self.simulated else []
        return gpu + (["--gpus", str(self.gpus)] if self.engine else [])


def model_text(name, priority, how, models, place):
    most, to_gpu, back, sm, memory = models[name]
    typed = "" if place.measured else "transfer: [%dB, %dB]\nsm_share: %s\nmemory_share: %s\n" % (to_gpu, back, sm, memory)
    runs = "command: %s\nstop_share: %s\n" % (worker_command(name, models), STOP_SHARE) if how == "torch" \
        else "platform: trace\ntrace: %s\n" % name
    return (runs + "max_batch: %d\npriority: %s\n%slimit: 20s\n"
            "inputs: [{name: x, datatype: FP32, shape: [1]}]\noutputs: [{name: y, datatype: FP32, shape: [1]}]\n"
            % (most, priority, typed))


@contextlib.contextmanager
def mps(folder):
    """Starts an MPS server and yields its environment variables; without a GPU it starts nothing."""
    env = dict(os.environ)
    if not shutil.which("nvidia-cuda-mps-control"):
        yield env
        return
    os.makedirs(folder)
    env["CUDA_MPS_PIPE_DIRECTORY"] = env["CUDA_MPS_LOG_DIRECTORY"] = folder
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True, timeout=30)
    try:
        yield env
    finally:
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=env, timeout=30, check=False)


@contextlib.contextmanager
def daemon(hb, folder, place, log):
    """Starts a daemon and yields the environment variables of its tenants."""
    os.makedirs(folder)
    env = dict(os.environ, HB_SOCKET=os.path.join(folder, "hbd.sock"), HB_START_DAEMON="0")
    config = os.path.join(folder, "hbd.yaml")
    with open(config, "w", encoding="utf-8") as file:
        file.write("engine: %s\n" % place.engine)
    if place.simulated:
        env.update(HB_SIM_GPU=os.path.join(folder, "gpu"), HB_SIM_GPUS=str(place.gpus))
    command = [find_part(hb, "hbd"), "--foreground", "--socket", env["HB_SOCKET"], "--config", config]
    with open(log, "w", encoding="utf-8") as errors, \
            subprocess.Popen(command + (["--gpu", "sim"] if place.simulated else []), stderr=errors, env=env) as process:
        try:
            end = time.monotonic() + READY_S
            while not answers(env["HB_SOCKET"]):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("the daemon does not come up; see %s" % log)
                time.sleep(0.01)
            yield env
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def server(hb, how, journal, speed, log, models, place):
    with tempfile.TemporaryDirectory(prefix="hb-serving-") as folder, \
            (daemon(hb, os.path.join(folder, "d"), place, log + ".daemon") if place.engine
             else mps(os.path.join(folder, "mps"))) as env:
        for name in models:
            for priority in PRIORITIES:
                os.makedirs(os.path.join(folder, "models", "%s-%s" % (name, priority)))
                with open(os.path.join(folder, "models", "%s-%s" % (name, priority), "model.yaml"), "w",
                          encoding="utf-8") as file:
                    file.write(model_text(name, priority, how, models, place))
        command = [hb, "serve", "--models", os.path.join(folder, "models"), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                   *place.options(), "--control", "loopback", "--demands", journal + ".demands",
                   "--journal", journal, "--speed", str(speed)]
        with open(log, "w", encoding="utf-8") as errors, \
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env) as process:
            try:
                yield int(process.stdout.readline().split()[-1])
            finally:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()


# ---- the client ----

class Connection(asyncio.Protocol):
    """An HTTP connection that is kept open, with one request at a time; `answer` gets the status and the body."""

    def __init__(self):
        self.transport, self.buffer, self.answer = None, b"", None

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, exc):
        if self.answer and not self.answer.done():
            self.answer.set_exception(ConnectionError("the server has closed the connection"))

    def data_received(self, data):
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = 0
        for line in head.split(b"\r\n")[1:]:
            if line[:15].lower() == b"content-length:":
                length = int(line[15:])
        if len(rest) < length:
            return
        self.buffer = b""
        if not self.answer.done():
            self.answer.set_result((int(head[9:12]), rest))

    def ask(self, method, path, body=b""):
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                             % (method.encode(), path.encode(), len(body), body))
        return self.answer


class Client:
    def __init__(self, port, models=None):
        self.port, self.idle, self.models = port, [], models or MODELS
        self.set_ns = {}  # label of a window -> CLOCK_MONOTONIC after its policy was set

    async def ask(self, method, path, body=b""):
        connection = self.idle.pop() if self.idle else None
        if connection is None or connection.transport.is_closing():
            _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self.port)
        try:
            answer = await asyncio.wait_for(connection.ask(method, path, body), ANSWER_S)
        except asyncio.TimeoutError:
            raise RuntimeError("%s %s: no answer within %g s" % (method, path, ANSWER_S)) from None
        finally:
            if not connection.answer.done() or connection.answer.cancelled() or connection.answer.exception():
                connection.transport.abort()
        self.idle.append(connection)
        return answer

    async def infer(self, model, items, priority, deadline_s=0.0):
        parameters = '"priority":"%s"' % priority + (',"deadline":%d' % (deadline_s * 1e6) if deadline_s else "")
        body = '{"parameters":{%s},"inputs":[{"name":"x","datatype":"FP32","shape":[%d,1],"data":[%s]}]}' \
            % (parameters, items, ",".join(["0"] * items))
        status, answer = await self.ask("POST", "/v2/models/%s/infer" % model, body.encode())
        if status in (400, 404, 500):
            raise RuntimeError("%s: %s" % (model, answer.decode(errors="replace")[:300]))
        return status

    def close(self):
        for connection in self.idle:
            connection.transport.close()

    async def warm(self, n):
        made = [await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self.port) for _ in range(n)]
        self.idle += [connection for _, connection in made]


# ---- requests ----

async def wait_ready(client):
    """Waits until every model is loaded. A model that failed to load reports the reason in its answer."""
    end = time.monotonic() + READY_S
    names = ["%s-%s" % (name, priority) for name in client.models for priority in PRIORITIES]
    while names:
        if time.monotonic() > end:
            raise RuntimeError("not ready within %d s: %s" % (READY_S, ", ".join(names)))
        status, _ = await client.ask("GET", "/v2/models/%s/ready" % names[0])
        if status == 200:
            names.pop(0)
            continue
        _, index = await client.ask("POST", "/v2/repository/index")
        failed = [model for model in json.loads(index) if "worker ended" in model.get("reason", "")]
        if any("times" in model["reason"] for model in failed):
            raise RuntimeError("a worker does not come up: %s" % failed)
        await asyncio.sleep(0.1)


async def wait_measured(client):
    """Waits until the server has measured every model's demand. Returns the demands by model, as /v2/models/NAME/stats has them."""
    end, found = time.monotonic() + MEASURED_S, {}
    while True:
        _, page = await client.ask("GET", "/metrics")
        left = [line for line in page.decode().splitlines() if line.startswith("hb_serve_model_demand_trial{") and line.endswith(" 1")]
        if not left:
            break
        if time.monotonic() > end:
            raise RuntimeError("demands are not measured within %d s: %s" % (MEASURED_S, ", ".join(left)))
        await asyncio.sleep(0.2)
    for name in client.models:
        for priority in PRIORITIES:
            _, stats = await client.ask("GET", "/v2/models/%s-%s/stats" % (name, priority))
            found["%s-%s" % (name, priority)] = demand = json.loads(stats)["model_stats"][0]["demand"]
            if any(value["source"] != "measured" for value in demand.values()):
                raise RuntimeError("the demand of %s-%s could not be measured (the server's log says why)" % (name, priority))
    return found


async def profile(client):
    """Runs every batch size alone, so that the server learns it. Returns the latency of one request of each model."""
    alone = {}
    for name, (most, *_) in client.models.items():
        for priority in PRIORITIES:
            items = 1
            while True:
                took = []
                for _ in range(PROFILE_RUNS):
                    begun = time.monotonic()
                    if await client.infer("%s-%s" % (name, priority), items, priority) != 200:
                        raise RuntimeError("%s: a batch of %d was refused" % (name, items))
                    took.append(time.monotonic() - begun)
                if items == 1 and priority == "high":
                    alone[name] = statistics.median(took[1:])
                if items == most:
                    break
                items = min(2 * items, most)
    return alone


async def set_policy(client, policy, mark):
    end = time.monotonic() + DRAIN_S
    while True:
        status, answer = await client.ask("POST", "/v2/policy/%s" % policy)
        if status == 200:
            client.set_ns[mark] = time.monotonic_ns()
            return
        if status != 409 or time.monotonic() > end:
            raise RuntimeError("policy %s: %s" % (policy, answer.decode(errors="replace")))
        await asyncio.sleep(0.01)


def shares(alone):
    """Shares of the requests by model: every model gets the same share of GPU time."""
    weight = {name: 1 / seconds for name, seconds in alone.items()}
    return {name: value / sum(weight.values()) for name, value in weight.items()}


async def capacity(client, share):
    """Measures the capacity: requests a second with one request of each model at a time, with two, and with full queues."""
    await set_policy(client, "fifo", "capacity")
    sent = dict.fromkeys(share, 0)
    busy, done = set(), 0
    begun = time.monotonic()
    tasks = set()
    while time.monotonic() < begun + CAPACITY_S:
        free = [name for name in share if name not in busy]
        while free and len(tasks) < CAPACITY_OUTSTANDING:
            name = min(free, key=lambda one: sent[one] / share[one])
            free.remove(name)
            busy.add(name)
            sent[name] += 1
            task = asyncio.create_task(client.infer(name + "-low", 1, "low"))
            task.model = name
            tasks.add(task)
        ended, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            busy.discard(task.model)
            done += 1
            task.result()
    seconds = time.monotonic() - begun
    if tasks:
        await asyncio.wait(tasks)
    return done / seconds


def arrivals(rate, seconds, bursts, draws):
    """Times of arrival: Poisson, or bursts from a process with two states, five times as fast in one of them."""
    times, now, fast, until = [], 0.0, False, 0.0
    if bursts:
        until = draws.expovariate(1 / BURST_STATE_S)
    slow = 2 * rate / (1 + BURST_RATIO)
    while True:
        following = now + draws.expovariate((slow * BURST_RATIO if fast else slow) if bursts else rate)
        if bursts and following > until:
            now, fast = until, not fast
            until = now + draws.expovariate(1 / BURST_STATE_S)
            continue
        if following >= seconds:
            return times
        times.append(following)
        now = following


@functools.cache
def trace_times():
    """Arrival times of conversations with a language model, as a public cloud recorded them, in seconds."""
    return [at for at, _, _ in llm_load.read_trace(llm_load.TRACE)]


def trace_arrivals(rate, seconds, draws):
    """The trace from a random point on, again from its beginning after its end, and as much faster as `rate` asks for."""
    times = trace_times()
    length = times[-1] * len(times) / (len(times) - 1)
    first, factor = draws.uniform(0, length), len(times) / length / rate
    found = sorted((at - first) % length * factor for at in times)
    laps = range(int(seconds / (length * factor)) + 1)
    return [at + lap * length * factor for lap in laps for at in found if at + lap * length * factor < seconds]


def schedule(per_s, share, seconds, traffic, seed):
    """Times, models and priorities of requests. Each model and priority has arrivals of its own."""
    due = []
    for name in share:
        for priority in PRIORITIES:
            part = HIGH_SHARE if priority == "high" else 1 - HIGH_SHARE
            draws = random.Random("%s %s %s" % (seed, name, priority))
            rate = per_s * share[name] * part
            times = trace_arrivals(rate, seconds, draws) if traffic == "trace" \
                else arrivals(rate, seconds, traffic == "bursts", draws)
            due += [(at, name, priority) for at in times]
    return sorted(due)


async def window(client, due, alone, seconds):
    """Sends requests when they are due. Returns (model, priority) -> list of (latency or None, deadline) of the requests that
    count. Raises RuntimeError when a request failed, because its worker or the server died, or got no answer: such a window
    measures no policy."""
    outcome, tasks, failures = {}, [], []

    async def one(at, name, priority, begun):
        deadline = DEADLINES[priority] * alone[name]
        try:
            status = await client.infer("%s-%s" % (name, priority), 1, priority, deadline)
        except (RuntimeError, OSError) as error:
            failures.append(str(error))
            return
        took = time.monotonic() - begun - at
        if at >= WARM_S:
            outcome.setdefault((name, priority), []).append((took if status == 200 else None, deadline, status))

    begun = time.monotonic() + 0.02
    for at, name, priority in due:
        while time.monotonic() < begun + at:
            await asyncio.sleep(0)
        tasks.append(asyncio.create_task(one(at, name, priority, begun)))
    late = time.monotonic() - begun - (due[-1][0] if due else 0)
    done, waiting = await asyncio.wait(tasks, timeout=seconds + DRAIN_S) if tasks else (set(), set())
    for task in waiting:  # closing their connections makes the server drop these requests
        task.cancel()
    if waiting:
        await asyncio.wait(waiting)
        failures.append("%d requests have no answer" % len(waiting))
    for task in done:
        task.result()
    if failures:
        raise RuntimeError("%d of %d requests failed: %s" % (len(failures) - bool(waiting) + len(waiting), len(due), failures[-1]))
    return outcome, late


# ---- results ----

def jain(values):
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def class_of(outcome, priority):
    every = [one for (_, of), answers in outcome.items() if of == priority for one in answers]
    in_time = {name: statistics.mean([took is not None and took <= deadline for took, deadline, _ in answers])
               for (name, of), answers in outcome.items() if of == priority}
    latencies = sorted(took for took, _, _ in every if took is not None)
    good = sum(took is not None and took <= deadline for took, deadline, _ in every)

    def rank(share):
        return round(1e6 * latencies[min(len(latencies) - 1, int(share * len(latencies)))], 1) if latencies else None
    return {"requests": len(every), "in_time": good,
            "late": sum(took is not None and took > deadline for took, deadline, _ in every),
            "refused": sum(status == 503 for _, _, status in every), "timeouts": sum(status == 504 for _, _, status in every),
            "violations": round(1 - good / len(every), 6) if every else 0.0, "fairness": round(jain(in_time.values()), 6),
            "p50_us": rank(0.5), "p99_us": rank(0.99), "models": {name: round(value, 4) for name, value in in_time.items()}}


async def try_window(client, policy, mark, due, alone, seconds):
    """Returns the result of window(). After a failed window it waits until the server serves all models again."""
    try:
        await set_policy(client, policy, mark)
        return await window(client, due, alone, seconds)
    except (RuntimeError, OSError) as error:
        try:
            await wait_ready(client)
        except (RuntimeError, OSError) as after:
            raise RuntimeError("%s; then: %s" % (error, after)) from None
        raise


async def measure(port, plan, seconds, until, models=None, per_s=None, demands=False):
    with contextlib.closing(Client(port, models)) as client:
        await wait_ready(client)
        more = {"demands": await wait_measured(client)} if demands else {}
        return {**await measured(client, plan, seconds, until, per_s), **more}


async def measured(client, plan, seconds, until, per_s=None):
    """plan: (traffic, load, policies) in order of importance. Windows that had not begun by `until` are left out. Windows that
    failed are listed with the reason in "left_out". `per_s`: the rate that counts as 100 %; None = it is measured."""
    say("ready")
    await client.warm(CONNECTIONS)
    alone = await profile(client)
    share = shares(alone)
    per_s = per_s or await capacity(client, share)
    say("capacity %.0f/s; alone, ms: %s" % (per_s, {name: round(1e3 * value, 2) for name, value in alone.items()}))
    await set_policy(client, "ours", "learning")
    await window(client, schedule(per_s, share, LEARN_S, "poisson", "learning"), alone, LEARN_S)
    runs, left_out = {}, []
    for traffic, load, policies in plan:
        due = schedule(per_s * load / 100, share, WARM_S + seconds, traffic, "%s %s" % (traffic, load))
        for policy in policies:
            if time.monotonic() + WARM_S + seconds + 1 > until:
                say("no time left for %s, %d %%, %s" % (traffic, load, policy))
                continue
            mark = "%s-%d-%s" % (traffic, load, policy)
            try:
                outcome, late = await try_window(client, policy, mark, due, alone, seconds)
            except (RuntimeError, OSError) as error:  # earlier windows still count
                say("%s is left out: %s" % (mark, error))
                left_out.append({"mark": mark, "why": str(error)})
                continue
            run = {"policy": policy, "load": load, "traffic": traffic, "mark": mark, "sender_late_ms": round(1e3 * late, 2)}
            run.update({priority: class_of(outcome, priority) for priority in PRIORITIES})
            runs.setdefault((traffic, load), []).append(run)
            say("%s %d %% %-20s HP missed %.2f %%, LP %.2f %%" % (
                traffic, load, policy, 100 * run["high"]["violations"], 100 * run["low"]["violations"]))
    return {"capacity_per_s": round(per_s, 1), "alone_ms": {name: round(1e3 * value, 3) for name, value in alone.items()},
            "runs": runs, "left_out": left_out, "set_ns": client.set_ns}


def prediction_errors(hb, journal, set_ns):
    """The prediction error of each window of `set_ns`, from the last interval of the journal that began before the window.
    Empty when the journal cannot be read to its end, for example after the server was killed."""
    program = os.path.join(os.path.dirname(hb), "bench", "journal", "journal-errors")
    try:
        done = subprocess.run([program, journal], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        say("prediction errors are not known: %s" % error)
        return {}
    if done.returncode:
        say("prediction errors are not known: " + done.stderr.strip())
        return {}
    intervals = json.loads(done.stdout)["intervals"]
    found = {mark: [one for one in intervals if one["begin_ns"] <= at][-1]["prediction_error"] for mark, at in set_ns.items()}
    return {mark: errors for mark, errors in found.items() if errors["all_parts"]["batches"]}


def run(hb, how, plan, seconds, until, keep, speed=1.0, models=None, place=None, per_s=None):
    """The result of measure(), with the prediction errors of each run (on one GPU: each GPU has a journal of its own).
    `keep`: folder for journal and log."""
    journal = os.path.join(keep, "journal.txt")
    models, place = models or MODELS, place or Place()
    with server(hb, how, journal, speed, os.path.join(keep, "server.log"), models, place) as port:
        found = asyncio.run(measure(port, plan, seconds, until, models, per_s, place.measured))
    set_ns = found.pop("set_ns")
    errors = prediction_errors(hb, journal, set_ns) if place.gpus == 1 else {}
    for of_load in found["runs"].values():
        for one in of_load:
            one["prediction_error"] = errors.get(one["mark"])
    return found
