#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `hb sim-cluster` with a real Slurm: 20 pods of openb that follow each other, as jobs of a cluster of two nodes on this
machine (tests/slurm/cluster.py), each with a daemon and a simulated GPU. All times are divided by SPEED_UP.

1. The speed of a job beside each service is measured in that cluster. These rows are the pair model of both sides.
2. `hb sim-cluster --schedule` says when each pod starts and ends on two GPUs, under the rule "ours".
3. The pods arrive as jobs of Slurm. A node has one place for each priority (generic resources). Before a job is submitted, `hb place`
   chooses its node, by weights. Services run for their time; jobs of low priority do their work, however long it takes.
4. The order of the starts and the GPU-hours are compared. Ends with 1 if the order differs, or the GPU-hours by more than 5 %.

Starts that the simulator puts less than a hundredth of the whole time apart count as simultaneous, because Slurm takes about a second
to start a job. Needs root and Slurm; no GPU. It takes twelve minutes.

usage: HB_BUILD=build bench/slurm_replay.py RESULT.json
"""
import csv
import gzip
import json
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tests", folder) for folder in ("slurm", "end-to-end")]
from cluster import NODES, Cluster, missing  # noqa: E402
from stack import HB, TENANT  # noqa: E402

FIRST, COUNT, SPEED_UP = 5822, 20, 3  # which of the pods that may share, in the order of their creation
FLEET_DUTY = 0.12
KERNELS, KERNEL_US = 4, 10000  # of a request
LOW_KERNEL_US = 20000
TIE = 0.01  # of the time from the first start to the last end
BOUND = 0.05
# Services and jobs that `hb sim-cluster` draws, and the share of a request in which the GPU works (pair_model.c).
BUSY = {"resnet50_b1": 750 / 2425, "resnet50_b1:graph": 750 / 770, "llama8_decode_b8": 2242 / 4571, "llama8_prefill_b4": 1}
LOWS = ("resnet50_train_b128", "llama8_train_b4")


class Replay:
    def __init__(self, cluster):
        self.cluster = cluster
        for name in ("slurm.conf", "gres.conf", *(f"run-{node}/{name}" for node in NODES for name in ("slurm.conf", "gres.conf"))):
            text = cluster.read(name)
            text = text.replace("GresTypes=gpu,shard", "GresTypes=gpu,shard,high,low").replace(",shard:16", ",shard:16,high:1,low:1")
            # A job that waits keeps the nodes of its partition from jobs that come after it, also from those of another partition, until
            # the backfill scheduler looks; so that one looks often, and services come first.
            text = text.replace("sched_interval=1", "sched_interval=1,bf_interval=1").replace("PartitionName=online", "PartitionName=online PriorityTier=2")
            for node in NODES:
                shard = f"NodeName={node} Name=shard Count=16\n"
                text = text.replace(shard, shard + "".join(f"NodeName={node} Name={place} Count=1\n" for place in ("high", "low")))
            cluster.write(name, text)

    # --- programs -------------------------------------------------------------------------------------------------------------

    def submit(self, name, is_high, duty, seconds, node=None):
        rate = duty / (KERNELS * KERNEL_US / 1e6)
        program = (f"infer --eager --rate {rate:.3f} --kernels {KERNELS} --kernel-us {KERNEL_US} --input-kb 4 --seconds {seconds:.3f}" if is_high else
                   f"train {LOW_KERNEL_US} {max(1, round(seconds * 1e6 / LOW_KERNEL_US))}")
        where = [f"--nodelist={node}"] if node else []
        path = f"{self.cluster.path('out')}/{name}"
        stamp = f"date +%s.%N >{path}"
        self.cluster.submit(name, f"--partition={'online' if is_high else 'batch'}", f"--gres={'high' if is_high else 'low'}:1", *where,
                            script=f"echo $SLURMD_NODENAME >{path}.node\n{stamp}.start\nsrun {TENANT} {program}\n{stamp}.end")

    def stamp(self, name):
        text = self.cluster.read(f"out/{name}")
        return float(text) if text.strip() else None

    def wait_for(self, names):
        while not all(self.stamp(f"{name}.end") for name in names):
            time.sleep(0.2)

    def last_line(self, name):
        return json.loads(next(line for line in reversed(self.cluster.output(name).splitlines()) if line.startswith("{")))

    # --- 1. pairs -------------------------------------------------------------------------------------------------------------

    def measure_pairs(self, path):
        """Writes the rows of the pair model; each row is a training of 16 s beside the service, twice, once on each node."""
        rows = [["source", "sharing", "high", "rate_per_s", "duty", "low", "alone", "attainment", "low_speed", "requests"]]
        for service, busy in BUSY.items():
            duty = min(1, FLEET_DUTY / busy)
            name = service.replace(":", "-")
            for node in NODES:
                self.submit(f"{name}-high-{node}", True, duty, 60, node)
            while not all(self.stamp(f"{name}-high-{node}.start") for node in NODES):
                time.sleep(0.1)
            time.sleep(1)
            for node in NODES:
                self.submit(f"{name}-low-{node}", False, 0, 16, node)
            self.wait_for([f"{name}-low-{node}" for node in NODES])
            self.cluster.run("scancel", "--user=nobody", user=None)
            self.cluster.wait_until_empty()
            speed = sum(self.last_line(f"{name}-low-{node}")["share"] for node in NODES) / len(NODES)
            rows += [["measured", "temporal", service, f"{duty / (KERNELS * KERNEL_US / 1e6):.3f}", f"{duty:.4f}", low, 1, 1, f"{min(1, speed):.4f}", 2]
                     for low in LOWS]
        with open(path, "w", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        return {row[2]: float(row[8]) for row in rows[1:]}

    # --- 3. jobs --------------------------------------------------------------------------------------------------------------

    def choose_node(self, pods, pod, pairs):
        """Gives the smallest weight to the node that hb place chooses; nothing if the job has to wait."""
        running = self.cluster.run("squeue", "-h", "-t", "RUNNING", "-o", "%j %N", user=None).stdout.split()
        jobs = []
        for name, node in zip(running[::2], running[1::2]):
            jobs.append(self.describe(pods[name]) | {"runs_on": {"node": node, "gpu": 0}})
        jobs.append(self.describe(pod))
        question = {"nodes": [{"name": node, "gpus": 1, "engine": "temporal"} for node in NODES], "jobs": jobs}
        done = subprocess.run([HB, "place", "--pairs", pairs, "--within", "100"], input=json.dumps(question), capture_output=True, text=True, check=True)
        node = json.loads(done.stdout)["jobs"][-1]["node"]
        for other in NODES if node else ():
            self.cluster.run("scontrol", "update", f"NodeName={other}", f"Weight={1 if other == node else 2}", user=None)

    @staticmethod
    def describe(pod):
        job = {"name": pod["name"], "priority": pod["class"], "program": pod["program"]}
        return job | ({"duty": pod["duty"]} if pod["class"] == "high" else {})

    def replay(self, pods, pairs):
        """Submits the pods at their times. Returns {name: (start, end)} from the first submission."""
        by_name = {pod["name"]: pod for pod in pods}
        begin = time.time()
        for pod in pods:
            time.sleep(max(0, begin + pod["created_s"] - time.time()))
            self.choose_node(by_name, pod, pairs)
            self.submit(pod["name"], pod["class"] == "high", pod["duty"], pod["run_s"])
        self.wait_for(by_name)
        return {name: (self.stamp(f"{name}.start") - begin, self.stamp(f"{name}.end") - begin, self.cluster.read(f"out/{name}.node").strip())
                for name in by_name}


# --- 2. the simulator -------------------------------------------------------------------------------------------------------------

def read_excerpt():
    with gzip.open(os.path.join(ROOT, "data/traces/openb-2023-pods.csv.gz"), "rt", encoding="utf-8") as file:
        pods = [pod for pod in csv.DictReader(file) if pod["gpus"] == "1" and pod["qos"] in ("LS", "BE") and pod["run_s"] and float(pod["run_s"]) > 0]
    pods = sorted(pods, key=lambda pod: (float(pod["created_s"]), float(pod["run_s"])))[FIRST:FIRST + COUNT]
    first = float(pods[0]["created_s"])
    for pod in pods:
        pod["created_s"] = (float(pod["created_s"]) - first) / SPEED_UP
        pod["run_s"] = float(pod["run_s"]) / SPEED_UP
    return pods


def simulate(folder, pods, pairs):
    """Returns the pods of the schedule, in the order of their creation."""
    paths = {name: os.path.join(folder, f"{name}.csv") for name in ("pods", "duty", "schedule")}
    with open(paths["pods"], "w", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["created_s", "run_s", "gpus", "gpu_milli", "qos"])
        writer.writerows([pod["created_s"], pod["run_s"], 1, 1000, pod["qos"]] for pod in pods)
    with open(paths["duty"], "w", encoding="utf-8") as file:
        file.write("share,duty\n" + "".join(f"{i / 100},{FLEET_DUTY}\n" for i in range(101)))
    subprocess.run([HB, "sim-cluster", "--rule", "ours", "--gpus", str(len(NODES)), "--pods", paths["pods"], "--duty", paths["duty"], "--pairs", pairs,
                    "--schedule", paths["schedule"]], check=True, stdout=subprocess.DEVNULL)
    with open(paths["schedule"], encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["pod"]))
    return [{"name": f"pod{row['pod']}", "class": row["class"], "program": row["program"], "duty": float(row["duty"]),
             "created_s": pod["created_s"], "run_s": pod["run_s"], "start_s": float(row["start_s"]), "end_s": float(row["end_s"]), "gpu": row["gpu"]}
            for row, pod in zip(rows, pods)]


# --- 4. comparing -----------------------------------------------------------------------------------------------------------------

def gpu_seconds(visits):
    """The time in which GPUs were in use; a visit is (start, end, GPU)."""
    total = 0
    for gpu in {visit[2] for visit in visits}:
        until = -1
        for start, end, _ in sorted(visit for visit in visits if visit[2] == gpu):
            total += max(0, end - max(start, until))
            until = max(until, end)
    return total


def compare(pods, slurm, speeds):
    simulated = {pod["name"]: (pod["start_s"], pod["end_s"], pod["gpu"]) for pod in pods}
    order = sorted(simulated, key=lambda name: simulated[name][0])
    tie_s = TIE * max(visit[1] for visit in simulated.values())
    inverted = [(a, b) for i, a in enumerate(order) for b in order[i + 1:]
                if simulated[b][0] - simulated[a][0] >= tie_s and slurm[b][0] < slurm[a][0]]
    hours = gpu_seconds(list(simulated.values())), gpu_seconds(list(slurm.values()))
    return {"kind": "slurm-replay", "version": 1, "pods": len(pods), "first": FIRST, "speed_up": SPEED_UP, "fleet_duty": FLEET_DUTY,
            "low_speed": speeds, "inverted_starts": inverted, "gpu_seconds_simulated": round(hours[0], 2), "gpu_seconds_slurm": round(hours[1], 2),
            "gpu_hours_error": round(hours[1] / hours[0] - 1, 4),
            "waited": sum(pod["start_s"] - pod["created_s"] > tie_s for pod in pods), "tie_s": round(tie_s, 2),
            "rows": [{key: pod[key] for key in ("name", "class", "program", "duty")} | {"created_s": round(pod["created_s"], 2), "run_s": round(pod["run_s"], 2),
                     "simulated": [round(value, 2) for value in simulated[pod["name"]][:2]], "slurm": [round(value, 2) for value in slurm[pod["name"]][:2]],
                     "gpu": int(pod["gpu"]), "node": slurm[pod["name"]][2]} for pod in pods]}


def main():
    if len(sys.argv) != 2 or missing():
        sys.exit(missing() or __doc__)
    cluster = Cluster()
    replay = Replay(cluster)
    with cluster:
        pairs = cluster.path("pairs.csv")
        speeds = replay.measure_pairs(pairs)
        pods = simulate(cluster.folder, read_excerpt(), pairs)
        result = compare(pods, replay.replay(pods, pairs), speeds)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    print(f"{len(result['inverted_starts'])} of the starts in another order; GPU-seconds: {result['gpu_seconds_simulated']} simulated, "
          f"{result['gpu_seconds_slurm']} with Slurm ({result['gpu_hours_error']:+.1%}); {result['waited']} pods waited")
    sys.exit(1 if result["inverted_starts"] or abs(result["gpu_hours_error"]) > BOUND else 0)


if __name__ == "__main__":
    main()
