"""Runs Shardlens and PyTorch on the null device (profiler/null_device), where memory and host time
are real and no GPU is needed.

Used by fsdp2_null.py --record and by ../bench/null_table and ../bench/host_cost. Standard library
only.
"""

import dataclasses
import json
import os
import pathlib
import sys

import programs
from null_configurations import CONFIGURATIONS, Configuration

GPU = "h200"
PEER = programs.ROOT / "tests" / "reference" / "fsdp2_null.py"
FIXTURE = programs.ROOT / "tests" / "fixtures" / "fsdp2_null_peaks.json"
# The stubs are those of the build's own PyTorch; for another one, those that its recorder has.
STUBS = pathlib.Path(
    os.environ.get("SHARDLENS_NULL_STUBS", programs.ROOT / "build" / "null_device")
)

WARM_UP_STEPS = 2  # the first makes optimizer state and workspaces
PEAK_STEPS = 3  # after them

# Under offload the null device's pinned memory is the host's own.
HOST_BYTES_A_PARAMETER = 16
HOST_BYTES_MAX = 8e9
PARAMETERS = {"vit-tutorial": 1e6, "vit-b16": 87e6, "vit-l16": 304e6, "vit-h14": 632e6}
PARAMETERS |= {"vit-22b": 21.8e9, "llama-1b": 1.24e9, "llama-8b": 8.03e9, "transformer": 17e6}

# These variables would change the allocator, the workspaces or the device of either side.
VARIABLES_UNSET = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",
    "SHARDLENS_NULL_CAPACITY",
    "SHARDLENS_NULL_CHECK",
)


@dataclasses.dataclass(frozen=True)
class Peak:
    """Holds the peak over the PEAK_STEPS."""

    allocated_bytes: int
    reserved_bytes: int


def null_device_environment():
    """Returns the environment in which PyTorch for Python runs on the null device."""
    stubs = sorted(str(path) for path in STUBS.glob("lib*.so.*"))
    if not stubs:
        sys.exit(f"{STUBS} has no libraries; run make build")
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES_UNSET}
    return clean | {"LD_PRELOAD": ":".join(stubs), "SHARDLENS_NULL_GPU": GPU}


def enter_null_device():
    """Starts the program again if it is not on the null device. The libraries only count if they
    exist before PyTorch is loaded, which must not find NVIDIA's."""
    environment = null_device_environment()
    names = ("LD_PRELOAD", "SHARDLENS_NULL_GPU")
    if any(os.environ.get(name) != environment[name] for name in names):
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def run_peer(configuration, steps, variant="all"):
    """Returns what fsdp2_null.py prints; it adds the steps of the warm-up."""
    command = [sys.executable, PEER, *configuration.arguments(), "--steps", str(steps)]
    command += ["--variant", variant]
    return json.loads(programs.run(command, null_device_environment()).splitlines()[-1])


def run_ours(configuration, steps):
    """Returns our result.json. Raises programs.Failure."""
    environment = {k: value for k, value in os.environ.items() if k not in VARIABLES_UNSET}
    arguments = ["--device", f"null:{GPU}", "--solo-rank", "0"]
    arguments += ["--data", "synthetic", "--steps", str(steps)]
    return programs.train([*arguments, *configuration.arguments()], environment)


def lowest(peaks):
    """Returns the lowest allocated and the lowest reserved bytes of all variants, which are the
    strictest to be compared with."""
    allocated, reserved = zip(*peaks.values())
    return Peak(min(allocated), min(reserved))


def peak_of_peer(configuration):
    return lowest(run_peer(configuration, PEAK_STEPS)["peaks"])


def peak_of_ours(configuration):
    return Peak(**run_ours(configuration, WARM_UP_STEPS + PEAK_STEPS)["memory"]["step_peak"])


def _reason_to_skip(configuration):
    host_bytes = PARAMETERS[configuration.model] / configuration.world * HOST_BYTES_A_PARAMETER
    if configuration.offload != "none" and host_bytes > HOST_BYTES_MAX:
        return f"needs {host_bytes / 1e9:.0f} GB of host memory"
    return None


def _row(configuration, result):
    return dataclasses.asdict(configuration) | {"batch": configuration.batch} | result


def _measured(configuration, measure):
    """Makes a row of the fixture; measure(configuration) gives peaks of all variants that fit."""
    reason = _reason_to_skip(configuration)
    peaks = {} if reason else measure(configuration)
    if not peaks:
        return _row(configuration, {"left_out": reason or f"no variant fits one {GPU}"})
    return _row(configuration, {"peaks": peaks})


def _write(head, rows):
    fields = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    lines = [f"  {json.dumps(row)}" for row in rows]
    fields.append(' "rows": [\n' + ",\n".join(lines) + "\n ]")
    partial = FIXTURE.with_suffix(".partial")
    partial.write_text("{\n" + ",\n".join(fields) + "\n}\n")
    partial.replace(FIXTURE)


def _rows_to_keep(head):
    """Returns the fixture's rows by configuration, or none if it was recorded otherwise."""
    recorded = json.loads(FIXTURE.read_text()) if FIXTURE.exists() else {}
    rows = recorded.pop("rows", [])
    if recorded != head:
        print(f"{FIXTURE}: recorded by another version, PyTorch or GPU; all rows are made again")
        return {}
    return {_configuration(row): row for row in rows}


def record(torch_version, variants, measure):
    """Adds the configurations that the fixture lacks, in order, and writes it after each."""
    head = {
        "script": str(PEER.relative_to(programs.ROOT)),
        "torch": torch_version,
        "gpu": GPU,
        "rank": 0,
        "steps": list(range(WARM_UP_STEPS + 1, WARM_UP_STEPS + PEAK_STEPS + 1)),
        "optimizer": "Adam(fused=True), with a GradScaler where fp16 is reduced",
        "peaks": "[allocated, reserved] bytes by variant; compared is the lowest of each",
        "variants": variants,
    }
    rows = _rows_to_keep(head)
    for configuration in CONFIGURATIONS:
        if configuration in rows:
            continue
        rows[configuration] = _measured(configuration, measure)
        print(json.dumps(rows[configuration]), flush=True)
        _write(head, [rows[key] for key in CONFIGURATIONS if key in rows])
    print(f"{FIXTURE}: {len(rows)} configurations")


def _configuration(row):
    names = [field.name for field in dataclasses.fields(Configuration)]
    return Configuration(**{name: row[name] for name in names})


def recorded_torch():
    return json.loads(FIXTURE.read_text())["torch"]


def recorded_peaks():
    """Returns PyTorch's peaks from the fixture, by configuration, without those left out."""
    rows = json.loads(FIXTURE.read_text())["rows"]
    return {_configuration(row): lowest(row["peaks"]) for row in rows if "peaks" in row}


def left_out():
    """Returns, by configuration, why the fixture has no peaks for it."""
    rows = json.loads(FIXTURE.read_text())["rows"]
    return {_configuration(row): row["left_out"] for row in rows if "left_out" in row}
