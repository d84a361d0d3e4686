"""Phase 5: what the GPU computes: losses beside the CPU's, beside those of ranks on the CPU, and
beside PyTorch's own training with the same weights and samples on the same GPU."""

import gzip
import json
import random

import machine as machines
from results import Failed
from steps import Step, train_command

STEPS = 20
IMAGES, TEST_IMAGES = 2560, 256
PIXELS = 28 * 28
COMPUTES_NOTHING = "computes nothing, so it has no losses"
GPU_TESTS = {
    "losses of one rank": "a GPU's losses are the CPU's",
    "sharding over streams": "sharding over several streams gives the same as one stream",
}
# Relative differences. fp32 is without TF32; bf16 rounds products at 2^-9, and 20 steps add up.
CLOSE = {"fp32": 1e-4, "bf16": 2e-2}


def gpu_test(machine, name):
    machine.on_null([machines.BIN / "gpu_tests", "--list-tests", name])
    machine.needs_gpu(COMPUTES_NOTHING)
    machine.on_gpu([machines.BIN / "gpu_tests", name], limit_s=200)
    return {"verdict": "passed", "said": "as close as the test wants"}


def write_images(folder):
    """Makes a data set in MNIST's format, the same each time, whose labels can be learnt."""
    engine = random.Random(7)
    folder.mkdir()
    for word, count in (("train", IMAGES), ("t10k", TEST_IMAGES)):
        labels = bytes(engine.randrange(10) for _ in range(count))
        pixels = bytearray(engine.randbytes(count * PIXELS))
        for index, label in enumerate(labels):
            start = index * PIXELS + label * 2 * 28
            pixels[start : start + 56] = b"\xff" * 56
        write_idx(folder / f"{word}-images-idx3-ubyte.gz", (count, 28, 28), pixels)
        write_idx(folder / f"{word}-labels-idx1-ubyte.gz", (count,), labels)


def write_idx(path, sizes, content):
    head = bytes([0, 0, 8, len(sizes)]) + b"".join(size.to_bytes(4, "big") for size in sizes)
    path.write_bytes(gzip.compress(head + bytes(content), 1))


def losses(machine, folder, name, device, *flags):
    start = machine.on_gpu if device == "cuda" else machine.on_null
    told = ["--steps", str(STEPS), "--log-every", "1", "--checkpoint-every", "none"]
    start(train_command(folder, name, device, *told, *flags, data=folder / "data"))
    lines = (folder / name / "metrics.jsonl").read_text().splitlines()
    found = [row["loss"] for row in map(json.loads, lines) if "step" in row and "loss" in row]
    if len(found) != STEPS:
        raise Failed(f"{len(found)} losses of {name}, not {STEPS}")
    return found


def largest_difference(one, other):
    return max(abs(a / b - 1) for a, b in zip(one, other))


def close(machine, limit, on_gpu, **others):
    """Compares the GPU's losses with all others."""
    machine.needs_gpu(COMPUTES_NOTHING)
    differences = {name: largest_difference(on_gpu, losses_) for name, losses_ in others.items()}
    is_close = all(difference <= limit for difference in differences.values())
    said = ", ".join(f"{name} {value:.1e}" for name, value in differences.items())
    return {
        "verdict": "same" if is_close else "differs",
        "limit": limit,
        "losses": on_gpu,
        "differences": differences,
        "said": f"largest relative difference from {said}; " f"allowed {limit:.0e}",
    }


def two_ranks(machine, folder):
    write_images(folder / "data")
    on_gpu = losses(machine, folder, "gpu", "cuda", "--workers", "2", "--communicator", "gloo")
    on_cpu = losses(machine, folder, "cpu", "cpu", "--workers", "2")
    return close(machine, CLOSE["fp32"], on_gpu, CPU=on_cpu)


def beside_pytorch(machine, folder, dtype):
    write_images(folder / "data")
    flags = ["--strategy", "single", "--param-dtype", dtype]
    ours = losses(machine, folder, "gpu", "cuda", *flags)
    rows = machine.python_rows("losses.py", folder / "data", dtype, str(STEPS))
    if len(rows) != STEPS:
        raise Failed(f"{len(rows)} losses of PyTorch, not {STEPS}")
    theirs = [row["loss"] for row in rows]
    return close(machine, CLOSE[dtype], ours, PyTorch=theirs)


def steps(machine):
    found = [
        Step(name, lambda _, test=test: gpu_test(machine, test)) for name, test in GPU_TESTS.items()
    ]
    found.append(Step("two ranks on one GPU", lambda folder: two_ranks(machine, folder)))
    return found + [
        Step(
            f"PyTorch on this GPU, {dtype}",
            lambda folder, dtype=dtype: beside_pytorch(machine, folder, dtype),
        )
        for dtype in (("fp32",) if machine.few else CLOSE)
    ]
