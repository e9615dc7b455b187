#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs hb-k8s in a real Kubernetes of one node on a simulated GPU: etcd, API server, scheduler, controllers, kubelet and
containerd. Kubernetes 1.20, which Debian 12 has as source, has no CDI in device plugins, so the plugin answers with mounts and
variables; it has no DRA.

usage: HB_BUILD=build PYTHONPATH=tests/end-to-end tests/k8s/try_cluster.py FOLDER

packaging/try_kubernetes.sh makes the programs in FOLDER and calls this. Needs root, gcc with a static libc, openssl, and cgroups (v1
or hybrid) that can be changed. Mounts and processes are in namespaces of their own, and end with it."""
import contextlib
import glob
import hashlib
import io
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import unittest
import urllib.error
import urllib.request

from stack import BUILD, TENANT, wait_until

FOLDERS = ("/var/lib/kubelet", "/var/log/pods", "/var/log/containers")
CGROUPS = ("/sys/fs/cgroup/*/kubepods", "/sys/fs/cgroup/kubepods")


def remove_cgroups():
    groups = [found for pattern in CGROUPS for found in glob.glob(pattern)]
    with contextlib.suppress(OSError):
        for group in groups:
            for folder, _, _ in os.walk(group, topdown=False):
                os.rmdir(folder)
        return True
    return False


def run_in_namespaces():
    """Runs this program again, and removes what the kubelet leaves outside of the namespaces."""
    missing = [path for path in FOLDERS if not os.path.exists(path)]
    if len(sys.argv) != 2 or os.geteuid():
        sys.exit(__doc__)
    if FOLDERS[0] not in missing and os.listdir(FOLDERS[0]):
        sys.exit(f"{FOLDERS[0]} is not empty: this machine has a kubelet")
    for path in missing:
        os.makedirs(path)
    environment = dict(os.environ, HB_IN_NAMESPACE=os.path.abspath(sys.argv[1]))
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
                           sys.executable, sys.argv[0]], env=environment, check=False)
    # The kernel ends the processes of the namespace in its own time.
    wait_until("the kubelet's cgroups are removed", remove_cgroups)
    for path in missing:
        os.rmdir(path)
    sys.exit(done.returncode)


if not os.environ.get("HB_IN_NAMESPACE"):
    run_in_namespaces()
PROGRAMS = os.environ["HB_IN_NAMESPACE"]

import fake_kubelet  # noqa: E402,F401  # may start this program again, with a Python that has grpcio
from test_device_plugin import HIGH, LOW, Node  # noqa: E402

PLUGINS = "/var/lib/kubelet/device-plugins"
IMAGE = "hummingbird-try/machine:1"
CONTAINERD = """version = 2
root = "{0}/root"
state = "{0}/state"
[grpc]
  address = "{0}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/{1}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "{0}/cni"
"""
# Pods use the network of the host, so this network is never made; without one the node would not be ready.
NETWORK = '{"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "bridge"}]}'
# Tokens of the API server: who has them, and in which groups.
USERS = {"admin": "system:masters", "system:node:try": "system:nodes", "system:kube-scheduler": "", "controllers": "system:masters"}
KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: try, cluster: {{server: "{0}", insecure-skip-tls-verify: true}}}}]
users: [{{name: me, user: {{token: "{1}"}}}}]
contexts: [{{name: try, context: {{cluster: try, user: me}}}}]
current-context: try
"""


