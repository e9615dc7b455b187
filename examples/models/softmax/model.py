# SPDX-License-Identifier: Apache-2.0
"""Probabilities from scores. The arrays are of a whole batch, named as in model.yaml."""
import numpy
from hummingbird import worker


def infer(scores):
    powers = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    return {"probabilities": powers / powers.sum(axis=1, keepdims=True)}


worker.serve(infer)
