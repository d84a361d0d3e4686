"""Phase 8: histories that PyTorch keeps of its own allocator on the GPU, with the driver's addresses,
beside the same programs on the null device: expandable segments, private pools of CUDA graphs,
sharding, settings of the allocator. They are kept to check later versions with."""

import base64
import json
import lzma
import os

import machine as machines
from phase_programs import check_modules, environment, full_words
from results import Failed, first_difference
from steps import Step, measured, mib

ASKED = ("alloc", "free_requested", "oom")  # when a free is completed is up to the GPU
MOST_LANES = 5
EXPANDABLE = "expandable_segments:True"
HISTORY_LIMIT_S = 150

# Words after keep_history.py, and PYTORCH_CUDA_ALLOC_CONF.
HISTORIES = {
    "llama": (["llama.py"], ""),
    "plain": (["transformer.py", "--strategy", "plain"], ""),
    "plain, expandable": (["transformer.py", "--strategy", "plain"], EXPANDABLE),
    "fsdp2": (["transformer.py", "--bf16", "--optimizer", "fused"], ""),
    "fsdp2, expandable": (["transformer.py", "--bf16", "--optimizer", "fused"], EXPANDABLE),
    "fsdp2 recomputed": (["transformer.py", "--checkpoint-activations", "--clip", "1"], ""),
    "fsdp2 offloaded": (["transformer.py", "--offload"], ""),
    "fsdp1": (["transformer.py", "--strategy", "fsdp1"], ""),
    "ddp": (["transformer.py", "--strategy", "ddp"], ""),
    "resnet": (["resnet.py"], ""),
    "graphs": (["graphs.py"], ""),
    "graphs, expandable": (["graphs.py"], EXPANDABLE),
    "compiled": (["compiled.py", "plain"], ""),
    "compiled in graphs": (["compiled.py", "graphs"], ""),
    "trainer": (["trainer.py"], ""),
    "split at most": (["transformer.py", "--strategy", "plain"], "max_split_size_mb:32"),
    "rounded up": (["transformer.py", "--strategy", "plain"], "roundup_power2_divisions:4"),
    "llama, expandable": (["llama.py"], EXPANDABLE),
}
FEW = ("graphs",)
NEEDS_VALUES = "ddp"  # compares what NCCL brings from other ranks


def history(machine, folder, place, words, settings):
    """Returns what keep_history.py keeps of a program."""
    out = folder / "history.json"
    env = environment(place, has_cudnn=False)
    if settings:
        env["PYTORCH_CUDA_ALLOC_CONF"] = settings
    command = [machine.python, machines.PROGRAMS / "keep_history.py", out, *full_words(words)]
    code, said, error = machines.run(command, env=env, limit_s=HISTORY_LIMIT_S)
    if code != 0:
        raise Failed(f"exit code {code}: {machines.last_line(said, error)}")
    return json.loads(out.read_text())


def null_place(machine, capacity_bytes=None):
    return machine.stubbed_environment() | ({"SHARDLENS_NULL_CAPACITY": str(capacity_bytes)} if capacity_bytes else {})


def asked(kept):
    """Returns what the program asked for and gave back, a line each; the driver's part is left out."""
    return [f"{one[0]} {one[2]}" for one in kept["events"] if one[0] in ASKED]


def beside_bytes(kept):
    """Returns the bytes that the device has in use beside PyTorch's allocator."""
    reserved = kept["counters"]["reserved_bytes.all.current"]
    return kept["total_bytes"] - kept["free_bytes"] - reserved


def packed(kept):
    return base64.b64encode(lzma.compress(json.dumps(kept).encode(), preset=6)).decode()


def compare(machine, folder, words, settings, is_alone):
    check_modules(words, machine.python)
    if NEEDS_VALUES in words:
        machine.needs_gpu("brings no values from a rank, at which this program looks")
    on_gpu = history(machine, folder, machine.gpu_environment(), words, settings)
    data = {"words": words, "settings": settings, "history_xz": packed(on_gpu)}
    if NEEDS_VALUES in words:
        return measured(f"{len(on_gpu['events'])} events; not on the null device, which brings no "
                        "values from a rank", **data)
    capacity = on_gpu["total_bytes"] - beside_bytes(on_gpu) if is_alone else None
    try:
        place = null_place(machine, None if machine.is_rehearsal else capacity)
        on_null = history(machine, folder, place, words, settings)
    except Failed as error:
        return {"verdict": "differs", "said": f"on the null device: {error}", **data}
    difference = first_difference(asked(on_gpu), asked(on_null))
    reserved = [one["counters"]["reserved_bytes.all.peak"] for one in (on_gpu, on_null)]
    said = f"{len(on_gpu['events'])} events, reserved {mib(reserved[0])}"
    said += "" if reserved[0] == reserved[1] else f", {mib(reserved[1])} on the null device"
    said += f", {mib(beside_bytes(on_gpu))} beside" if is_alone else ""
    if difference:
        data["null_xz"] = packed(on_null)
    return {
        "verdict": "differs" if difference else "same",
        "said": f"{said}; {difference}" if difference else said,
        "null_counters": on_null["counters"],
        **data,
    }


def steps(machine):
    lanes = max(1, min(MOST_LANES, (os.cpu_count() or 1) // 3))
    return [
        Step(
            name,
            lambda folder, w=words, s=settings: compare(machine, folder, w, s, is_alone=False),
            lanes,
        )
        for name, (words, settings) in HISTORIES.items()
        if not machine.few or name in FEW
    ]
