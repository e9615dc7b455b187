#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CEL expressions of packaging/kubernetes/dra, with a CEL library of another project: which claims and templates want high
priority, which slices a driver may write, and which devices belong to the device classes."""
import os
import re
import unittest

from python_modules import find_module

find_module("cel_expr_python", "cel-expr-python pyyaml", "no package of Debian has CEL")
import yaml  # noqa: E402
from cel_expr_python import cel  # noqa: E402
from cel_expr_python.ext import ext_optional  # noqa: E402

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../packaging/kubernetes/dra")
HIGH, LOW, OTHER = "hummingbird-high", "hummingbird-low", "gpu.nvidia.com"
USER = {"username": "system:serviceaccount:hummingbird:hummingbird", "extra": {"authentication.kubernetes.io/node-name": ["node-1"]}}


def read(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return {found["metadata"]["name"]: found["spec"] for found in yaml.safe_load_all(file) if "Binding" not in found["kind"]}


def evaluate(expression, **values):
    environment = cel.NewEnv(variables={name: cel.Type.DYN for name in values}, extensions=[ext_optional.ExtOptional()])
    result = environment.compile(expression).eval(data=values)
    assert result.type() == cel.Type.BOOL, (expression, result.value())
    return result.value()


class Policies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.policies = read("admission.yaml")

    def expand(self, policy, expression):
        """The expression with the policy's variables in it."""
        for variable in reversed(self.policies[policy]["variables"]):
            expression = re.sub(rf"\bvariables\.{variable['name']}\b", lambda _, found=variable: f"({found['expression']})", expression)
        self.assertNotIn("variables.", expression)
        return expression

    def is_allowed(self, spec, may_use):
        (validation,) = self.policies[HIGH]["validations"]
        expression = self.expand(HIGH, validation["expression"])
        question = 'authorizer.group("resource.k8s.io").resource("deviceclasses").name("hummingbird-high").check("use").allowed()'
        self.assertIn(question, expression)
        return evaluate(expression.replace(question, "allowed"), object={"spec": spec}, allowed=may_use)

    def test_only_those_who_may_use_the_class_claim_high_priority(self):
        def exactly(*names):
            return {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": name}} for name in names]}}
        for spec, wants_high in (
                (exactly(HIGH), True), (exactly(LOW), False), (exactly(LOW, HIGH), True), (exactly(LOW, OTHER), False), (exactly(), False),
                ({"spec": exactly(HIGH)}, True), ({"spec": exactly(LOW)}, False),
                ({"devices": {"requests": [{"name": "a", "deviceClassName": HIGH}]}}, True),
                ({"devices": {"requests": [{"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": LOW},
                                                                            {"name": "c", "deviceClassName": HIGH}]}]}}, True),
                ({"devices": {"requests": [{"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": LOW}]}]}}, False),
                ({"devices": {}}, False), ({}, False)):
            self.assertTrue(self.is_allowed(spec, True), spec)
            self.assertEqual(self.is_allowed(spec, False), not wants_high, spec)

    def test_a_driver_writes_the_slice_of_its_node_only(self):
        policy = self.policies["hummingbird-own-node"]
        self.assertTrue(evaluate(policy["matchConditions"][0]["expression"], request={"userInfo": USER}))
        self.assertFalse(evaluate(policy["matchConditions"][0]["expression"], request={"userInfo": USER | {"username": "kubelet"}}))

        def may_write(operation, user=USER, **spec):
            found = {"spec": {"driver": "hummingbird.dev", "nodeName": "node-1"} | spec}
            given = {"object": {} if operation == "DELETE" else found, "oldObject": found if operation == "DELETE" else {},
                     "request": {"operation": operation, "userInfo": user}}
            return all(evaluate(self.expand("hummingbird-own-node", validation["expression"]), **given) for validation in policy["validations"])
        for operation in "CREATE", "UPDATE", "DELETE":
            self.assertTrue(may_write(operation))
            self.assertFalse(may_write(operation, nodeName="node-2"))
            self.assertFalse(may_write(operation, driver="gpu.nvidia.com"))
            self.assertFalse(may_write(operation, USER | {"extra": {}}))

    def test_classes_have_the_devices_of_their_priority(self):
        for name, spec in read("device-classes.yaml").items():
            (selector,) = spec["selectors"]
            for priority in "high", "low":
                device = {"driver": "hummingbird.dev", "attributes": {"hummingbird.dev": {"priority": priority}}}
                self.assertEqual(evaluate(selector["cel"]["expression"], device=device), name == f"hummingbird-{priority}")
            self.assertFalse(evaluate(selector["cel"]["expression"], device={"driver": OTHER, "attributes": {}}))


if __name__ == "__main__":
    unittest.main()