class RealCluster:
    """In the place of our own kubelet in a Node: etcd, API server, scheduler, controllers, containerd and kubelet."""

    def __init__(self, node):
        self.node = node
        self.logs, self.processes = {}, {}
        self.folder = "/mnt/cluster"
        self.environment = dict(os.environ, PATH=f"{PROGRAMS}:{os.environ['PATH']}")
        self.environment.pop("LD_LIBRARY_PATH", None)
        self.ports = dict(zip(("etcd", "peer", "api", "scheduler", "controllers", "kubelet"), free_ports(6)))
        self.url = f"https://127.0.0.1:{self.ports['api']}"

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def start(self):
        os.mkdir(self.folder)
        self.start_containerd()
        self.start_api()
        self.spawn("kube-scheduler", f"--kubeconfig={self.kubeconfig('system:kube-scheduler')}", "--leader-elect=false", "--port=0",
                   "--bind-address=127.0.0.1", f"--secure-port={self.ports['scheduler']}")
        self.spawn("kube-controller-manager", f"--kubeconfig={self.kubeconfig('controllers')}", "--leader-elect=false", "--port=0",
                   "--bind-address=127.0.0.1", f"--secure-port={self.ports['controllers']}", f"--service-account-private-key-file={self.key}")
        self.start_kubelet()
        wait_until("the node is ready", lambda: self.alive() and self.node_condition("Ready") == "True", 300)

    def start_containerd(self):
        config = self.write("config.toml", CONTAINERD.format(self.folder, IMAGE))
        self.write("cni/none.conflist", NETWORK)
        self.socket = f"{self.folder}/containerd.sock"
        self.spawn("containerd", "--config", config)
        wait_until("containerd serves", lambda: self.alive() and os.path.exists(self.socket))
        archive = f"{self.folder}/image.tar"
        make_image(archive)
        subprocess.run([f"{PROGRAMS}/ctr", "--address", self.socket, "--namespace", "k8s.io", "images", "import", archive], check=True,
                       timeout=120, env=self.environment, stdout=subprocess.DEVNULL)

    def start_api(self):
        urls = {name: f"http://127.0.0.1:{self.ports[name]}" for name in ("etcd", "peer")}
        self.spawn("etcd", "--data-dir", f"{self.folder}/etcd", "--listen-client-urls", urls["etcd"], "--advertise-client-urls", urls["etcd"],
                   "--listen-peer-urls", urls["peer"], "--initial-advertise-peer-urls", urls["peer"], "--initial-cluster", f"default={urls['peer']}")
        self.key = f"{self.folder}/accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", self.key, "2048"], check=True, capture_output=True)
        tokens = self.write("tokens.csv", "".join(f'token-{user},{user},{user},"{groups}"\n' for user, groups in USERS.items()))
        self.spawn("kube-apiserver", f"--etcd-servers={urls['etcd']}", f"--secure-port={self.ports['api']}", "--bind-address=127.0.0.1",
                   f"--cert-dir={self.folder}/api", f"--token-auth-file={tokens}", "--authorization-mode=Node,RBAC", "--allow-privileged=true",
                   "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24", f"--service-account-key-file={self.key}",
                   f"--service-account-signing-key-file={self.key}", "--service-account-issuer=https://kubernetes.default.svc")
        wait_until("the API server is ready", lambda: self.alive() and self.answers("/readyz"), 300)

    def start_kubelet(self):
        self.spawn("kubelet", f"--kubeconfig={self.kubeconfig('system:node:try')}", "--container-runtime=remote",
                   f"--container-runtime-endpoint=unix://{self.socket}", "--cgroup-driver=cgroupfs", "--fail-swap-on=false",
                   "--hostname-override=try", "--eviction-hard=memory.available<1Mi", "--image-gc-high-threshold=100",
                   f"--pod-infra-container-image=docker.io/{IMAGE}", "--address=127.0.0.1", f"--port={self.ports['kubelet']}",
                   "--healthz-port=0", "--read-only-port=0")

    def kubeconfig(self, user):
        return self.write(f"{user}.kubeconfig", KUBECONFIG.format(self.url, f"token-{user}"))

    def spawn(self, name, *options):
        if name not in self.logs:
            self.logs[name] = tempfile.NamedTemporaryFile(suffix=name)
        self.processes[name] = subprocess.Popen([f"{PROGRAMS}/{name}", *options], stdout=self.logs[name], stderr=subprocess.STDOUT, env=self.environment)

    def alive(self):
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} has ended: {self.said(name)}"
        return True

    def said(self, name):
        with open(self.logs[name].name, encoding="utf-8", errors="replace") as file:
            return "".join([line for line in file if line[:1] in "EF" or "rror" in line][-15:])

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def stop(self):
        for name in reversed(list(self.processes)):
            self.processes[name].send_signal(signal.SIGTERM)
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)

    # --- the API ------------------------------------------------------------------------------------

    def request(self, method, path, body=None):
        """(status, answer) of a request of the administrator."""
        asked = urllib.request.Request(self.url + path, method=method, data=json.dumps(body).encode() if body else None,
                                       headers={"Authorization": "Bearer token-admin", "Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(asked, timeout=30, context=ssl._create_unverified_context()) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text[:1] == b"{" else text
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def answers(self, path):
        try:
            return self.request("GET", path)[0] == 200
        except (OSError, ValueError):
            return False

    def node_condition(self, kind):
        status, node = self.request("GET", "/api/v1/nodes/try")
        conditions = node["status"]["conditions"] if status == 200 else []
        return next((condition["status"] for condition in conditions if condition["type"] == kind), None)

    def allocatable(self, resource):
        return self.request("GET", "/api/v1/nodes/try")[1]["status"]["allocatable"].get(resource)

    def add_pod(self, name, resource, command, namespace="default"):
        mounts = [{"name": f"m{i}", "path": path} for i, path in enumerate(("/usr", BUILD))]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": {
            "hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [{
                "name": name, "image": f"docker.io/{IMAGE}", "imagePullPolicy": "Never", "command": [str(word) for word in command],
                "resources": {"limits": {resource: "1"}},
                "volumeMounts": [{"name": mount["name"], "mountPath": mount["path"], "readOnly": True} for mount in mounts]}],
            "volumes": [{"name": mount["name"], "hostPath": {"path": mount["path"]}} for mount in mounts]}}
        return self.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)

    def pod(self, name):
        return self.request("GET", f"/api/v1/namespaces/default/pods/{name}")[1]

    def why_pending(self, name):
        conditions = self.pod(name)["status"].get("conditions", [])
        return next((condition.get("message", "") for condition in conditions if condition["type"] == "PodScheduled" and condition["status"] == "False"), "")

    def remove_pod(self, name):
        assert self.request("DELETE", f"/api/v1/namespaces/default/pods/{name}")[0] == 200
        wait_until(f"pod {name} is gone", lambda: self.pod(name).get("code") == 404)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def make_image(path):
    """An image with this machine's folders as links to /usr, which pods mount, and a program that only waits."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "wait.c")
        with open(source, "w", encoding="ascii") as file:
            file.write("#include <unistd.h>\nint main(void) { for (;;) pause(); }\n")
        subprocess.run(["gcc", "-static", "-o", os.path.join(folder, "wait"), source], check=True)
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            tar.add(os.path.join(folder, "wait"), "wait")
            for name in "bin", "sbin", "lib", "lib64":
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, "usr/" + name
                tar.addfile(link)
            for name in "usr", "run", "opt", "tmp", "proc", "sys", "dev", "etc":
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/wait"]},
                         "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]}}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as tar:
        for name, data in ("config.json", config), ("layer.tar", layer.getvalue()), ("manifest.json", manifest):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


class RealNode(Node):
    def __init__(self):
        super().__init__("--answer", "mounts")
        self.sockets = PLUGINS

    def __enter__(self):
        super(Node, self).__enter__()
        for path in (*FOLDERS, "/mnt"):
            subprocess.run(["mount", "-t", "tmpfs", "none", path], check=True)
        subprocess.run(["mount", "--make-rshared", "/var/lib/kubelet"], check=True)
        os.makedirs(PLUGINS)
        self.write_cdi()
        self.kubelet = RealCluster(self)
        try:
            self.kubelet.start()
            self.start_plugin()
        except BaseException:
            self.show(self.kubelet)
            self.kubelet.stop()
            raise
        return self

    @staticmethod
    def show(cluster):
        for name in cluster.logs:
            print(f"--- {name}\n{cluster.said(name)}", flush=True)

    def __exit__(self, kind, value, trace):
        if kind:
            self.show(self.kubelet)
        super().__exit__(kind, value, trace)


SERVICE = [TENANT, "infer", "--rate", 50, "--seconds", 3600, "--kernels", 4]
TRAINING = [TENANT, "train", 1000000, 0]


class InARealCluster(unittest.TestCase):
    def test_pods_of_both_priorities(self):
        with RealNode() as node:
            cluster = node.kubelet
            wait_until("the node has both resources", lambda: (cluster.allocatable(HIGH), cluster.allocatable(LOW)) == ("1", "4"))
            wait_until("the namespace has its account", lambda: cluster.answers("/api/v1/namespaces/default/serviceaccounts/default"))
            self.both_run(node, cluster)
            self.the_scheduler_counts(cluster)
            self.quotas_refuse(cluster)
            self.faults(node, cluster)
            for name in "training", "next":
                cluster.remove_pod(name)
            wait_until("no pod is a tenant", lambda: not node.tenant_with("infer") and not node.tenant_with("train"))

    def both_run(self, node, cluster):
        for name, resource, command in (("service", HIGH, SERVICE), ("training", LOW, TRAINING)):
            self.assertEqual(cluster.add_pod(name, resource, command)[0], 201)
        found = [wait_until(f"{word} is a tenant", lambda word=word: node.tenant_with(word)) for word in ("infer", "train")]
        self.assertEqual([tenant["priority"] for tenant in found], ["high", "low"])
        uids = [cluster.pod(name)["metadata"]["uid"] for name in ("service", "training")]
        self.assertEqual([tenant["place"]["pod"] for tenant in found], uids)
        print(json.dumps([{key: tenant[key] for key in ("priority", "command", "place")} for tenant in found], indent=1))
        wait_until("the service has requests", lambda: node.tenant_with("infer")["gpus"][0]["requests"] > 10)

    def the_scheduler_counts(self, cluster):
        """A second pod of high priority waits, because the GPU has one unit."""
        cluster.add_pod("next", HIGH, SERVICE)
        wait_until("the scheduler says why it waits", lambda: f"Insufficient {HIGH}" in cluster.why_pending("next"))

    def quotas_refuse(self, cluster):
        """The quota of docs/kubernetes.md."""
        cluster.request("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "batch"}})
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-high-priority"}, "spec": {"hard": {f"requests.{HIGH}": "0"}}}
        self.assertEqual(cluster.request("POST", "/api/v1/namespaces/batch/resourcequotas", quota)[0], 201)
        wait_until("the quota is known", lambda: cluster.request("GET", "/api/v1/namespaces/batch/resourcequotas/no-high-priority")[1].get("status", {}).get("used"))
        wait_until("the namespace has its account", lambda: cluster.answers("/api/v1/namespaces/batch/serviceaccounts/default"))
        status, answer = cluster.add_pod("forbidden", HIGH, SERVICE, "batch")
        self.assertEqual(status, 403)
        self.assertIn("exceeded quota: no-high-priority", answer["message"])

    def faults(self, node, cluster):
        """Kubelet, plugin and daemon die: both pods continue, and what was waiting runs in the end."""
        pids = [node.tenant_with(word)["processes"][0]["pid"] for word in ("infer", "train")]
        running = lambda: [(node.tenant_with(word) or {"processes": [{"pid": 0}]})["processes"][0]["pid"] for word in ("infer", "train")]
        cluster.kill("kubelet")
        self.assertEqual(running(), pids)
        cluster.start_kubelet()
        node.plugin.process.kill()
        node.plugin.ended()
        wait_until("the units are gone", lambda: cluster.allocatable(HIGH) == "0")
        self.assertEqual(running(), pids)
        node.start_plugin()
        wait_until("the node has its units again", lambda: cluster.allocatable(HIGH) == "1")
        node.daemon.process.kill()
        node.daemon.ended()
        node.start_daemon()
        wait_until("both pods have joined the next daemon", lambda: running() == pids)
        self.assertEqual([node.tenant_with(word)["priority"] for word in ("infer", "train")], ["high", "low"])
        cluster.remove_pod("service")
        following = wait_until("the next service runs", lambda: node.tenant_with("infer"))
        self.assertEqual((following["priority"], following["place"]["pod"]), ("high", cluster.pod("next")["metadata"]["uid"]))


if __name__ == "__main__":
    unittest.main()
