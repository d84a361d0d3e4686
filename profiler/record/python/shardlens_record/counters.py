"""Keeps PyTorch's own counters for the whole run: they are noted before the program resets them."""

import functools

from .guards import guarded, replace

_LOST = "PyTorch's counters from before the program reset them are unknown"

_kept = {}  # by device, then by name: the counters from before the last reset


def _peaks(stats):
    return {f"peak_{name}": stats[name]["all"]["peak"] for name in ("allocated_bytes",
                                                                    "reserved_bytes")}


def _sums(stats):
    of_blocks = stats["allocation"]["all"]
    return {"retries": stats["num_alloc_retries"], "allocations": of_blocks["allocated"],
            "frees": of_blocks["freed"]}


def over_resets(device, since):
    """Returns the counters of the whole run under the names of `since`, the counters since the last
    reset. A peak is the larger of the two, a sum their sum."""
    kept = _kept.get(device, {})
    whole = dict(since)
    for name, value in since.items():
        if name.startswith("peak_"):
            whole[name] = max(value, kept.get(name, 0))
        elif name in ("retries", "allocations", "frees"):
            whole[name] = value + kept.get(name, 0)
    return whole


def of_whole_run(torch, device):
    """Returns peaks and sums of the whole run, and what is in use now, for one GPU. Sizes are in
    bytes."""
    stats = torch._C._cuda_memoryStats(device)
    now = {name: stats[name]["all"]["current"] for name in ("allocated_bytes", "reserved_bytes")}
    return over_resets(device, _peaks(stats) | _sums(stats) | now)


def of_other_gpus(torch, recorded):
    """Returns the GPUs that this process used besides the recorded one, with their peaks."""
    peaks = []
    for gpu in range(torch._C._cuda_getDeviceCount()):
        found = of_whole_run(torch, gpu)
        if gpu != recorded and found["allocations"]:
            peaks.append({"gpu": gpu, "allocated_bytes": found["peak_allocated_bytes"],
                          "reserved_bytes": found["peak_reserved_bytes"]})
    return peaks


def mib_text(size):
    return f"{size / 2**20:.2f} MiB"


def doubt_of(other, recorded):
    """Says what a recording lacks that another GPU of its process had."""
    allocated, reserved = mib_text(other["allocated_bytes"]), mib_text(other["reserved_bytes"])
    return (f"GPU {other['gpu']} is left out: this process had up to {allocated} allocated and "
            f"{reserved} reserved there; this is the memory of GPU {recorded}, and --gpu-index "
            f"{other['gpu']} records the other")


def _keep(counters, torch, device):
    since = counters(torch._C._cuda_memoryStats(device))
    _kept.setdefault(device, {}).update(over_resets(device, since))


def keep_over_resets(torch, is_recording):
    for name, counters in {
        "_cuda_resetPeakMemoryStats": _peaks,
        "_accelerator_resetPeakStats": _peaks,
        "_cuda_resetAccumulatedMemoryStats": _sums,
        "_accelerator_resetAccumulatedStats": _sums,
    }.items():
        if hasattr(torch._C, name):
            keep = guarded(_LOST)(functools.partial(_keep, counters, torch))
            replace(torch._C, name, functools.partial(_resetting, keep, is_recording))


def _resetting(keep, is_recording, inner):
    @functools.wraps(inner)
    def reset(device):
        if is_recording():
            keep(device)
        return inner(device)

    return reset
