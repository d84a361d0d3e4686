"""Measures what PyTorch's operators take on this machine's GPU while they run, over a grid of
shapes:

    workspaces.py [--few]

Prints a line of JSON a case: `peak_bytes`, the most that PyTorch's allocator gave beyond what was
allocated before, `kept_bytes`, those of them that are left with the results, `outside_bytes`, by
which memory outside PyTorch grew, or `error`. Every case runs twice and the second time counts: the
first one loads modules."""

import gc
import itertools
import json
import sys
from functools import partial

import torch
from torch import nn
from torch.nn import functional

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FEW = 2  # cases in a family


def made(*shape, dtype=torch.float32, learns=True):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=learns)


def backward(*outputs):
    torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])


def convolution(dims, shape, weight, options, dtype, layout):
    options = dict(options)
    operator = getattr(functional, f"conv{options.pop('kind', '')}{dims}d")
    image, kernel = made(*shape, dtype=dtype), made(*weight, dtype=dtype)
    if layout == "last" and dims == 2:
        image = image.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    output = operator(image, kernel, **options)
    backward(output)
    return output, image.grad, kernel.grad


def convolutions():
    shapes = {
        "resnet-stem": (2, (32, 3, 224, 224), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
        "resnet-3x3": (2, (32, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
        "resnet-1x1": (2, (32, 256, 56, 56), (64, 256, 1, 1), {}),
        "resnet-down": (2, (32, 256, 56, 56), (512, 256, 1, 1), {"stride": 2}),
        "resnet-deep": (2, (32, 512, 7, 7), (512, 512, 3, 3), {"padding": 1}),
        "depthwise": (2, (32, 128, 56, 56), (128, 1, 3, 3), {"padding": 1, "groups": 128}),
        "grouped": (2, (32, 128, 28, 28), (256, 4, 3, 3), {"padding": 1, "groups": 32}),
        "patches-14": (2, (32, 3, 224, 224), (1280, 3, 14, 14), {"stride": 14}),
        "patches-16": (2, (32, 3, 224, 224), (1024, 3, 16, 16), {"stride": 16}),
        "dilated": (2, (8, 64, 64, 64), (64, 64, 3, 3), {"padding": 2, "dilation": 2}),
        "audio": (1, (16, 80, 3000), (512, 80, 3), {"padding": 1}),
        "video": (3, (2, 16, 16, 56, 56), (32, 16, 3, 3, 3), {"padding": 1}),
        "transposed": (
            2,
            (16, 128, 28, 28),
            (128, 64, 4, 4),
            {"kind": "_transpose", "stride": 2, "padding": 1},
        ),
    }
    for (name, (dims, shape, weight, options)), dtype, layout in itertools.product(
        shapes.items(), DTYPES, ("first", "last")
    ):
        if layout == "last" and dims != 2:
            continue
        case = (dims, shape, weight, options, DTYPES[dtype], layout)
        yield f"convolution {name} {dtype} {layout}", partial(convolution, *case)


def attend(backend, shape, keys, is_causal, dtype):
    query, key, value = (made(*size, dtype=dtype) for size in (shape, keys, keys))
    with nn.attention.sdpa_kernel(backend):
        output = functional.scaled_dot_product_attention(
            query, key, value, is_causal=is_causal, enable_gqa=shape[1] != keys[1]
        )
    backward(output)
    return output, query.grad, key.grad, value.grad


def attentions():
    kinds = nn.attention.SDPBackend
    backends = {
        "flash": kinds.FLASH_ATTENTION,
        "efficient": kinds.EFFICIENT_ATTENTION,
        "cudnn": kinds.CUDNN_ATTENTION,
        "math": kinds.MATH,
    }
    shapes = {
        "b8h12t197d64": ((8, 12, 197, 64), (8, 12, 197, 64)),
        "b4h16t1024d64": ((4, 16, 1024, 64), (4, 16, 1024, 64)),
        "b1h32t4096d128": ((1, 32, 4096, 128), (1, 32, 4096, 128)),
        "b2h32kv8t2048d128": ((2, 32, 2048, 128), (2, 8, 2048, 128)),
        "b2h16t777d80": ((2, 16, 777, 80), (2, 16, 777, 80)),
    }
    for backend, (name, sizes), is_causal, dtype in itertools.product(
        backends, shapes.items(), (False, True), ("bf16", "fp16")
    ):
        word = " causal" if is_causal else ""
        case = (backends[backend], *sizes, is_causal, DTYPES[dtype])
        yield f"attention {backend} {name}{word} {dtype}", partial(attend, *case)


def recur(kind, layers, width, batch, tokens, is_both_ways, dtype):
    module = getattr(nn, kind)(
        width, width, layers, bidirectional=is_both_ways, device="cuda", dtype=dtype
    )
    x = made(tokens, batch, width, dtype=dtype)
    output = module(x)[0]
    backward(output)
    return output, x.grad, [parameter.grad for parameter in module.parameters()], module


def recurrences():
    for kind, (layers, width), (batch, tokens), both, dtype in itertools.product(
        ("LSTM", "GRU", "RNN"),
        ((1, 256), (2, 1024)),
        ((16, 64), (64, 200)),
        (False, True),
        ("fp32", "fp16"),
    ):
        name = f"{kind} {layers}x{width} b{batch}t{tokens}{' both ways' if both else ''} {dtype}"
        yield name, lambda a=(kind, layers, width, batch, tokens, both), t=dtype: recur(
            *a, DTYPES[t]
        )


def transforms():
    sizes = {
        "1d": (64, 4096),
        "1d-prime": (64, 4099),
        "1d-long": (4, 1 << 20),
        "2d": (16, 512, 512),
        "2d-odd": (16, 500, 300),
        "3d": (4, 64, 64, 64),
    }
    for (name, shape), kind in itertools.product(sizes.items(), ("fft", "rfft")):
        operator = getattr(torch.fft, kind if name.startswith("1d") else kind + "n")
        yield f"{kind} {name}", lambda f=operator, s=shape: f(made(*s, learns=False))


def positive(shape):
    x = made(*shape, learns=False)
    return x @ x.mT + shape[-1] * torch.eye(shape[-1], device="cuda")


def factorizations():
    operators = {
        "cholesky": torch.linalg.cholesky,
        "qr": torch.linalg.qr,
        "svd": torch.linalg.svd,
        "eigh": torch.linalg.eigh,
        "inv": torch.linalg.inv,
        "lu": torch.linalg.lu_factor,
        "solve": lambda x: torch.linalg.solve(x, x),
        "lstsq": lambda x: torch.linalg.lstsq(x, x),
    }
    shapes = ((64, 64), (512, 512), (2048, 2048), (32, 64, 64), (8, 512, 512))
    for (name, operator), shape in itertools.product(operators.items(), shapes):
        yield f"{name} {'x'.join(map(str, shape))}", lambda f=operator, s=shape: f(positive(s))


def batch_norm(dtype):
    module, x = nn.BatchNorm2d(256, device="cuda"), made(32, 256, 56, 56, dtype=dtype)
    output = module(x)
    backward(output)
    return output, x.grad, module


def others():
    for dtype in DTYPES:
        yield f"batch norm {dtype}", lambda t=dtype: batch_norm(DTYPES[t])
    yield "grid sample", lambda: functional.grid_sample(
        made(8, 32, 64, 64), torch.rand(8, 64, 64, 2, device="cuda"), align_corners=False
    )
    yield "ctc", lambda: functional.ctc_loss(
        made(200, 16, 64).log_softmax(-1),
        torch.ones(16, 30, dtype=torch.int32),
        torch.full((16,), 200, dtype=torch.int32),
        torch.full((16,), 30, dtype=torch.int32),
    )
    for count in (1000, 1 << 20):
        yield f"sort {count}", lambda n=count: torch.sort(made(n, learns=False))
        yield f"topk {count}", lambda n=count: torch.topk(made(n, learns=False), 100)
        yield f"multinomial {count}", lambda n=count: torch.multinomial(
            torch.rand(n, device="cuda"), 10
        )


def outside_bytes():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def take(case):
    """Returns a dict of what it took the second time."""
    before_outside = outside_bytes()
    case()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = case()
    row = {
        "peak_bytes": torch.cuda.max_memory_allocated() - before,
        "kept_bytes": torch.cuda.memory_allocated() - before,
    }
    del kept
    return row | {"outside_bytes": outside_bytes() - before_outside}


def main():
    families = (convolutions, attentions, recurrences, transforms, factorizations, others)
    for family in families:
        cases = family()
        if "--few" in sys.argv:
            cases = itertools.islice(cases, FEW)
        for name, case in cases:
            try:
                row = take(case)
            except Exception as error:  # pylint: disable=broad-except
                row = {"error": f"{type(error).__name__}: {error}"[:200]}
            gc.collect()
            print(json.dumps({"case": name, **row}), flush=True)


if __name__ == "__main__":
    main()
