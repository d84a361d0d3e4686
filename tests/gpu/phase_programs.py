"""Phase 3: what Python programs ask of PyTorch's allocator on the GPU, recorded by `shardlens
record` attached to them, beside the same programs on the null device; and what operators take while
they run, over a grid of shapes."""

import json
import os
import re
import socket
import sys

import machine as machines
from results import Failed, NotChecked, compared
from steps import SHARDLENS, Step, events, measured, report

sys.path.insert(0, str(machines.SCRIPTS.parent))
import gpu_cases  # noqa: E402

ACCELERATE = [
    "-m",
    "accelerate.commands.launch",
    "--config_file",
    "trainer_fsdp2.yaml",
    "--num_processes",
    "1",
]
NEEDS = {"trainer.py": "transformers", "lit.py": "lightning"}
MOST_LANES = 5
RECORD_LIMIT_S = 100
GRID_LIMIT_S = 150

# Words after python3. The first word that ends in .py is a script of tests/profiler/record/scripts.
PROGRAMS = {
    **gpu_cases.PROGRAMS,
    "trainer": ["trainer.py"],
    "accelerate_fsdp2": [*ACCELERATE, "trainer.py"],
    "lightning": ["lit.py", "alone"],
    "convolutions": ["convolutions.py", "--cudnn", "off"],
}
# cuDNN chooses their kernels; a null device has it if its Python has.
WITH_CUDNN = {
    "convolutions_cudnn": ["convolutions.py", "--cudnn", "on"],
    "plain_cudnn": ["transformer.py", "--strategy", "plain"],
}
# These programs compare what NCCL brings from other ranks.
NEEDS_VALUES = ("ddp",)
FEW = ("plain",)


def script_of(program):
    return next(word for word in program if word.endswith(".py"))


def check_modules(program, python):
    module = NEEDS.get(script_of(program))
    if module is None:
        return
    ask = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"
    if machines.run([python, "-c", ask])[0] != 0:
        raise NotChecked(f"{python} has no {module}")


def place_of(word):
    """Returns the path of a script or of its settings, which lie in one of two folders."""
    own = machines.PROGRAMS / word
    return own if own.exists() else machines.SCRIPTS / word


def full_words(program):
    return [
        place_of(word) if re.fullmatch(r"\w+\.(py|yaml)", str(word)) else word for word in program
    ]


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def environment(place, has_cudnn):
    env = gpu_cases.ALONE | {"MASTER_PORT": str(free_port())}
    if has_cudnn:
        del env["TORCH_CUDNN_SDPA_DEPRIORITIZED"]
    return place | env


def record(machine, folder, program, flags, env):
    """Returns what the recording in folder/run says; the program must end well."""
    command = [
        SHARDLENS,
        "record",
        *flags,
        "--timeout",
        str(RECORD_LIMIT_S),
        "--out",
        folder / "run",
    ]
    code, out, error = machines.run(
        [*command, "--", machine.python, *full_words(program)], env=env, limit_s=RECORD_LIMIT_S + 30
    )
    if code != 0:
        where = "the null device" if flags else "the GPU"
        raise Failed(f"on {where} exit code {code}: {machines.last_line(out, error)}")
    return events(machine, folder / "run", 0, folder), report(machine, folder / "run")[0]


def on_gpu(machine, folder, program, has_cudnn=False):
    folder.mkdir()
    return record(machine, folder, program, [], environment(machine.gpu_environment(), has_cudnn))


def on_null(machine, folder, program):
    machine.needs_null_device()
    folder.mkdir()
    flags = ["--device", machine.null, "--world", "1"]
    return record(machine, folder, program, flags, environment(machine.null_environment(), False))[
        0
    ]


def compare(machine, folder, name):
    """Runs `shardlens check-gpu`, and keeps the GPU's events. The order of frees that follow each
    other counts here."""
    program = PROGRAMS[name]
    machine.needs_null_device()
    if name in NEEDS_VALUES:
        machine.needs_gpu("brings nothing from a rank, which this program looks at")
    check_modules(program, machine.python)
    command = [SHARDLENS, "check-gpu", "--out", folder / "check.json", "--keep", folder]
    command += ["--limit", str(2 * RECORD_LIMIT_S), "--", machine.python, *full_words(program)]
    env = environment(machine.gpu_environment(), has_cudnn=False)
    code, out, error = machines.run(command, env=env, limit_s=2 * RECORD_LIMIT_S + 30)
    check = json.loads((folder / "check.json").read_text())["programs"][0] if code < 2 else {}
    if "simulated" not in check:
        raise Failed(f"exit code {code}: {machines.last_line(out, error)}")
    runs = [folder / "command" / name for name in ("gpu", "simulated")]
    seen, expected = (events(machine, run, 0, folder) for run in runs)
    ledger = report(machine, runs[0])[0]["ledger"]
    return compared(seen, expected, program="record", words=program, ledger=ledger, check=check)


def with_cudnn(machine, folder, program):
    """Kept to be explained later: the null device only follows if its Python has cuDNN."""
    machine.needs_gpu("has no cuDNN")
    seen, report_ = on_gpu(machine, folder / "gpu", program, has_cudnn=True)
    expected = on_null(machine, folder / "null", program)
    return compared(
        seen, expected, program="record", words=program, cudnn=True, ledger=report_["ledger"]
    )


def grid(machine):
    """Compares what each operator takes at its peak, and keeps, on the GPU and on the null device.
    If time runs out, the cases that came before are kept."""
    command = [
        machine.python,
        machines.PROGRAMS / "workspaces.py",
        *(["--few"] if machine.few else []),
    ]
    code, out, error = machines.run(command, env=machine.gpu_environment(), limit_s=GRID_LIMIT_S)
    rows = machines.rows_of(out)
    null = machines.preload(machine.gpu.partition(" ")[0])
    expected = {
        row["case"]: row
        for row in machines.rows_of(
            machines.run(command, env=machine.null_environment() | null, limit_s=GRID_LIMIT_S)[1]
        )
    }
    if code != 0 or not expected:
        return measured(
            f"exit code {code} after {len(rows)} cases: {machines.last_line(error)}", rows=rows
        ) | {"verdict": "failed"}
    names = [row["case"] for row in rows if differs(row, expected.get(row["case"]))]
    refused = [name for name, row in expected.items() if "error" in row]
    said = (
        f"{len(rows)} cases; {len(refused)} of them a null device refuses, since it does not know "
        f"their sizes; {len(names)} take other memory than there"
    )
    verdict = "differs" if names else "measured"
    if names:
        said += f": {', '.join(names)}"
    return measured(said, rows=rows, refused=refused, other=names) | {"verdict": verdict}


def differs(row, expected):
    """Cases that the null device refuses have nothing to be compared with."""
    if expected is None or "error" in expected:
        return False
    return "error" in row or any(row[key] != expected[key] for key in ("peak_bytes", "kept_bytes"))


def steps(machine):
    lanes = max(1, min(MOST_LANES, (os.cpu_count() or 1) // 3))
    names = FEW if machine.few else list(PROGRAMS)
    found = [
        Step(name, lambda folder, name=name: compare(machine, folder, name), lanes)
        for name in names
    ]
    found += [
        Step(name, lambda folder, program=program: with_cudnn(machine, folder, program))
        for name, program in WITH_CUDNN.items()
    ]
    return [*found, Step("workspaces", lambda _: grid(machine))]
