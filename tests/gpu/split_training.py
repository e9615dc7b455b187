#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a model for some steps and prints a JSON object whose digests must not depend on splitting.

    split_training.py resnet50|gpt [STEPS]

Started by tests/gpu/split_check.py with and without the shim. Deterministic algorithms only; the digests cover every
step's loss and the final parameters bit for bit, and outputs of matrix products and convolutions of many sizes.
"""

import hashlib
import json
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402
from torch import nn  # noqa: E402


class Gpt(nn.Module):
    def __init__(self, vocabulary=8192, width=1024, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)))


def make(name):
    if name == "gpt":
        model = Gpt().cuda()
        data = [torch.randint(0, 8192, (4, 512), device="cuda") for _ in range(4)]
        return model, [(x, x.roll(1, 1).flatten()) for x in data], lambda out: out.flatten(0, 1)
    import torchvision

    model = torchvision.models.resnet50().cuda()
    data = [(torch.randn(8, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (8,), device="cuda")) for _ in range(4)]
    return model, data, lambda out: out


def digest(tensors):
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().flatten().cpu().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def library_outputs():
    """Computes matrix products (cuBLAS) and convolutions (cuDNN) of usual and unusual sizes."""
    found = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for m, n, k in ((4096, 4096, 1024), (1000, 3000, 777), (8192, 512, 4096), (64, 65536, 128)):
            found.append(torch.randn(m, k, device="cuda").to(dtype) @ torch.randn(k, n, device="cuda").to(dtype))
        for channels, size, kernel in ((64, 112, 3), (256, 56, 1), (128, 57, 5)):
            x = torch.randn(32, channels, size, size, device="cuda").to(dtype)
            w = torch.randn(channels, channels, kernel, kernel, device="cuda").to(dtype)
            found.append(nn.functional.conv2d(x, w, padding=kernel // 2))
    return digest(found)


def main():
    name, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_mem_efficient_sdp(False)  # its backward pass is not deterministic
    torch.backends.cuda.enable_flash_sdp(False)
    outputs = library_outputs() if name == "gpt" else None
    model, data, shape = make(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    losses = []
    for step in range(steps):
        if step == 20:
            torch.cuda.synchronize()
            begin = time.monotonic()
        x, y = data[step % len(data)]
        loss = nn.functional.cross_entropy(shape(model(x)), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    took = time.monotonic() - begin
    print(json.dumps({"model": name, "steps": steps, "losses": digest(losses), "parameters": digest(model.parameters()),
                      "libraries": outputs, "each_loss": [loss.item() for loss in losses],
                      "step_ms": 1e3 * took / (steps - 20)}))


if __name__ == "__main__":
    main()
