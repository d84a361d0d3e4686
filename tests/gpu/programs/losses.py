"""Prints the losses of PyTorch's own training of the tutorial's model on this machine's GPU, a
line of JSON a step:

    losses.py DATA fp32|bf16 STEPS

DATA is a folder like MNIST's. Weights, samples and their order are those that Shardlens takes for
seed 0."""

import json
import os
import pathlib
import sys

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "reference"))
import tutorial  # noqa: E402

BATCH = 64


def make(dtype):
    """Makes the model; in bf16 by FSDP2 on one rank, which keeps fp32 masters as Shardlens does."""
    model = tutorial.make_model(0).cuda()
    if dtype == "fp32":
        return model
    torch.distributed.init_process_group(
        "nccl", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.encoder.layers.children():
        fully_shard(block, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def main():
    folder, dtype, steps = sys.argv[1:]
    # Its convolutions would be in TF32, whose losses are not fp32's.
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    model = make(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    images, labels = tutorial.load_training_data(folder)
    order = tutorial.sample_order(len(images), 0, 0, 0, 1)
    for step in range(int(steps)):
        batch = order[step * BATCH : (step + 1) * BATCH]
        inputs = tutorial.normalize(images[batch]).cuda()
        loss = nn.functional.cross_entropy(model(inputs).float(), labels[batch].cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(json.dumps({"loss": loss.item()}), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # a thread of autograd that still runs when the interpreter ends aborts the process
