#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's HTTP port: metrics that a strict reader (and promtool, where it is
installed) accepts and that agree with the status, the data of the live page, and
limits for clients."""
import json
import os
import shutil
import signal
import socket
import subprocess
import unittest
import urllib.error
import urllib.request

import monitoring_files
import prometheus_text
from stack import HB, LIMIT, TENANT, Stack, wait_until

CONFIG = "metrics: 127.0.0.1:0\n"
CONNECTIONS = 16


def address_of(stack):
    host, port = stack.status()["daemon"]["metrics"]["address"].rsplit(":", 1)
    return host, int(port)


def get(stack, path, **headers):
    host, port = address_of(stack)
    request = urllib.request.Request(f"http://{host}:{port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return answer.headers, answer.read().decode()


def metrics(stack):
    return prometheus_text.read(get(stack, "/metrics")[1])


def raw(address, request):
    with socket.create_connection(address, timeout=LIMIT) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def cgroup_folder():
    """The root of a hierarchy of control groups (v2, or a controller of v1) in which this user may make some, or None."""
    with open("/proc/mounts", encoding="utf-8") as mounts:
        found = [line.split()[1] for line in mounts if line.split()[2] in ("cgroup2", "cgroup")]
    return next((path for path in found if os.access(path, os.W_OK)), None)


class Metrics(unittest.TestCase):
    def test_metrics_agree_with_the_status(self):
        with Stack(config=CONFIG, mps=False) as stack:
            high = stack.start("high", "--wait", "train", 300, 20, options=("--slo", "10ms"))
            high.expect("joined")
            high.go()
            high.expect("done")
            lows = [stack.start("low", "train", 300, 0) for _ in range(2)]
            for low in lows:
                low.expect("running")
            families = wait_until("turns change and are measured", lambda: self.measured(stack))
            tenant = next(t for t in stack.tenants() if t["priority"] == "high")
            labels = {"tenant": str(tenant["id"]), "priority": "high"}
            self.assertEqual(families["hb_shim_kernels_total"].values(**labels), [tenant["counters"]["kernels"]])
            self.assertEqual(families["hb_tenant_slo_seconds"].values(**labels), [0.01])
            self.assertEqual(families["hb_tenant_memory_used_bytes"].values(**labels),
                             [tenant["gpus"][0]["memory_used"]])
            self.assertEqual(families["hb_tenant_request_seconds"].values("_count", **labels),
                             [tenant["gpus"][0]["requests"]])
            self.assertEqual(families["hb_gpu_tenants"].values(priority="low"), [2])
            self.assertEqual(families["hb_tenant_mechanism_enforced"].values(mechanism="compute slice", **labels),
                             [float(tenant["gpus"][0]["mechanisms"][0]["enforced"])])
            self.check_dcgm_labels(stack, families)
            self.check_promtool(stack)
            self.check_monitoring_files(families)
            for low in lows:
                low.signal(signal.SIGTERM)
                self.assertTrue(low.result()["right"])
            high.go()
            high.output()

    def measured(self, stack):
        families = metrics(stack)
        switches = sum(families["hb_gpu_turn_switch_seconds"].values("_count"))
        waits = sum(families["hb_tenant_low_wait_seconds"].values("_count"))
        return families if switches > 2 and waits > 2 else None

    def check_dcgm_labels(self, stack, families):
        gpu = stack.status()["gpus"][0]
        for family in ("hb_gpu_info", "hb_tenant_request_seconds", "hb_core_turns_total"):
            for _, labels, _ in families[family].samples:
                self.assertEqual((labels["gpu"], labels["UUID"], labels["modelName"], labels["Hostname"]),
                                 ("0", gpu["uuid"], gpu["name"], socket.gethostname()))

    def check_monitoring_files(self, families):
        """The installed dashboard and alert rules use what the daemon serves."""
        queries = monitoring_files.all_queries()
        self.assertGreater(len(queries), 25)
        self.assertEqual(monitoring_files.check(families, queries), [])
        for query, named, complaint in (
                ("rate(hb_gpu_spent_seconds_total[5m])", [], "no metric hb_gpu_spent_seconds_total"),
                ('hb_gpu_tenants{role="low"}', [], "hb_gpu_tenants has no label role"),
                ('hb_mps_state{state="broken"}', [], "hb_mps_state has no state=broken"),
                ("sum by (card) (hb_gpu_lost)", [], "no metric has the label card"),
                ("hb_gpu_lost", ["card"], "no metric has the label card")):
            self.assertRegex("\n".join(monitoring_files.check(families, {"x": (query, named)})), f"x: .*{complaint}")

    def check_promtool(self, stack):
        promtool = shutil.which("promtool")
        if not promtool:
            print("promtool (Debian: prometheus) is not installed: only our own reader looked at the metrics")
            return
        text = get(stack, "/metrics")[1]
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=LIMIT,
                              check=False)
        # The label names of DCGM are not in snake_case. They are needed to join with its metrics, so this complaint is expected.
        complaints = [line for line in (done.stdout + done.stderr).splitlines() if "label names should be" not in line]
        self.assertEqual(complaints, [])
        broken = subprocess.run([promtool, "check", "metrics"], input=text.replace("_total{", "_total{{", 1),
                                capture_output=True, text=True, timeout=LIMIT, check=False)
        self.assertIn("error while linting", broken.stdout + broken.stderr)

    def test_a_process_that_is_not_a_tenant_is_counted(self):
        with Stack(config=CONFIG) as stack:
            stack.start_daemon()
            high = stack.start("high", "--wait", "train", 100, 1)
            high.expect("joined")
            self.assertEqual(metrics(stack)["hb_gpu_uncovered_processes"].values(), [0])
            bare = stack.bare("train", 300, 0)
            bare.expect("running")
            # A status request makes the daemon poll the GPU.
            wait_until("the process is seen", lambda: stack.status() and
                       metrics(stack)["hb_gpu_uncovered_processes"].values() == [1])
            bare.signal(signal.SIGTERM)
            bare.output()
            high.go()
            high.expect("done")
            high.go()
            high.output()

    def test_a_fault_of_a_gpu_is_shown_with_its_tenant(self):
        with Stack(config=CONFIG, mps=False) as stack:
            high = stack.start("high", "--wait", "train", 300, 20)
            high.expect("joined")
            tenant = stack.tenants()[0]
            pid = tenant["processes"][0]["pid"]
            self.assertEqual(metrics(stack)["hb_gpu_faults_total"].values(), [0])
            # The simulated driver reports the faults that are in this file.
            with open(os.path.join(stack.gpu_folder, "events"), "w", encoding="utf-8") as file:
                file.write(f"0 ecc\n0 xid 31 {pid}\n")
            wait_until("the fault is shown", lambda: stack.status()["gpus"][0]["health"]["faults"] == 2)
            health = stack.status()["gpus"][0]["health"]
            self.assertEqual((health["lost"], health["why"]), (False, ""))
            self.assertEqual((health["last"]["xid"], health["last"]["pid"], health["last"]["tenant"]),
                             (31, pid, tenant["id"]))
            self.assertEqual(health["last"]["user"], tenant["user"])
            families = metrics(stack)
            self.assertEqual([families[name].values() for name in ("hb_gpu_last_xid", "hb_gpu_faults_total", "hb_gpu_lost")],
                             [[31], [2], [0]])
            high.go()
            high.expect("done")
            high.go()
            self.assertTrue(high.result()["right"])

    def test_clients_cannot_exceed_the_limits(self):
        with Stack(config=CONFIG) as stack:
            stack.start_daemon()
            high = stack.start("high", "--wait", "train", 100, 1, HB_TEST_WORD="1")
            high.expect("joined")
            headers, body = get(stack, "/status.json")
            self.assertEqual(headers["Content-Type"], "application/json")
            self.assertEqual([t["command"] for t in json.loads(body)["tenants"]], ["cuda-tenant"])
            self.assertIn("--wait", stack.tenants()[0]["command"])
            self.assertIn("script-src 'unsafe-inline'", get(stack, "/")[0]["Content-Security-Policy"])
            for path, expected in (("/secret", 404), ("/metrics/", 404)):
                with self.assertRaises(urllib.error.HTTPError) as refused:
                    get(stack, path)
                self.assertEqual(refused.exception.code, expected)
                refused.exception.close()
            with self.assertRaises(urllib.error.HTTPError) as refused:
                get(stack, "/metrics", Host="evil.example")
            self.assertEqual(refused.exception.code, 403)
            refused.exception.close()
            self.check_bounds(address_of(stack), stack)
            high.go()
            high.expect("done")
            high.go()
            high.output()

    def check_bounds(self, address, stack):
        self.assertTrue(raw(address, b"DELETE / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405"))
        self.assertTrue(raw(address, b"GET /" + b"a" * 9000).startswith(b"HTTP/1.1 431"))
        head = raw(address, b"HEAD /metrics HTTP/1.1\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 200") and head.endswith(b"\r\n\r\n"))
        # Silent connections fill the table. One more closes the oldest of them and is answered.
        idle = [socket.create_connection(address, timeout=LIMIT) for _ in range(CONNECTIONS)]
        self.assertTrue(raw(address, b"GET /healthz HTTP/1.1\r\n\r\n").endswith(b"ok\n"))
        self.assertEqual(idle[0].recv(1), b"")
        self.assertIsNotNone(stack.status())
        for connection in idle:
            connection.close()

    def test_the_page_names_programs_of_a_fault_without_their_arguments(self):
        with Stack(scale=0.3, config=CONFIG) as stack:
            stack.start_daemon()
            victim = stack.start("low", "train", 500, 0)
            victim.expect("running")
            culprit = stack.start("low", "train", 500, 0, HB_SIM_ILLEGAL="20")
            for program in culprit, victim:
                self.assertNotEqual(program.ended(), 0)
            wait_until("the fault is known", lambda: stack.status()["daemon"]["mps"]["fault"])
            self.assertIn("train 500", stack.status()["daemon"]["mps"]["fault"]["command"])
            fault = json.loads(get(stack, "/status.json")[1])["daemon"]["mps"]["fault"]
            self.assertEqual({fault["command"], *(entry["command"] for entry in fault["harmed"])}, {"cuda-tenant"})

    def test_the_history_says_who_used_the_gpu_and_how_long_requests_took(self):
        with Stack(config=CONFIG) as stack:
            stack.start_daemon()
            high = stack.start("high", "infer", "--rate", 50, "--seconds", 3600, "--kernels", 8, options=("--slo", "1s"))
            low = stack.start("low", "train", 100000, 0)
            low.expect("running")

            def uses():
                history, roles = json.loads(get(stack, "/history.json")[1]), {t["id"]: t["priority"] for t in stack.tenants()}
                return history["gpus"][0]["history"], {roles[t["id"]]: t["gpus"][0]["history"] for t in history["tenants"]
                                                       if t["gpus"] and t["id"] in roles}

            def is_filled():
                tenants = uses()[1]
                return len(tenants) == 2 and any(tenants["high"].get("requests", [])) and "launches" in tenants["low"]
            wait_until("a step has requests", is_filled)
            gpu, tenants = uses()
            self.assertEqual({len(gpu[key]) for key in ("high_ppm", "low_ppm", "not_managed_ppm")}, {len(gpu["high_ppm"])})
            self.assertLess(gpu["age_ns"], 2 * gpu["step_ns"])
            self.assertGreater(gpu["high_ppm"][-1], 0)
            self.assertGreater(gpu["low_ppm"][-1], 0)
            self.assertEqual(gpu["high_ppm"][-1], tenants["high"]["share_ppm"][-1])
            self.assertTrue(0 < tenants["high"]["p50_ns"][-1] <= tenants["high"]["p99_ns"][-1])
            self.assertFalse(tenants["high"]["estimated"])
            self.assertNotIn("p99_ns", tenants["low"])
            self.assertNotIn("missed_low", tenants["high"])  # a request has a second
            self.assertGreater(gpu["low_launches"][-1], 0)
            self.assertGreaterEqual(gpu["low_launches"][-1], tenants["low"]["launches"][-1])
            self.assertEqual(gpu["high_bytes"][-1], tenants["high"]["memory_bytes"][-1])
            self.assertGreater(gpu["used_bytes"][-1], 0)
            status = json.loads(get(stack, "/status.json")[1])["gpus"][0]
            self.assertGreater(status["low_active_ppm"], 0)
            self.assertNotIn("history", status)
            used = metrics(stack)["hb_gpu_used_seconds_total"]
            self.assertTrue(all(0 < used.values(priority=role)[0] for role in ("high", "low")))
            self.assertTrue(all(0 <= share <= 1e6 for key in ("high_ppm", "low_ppm") for share in gpu[key]))
            for program in high, low:
                program.signal(signal.SIGTERM)
                program.ended()

    @unittest.skipUnless(cgroup_folder(), "no control group can be made here")
    def test_a_tenant_says_in_which_container_and_slurm_job_it_runs(self):
        job, container = str(os.getpid()), "c0ffee00" * 8
        top = os.path.join(cgroup_folder(), "slurm")
        made = [top, f"{top}/uid_0", f"{top}/uid_0/job_{job}", f"{top}/uid_0/job_{job}/docker-{container}.scope"]
        new = [path for path in made if not os.path.exists(path)]
        for path in new:
            os.mkdir(path)
        try:
            with Stack(config=CONFIG) as stack:
                stack.start_daemon()
                tenant = stack.spawn(["sh", "-c", f'echo $$ > {made[-1]}/cgroup.procs; exec "$@"', "sh", HB, "run", "--gpu",
                                      "sim", "--priority", "high", "--", TENANT, "--wait", "train", 100, 1])
                tenant.expect("joined")
                self.assertEqual(stack.tenants()[0]["place"], {"container": container, "pod": "", "namespace": "",
                                                               "slurm_job": job})
                info = metrics(stack)["hb_tenant_info"].samples[0][1]
                self.assertEqual((info["container_id"], info["slurm_job"]), (container, job))
                self.assertNotIn("pod_uid", info)
                shown = subprocess.run([HB, "status", "--gpu", "sim"], env=stack.environment, capture_output=True,
                                       text=True, timeout=LIMIT, check=True).stdout
                self.assertIn(f"runs in        container {container[:12]}, Slurm job {job}\n", shown)
                tenant.go()
                tenant.expect("done")
                tenant.go()
                tenant.ended()
        finally:
            for path in reversed(new):
                os.rmdir(path)

    def test_metrics_are_off_by_default_and_a_used_port_does_not_stop_the_daemon(self):
        with Stack() as stack:
            stack.start_daemon()
            self.assertEqual(stack.status()["daemon"]["metrics"]["address"], "")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with Stack(config=f"metrics: 127.0.0.1:{port}\n") as stack:
                stack.start_daemon()
                found = stack.status()["daemon"]["metrics"]
                self.assertEqual((found["address"], found["why"]),
                                 ("", f"127.0.0.1:{port}: address already in use"))


class Reader(unittest.TestCase):
    """The reader refuses wrong text."""
    GOOD = '# HELP hb_a_total text\n# TYPE hb_a_total counter\nhb_a_total{x="1"} 2\n'

    def test_good_text_is_read(self):
        self.assertEqual(prometheus_text.read(self.GOOD)["hb_a_total"].values(x="1"), [2])

    def test_bad_text_is_refused(self):
        for wrong, right in (("counter", "gauge"), ('"1"} 2', '"1"} 2\nhb_b 1'), ('"1"', '1'), ("hb_a_total{", "hb_b{"),
                             ("} 2\n", "} 2"), ("text", "text."), ("hb_a_total", "hb_a_ms_total"),
                             ('x="1"} 2', 'x="1"} 2\nhb_a_total{x="1"} 2'), ('{x="1"}', '{x="1",x="2"}')):
            with self.assertRaises(AssertionError, msg=right):
                prometheus_text.read(self.GOOD.replace(wrong, right))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    unittest.main()
