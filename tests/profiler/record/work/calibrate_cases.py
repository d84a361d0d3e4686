"""Runs the program behind `shardlens calibrate` on a simulated GPU, where it must refuse, and with a
clock that follows closed formulas, whose file then corrects the times of a recorded program.

    calibrate_cases.py quick|long [CASE...]
"""

import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from recorded import PROGRAM, PYTHON, Recorded, run_cases, shardlens  # pylint: disable=wrong-import-position

CALIBRATE = PROGRAM.parent.parent / "plan" / "calibrate.py"
TRAINED = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "levers" / "batches.py"
GPU = "NVIDIA H100 80GB HBM3"
FLOPS = {"bf16": 6e14, "tf32": 3e14, "fp32": 4e13}

IMPORTS = """
import importlib.util, json, os, sys, torch
spec = importlib.util.spec_from_file_location("calibrate", sys.argv[1])
calibrate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(calibrate)
"""
# Prints what is measured with a clock that calls once what it is to time.
MEASURES = IMPORTS + """
class Clock:
    def captured(self, call):
        call()
        return 1.0
    eager = waited = captured
meter = calibrate.Meter(torch, Clock(), "cuda", (9, 0), 8 << 30)
print(json.dumps(meter.measured(lambda part: None)), flush=True)
os._exit(0)  # autograd's threads may abort a process that ends: PyTorch's bug, as in recording.py
"""
# Runs the program on a GPU whose name does not say that it is simulated, or without a GPU.
DISGUISES = IMPORTS + """
if sys.argv[2] == "hidden":
    torch.cuda.get_device_name = lambda: "NVIDIA H100 80GB HBM3"
if sys.argv[2] == "absent":
    torch.cuda.is_available = lambda: False
sys.exit(calibrate.main(["--out", sys.argv[3], "--known", "NVIDIA H100 80GB HBM3"]))
"""


def expect(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found}\nis not\n{wanted}")


def simulated():
    stubs = sorted((PROGRAM.parent.parent / "null_device").glob("*.so.*"))
    return os.environ | {"LD_PRELOAD": ":".join(map(str, stubs)), "SHARDLENS_NULL_GPU": "h100",
                         "SHARDLENS_NULL_KEEP_COPIES": "1", "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"}


def run(program, *arguments):
    return subprocess.run([PYTHON, "-c", program, CALIBRATE, *map(str, arguments)], env=simulated(),
                          capture_output=True, text=True, check=False)


def expect_refused(done, *words):
    lines = done.stderr.splitlines()
    expect([done.returncode, len(lines)], [2, 1])
    for word in ("nothing was measured", *words):
        if word not in lines[0]:
            raise AssertionError(f"{word} is not in {lines[0]}")


def check_refused(folder):
    """One line each says why a machine cannot be calibrated, and no file is written."""
    out = pathlib.Path(folder, "calibration.json")
    done = shardlens("calibrate", "--python", PYTHON, "--out", out, env=simulated())
    expect_refused(done, f"{GPU} (null device) is simulated", "run it on a real GPU")
    expect_refused(run(DISGUISES, "hidden", out), "no GPU can do: it is simulated")
    expect_refused(run(DISGUISES, "absent", out), "PyTorch sees no GPU here")
    bare = pathlib.Path(folder, "python")
    bare.write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")
    bare.chmod(0o755)
    expect_refused(shardlens("calibrate", "--python", bare, "--out", out), "has no PyTorch", "--python")
    done = shardlens("calibrate", "--python", "no-such-python", "--out", out)
    expect([done.returncode, len(done.stderr.splitlines())], [2, 1])
    if out.exists():
        raise AssertionError(out.read_text())


def seconds_of(part, row):
    """The seconds that the clock of this test says."""
    if part == "products":
        flops = 2 * row["rows"] * row["columns"] * row["depth"]
        return 2e-6 + flops / FLOPS[row["type"]]
    if part == "streaming":
        return 2e-6 + row["bytes"] / 2.5e12
    if part == "copies":
        return 8e-6 + row["bytes"] / (14e9 if row["is_pageable"] else 50e9)
    flops = 4 * row["batch"] * row["heads"] * row["tokens"]**2 * row["width"]
    return 5e-6 + flops * (2.5 if row["is_backward"] else 1) / (2 if row["is_causal"] else 1) / 3e14


