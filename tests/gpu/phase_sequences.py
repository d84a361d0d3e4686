"""Phase 2: what our ranks ask of LibTorch's allocator on the GPU, event by event, beside the
null device of its name; and, for ranks that share the GPU, what the ledger leaves
unexplained."""

import os

import machine as machines
from results import Failed, compared
from steps import Step, events, mib, report, train

STEPS = 3
MODELS = {
    "vit-tutorial": ["--batch", "64"],
    "vit-l16": ["--batch", "8"],
    "llama-1b": ["--batch", "1", "--seq", "512"],
    "transformer": ["--batch", "4"],
}
STRATEGIES = {
    "fsdp": ["--workers", "8"],
    "ddp": ["--strategy", "ddp", "--workers", "2"],
    "kept": ["--reshard-after-forward", "false", "--workers", "8"],
    "recomputed": ["--recompute", "full", "--clip-norm", "0.5", "--workers", "8"],
    "offloaded": ["--offload", "all", "--workers", "8"],
    "single": ["--strategy", "single"],
    "hsdp": ["--strategy", "hsdp", "--replicas", "2", "--workers", "8"],
    "accumulated": ["--accumulate", "2", "--sync", "last", "--workers", "8"],
    "parameters": ["--offload", "params", "--workers", "8"],
    "reshard-2": ["--reshard-after-forward", "2", "--workers", "8"],
}
DTYPES = ("bf16", "fp32", "fp16")
FEW = [
    ("fsdp", "bf16", "vit-tutorial"),
    ("offloaded", "fp32", "transformer"),
    ("hsdp", "fp16", "vit-tutorial"),
]
MOST_LANES = 6  # the models of this many lanes fit an H100 together


def cases(few):
    """(strategy, dtype, model), the most worth knowing first."""
    if few:
        return FEW
    return [
        (strategy, dtype, model) for strategy in STRATEGIES for dtype in DTYPES for model in MODELS
    ]


def flags_of(strategy, dtype, model):
    return [
        "--model",
        model,
        *MODELS[model],
        *STRATEGIES[strategy],
        "--param-dtype",
        dtype,
        "--steps",
        str(STEPS),
    ]


def allocations(start, device, flags):
    """Returns the lines of print_allocations, except the first, which must name the GPU."""
    out = start([machines.BIN / "print_allocations", "--device", device, *flags])
    name, *lines = out.splitlines()
    if not name.startswith("gpu "):
        raise Failed(f"print_allocations began with {name!r}")
    return lines


def on_null(machine, flags):
    """Raises NotChecked where the null device does not know this GPU."""
    machine.needs_null_device()
    return allocations(machine.on_null, machine.null, flags)


def compare(machine, flags):
    on_gpu = allocations(machine.on_gpu, "cuda", flags)
    return compared(on_gpu, on_null(machine, flags), program="print_allocations", flags=flags)


def ranks_of_one_gpu(machine, folder, workers):
    """Runs ranks that share the GPU and exchange through host memory over Gloo. The recorder's
    events of every rank are compared with those on the null device."""
    flags = [
        "--model",
        "vit-tutorial",
        "--workers",
        str(workers),
        "--communicator",
        "gloo",
        "--steps",
        str(STEPS),
        "--profile",
        "on",
        "--anyway",
    ]
    train(machine, folder, "cuda", *flags)
    train(machine, folder, machine.null, *flags)
    seen = {
        name: [
            f"rank {rank} {line}"
            for rank in range(workers)
            for line in events(machine, folder / name, rank, folder)
        ]
        for name in ("cuda", "null")
    }
    ledgers = [rank["ledger"] for rank in report(machine, folder / "cuda")]
    result = compared(seen["cuda"], seen["null"], program="train", flags=flags, ledgers=ledgers)
    told = ", ".join(mib(ledger["residual_bytes"]) for ledger in ledgers)
    return result | {"said": f"{result['said']}; the ledgers leave {told} unexplained"}


def steps(machine):
    lanes = max(1, min(MOST_LANES, (os.cpu_count() or 1) // 2))
    found = [
        Step(" ".join(case), lambda _, case=case: compare(machine, flags_of(*case)), lanes)
        for case in cases(machine.few)
    ]
    for workers in (2,) if machine.few else (2, 4):
        found.append(
            Step(
                f"{workers} ranks over Gloo",
                lambda folder, workers=workers: ranks_of_one_gpu(machine, folder, workers),
            )
        )
    return found
