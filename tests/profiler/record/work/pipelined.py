"""Trains a pipeline of equal stages, one on each rank, by PyTorch's schedules.

    pipelined.py SCHEDULE MICROBATCHES
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining

WIDTH, ROWS, LAYERS, STEPS = 4096, 4096, 6, 4


def main():
    schedule, microbatches = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    layers = [nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16) for _ in range(LAYERS)]
    module = nn.Sequential(*layers).to(device)
    stage = pipelining.PipelineStage(module, rank, size, device)
    run = getattr(pipelining, schedule)(stage, microbatches, loss_fn=lambda y, _: y.sum())
    optimizer = torch.optim.SGD(module.parameters())
    x = torch.zeros(ROWS * microbatches, WIDTH, device=device, dtype=torch.bfloat16)
    for _ in range(STEPS):
        if rank == 0:
            run.step(x)
        elif rank == size - 1:
            run.step(target=x)
        else:
            run.step()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
