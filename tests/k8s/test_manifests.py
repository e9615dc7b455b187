#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manifests in packaging/kubernetes, also with the component dra: each object has only fields that Kubernetes has, with the right types and all that are
required, as Kubernetes' own Python client knows them; every container has the least rights; and the commands of the containers run,
with the folders that the manifest mounts. The ResourceSlice that `hb-k8s dra` writes is checked in the same way."""
import json
import os
import re
import signal
import subprocess
import tempfile
import unittest

from python_modules import find_module

find_module("kubernetes", "kubernetes", "python3-kubernetes")
import yaml  # noqa: E402
from kubernetes.client import models  # noqa: E402
from fake_api_server import ApiServer  # noqa: E402
from test_stack_containers import SPACES, Containers, namespaces_work  # noqa: E402
from stack import BUILD, HBD, SHIM, wait_until  # noqa: E402

SOURCE = os.path.dirname(os.path.abspath(__file__)) + "/../.."
FOLDER = os.path.join(SOURCE, "packaging/kubernetes")
KINDS = {kind: "V1" + kind for kind in (
    "ClusterRole", "ClusterRoleBinding", "DaemonSet", "DeviceClass", "Namespace", "ResourceSlice", "ServiceAccount",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")}
CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_PTRACE", "SYSLOG"]


def check_value(kind, value, path):
    """Yields what is wrong with a value of a type of the client, such as "dict(str, V1Container)"."""
    listed = re.fullmatch(r"[Ll]ist\[(.*)\]", kind)
    mapped = re.fullmatch(r"[Dd]ict[(\[](\w+), ?(.*)[)\]]", kind)
    if listed or mapped:
        if not isinstance(value, list if listed else dict):
            yield f"{path}: is not {kind}"
            return
        items = enumerate(value) if listed else value.items()
        for key, item in items:
            yield from check_value(listed.group(1) if listed else mapped.group(2), item, f"{path}[{key}]")
    elif hasattr(models, kind):
        yield from check_object(getattr(models, kind), value, path)
    elif not isinstance(value, {"str": str, "int": int, "bool": bool, "object": object, "float": float}[kind]):
        yield f"{path}: {value!r} is not {kind}"


def check_object(model, value, path):
    if not isinstance(value, dict):
        yield f"{path}: is not an object"
        return
    names = {key: name for name, key in model.attribute_map.items()}
    for key, item in value.items():
        if key not in names:
            yield f"{path}.{key}: there is no such field"
        else:
            yield from check_value(model.openapi_types[names[key]], item, f"{path}.{key}")
    try:
        model(**{names[key]: item for key, item in value.items() if key in names})
    except ValueError as error:
        yield f"{path}: {error}"


def read_yaml(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return list(yaml.safe_load_all(file))


def merge(base, patch):
    """What kustomize does with a strategic merge patch: lists of named objects are merged by name."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return base | {key: merge(base[key], value) if key in base else value for key, value in patch.items()}
    if isinstance(base, list) and all(isinstance(item, dict) and "name" in item for item in base + patch):
        named = {item["name"]: item for item in base}
        for item in patch:
            if item.get("$patch") == "delete":
                del named[item["name"]]
            else:
                named[item["name"]] = merge(named.get(item["name"], {}), item)
        return list(named.values())
    return patch


