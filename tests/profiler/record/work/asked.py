"""Asks a GPU for a few things that the test knows by heart. The first argument says for what."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

LAYERS, WIDTH = 3, 512


def products():
    """Three products of matrices and a copy; the last one of fp32, with and without TF32."""
    a = torch.empty(64, 128, device="cuda", dtype=torch.bfloat16)
    b = torch.empty(128, 32, device="cuda", dtype=torch.bfloat16)
    a @ b
    F.linear(a, torch.empty(256, 128, device="cuda", dtype=torch.bfloat16),
             torch.empty(256, device="cuda", dtype=torch.bfloat16))
    torch.bmm(torch.empty(5, 7, 11, device="cuda"), torch.empty(5, 11, 13, device="cuda"))
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.empty(16, 24, device="cuda") @ torch.empty(24, 8, device="cuda")
    torch.empty(1000, device="cuda").copy_(torch.empty(1000, pin_memory=True), non_blocking=True)
    torch.empty(500).copy_(torch.empty(500, device="cuda"))


def streams():
    """Two streams: the second waits for the first, and the host for the second."""
    x = torch.ones(1 << 20, device="cuda")
    side = torch.cuda.Stream()
    ready, done = torch.cuda.Event(), torch.cuda.Event()
    x.mul_(2)
    ready.record()
    side.wait_event(ready)
    with torch.cuda.stream(side):
        x.add_(1)
        done.record()
    torch.cuda.current_stream().wait_event(done)
    x.sub_(1)
    ready.record()
    ready.query()
    ready.synchronize()
    side.synchronize()
    torch.cuda.synchronize()


def graph():
    """A CUDA graph of two kernels, launched three times."""
    x = torch.zeros(1 << 16, device="cuda")
    captured = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(captured):
        x.add_(1)
        x.mul_(2)
    for _ in range(3):
        captured.replay()


def training(model, x):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for _ in range(4):
        model(x).float().pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def blocks():
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))).cuda()


def steps():
    training(blocks(), torch.empty(32, WIDTH, device="cuda"))


def compiled():
    training(torch.compile(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))
                           .cuda()), torch.empty(32, WIDTH, device="cuda"))


def ddp():
    dist.init_process_group("nccl")
    training(DistributedDataParallel(blocks()), torch.empty(32, WIDTH, device="cuda"))


def fsdp2():
    dist.init_process_group("nccl")
    model = blocks().bfloat16()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    training(model, torch.empty(32, WIDTH, device="cuda", dtype=torch.bfloat16))
    # Groups of every other rank have a communicator of their own.
    ranks = list(range(dist.get_rank() % 2, dist.get_world_size(), 2))
    groups = [dist.new_group(list(range(first, dist.get_world_size(), 2))) for first in (0, 1)]
    dist.all_reduce(torch.empty(1000, device="cuda"), group=groups[ranks[0]])
    dist.destroy_process_group()


{f.__name__: f for f in (products, streams, graph, steps, compiled, ddp, fsdp2)}[sys.argv[1]]()
