"""Measures how long single kernels and copies take on this machine's GPU, over sizes:

    kernel_times.py [--few]

Prints a line of JSON a case, of 20 repetitions by the GPU's own events, each after all earlier work
has ended: median, least and most in microseconds, and the work: floating-point operations or bytes
read and written.
"""

import itertools
import json
import sys
from functools import partial

import torch
from torch.nn import functional

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
REPETITIONS, WARM_UP, FEW = 20, 3, 2


def timed(function):
    for _ in range(WARM_UP):
        function()
    times = []
    for _ in range(REPETITIONS):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        first.record()
        function()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) * 1e3)
    times.sort()
    return {"median_us": times[len(times) // 2], "least_us": times[0], "most_us": times[-1]}


def made(*shape, dtype):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def products():
    sizes = (128, 256, 512, 1024, 2048, 4096, 8192)
    shapes = [(n, n, n) for n in sizes] + [
        (1088, 128, 384),
        (1088, 128, 128),
        (6304, 1024, 4096),
        (6304, 4096, 1024),
        (2048, 2048, 8192),
        (2048, 2048, 128256),
        (64, 4096, 4096),
        (4096, 4096, 64),
    ]
    for (m, k, n), dtype in itertools.product(shapes, DTYPES):
        a, b = made(m, k, dtype=DTYPES[dtype]), made(k, n, dtype=DTYPES[dtype])
        yield f"gemm {m}x{k}x{n} {dtype}", 2 * m * k * n, "operations", lambda a=a, b=b: a @ b


def attentions():
    shapes = (
        (64, 2, 17, 64),
        (32, 16, 197, 64),
        (8, 16, 1024, 64),
        (1, 32, 2048, 64),
        (1, 32, 4096, 128),
        (1, 32, 16384, 128),
    )
    for (batch, heads, tokens, width), causal in itertools.product(shapes, (False, True)):
        q = made(batch, heads, tokens, width, dtype=torch.bfloat16)
        work = 4 * batch * heads * tokens * tokens * width // (2 if causal else 1)
        name = f"attention b{batch}h{heads}t{tokens}d{width}{' causal' if causal else ''}"
        attend = partial(functional.scaled_dot_product_attention, q, q, q, is_causal=causal)
        yield name, work, "operations", attend


def memory_bound():
    for power, dtype in itertools.product(range(12, 29, 4), DTYPES):
        x = made(1 << power, dtype=DTYPES[dtype]).view(-1, min(1 << power, 1024))
        size = x.nbytes
        operators = {
            "add": (3 * size, lambda x=x: x + x),
            "copy": (2 * size, x.clone),
            "zero": (size, x.zero_),
            "cast": (
                x.numel() * 6,
                lambda x=x: x.to(torch.float32 if x.dtype == torch.bfloat16 else torch.bfloat16),
            ),
            "gelu": (2 * size, lambda x=x: functional.gelu(x)),
            "softmax": (2 * size, lambda x=x: x.softmax(-1)),
            "layer_norm": (2 * size, lambda x=x: functional.layer_norm(x, x.shape[1:])),
            "sum": (size, x.sum),
        }
        for name, (work, function) in operators.items():
            yield f"{name} 2^{power} {dtype}", work, "bytes", function


def copies():
    for power, pinned in itertools.product(range(12, 30, 4), (False, True)):
        host = torch.empty(1 << power, dtype=torch.uint8, pin_memory=pinned)
        there = torch.empty(1 << power, dtype=torch.uint8, device="cuda")
        word = "pinned" if pinned else "pageable"
        yield (
            f"to the GPU 2^{power} {word}",
            1 << power,
            "bytes",
            lambda h=host, t=there, p=pinned: t.copy_(h, non_blocking=p),
        )
        yield (
            f"from the GPU 2^{power} {word}",
            1 << power,
            "bytes",
            lambda h=host, t=there, p=pinned: h.copy_(t, non_blocking=p),
        )


def main():
    torch.backends.cuda.enable_cudnn_sdp(False)
    for family in (products, attentions, memory_bound, copies):
        cases = itertools.islice(family(), FEW) if "--few" in sys.argv else family()
        for name, work, unit, function in cases:
            print(json.dumps({"case": name, unit: work, **timed(function)}), flush=True)


if __name__ == "__main__":
    main()
