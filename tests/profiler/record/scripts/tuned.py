"""Lets Triton choose between kernels, and prints its choice and how many it compiles."""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"SIZE": size}) for size in (128, 64, 32)], key=["n"])
@triton.jit
def add_one(x, n, SIZE: tl.constexpr):
    places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(x + places, tl.load(x + places, mask=places < n) + 1, mask=places < n)


numbers = torch.zeros(1000, device="cuda")
add_one[lambda given: (triton.cdiv(1000, given["SIZE"]),)](numbers, 1000)
compiled = sum(len(kernels[0]) for kernels in add_one.fn.device_caches.values())
print("taken", add_one.best_config.kwargs["SIZE"], "of", compiled)
