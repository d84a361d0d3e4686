"""DeepSpeed's configurations of its three stages, with PyTorch's AdamW: its own is compiled by nvcc."""

import json
import pathlib
import sys

for stage in (1, 2, 3):
    text = json.dumps({
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage}})
    (pathlib.Path(sys.argv[1]) / f"stage{stage}.json").write_text(text)
