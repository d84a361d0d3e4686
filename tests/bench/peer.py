"""Step time of PyTorch on the tutorial's model: one process, DDP or FSDP2 on CPU ranks over Gloo.

A step is data, forward, backward, optimizer and metrics. The peer is at its best: the data is
resident, Adam is fused, and the loss is read once a log interval. Prints one line of JSON.
"""

import argparse
import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "reference"))
import tutorial  # noqa: E402

WARM_UP_STEPS = 5


def make_peer(mode, world_size):
    model = tutorial.make_model(0)
    if mode == "ddp":
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if mode == "fsdp2":
        return tutorial.shard(model, tutorial.make_mesh(world_size))
    return model


def measure(rank, world_size, options):
    model = make_peer(options.mode, world_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    images, labels = tutorial.load_training_data(options.data)
    order = tutorial.sample_order(len(images), 0, 0, rank, world_size)
    batches = len(order) // options.batch
    loss_sum = torch.zeros(())
    step_ms = []
    for step in range(WARM_UP_STEPS + options.steps):
        start = time.perf_counter()
        first = step % batches * options.batch
        batch = order[first : first + options.batch]
        loss = nn.functional.cross_entropy(model(tutorial.normalize(images[batch])), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.detach()
        if (step + 1) % options.log_every == 0:
            dist.all_reduce(loss_sum)
            loss_sum.div_(world_size * options.log_every).item()
            loss_sum.zero_()
        step_ms.append((time.perf_counter() - start) * 1e3)
    if rank == 0:
        report(options, sorted(step_ms[WARM_UP_STEPS:]))


def report(options, step_ms):
    result = {
        "mode": options.mode,
        "threads": options.threads,
        "median_ms": round(step_ms[len(step_ms) // 2], 2),
        "p95_ms": round(step_ms[int(len(step_ms) * 0.95)], 2),
        "steps": options.steps,
    }
    print(json.dumps(result), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=["single", "ddp", "fsdp2"], required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads a rank")
    parser.add_argument("--batch", type=int, default=64, help="samples a rank")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--data", default=tutorial.DATA_FOLDER, help="folder of the IDX files")
    options = parser.parse_args()
    world_size = 1 if options.mode == "single" else options.workers
    tutorial.run_ranks(world_size, options.threads, measure, options)


if __name__ == "__main__":
    main()
