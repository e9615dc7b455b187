# SPDX-License-Identifier: Apache-2.0
"""Computes probabilities from scores. It uses lists instead of arrays, so Python 3 is all it needs."""
import math

from hummingbird import worker


def softmax(row):
    powers = [math.exp(score - max(row)) for score in row]
    return [power / sum(powers) for power in powers]


def infer(scores):  # named as the input in model.yaml; one row for each item of the batch
    return {"probabilities": [softmax(row) for row in scores]}


worker.serve(infer, lists=True)
