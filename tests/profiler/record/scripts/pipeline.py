"""Trains this rank's stages of a pipeline by PyTorch's own schedules. No two stages give tensors of
the same shape, so a stage by itself cannot know what it is sent.

    pipeline.py SCHEDULE [STAGES_OF_A_RANK]

A line for each stage says which shapes it got.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining

SCHEDULE, STAGES_OF_A_RANK = sys.argv[1], int((sys.argv[2:] or ["1"])[0])
SAMPLES, MICROBATCHES = 32, 8


class Stage(nn.Module):
    """Makes the sequence shorter and each position wider."""

    def __init__(self, index):
        super().__init__()
        self.linear = nn.Linear(width_of(index), width_of(index + 1))
        self.seen = set()

    def forward(self, x):
        self.seen.add((tuple(x.shape), x.dtype, x.requires_grad))
        return self.linear(x.relu()[:, :-1]).to(torch.float64 if x.dtype == torch.float32
                                                else torch.float32)


def width_of(stage):
    return 128 + 32 * stage


def own_stages(rank, size):
    stages = STAGES_OF_A_RANK * size
    if "V" in SCHEDULE:  # the last ranks' stages are neighbours
        return stages, [rank, stages - 1 - rank]
    return stages, list(range(rank, stages, size))


def type_of(stage):
    return torch.float32 if stage % 2 == 0 else torch.float64


def main():
    dist.init_process_group("nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    of_pipeline, own = own_stages(rank, size)
    modules = [Stage(index).to(device, type_of(index)) for index in own]
    stages = [pipelining.PipelineStage(module, index, of_pipeline, device)
              for module, index in zip(modules, own)]
    schedule = getattr(pipelining, SCHEDULE)(
        stages if STAGES_OF_A_RANK > 1 else stages[0], MICROBATCHES,
        loss_fn=lambda output, target: (output - target).square().mean())
    optimizer = torch.optim.AdamW([parameter for module in modules
                                   for parameter in module.parameters()])
    inputs = [torch.randn(SAMPLES, 64, width_of(0), device=device)] if 0 in own else []
    last = (SAMPLES, 64 - of_pipeline, width_of(of_pipeline))
    target = torch.randn(last, device=device) if of_pipeline - 1 in own else None
    for _ in range(2):
        schedule.step(*inputs, target=target)
        optimizer.step()
        optimizer.zero_grad()
    for module, index in zip(modules, own):
        print("stage", index, "was given", module.seen, flush=True)
    dist.destroy_process_group()


main()
