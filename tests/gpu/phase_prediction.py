"""Phase 4: what `shardlens plan` says before a run beside the memory that the device had in use
during it, with the published figures and with the calibration that phase 1 recorded; and verdicts
when memory is scarce."""

import base64
import contextlib
import json
import lzma
import pathlib

import machine as machines
import results
from results import Failed, NotChecked
from steps import SHARDLENS, Step, mib, report, train, train_command

CASES = {
    "vit-tutorial": ["--model", "vit-tutorial", "--strategy", "single", "--batch", "64"],
    "vit-l16 bf16": [
        "--model",
        "vit-l16",
        "--strategy",
        "single",
        "--batch",
        "32",
        "--param-dtype",
        "bf16",
    ],
    "vit-l16 offloaded": [
        "--model",
        "vit-l16",
        "--strategy",
        "single",
        "--batch",
        "8",
        "--offload",
        "all",
    ],
    "llama-1b bf16": [
        "--model",
        "llama-1b",
        "--strategy",
        "single",
        "--batch",
        "1",
        "--param-dtype",
        "bf16",
    ],
    "llama-1b recomputed": [
        "--model",
        "llama-1b",
        "--strategy",
        "single",
        "--batch",
        "2",
        "--param-dtype",
        "bf16",
        "--recompute",
        "full",
    ],
    "transformer": ["--model", "transformer", "--strategy", "single", "--batch", "8"],
}
FEW = ("vit-tutorial",)
NEAR_LIMIT = ("vit-l16 bf16", "llama-1b bf16")
FEW_NEAR_LIMIT = ("vit-tutorial",)
NEAR_BYTES = 256 << 20  # as far above and below the least memory a verdict is tried
STEPS = ["--steps", "3"]
NOTHING_OUTSIDE = {"context_bytes": 0, "modules_bytes": 0, "nccl_bytes_a_communicator": 0}


def calibration(machine, folder):
    """Returns a file for --calibration. A null device has nothing outside the allocator, which is
    said in the same way. Raises NotChecked if phase 1 has left no recording."""
    if machine.is_rehearsal:
        path = folder / "nothing.json"
        path.write_text(json.dumps(NOTHING_OUTSIDE))
        return path
    facts = pathlib.Path(machine.about["results"]) / "1-facts.json"
    try:
        phase = results.read(facts)
    except ValueError as error:
        raise NotChecked(f"there is no calibration: {error}") from error
    packed = next((step["slp_xz"] for step in phase["steps"] if "slp_xz" in step), None)
    if packed is None or phase["gpu"] != machine.gpu:
        raise NotChecked(f"{facts} has no calibration of this GPU; run phase 1 again")
    path = folder / "calibration.slp"
    path.write_bytes(lzma.decompress(base64.b64decode(packed)))
    return path


def plan(machine, flags, *more):
    """Plans. Exit codes 3 and 4, for what does not fit or hardly does, are answers too."""
    command = [
        SHARDLENS,
        "plan",
        "--gpu",
        machine.gpu,
        "--data",
        "synthetic",
        "--json",
        *STEPS,
        *flags,
        *more,
    ]
    code, out, error = machines.run(command, env=machine.null_environment())
    if code not in (0, 3, 4):
        raise Failed(f"plan ended with exit code {code}: {machines.last_line(error)}")
    return json.loads(out)


def beside(machine, folder, name):
    """The allocator's peaks must be the same; for the device's memory in use the error is
    reported."""
    result = train(machine, folder, "cuda", *STEPS, "--profile", "on", *CASES[name])
    used = report(machine, folder / "cuda")[0]["ledger"]["device_used_bytes"]
    cold = plan(machine, CASES[name])
    peak = result["memory"]["peak"]
    planned = {key: cold["peak"][key] for key in peak}
    data = {
        "flags": CASES[name],
        "measured": peak,
        "planned": planned,
        "device_used_bytes": used,
        "cold_device_bytes": cold["peak"]["device_bytes"],
    }
    said = f"allocator {mib(peak['reserved_bytes'])}"
    if planned != peak:
        return {"verdict": "differs", "said": f"{peak} measured, {planned} planned", **data}
    try:
        data["calibrated_device_bytes"] = plan(
            machine, CASES[name], "--calibration", calibration(machine, folder)
        )["peak"]["device_bytes"]
        calibrated = signed(data["calibrated_device_bytes"] - used)
    except NotChecked as reason:
        calibrated = f"not checked ({reason})"
    if machine.is_rehearsal:
        exact = data["calibrated_device_bytes"] == used
        said += (
            f", device {mib(used)}; not checked: published figures, of which a null device has none"
        )
        return {"verdict": "same" if exact else "differs", "said": said, **data}
    said += (
        f"; device {mib(used)} in use; plan's error: {signed(data['cold_device_bytes'] - used)} "
        f"with published figures, {calibrated} calibrated"
    )
    return {"verdict": "same", "said": said, **data}


def signed(count):
    return f"{'+' if count >= 0 else '-'}{mib(abs(count))}"


@contextlib.contextmanager
def memory_of(machine, free_bytes):
    """Returns (variables, bytes) that leave about that much memory for one more program: another
    process holds the rest of a GPU; a null device is made that small."""
    if machine.is_rehearsal:
        yield {"SHARDLENS_NULL_CAPACITY": str(free_bytes)}, free_bytes
        return
    holder = machines.start(
        [machine.python, machines.PROGRAMS / "hold_memory.py", str(free_bytes)],
        env=machine.gpu_environment(),
    )
    try:
        line = holder.stdout.readline()
        if not line.strip().isdigit():
            raise Failed(f"the rest of the memory cannot be held: {line.strip()}")
        yield {}, int(line)
    finally:
        machines.end(holder)
        holder.communicate()


def near(machine, folder, name, distance_bytes):
    """Runs with that much more, or less, than the plan's least: does it end as plan says?"""
    outside = ["--calibration", calibration(machine, folder)]
    least = plan(machine, CASES[name], *outside)["least_capacity_bytes"]["any"]
    with memory_of(machine, least + distance_bytes) as (variables, capacity):
        verdict = plan(machine, CASES[name], *outside, "--capacity", str(capacity))["verdict"]
        command = train_command(folder, "near", "cuda", "--anyway", *STEPS, *CASES[name])
        code, out, error = machines.run(command, env=machine.gpu_environment() | variables)
    ran_out = code != 0 and "out of memory" in out + error
    if code != 0 and not ran_out:
        raise Failed(f"exit code {code}: {machines.last_line(out, error)}")
    agrees = (verdict == "does_not_fit") == ran_out
    said = (
        f"{mib(capacity)} there, {mib(least)} least: plan says {verdict}, the run "
        f"{'ran out of memory' if ran_out else 'ended well'}"
    )
    return {
        "verdict": "same" if agrees else "differs",
        "said": said,
        "capacity_bytes": capacity,
        "least_bytes": least,
        "exit_code": code,
    }


def steps(machine):
    names = FEW if machine.few else CASES
    found = [Step(name, lambda folder, name=name: beside(machine, folder, name)) for name in names]
    for name in FEW_NEAR_LIMIT if machine.few else NEAR_LIMIT:
        for word, distance in (("above", NEAR_BYTES), ("below", -NEAR_BYTES)):
            # A small model has no more than that: a part of its memory is cut.
            distance = distance // 16 if machine.few else distance
            found.append(
                Step(
                    f"{name}, {word} its least memory",
                    lambda folder, name=name, distance=distance: near(
                        machine, folder, name, distance
                    ),
                )
            )
    return found
