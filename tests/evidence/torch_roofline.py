#!/usr/bin/env python3
"""Estimates published step times by PyTorch's own roofline model, RuntimeEstimator of
torch.distributed._tools, and prints them beside the published ones: for docs/evidence.md.

    torch_roofline.py --python PYTHON [--figures FOLDER] [--only WORD]

PYTHON has PyTorch 2.15, and runs on the null device of the build. The programs are those that
timed_training.py stands for, on GPUs in PyTorch's table of data sheets. The estimator knows neither
communication nor DTensor, so a sharded program is estimated as one rank's compute: in half
precision, without sharding, and without the optimizer's step, which takes a part of its time. One
microbatch stands for all.

It stops at fused attention, whose outputs have two types ("Only support single out dtype"), so it
runs on none of these programs as it is: here such an operator has the type of half precision.
"""

import argparse
import json
import os
import pathlib
import re
import runpy
import statistics
import subprocess
import sys

import published_times

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GPUS = {"a100-40": "NVIDIA A100", "a100-80": "NVIDIA A100", "h100": "NVIDIA H100"}
ONE = "--one"  # estimate one program, in a process on the null device


def _in_half(module):
    import torch
    for one in module.modules():
        for name, parameter in one._parameters.items():
            if parameter is not None:
                one._parameters[name] = torch.nn.Parameter(parameter.detach().bfloat16())
    return module


def _estimate_one(gpu, is_sharded, words):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools import runtime_estimator

    compute_time = runtime_estimator.get_compute_time

    def of_one_type(packet, args, kwargs, out, types, **more):
        return compute_time(packet, args, kwargs, out,
                            {torch.bfloat16} if len(types) > 1 else types, **more)

    def milliseconds(steps):
        sys.argv = ["timed_training.py", *words, "--steps", str(steps)]
        estimator = runtime_estimator.RuntimeEstimator(gpu_type=gpu)
        with FakeTensorMode(), estimator(estimate_mode_type="operator-level-cost-model"):
            runpy.run_path(str(HERE / "timed_training.py"))
        return estimator.total_runtime

    runtime_estimator.get_compute_time = of_one_type
    torch.Tensor.item = lambda self: 0.0  # fake tensors have no values
    torch.nn.Module.bfloat16 = _in_half  # PyTorch's own cannot change fake parameters
    if is_sharded:
        torch.optim.AdamW.step = lambda self, closure=None: None
    torch.cuda.init()
    print("estimated", milliseconds(2) - milliseconds(1), flush=True)
    os._exit(0)  # as calibrate_cases.py does


def estimated(python, case):
    words = re.sub(r"--(sharding|accumulate) \w+", "", case.stand_in).split()
    is_sharded = "--sharding fsdp" in case.stand_in
    words += ["--half"] if "--half" not in words else []
    stubs = sorted((ROOT / "build" / "null_device").glob("*.so.*"))
    environment = os.environ | {"LD_PRELOAD": ":".join(map(str, stubs)),
                                "SHARDLENS_NULL_GPU": case.gpu, "SHARDLENS_NULL_CAPACITY": str(1 << 40)}
    done = subprocess.run([python, __file__, ONE, GPUS[case.gpu], str(int(is_sharded)), *words],
                          env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"^estimated (\S+)", done.stdout, re.MULTILINE)
    if not found:
        raise SystemExit(f"{case.name}: {done.stderr[-800:]}")
    return float(found[1]) * published_times.number_in(case.stand_in, "accumulate")


def main():
    if sys.argv[1:2] == [ONE]:
        _estimate_one(sys.argv[2], sys.argv[3] == "1", sys.argv[4:])
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True)
    parser.add_argument("--figures", type=pathlib.Path, default=ROOT.parent / "shared" / "published")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    errors = []
    for case in published_times.read_stand_ins(options.figures / "time.jsonl"):
        if case.gpu not in GPUS or "timed_bert" in case.stand_in or options.only not in case.name:
            continue
        ms = estimated(options.python, case)
        errors.append(ms / case.milliseconds - 1)
        print(json.dumps({"name": case.name, "published_ms": round(case.milliseconds, 1),
                          "estimated_ms": round(ms, 1), "error": round(errors[-1], 3)}), flush=True)
    print(f"{len(errors)} steps, median error {100 * statistics.median(map(abs, errors)):.1f} %, "
          f"largest {100 * max(errors, key=abs):+.0f} %")


if __name__ == "__main__":
    main()
