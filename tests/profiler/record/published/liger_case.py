"""Measures one case of a benchmark of Liger-Kernel, as its own script does with all of them:

    liger_case.py benchmark_NAME.py PROVIDER X OPTIONS
"""

import importlib
import json
import pathlib
import sys

import torch


def value_of(option):
    """Replaces names of types in JSON by the types."""
    return getattr(torch, option[6:]) if str(option).startswith("torch.") else option


def take_source(folder):
    """Uses the source instead of the package that is installed: Python prefers the package to a
    source without __init__.py, and the benchmarks ask for its version."""
    package = importlib.import_module("liger_kernel")
    package.__path__ = [str(folder / "src" / "liger_kernel")]


def main():
    script, provider, x, options = pathlib.Path(sys.argv[1]), *sys.argv[2:]
    take_source(script.parent.parent.parent)
    sys.path.insert(0, str(script.parent))
    module = importlib.import_module(script.stem)
    measure = next(getattr(module, name) for name in dir(module) if name.startswith("bench_memory"))
    case = module.SingleBenchmarkRunInput(
        x=int(x), kernel_provider=provider, kernel_operation_mode="full",
        extra_benchmark_config={name: value_of(option) for name, option in json.loads(options).items()})
    print(f"{measure(case).y_50} MiB")


main()
