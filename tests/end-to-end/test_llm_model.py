# SPDX-License-Identifier: Apache-2.0
"""The benchmark's language model: its Triton kernels against plain PyTorch, and decoding in blocks against one pass over the
whole text. Skipped (status 77) without PyTorch; the kernels' part needs Triton, whose interpreter runs them on the CPU.

usage: test_llm_model.py SOURCE_FOLDER
"""
import importlib.util
import os
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    print("skipped: python3 has no module torch")
    sys.exit(77)
os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, os.path.join(sys.argv.pop(1), "bench/llm"))
import llm_kernels  # noqa: E402  pylint: disable=wrong-import-position
import torch  # noqa: E402  pylint: disable=wrong-import-position
from llm_blocks import BlockPool, Scheduler, Sequence  # noqa: E402  pylint: disable=wrong-import-position
from llm_engine import Engine  # noqa: E402  pylint: disable=wrong-import-position
from llm_model import SHAPES  # noqa: E402  pylint: disable=wrong-import-position

HEADS, KV_HEADS, SIZE, BLOCK = 4, 2, 32, 16


def without_triton():
    llm_kernels.INTERPRETED = False


@unittest.skipIf(llm_kernels.triton is None, "no Triton")
class Kernels(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def compare(self, function):
        try:
            llm_kernels.INTERPRETED = True
            kernel = function()
        except Exception as error:
            if "0-dimensional arrays" in str(error):
                self.skipTest("this Triton's interpreter does not work with this numpy")
            raise
        finally:
            without_triton()
        self.assertLess((kernel - function()).abs().max().item(), 1e-4)

    def test_norm_with_and_without_a_sum(self):
        x, delta, weight = torch.randn(5, 96), torch.randn(5, 96), torch.rand(96)

        def add(with_delta):
            changed = x.clone()
            return torch.cat([llm_kernels.add_norm(changed, delta if with_delta else None, weight), changed])
        self.compare(lambda: add(True))
        self.compare(lambda: add(False))

    def test_gate(self):
        x = torch.randn(3, 192)
        self.compare(lambda: llm_kernels.gate(x))

    def test_rotation_and_the_cache(self):
        qkv = torch.randn(3, (HEADS + 2 * KV_HEADS) * SIZE)
        positions, slots = torch.tensor([1, 7, 99], dtype=torch.int32), torch.tensor([5, 0, 40], dtype=torch.int32)
        cosine, sine = torch.rand(100, SIZE // 2), torch.rand(100, SIZE // 2)

        def rotate():
            caches = torch.zeros(2, 64, KV_HEADS, SIZE)
            q = llm_kernels.rotate_store(qkv, positions, slots, cosine, sine, HEADS, KV_HEADS, caches)
            return torch.cat([q.flatten(), caches.flatten()])
        self.compare(rotate)

    def test_attention_over_blocks(self):
        caches, q = torch.randn(2, BLOCK * 40, KV_HEADS, SIZE), torch.randn(3, HEADS, SIZE)
        tables = torch.randperm(39)[:36].view(3, 12).int() + 1
        lengths = torch.tensor([1, 70, 190], dtype=torch.int32)
        self.compare(lambda: llm_kernels.attend_blocks(q, caches, tables, lengths, BLOCK))


class Decoding(unittest.TestCase):
    def generate(self, chunk, sequences, together):
        """Tokens of each sequence; `together`: in one batch, else one after another."""
        without_triton()
        scheduler = Scheduler(BlockPool(32), BLOCK, 4, chunk, 128)
        with torch.inference_mode():
            engine = Engine(SHAPES["tiny"], scheduler, False, "cpu")
            for sequence in sequences:
                scheduler.add(sequence)
                while not together and (step := scheduler.next_step()) is not None:
                    scheduler.complete(step, *engine.run(step))
            while (step := scheduler.next_step()) is not None:
                scheduler.complete(step, *engine.run(step))
        self.assertEqual(len(scheduler.pool.free), 31)
        return [sequence.generated for sequence in sequences], engine

    @staticmethod
    def requests():
        return [Sequence(list(range(3 + i, 40 + 9 * i)), 12) for i in range(3)]

    def test_parts_of_prompts_and_batches_do_not_change_the_answers(self):
        alone, engine = self.generate(128, self.requests(), False)
        self.assertEqual([len(one) for one in alone], [12, 12, 12])
        self.assertEqual(self.generate(10, self.requests(), True)[0], alone)
        # The same token follows when prompt and answer are processed in one pass.
        prompt = self.requests()[1].prompt + alone[1][:-1]
        with torch.inference_mode():
            there = torch.tensor(prompt)
            token = engine.model.prefill(there, torch.arange(len(prompt)), BLOCK + torch.arange(len(prompt)))
        self.assertEqual(int(token), alone[1][-1])


if __name__ == "__main__":
    unittest.main()
