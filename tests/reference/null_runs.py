"""Runs of ours and of PyTorch FSDP2 on the null device (runtime/null_device), where memory and host
time are real and no GPU is needed.

Used by fsdp2_null.py --record and by ../bench/null_table and ../bench/host_cost. Standard library
only.
"""

import dataclasses
import itertools
import json
import os
import sys

import programs

GPU = "h200"
PEER = programs.ROOT / "tests" / "reference" / "fsdp2_null.py"
FIXTURE = programs.ROOT / "tests" / "fixtures" / "fsdp2_null_peaks.json"
STUBS = programs.ROOT / "build" / "null_device"

BATCH = {"vit-tutorial": 64, "vit-b16": 32, "vit-l16": 32}  # samples a rank
WORLD_SIZES = [2, 8, 512]
DTYPES = ["fp32", "bf16"]
WARM_UP_STEPS = 2  # the first makes optimizer state and workspaces
PEAK_STEPS = 3  # after them

# Autograd's device thread frees its last tensors while Python goes on, so a peak of FSDP2 may
# depend on timing. The lowest of some runs is the strictest reference.
RUNS = 3

# What would change the allocator, the workspaces or the device of either side.
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
class Configuration:
    """One model, sharded over `world` ranks, of which rank 0 runs alone."""

    model: str
    world: int
    param_dtype: str = "fp32"
    reshard_after_forward: bool = True

    def arguments(self):
        """The flags that our program and fsdp2_null.py have in common."""
        flags = {
            "--model": self.model,
            "--world": self.world,
            "--batch": BATCH[self.model],
            "--param-dtype": self.param_dtype,
            "--reshard-after-forward": "true" if self.reshard_after_forward else "false",
        }
        return [str(word) for flag in flags.items() for word in flag]


CONFIGURATIONS = [
    Configuration(*values)
    for values in itertools.product(["vit-tutorial", "vit-l16"], WORLD_SIZES, DTYPES, [True, False])
]


@dataclasses.dataclass(frozen=True)
class Peak:
    """Of the PEAK_STEPS."""

    allocated_bytes: int
    reserved_bytes: int


def null_device_environment():
    """The environment in which PyTorch for Python runs on the null device."""
    stubs = sorted(str(path) for path in STUBS.glob("lib*.so.*"))
    if not stubs:
        sys.exit(f"{STUBS} has no libraries; run make build")
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES_UNSET}
    return clean | {"LD_PRELOAD": ":".join(stubs), "SHARDLENS_NULL_GPU": GPU}


def run_fsdp2(configuration, steps):
    """What fsdp2_null.py prints; it adds the steps of the warm-up."""
    command = [sys.executable, PEER, *configuration.arguments(), "--steps", str(steps)]
    return json.loads(programs.run(command, null_device_environment()).splitlines()[-1])


def run_ours(configuration, steps):
    """Our result.json."""
    environment = {k: value for k, value in os.environ.items() if k not in VARIABLES_UNSET}
    arguments = ["--device", f"null:{GPU}", "--solo-rank", "0", "--strategy", "fsdp"]
    arguments += ["--data", "synthetic", "--steps", str(steps)]
    return programs.train([*arguments, *configuration.arguments()], environment)


def peak_of_fsdp2(configuration):
    """The lowest of RUNS runs, allocated and reserved each."""
    results = [run_fsdp2(configuration, PEAK_STEPS) for _ in range(RUNS)]
    return Peak(
        allocated_bytes=min(result["allocated_bytes"] for result in results),
        reserved_bytes=min(result["reserved_bytes"] for result in results),
    )


def peak_of_ours(configuration):
    return Peak(**run_ours(configuration, WARM_UP_STEPS + PEAK_STEPS)["memory"]["step_peak"])


def record(torch_version):
    """Writes FSDP2's peaks of all configurations to the fixture, one a line."""
    lines = []
    for configuration in CONFIGURATIONS:
        row = dataclasses.asdict(configuration) | dataclasses.asdict(peak_of_fsdp2(configuration))
        lines.append(f"  {json.dumps(row)}")
        print(lines[-1].strip(), flush=True)
    head = {
        "script": str(PEER.relative_to(programs.ROOT)),
        "torch": torch_version,
        "gpu": GPU,
        "rank": 0,
        "batch": {model: BATCH[model] for model in {row.model: None for row in CONFIGURATIONS}},
        "steps": list(range(WARM_UP_STEPS + 1, WARM_UP_STEPS + PEAK_STEPS + 1)),
        "lowest_of_runs": RUNS,
    }
    fields = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    fields.append(' "step_peaks": [\n' + ",\n".join(lines) + "\n ]")
    FIXTURE.write_text("{\n" + ",\n".join(fields) + "\n}\n")
    print(f"{FIXTURE}: {len(lines)} configurations")


def recorded_peaks():
    """FSDP2's peaks from the fixture, by configuration."""
    names = [field.name for field in dataclasses.fields(Configuration)]
    return {
        Configuration(*(row[name] for name in names)): Peak(
            row["allocated_bytes"], row["reserved_bytes"]
        )
        for row in json.loads(FIXTURE.read_text())["step_peaks"]
    }
