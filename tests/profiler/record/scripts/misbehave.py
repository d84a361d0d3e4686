"""Trains a small model, and does what its argument says: mishaps of real programs."""

import copy
import ctypes
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 1024


def make():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).cuda()
    return model, torch.optim.Adam(model.parameters())


def take(steps, model, optimizer, data=None, rows=64):
    for _ in range(steps):
        batch = torch.randn(rows, WIDTH) if data is None else next(data)[0]
        model(batch.cuda()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def train(steps, data=None, rows=64):
    take(steps, *make(), data, rows)


def fail():
    train(2)
    raise ValueError("a mistake of the user's")


def exit_7():
    train(2)
    sys.exit(7)


def kill_itself():
    train(2)
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    train(2)
    print("hanging", flush=True)
    time.sleep(600)


def hang_for_ever():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hang()


def fork():
    train(1)
    child = os.fork()
    if child == 0:
        torch.ones(3).sum()
        os._exit(0)
    os.waitpid(child, 0)
    train(2)


def load():
    data = TensorDataset(torch.randn(512, WIDTH))
    train(4, iter(DataLoader(data, batch_size=64, num_workers=2, pin_memory=True)))


def profile():
    with torch.profiler.profile(profile_memory=True):
        train(2)


def profile_late():
    train(1)
    profile()


def run_out():
    torch.empty(1 << 40, device="cuda")


def catch_all():
    while True:
        try:
            train(3)
        except BaseException as error:  # pylint: disable=broad-except
            print("caught", type(error).__name__, flush=True)


def allocate():
    torch.ones(1 << 20, device="cuda").sum()


def stay_on_cpu():
    torch.ones(3).sum()


def two_processes():
    train(1)
    script = "import torch; torch.ones(1 << 20, device='cuda')"
    os.spawnl(os.P_WAIT, sys.executable, sys.executable, "-c", script)


def use_rank():
    dist.init_process_group()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}", flush=True)
    train(1)


def use_node():
    dist.init_process_group()
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    train(1)
    print(f"gpu {torch.ones(1, device='cuda').device.index} of {torch.cuda.device_count()}, node",
          os.environ["GROUP_RANK"], "of", os.environ["GROUP_WORLD_SIZE"],
          os.environ["LOCAL_WORLD_SIZE"], flush=True)


def use_all_gpus():
    model, optimizer = make()
    take(2, nn.DataParallel(model), optimizer)
    print(f"{torch.cuda.device_count()} GPUs", flush=True)


def of_spawn(rank, world):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29511", rank=rank, world_size=world)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}", flush=True)
    train(1)


def spawn():
    # This asks the driver before the program has named its world, as cuDNN does when it is loaded.
    ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
    torch.multiprocessing.spawn(of_spawn, args=(4,), nprocs=4)


def grow(percent):
    train(3, rows=1 << 14)
    kept_bytes = torch.cuda.max_memory_allocated() * int(percent) // 100
    kept = torch.empty(kept_bytes, dtype=torch.uint8, device="cuda")
    train(3, rows=1 << 14)
    del kept


def resume():
    from torch.distributed.checkpoint import state_dict

    model, optimizer = make()
    saved = state_dict.get_optimizer_state_dict(model, optimizer)
    state_dict.set_optimizer_state_dict(model, optimizer, saved)
    del saved
    take(2, model, optimizer)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    take(1, model, optimizer, rows=1 << 14)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