def calibration(streaming=1.0):
    done = run(MEASURES)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    parts = json.loads(done.stdout)
    for part, rows in parts.items():
        for row in rows:
            row["seconds"] = seconds_of(part, row) * (streaming if part == "streaming" else 1)
    return {"schema": "shardlens.calibration/1", "gpu": GPU, "torch": "2.15.0", **parts,
            "collectives": [], "spread": 0.02}


def predicted(run_folder, *arguments, code=0):
    done = shardlens("profile", "time", run_folder, *arguments)
    expect([done.returncode, done.stderr if code == 0 else ""], [code, ""])
    return done


def check_used(folder):
    """Measured times replace the model's, in all commands that predict one."""
    out = pathlib.Path(folder, "calibration.json")
    out.write_text(json.dumps(calibration()))
    run = Recorded(folder, PYTHON, TRAINED, flags=["--device", "null:h100", "--calibration", out])
    run.expect(0)
    if "), calibrated\n" not in run.text:
        raise AssertionError(run.text)
    cold = json.loads(predicted(run.out, "--json").stdout)
    first = json.loads(predicted(run.out, "--json", "--calibration", out).stdout)
    expect([cold["basis"], first["basis"]], ["cold", "calibrated"])
    [rank] = json.loads(shardlens("profile", "report", run.out, "--json").stdout)["ranks"]
    expect(rank["time"], cold)
    text = shardlens("profile", "report", run.out).stdout
    expect(text.endswith("\n" + predicted(run.out).stdout), True)
    out.write_text(json.dumps(calibration(streaming=3)))
    slow = json.loads(predicted(run.out, "--json", "--calibration", out).stdout)
    kernels = [one["work_seconds"]["kernels"] for one in (first, slow)]
    if abs(kernels[1] / kernels[0] - 3) > 0.01:
        raise AssertionError(kernels)
    expect(first["work_seconds"]["products"], slow["work_seconds"]["products"])
    done = shardlens("sweep", "--device", "null:h100", "--calibration", out, "--values", "batch=2048",
                     "--json", "--out", pathlib.Path(folder, "swept"), "--", PYTHON, TRAINED, "--batch",
                     "{batch}")
    expect(json.loads(done.stdout)["runs"][0]["time"]["basis"], "calibrated")
    done = predicted(run.out, "--gpu", "l4", "--calibration", out, code=2)
    if f"measured on {GPU}, but the time is asked for NVIDIA L4" not in done.stderr:
        raise AssertionError(done.stderr)


def check_refused_early(folder):
    """A calibration that cannot be used is refused before the program runs."""
    out = pathlib.Path(folder, "calibration.json")
    document = calibration()
    ran = pathlib.Path(folder, "ran")
    script = pathlib.Path(folder, "program.py")
    script.write_text(f"open({str(ran)!r}, 'w')\n")
    for device, change, why in (("null:l4", {}, "measured on NVIDIA H100"),
                                ("null:h100", {"schema": "shardlens.calibration/9"}, "later version"),
                                ("null:h100", {"products": None}, "not a calibration")):
        out.write_text(json.dumps(document | change))
        for command in (["record"], ["advise"]):
            done = shardlens(*command, "--device", device, "--calibration", out, "--out",
                             pathlib.Path(folder, "run"), "--", PYTHON, script)
            expect([done.returncode, len(done.stderr.splitlines())], [2, 1])
            if why not in done.stderr or ran.exists():
                raise AssertionError(done.stderr)


QUICK = [check_refused, check_refused_early]
LONG = [*QUICK, check_used]


def main():
    return run_cases({"quick": QUICK, "long": LONG}[sys.argv[1]])


if __name__ == "__main__":
    sys.exit(main())
