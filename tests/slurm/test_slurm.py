#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Slurm plugin in a real cluster on this machine (cluster.py): priorities by partition,
refusals, overlapping jobs, weights by hb place, the end of jobs in every way, faults, many jobs, and the scripts
for sites without the plugin. Skipped if Slurm is not installed."""
import contextlib
import json
import os
import signal
import time
import unittest

from cluster import NODES, Cluster, processes_named, missing
from stack import BUILD, HB, TENANT, wait_until

PACKAGING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../packaging/slurm")
SET_WEIGHTS = os.path.join(PACKAGING, "set_weights.py")
SERVICE = f"srun {TENANT} train 200 0"  # work without end, launched one kernel after the other
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


@unittest.skipIf(missing(), missing())
class WithPlugin(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.cluster.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def tearDown(self):
        failed = any(error for _, error in getattr(self._outcome, "errors", [])) or any(
            test is self for test, _ in self._outcome.result.failures + self._outcome.result.errors)
        if failed:
            self.cluster.show_logs()
        self.cluster.run("scancel", "--user=nobody", user=None)
        self.cluster.wait_until_empty()
        wait_until("both nodes are idle", lambda: self.cluster.states() == {node: "idle" for node in NODES})

    def steps(self):
        """The tenants of n1 that use CUDA, by step: {"12.0": tenant}."""
        return {step: tenant for step, tenant in self.cluster.tenants().items() if tenant["processes"]}

    def kernels(self, step):
        return self.steps()[step]["counters"]["kernels"]

    def start_both(self):
        """Starts a service and a training on n1, both with a share of its GPU. Returns their jobs."""
        options = ("--nodelist=n1", "--gres=shard:1")
        high = self.cluster.submit("service", "--partition=online", "--hb-slo=5ms", *options, script=SERVICE)
        low = self.cluster.submit("training", "--partition=batch", "--hb-memory=1GiB", *options, script=SERVICE)
        wait_until("both use the GPU", lambda: {f"{high}.0", f"{low}.0"} <= set(self.steps()))
        return high, low

    def test_bad_input_changes_no_weight(self):
        self.cluster.write("bad.json", "{")
        self.cluster.write("other.json", '{"gpus": 1}')
        for words, why in ((["n1"], "'n1' is not NODE=FILE"), (["n1=/nothing"], "/nothing: "), ([f"n1={self.cluster.path('bad.json')}"], "bad.json: "),
                           ([f"n1={self.cluster.path('other.json')}"], "nodes[0].status: is not what hb status --json prints"),
                           (["--hb", "/nothing", f"n1={self.cluster.path('other.json')}"], "/nothing: No such file"),
                           (["--job", "[]", f"n1={self.cluster.path('other.json')}"], "--job: is not an object")):
            done = self.cluster.run(SET_WEIGHTS, "--hb", HB, *words, user=None)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(why, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_a_job_gets_the_priority_of_its_partition(self):
        high, low = self.start_both()
        steps = self.steps()
        service, training = steps[f"{high}.0"], steps[f"{low}.0"]
        self.assertEqual([service[key] for key in ("priority", "user", "slo_asked_ns")], ["high", "nobody", 5000000])
        self.assertEqual([training[key] for key in ("priority", "user", "memory_limit")], ["low", "nobody", 1 << 30])
        # Both progress on the one GPU, and neither was requeued or suspended.
        before = self.kernels(f"{high}.0"), self.kernels(f"{low}.0")
        wait_until("the service progresses", lambda: self.kernels(f"{high}.0") > before[0] + 10)
        wait_until("the training progresses", lambda: self.kernels(f"{low}.0") > before[1] + 10)
        self.assertEqual((self.cluster.job_state(high), self.cluster.job_state(low)), ("RUNNING", "RUNNING"))
        # The batch script is a tenant of its own, for programs that it starts without srun.
        self.assertEqual(self.cluster.tenants()[f"{low}.batch"]["priority"], "low")
        # Terms change while the job runs.
        socket = {"HB_SOCKET": self.cluster.socket("n1")}
        done = self.cluster.run(HB, "set", service["id"], "--gpu", "sim", "--slo", "7ms", **socket)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.steps()[f"{high}.0"]["slo_asked_ns"], 7000000)
        done = self.cluster.run(HB, "set", training["id"], "--gpu", "sim", "--priority", "high", **socket)
        self.assertIn("root registered this tenant with priority low", done.stderr)

    def test_cancelled_jobs_leave_nothing_and_disturb_nobody(self):
        high, low = self.start_both()
        self.cluster.run("scancel", low)
        self.cluster.wait_for_state(low, "CANCELLED")
        wait_until("the training's tenants are gone",
                   lambda: not any(step.startswith(f"{low}.") for step in self.cluster.tenants()))
        before = self.kernels(f"{high}.0")
        wait_until("the service progresses", lambda: self.kernels(f"{high}.0") > before + 10)
        self.cluster.run("scancel", high)
        self.cluster.wait_for_state(high, "CANCELLED")
        self.cluster.wait_until_empty("n1")

    def test_a_priority_that_the_partition_does_not_allow_fails_the_job_and_not_the_node(self):
        for partition in ("batch", "plain"):
            done = self.cluster.run("srun", f"--partition={partition}", "--nodelist=n1", "--hb-priority=high", "true")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"--hb-priority=high is not allowed in partition '{partition}'", done.stderr)
        job = self.cluster.submit("promoted", "--partition=batch", "--nodelist=n1", "--hb-priority=high", script="echo ran")
        self.cluster.wait_for_state(job, "FAILED")
        self.assertIn("--hb-priority=high is not allowed", self.cluster.output("promoted"))
        self.assertNotIn("ran\n", self.cluster.output("promoted"))
        # The variables of a job do not help either.
        done = self.cluster.run("srun", "--partition=batch", "--nodelist=n1", "sh", "-c",
                                f"{HB} run --gpu sim --priority high -- {TENANT} train 200 1", SLURM_JOB_PARTITION="online",
                                HB_SOCKET=self.cluster.socket("n1"), HB_PRIORITY="high")
        self.assertIn("priority high was not granted", done.stderr)

    def test_low_is_always_allowed_and_plain_jobs_are_no_tenants(self):
        done = self.cluster.run("srun", "--partition=online", "--nodelist=n1", "--hb-priority=low", "env")
        self.assertIn("HB_PRIORITY=low\n", done.stdout)
        self.assertIn(f"HB_SIM_GPU={self.cluster.path('gpu-n1')}\n", done.stdout)  # each node has a GPU of its own
        self.assertIn(f"LD_LIBRARY_PATH={BUILD}/src/shim:/tmp/own\n", self.cluster.run(
            "srun", "--partition=batch", "--nodelist=n1", "env", LD_LIBRARY_PATH="/tmp/own").stdout)
        self.assertNotIn("HB_TENANT", self.cluster.run("srun", "--partition=plain", "--nodelist=n1", "env").stdout)

    def test_wrong_options_are_refused_before_the_job_is_queued(self):
        for option, why in (("--hb-priority=middle", "'middle' is neither high nor low"), ("--hb-slo=;rm", "is not a value"),
                            ("--hb-memory=", "is not a value")):
            done = self.cluster.run("srun", "--partition=online", option, "true")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(why, done.stderr)
        done = self.cluster.run("srun", "--partition=online", "--nodelist=n1", "--hb-slo=fast", "true")
        self.assertIn("hb register: --slo", done.stderr)

    def test_killed_processes_leave_no_tenant(self):
        high, low = self.start_both()
        processes = self.steps()[f"{low}.0"]["processes"]
        os.kill(processes[0]["pid"], signal.SIGKILL)
        self.cluster.wait_for_state(low, *ENDED)
        # slurmstepd of the service's step dies; Slurm does not know of its task any more, the daemon does.
        service = self.steps()[f"{high}.0"]
        os.kill(service["pid"], signal.SIGKILL)
        self.assertEqual(self.steps()[f"{high}.0"]["priority"], "high")
        os.kill(service["processes"][0]["pid"], signal.SIGKILL)
        self.cluster.run("scancel", high)
        self.cluster.wait_for_state(high, *ENDED)
        self.cluster.wait_until_empty("n1")

    def test_jobs_keep_their_priority_when_the_daemon_is_killed(self):
        high, low = self.start_both()
        daemon = self.cluster.daemons["n1"]
        daemon.kill()
        daemon.wait()
        done = self.cluster.run("srun", "--partition=batch", "--nodelist=n1", "true")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("hb register:", done.stderr)
        self.cluster.start_daemon("n1")
        wait_until("both are registered again", lambda: {f"{high}.0", f"{low}.0"} <= set(self.steps()))
        steps = self.steps()
        self.assertEqual([steps[f"{job}.0"]["priority"] for job in (high, low)], ["high", "low"])

    def test_jobs_continue_when_slurmd_is_killed(self):
        high, low = self.start_both()
        self.cluster.slurmd["n1"].kill()
        self.cluster.slurmd["n1"].wait()
        before = self.kernels(f"{high}.0"), self.kernels(f"{low}.0")
        wait_until("both progress without slurmd", lambda: self.kernels(f"{high}.0") > before[0] + 10 and self.kernels(f"{low}.0") > before[1] + 10)
        self.cluster.slurmd["n1"] = self.cluster.start_slurmd("n1")
        wait_until("the node answers again", lambda: self.cluster.states()["n1"] in ("mixed", "allocated"))
        self.assertEqual((self.cluster.job_state(high), self.cluster.job_state(low)), ("RUNNING", "RUNNING"))
        for job in (high, low):
            self.cluster.run("scancel", job)
            self.cluster.wait_for_state(job, "CANCELLED")
        self.cluster.wait_until_empty("n1")

    def kill_processes(self, name):
        pids = processes_named(name, self.cluster.folder)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pids

    def kill_at_a_step_of_the_start(self, victim, delay_s):
        """Starts a job step and kills a process of its start after the delay, wherever the start is by then."""
        started = self.cluster.spawn_as_user("srun", "--partition=batch", "--nodelist=n1", "--gres=shard:1", TENANT, "train", 200, 0)
        time.sleep(delay_s)
        if victim == "hbd":
            self.cluster.daemons["n1"].kill()
            self.cluster.daemons["n1"].wait()
            self.cluster.start_daemon("n1")
        else:
            self.kill_processes(victim)
        self.cluster.run("scancel", "--user=nobody", user=None)
        started.wait(60)
        if victim == "slurmstepd":  # Slurm has lost its task
            wait_until("no task is left", lambda: not self.kill_processes("cuda-tenant"))
        wait_until("no task is left", lambda: not processes_named("cuda-tenant", self.cluster.folder))
        self.cluster.wait_until_empty("n1")
        wait_until("the node is idle, not drained", lambda: self.cluster.states()["n1"] == "idle")

    def test_a_start_that_is_killed_at_any_step_leaves_nothing(self):
        for victim in ("slurmstepd", "hb", "hbd", "cuda-tenant", "srun"):
            for delay_s in (0.05, 0.15, 0.3):
                with self.subTest(victim=victim, delay_s=delay_s):
                    self.kill_at_a_step_of_the_start(victim, delay_s)

    def test_jobs_go_where_hb_place_predicts_the_most_speed(self):
        """A busy service on n1, and one that is nearly idle on n2: set_weights.py moves the next job of low priority to n2."""
        options = ("--partition=online", "--gres=shard:1", "--hb-slo=p90<10s")
        # Requests of 200 ms are present for more than half of the time. A request each second is not, even where a busy machine delays it.
        for node, rate, kernels in (("n1", 3, 4000), ("n2", 1, 1)):
            self.cluster.submit(f"service-{node}", f"--nodelist={node}", *options,
                                script=f"srun {TENANT} infer --rate {rate} --kernels {kernels} --kernel-us 50 --seconds 3600")

        def measured(node):
            status = self.cluster.status(node)
            self.cluster.write(f"{node}.json", json.dumps(status))
            with_requests = [gpu for tenant in status["tenants"] for gpu in tenant["gpus"] if gpu["requests"] >= 5]
            shares = [share for gpu in status["gpus"] for share in gpu["history"].get("high_ppm", ()) if share is not None]
            return sum(shares) / len(shares) if with_requests and any(shares) else None

        for node in NODES:
            wait_until(f"the daemon of {node} has measured its service", lambda node=node: measured(node))
        # The first step of the history may hold only a part of a request.
        wait_until("the service on n1 has been seen to be busier", lambda: measured("n1") > 3 * measured("n2"))
        services = [{"name": node, "priority": "high", "within": 10, "runs_on": {"node": node, "gpu": 0}} for node in NODES]
        self.cluster.write("services.json", json.dumps(services))
        done = self.cluster.run(SET_WEIGHTS, "--hb", HB, "--jobs", self.cluster.path("services.json"), "--job",
                                '{"program": "llama8_train_b4", "memory": "1MiB"}', *(f"{node}={self.cluster.path(node)}.json" for node in NODES),
                                user=None)
        self.assertEqual(done.returncode, 0, done.stderr)
        weights = {node: int(weight) for node, weight in (line.split() for line in done.stdout.splitlines())}
        self.assertLess(weights["n2"], weights["n1"])
        where = lambda: self.cluster.run("srun", "--partition=batch", "--gres=shard:1", "printenv", "SLURMD_NODENAME").stdout.strip()
        self.assertEqual(where(), "n2")
        # The other order, so that it was not n2 anyway.
        for node, weight in (("n1", 1), ("n2", 2)):
            self.cluster.run("scontrol", "update", f"NodeName={node}", f"Weight={weight}", user=None)
        self.assertEqual(where(), "n1")

    def test_fifty_jobs(self):
        partitions = ("online", "batch")
        jobs = [self.cluster.submit(f"many{i}", f"--partition={partitions[i % 2]}", "--gres=shard:1",
                                    script=f"{TENANT} train 200 5") for i in range(50)]
        for job in jobs:
            self.cluster.wait_for_state(job, "COMPLETED")
        self.cluster.wait_until_empty()


@unittest.skipIf(missing(), missing())
class WithScripts(unittest.TestCase):
    def test_prolog_and_epilog(self):
        cluster = Cluster(spank=False)
        extra = "".join(f"{key}={cluster.folder}/{name}.sh\n" for key, name in (
            ("Prolog", "prolog"), ("TaskProlog", "task_prolog"), ("Epilog", "epilog")))
        for name in ("prolog", "task_prolog", "epilog"):
            with open(os.path.join(PACKAGING, f"{name}.sh"), encoding="utf-8") as file:
                text = file.read().split("\n", 1)
            settings = (f"HB_SLURM_DEFAULTS={cluster.folder}/defaults; HB_SLURM_FOLDER={cluster.folder}/jobs-$SLURMD_NODENAME; "
                        f"export HB_START_DAEMON=0 HB_SOCKET={cluster.folder}/run-${{SLURMD_NODENAME:-n1}}/hbd.sock")
            if name == "task_prolog":
                settings += f"\necho export HB_SIM_GPU={cluster.folder}/gpu-$SLURMD_NODENAME"
            cluster.write(f"{name}.sh", f"{text[0]}\n{settings}\n{text[1]}")
            os.chmod(cluster.path(f"{name}.sh"), 0o755)
        cluster.write("defaults", f'HB_SLURM_HIGH="online"\nHB_SLURM_LOW="batch other"\nHB_SLURM_HB={HB}\n'
                                  'HB_SLURM_OPTIONS="--gpu sim"\n')
        for name in ("slurm.conf", *(f"run-{node}/slurm.conf" for node in NODES)):
            cluster.write(name, cluster.read(name) + extra)
        with cluster:
            jobs = {partition: cluster.submit(partition, f"--partition={partition}", "--nodelist=n1", script=SERVICE)
                    for partition in ("online", "batch")}
            using = lambda: {step: tenant["priority"] for step, tenant in cluster.tenants().items() if tenant["processes"]}
            wait_until("both use the GPU", lambda: len(using()) == 2)
            self.assertEqual(using(), {jobs["online"]: "high", jobs["batch"]: "low"})
            for job in jobs.values():
                cluster.run("scancel", job)
                cluster.wait_for_state(job, "CANCELLED")
            cluster.wait_until_empty("n1")
            wait_until("nothing is left", lambda: not os.listdir(cluster.path("jobs-n1")))
            self.assertEqual(processes_named("sleep", cluster.folder), [])
            cluster.daemons["n1"].kill()
            cluster.daemons["n1"].wait()
            done = cluster.run("srun", "--partition=batch", "--nodelist=n1", "echo", "ran")
            self.assertIn("Hummingbird: hb register:", done.stdout + done.stderr)
            wait_until("the node is idle, not drained", lambda: cluster.states()["n1"] == "idle")


if __name__ == "__main__":
    unittest.main()