class Manifests(unittest.TestCase):
    COMMAND = "device-plugin"

    @classmethod
    def load(cls):
        return [found for name in cls.base["resources"] for found in read_yaml(name)]

    @classmethod
    def setUpClass(cls):
        cls.base = read_yaml("kustomization.yaml")[0]
        cls.objects = cls.load()
        cls.pod = next(found for found in cls.objects if found["kind"] == "DaemonSet")["spec"]["template"]["spec"]
        cls.containers = {found["name"]: found for found in cls.pod["initContainers"] + cls.pod["containers"]}

    def test_objects_are_those_of_kubernetes(self):
        for found in self.objects:
            errors = list(check_object(getattr(models, KINDS[found["kind"]]), found, found["kind"]))
            self.assertEqual(errors, [])

    def test_errors_would_be_found(self):
        pod = json.loads(json.dumps(self.pod))
        pod["containers"][0]["volumeMount"] = []
        pod["containers"][1]["readinessProbe"]["periodSeconds"] = "10"
        del pod["initContainers"][0]["name"]
        pod["volumes"][0]["hostPath"] = "/run"
        errors = "\n".join(check_object(models.V1PodSpec, pod, "pod"))
        for text in ("pod.containers[0].volumeMount: there is no such field", "periodSeconds: '10' is not int",
                     "pod.initContainers[0]: ", "hostPath: is not an object"):
            self.assertIn(text, errors)

    def test_names_refer_to_each_other(self):
        volumes = {volume["name"]: volume for volume in self.pod["volumes"]}
        for container in self.containers.values():
            for mount in container["volumeMounts"]:
                self.assertIn(mount["name"], volumes)
        used = {mount["name"] for container in self.containers.values() for mount in container["volumeMounts"]}
        self.assertEqual(used, set(volumes))
        self.assertEqual([volumes["config"]["configMap"]["name"]], [made["name"] for made in self.base["configMapGenerator"]])
        # What tenants mount must have the same path on the node as where the specification was written.
        for container in self.containers.values():
            for mount in container["volumeMounts"]:
                path = volumes[mount["name"]].get("hostPath", {}).get("path")
                self.assertIn(path, (None, mount["mountPath"]))
        names = {(found["kind"], found["metadata"]["name"]) for found in self.objects}
        for found in self.objects:
            if "roleRef" in found:
                self.assertIn((found["roleRef"]["kind"], found["roleRef"]["name"]), names)
            if "policyName" in found.get("spec", {}):
                self.assertIn(("ValidatingAdmissionPolicy", found["spec"]["policyName"]), names)

    def test_rights_are_the_least(self):
        self.assertFalse(self.pod["automountServiceAccountToken"])
        self.assertFalse(self.pod.get("hostNetwork") or self.pod.get("hostIPC"))
        for name, container in self.containers.items():
            rights = container["securityContext"]
            self.assertFalse(rights.get("privileged") or rights["allowPrivilegeEscalation"], name)
            self.assertTrue(rights["readOnlyRootFilesystem"], name)
            self.assertEqual(rights["capabilities"]["drop"], ["ALL"], name)
            self.assertEqual(rights["capabilities"].get("add", []), CAPABILITIES if name == "daemon" else [], name)

    def test_the_configuration_and_the_options_are_accepted(self):
        path = os.path.join(FOLDER, self.base["configMapGenerator"][0]["files"][0])
        subprocess.run([HBD, "--check-config", "--config", path], check=True)
        command = self.containers[self.COMMAND]["command"]
        self.assertEqual(command[1], self.COMMAND)
        subprocess.run([os.path.join(BUILD, "src/k8s", command[0]), *command[1:], "--help"], check=True, stdout=subprocess.DEVNULL)

    @unittest.skipUnless(namespaces_work(), "namespaces cannot be made here")
    def test_the_shim_gets_to_the_node(self):
        shim = self.containers["shim"]
        folders = [mount["mountPath"] for mount in shim["volumeMounts"]]
        with tempfile.TemporaryDirectory() as node:
            prepare = ["set -e", "mount --make-rprivate /", "for f in /opt /run /etc /var/lib; do mount -t tmpfs none $f; done",
                       f"mkdir -p /opt/hummingbird/lib/hummingbird {' '.join(folders)}",
                       f"cp {SHIM}/libcuda.so.1 {BUILD}/src/signs/libhb-signs.so /opt/hummingbird/lib/hummingbird"]
            check = [f"cp /etc/cdi/hummingbird.json {node}", "cmp /opt/hummingbird/lib/hummingbird/libcuda.so.1 "
                     "/var/lib/hummingbird-shim/libcuda.so.1", "test ! -e /var/lib/hummingbird-shim/.new"]
            # Twice: an upgrade does the same again.
            script = "\n".join(prepare + [shim["args"][0]] * 2 + check)
            environment = os.environ | {"PATH": f"{BUILD}:{os.environ['PATH']}"}
            environment.pop("HB_SOCKET", None)
            subprocess.run([*SPACES, "sh", "-ec", script], check=True, env=environment, stdout=subprocess.DEVNULL, timeout=120)
            with open(os.path.join(node, "hummingbird.json"), encoding="utf-8") as file:
                specification = json.load(file)
        paths = [mount["hostPath"] for mount in specification["containerEdits"]["mounts"]]
        self.assertEqual(paths, ["/var/lib/hummingbird-shim/libcuda.so.1", "/var/lib/hummingbird-shim/libhb-signs.so", "/run/hummingbird"])


