"""Writes tests/fixtures/safetensors/small.safetensors with the format's own Python package.

tests/models/safetensors_test.cpp reads that file and knows the values given here. `print` shows
what Python reads in any such file, so that our writer can be checked, too.

Needs torch and safetensors. Usage: make_safetensors_fixture.py write|print FILE
"""

import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file


def tensors():
    return {
        "floats": torch.tensor([[1.0, -2.5, 0.0], [3.25, 1e-30, -0.0]], dtype=torch.float32),
        "doubles": torch.tensor([0.1, -1e300], dtype=torch.float64),
        "halves": torch.tensor([1.0, 65504.0], dtype=torch.float16),
        "brains": torch.tensor([1.0, -3.0, 0.5], dtype=torch.bfloat16),
        "longs": torch.tensor([-1, 2**40], dtype=torch.int64),
        "ints": torch.tensor([[7], [-8]], dtype=torch.int32),
        "bytes": torch.tensor([0, 127, 255], dtype=torch.uint8),
        "flags": torch.tensor([True, False, True], dtype=torch.bool),
        "scalar": torch.tensor(42.0, dtype=torch.float32),
        "empty": torch.empty((0, 4), dtype=torch.float32),
    }


def show(path):
    with safe_open(path, framework="pt") as opened:
        print("metadata", opened.metadata())
        for name in sorted(opened.keys()):
            tensor = opened.get_tensor(name)
            print(name, tensor.dtype, list(tensor.shape), tensor.tolist())


def main():
    action, path = sys.argv[1:]
    if action == "write":
        save_file(tensors(), path, metadata={"format": "pt", "note": "h\u00e9llo"})
    elif action == "print":
        show(path)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
