"""Programs that pin memory: pinned.py NAME. They print what PyTorch's host allocator counts."""

import contextlib
import resource
import sys

import torch
from torch import nn

MIB = 1 << 20


def empty():
    return [torch.empty(n * MIB + 1, dtype=torch.uint8, pin_memory=True) for n in (3, 5, 16, 33)]


def zeros():
    return torch.zeros(3, 1000, 1000, pin_memory=True)


def pin_memory():
    return [torch.ones(n).pin_memory() for n in (1, 1000, 300_000)]


def freed():
    kept = empty()
    del kept[::2]
    return kept + [torch.empty(5 * MIB, dtype=torch.uint8, pin_memory=True)]


def loader():
    data = torch.utils.data.TensorDataset(torch.randn(64, 10_000))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True):
        batch.to("cuda", non_blocking=True)


def save_on_cpu():
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = nn.Linear(1000, 1000, device="cuda")(torch.randn(100, 1000, device="cuda")).exp().sum()
    loss.backward()


def non_blocking():
    return [torch.ones(n, device="cuda").to("cpu", non_blocking=True) for n in (100_000, 700_000)]


def offloaded(pins=True):
    """FSDP2 keeps shards of parameters and their gradients on the host."""
    import torch.distributed as dist
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    dist.init_process_group("nccl")
    widths = [2048, 2112, 2048, 2112, 2048]
    with torch.device("meta"):
        model = nn.Sequential(*[nn.Linear(*pair, bias=False) for pair in zip(widths, widths[1:])])
    for part in (*model, model):
        fully_shard(part, offload_policy=CPUOffloadPolicy(pin_memory=pins))
    model.to_empty(device="cpu")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(3):
        model(torch.randn(64, 2048, device="cuda")).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


def offloaded_pageable():
    offloaded(pins=False)


def _train(context):
    model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 8192), nn.GELU(), nn.Linear(8192, 1024))
                            for _ in range(12)]).cuda()
    with context():
        loss = model(torch.randn(16384, 1024, device="cuda")).sum()
    loss.backward()
    print("RESIDENT", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)


def saved():
    _train(lambda: torch.autograd.graph.save_on_cpu(pin_memory=True))


def not_saved():
    torch.empty(1, pin_memory=True)
    _train(contextlib.nullcontext)


torch.zeros(1, device="cuda")
kept = globals()[sys.argv[1]]()
stats = torch.cuda.host_memory_stats()
is_new = "active_bytes.peak" in stats  # before 2.10, "allocated" meant what is in use
held, used = ("allocated", "active") if is_new else ("reserved", "allocated")
print("HOST", {"held": stats[f"{held}_bytes.peak"], "used": stats[f"{used}_bytes.peak"]}, flush=True)