class ManifestsWithDra(Manifests):
    COMMAND = "dra"

    @classmethod
    def load(cls):
        component = read_yaml("dra/kustomization.yaml")[0]
        patches = [read_yaml("dra/" + patch["path"])[0] for patch in component["patches"]]
        objects = super().load()
        for patch in patches:
            i = next(i for i, found in enumerate(objects) if all(
                found[key] == patch[key] for key in ("kind", "apiVersion")) and found["metadata"]["name"] == patch["metadata"]["name"])
            objects[i] = merge(objects[i], patch)
        return objects + [found for name in component["resources"] for found in read_yaml("dra/" + name)]

    def test_only_the_driver_has_a_token_and_its_rights_are_the_least(self):
        with_token = [name for name, container in self.containers.items()
                      if any("serviceaccount" in mount["mountPath"] for mount in container["volumeMounts"])]
        self.assertEqual(with_token, ["dra"])
        self.assertNotIn("device-plugin", self.containers)
        roles = {found["metadata"]["name"]: found["rules"] for found in self.objects if found["kind"] == "ClusterRole"}
        rights = {(rule["resources"][0], verb) for rule in roles["hummingbird-dra"] for verb in rule["verbs"]}
        self.assertEqual(rights, {("resourceslices", "get"), ("resourceslices", "create"), ("resourceslices", "update"),
                                  ("resourceclaims", "get"), ("nodes", "get")})

    @unittest.skipUnless(namespaces_work(), "namespaces cannot be made here")
    def test_the_slice_is_one_of_kubernetes(self):
        with SliceOnly() as node:
            found = wait_until("the slice is published", node.api.slice)
            self.assertEqual(list(check_object(models.V1ResourceSlice, found, "ResourceSlice")), [])
            self.assertEqual(len(found["spec"]["devices"]), 2)
            # The rights that the manifests give suffice.
            used = {(method, path.split("/")[3] if path.startswith("/api/") else path.split("/")[4]) for method, path in node.api.requests}
            self.assertLessEqual(used, {("GET", "nodes"), ("GET", "resourceslices"), ("POST", "resourceslices"), ("PUT", "resourceslices")})


class SliceOnly(Containers):
    """A node whose driver publishes, without a kubelet."""

    def __enter__(self):
        super().__enter__()
        credentials = os.path.join(self.folder, "credentials")
        os.mkdir(credentials)
        self.api = ApiServer(credentials).__enter__()
        cdi = os.path.join(self.folder, "hummingbird.json")
        with open(cdi, "w", encoding="utf-8") as file:
            json.dump(self.specification, file)
        os.mkdir(os.path.join(self.folder, "kubelet"))
        self.driver = self.spawn([os.path.join(BUILD, "src/k8s/hb-k8s"), "dra", "--gpu", "sim", "--node", self.api.node, "--api", self.api.address,
                                  "--credentials", credentials, "--kubelet", os.path.join(self.folder, "kubelet"), "--cdi", cdi,
                                  "--claims", os.path.join(self.folder, "cdi")])
        return self

    def __exit__(self, *kinds):
        self.driver.signal(signal.SIGTERM)
        assert self.driver.ended() == 0, self.driver.stderr()
        self.api.__exit__()
        super().__exit__(*kinds)


if __name__ == "__main__":
    unittest.main()
