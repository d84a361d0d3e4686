"""Programs that time themselves with events. Each prints one line of JSON: the events by name, in the
order in which they are recorded, and the milliseconds between pairs of them.

    timed.py NAME
"""

import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 4096


class Times:
    def __init__(self):
        self.events, self.order, self.read = {}, [], []

    def record(self, name):
        self.events[name] = torch.cuda.Event(enable_timing=True)
        self.events[name].record()
        self.order.append(name)

    def between(self, first, last):
        ms = self.events[first].elapsed_time(self.events[last])
        self.read.append([first, last, ms])
        return ms

    def tell(self, **more):
        print(json.dumps({"order": self.order, "read": self.read} | more), flush=True)


def matrix():
    return torch.empty(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16)


def multiply(a, times):
    for _ in range(times):
        torch.mm(a, a)


def products():
    """A chain of products behind others, so that the GPU never waits for the host."""
    a, times = matrix(), Times()
    multiply(a, 200)
    times.record("begin")
    multiply(a, 10)
    times.record("middle")
    multiply(a, 20)
    times.record("end")
    torch.cuda.synchronize()
    for _ in range(2):  # the second time they are the same
        for pair in (("begin", "middle"), ("middle", "end"), ("begin", "end"), ("end", "begin")):
            times.between(*pair)
    times.tell()


def training():
    """Steps that the GPU bounds, also where something else uses the host."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))).cuda().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    x, times = torch.empty(1 << 17, WIDTH, device="cuda", dtype=torch.bfloat16), Times()
    times.record("0")
    for step in range(6):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        times.record(str(step + 1))
    torch.cuda.synchronize()
    for step in range(6):
        times.between(str(step), str(step + 1))
    times.tell()


def streams():
    """The side stream waits for the main one's products."""
    a, times, side = matrix(), Times(), torch.cuda.Stream()
    multiply(a, 100)
    times.record("begin")
    multiply(a, 10)
    times.record("ready")
    side.wait_event(times.events["ready"])
    with torch.cuda.stream(side):
        times.record("waited")
        multiply(a, 5)
        times.record("done")
    multiply(a, 10)
    times.record("end")
    torch.cuda.current_stream().wait_event(times.events["done"])
    torch.cuda.synchronize()
    for pair in (("begin", "ready"), ("ready", "waited"), ("waited", "done"), ("ready", "end")):
        times.between(*pair)
    times.tell()


def overlap():
    """An all-reduce beside products: short products do not hide it, long ones do."""
    dist.init_process_group("nccl")
    a, times = matrix(), Times()
    bucket = torch.empty(1 << 26, device="cuda")
    for name, count in (("alone", 0), ("exposed", 1), ("hidden", 200)):
        multiply(a, 50)
        times.record(f"{name} begin")
        work = dist.all_reduce(bucket, async_op=True)
        multiply(a, count)
        times.record(f"{name} products")
        work.wait()
        times.record(f"{name} end")
        torch.cuda.synchronize()
        times.between(f"{name} begin", f"{name} products")
        times.between(f"{name} begin", f"{name} end")
    times.tell()
    dist.destroy_process_group()


def graph():
    """A graph of two products, replayed behind others."""
    a, times = matrix(), Times()
    multiply(a, 2)
    captured = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(captured):
        multiply(a, 2)
    multiply(a, 100)
    times.record("begin")
    for _ in range(5):
        captured.replay()
    times.record("middle")
    multiply(a, 10)
    times.record("end")
    torch.cuda.synchronize()
    times.between("begin", "middle")
    times.between("middle", "end")
    times.tell()


def attention():
    """Equal calls of fused attention, one and five."""
    times = Times()
    q = torch.empty(4, 32, 4096, 128, device="cuda", dtype=torch.bfloat16)
    calls = [nn.functional.scaled_dot_product_attention] * 30
    for name, count in (("warm", 30), ("one", 1), ("five", 5)):
        times.record(name)
        for call in calls[:count]:
            call(q, q, q, is_causal=True)
    times.record("end")
    torch.cuda.synchronize()
    times.between("one", "five")
    times.between("five", "end")
    times.tell()


def many():
    """Reads after each of many short parts; the host's clock tells what a read costs."""
    a, times = torch.empty(64, 64, device="cuda"), Times()
    seconds = []
    for part in range(1001):
        times.record(str(part))
        torch.mm(a, a)
        torch.cuda.synchronize()
        if part > 0:
            begin = time.perf_counter()
            times.between(str(part - 1), str(part))
            seconds.append(time.perf_counter() - begin)
    times.tell(first_s=seconds[0], early_s=sum(seconds[1:101]) / 100, late_s=sum(seconds[-100:]) / 100)


def unread():
    """Two threads read at once, and a forked process, which is not recorded, reads, too."""
    times = Times()
    multiply(matrix(), 3)
    for name in ("a", "b", "c"):
        times.record(name)
        multiply(matrix(), 2)
    torch.cuda.synchronize()
    threads = [threading.Thread(target=times.between, args=pair) for pair in (("a", "b"), ("b", "c"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, repr(times.events["a"].elapsed_time(times.events["b"])).encode())
        os._exit(0)
    os.wait()
    times.read.sort()
    times.tell(forked=float(os.read(read, 100)))


def tuners():
    """Inductor's benchmark and DDP's log read times, and the program does not."""
    from torch._inductor.runtime.benchmarking import InductorBenchmarker

    a = matrix()
    ms = InductorBenchmarker().benchmark_gpu(lambda: torch.mm(a, a))
    dist.init_process_group("nccl")
    model = DistributedDataParallel(nn.Linear(64, 64).cuda())
    for _ in range(3):
        model(torch.empty(8, 64, device="cuda")).sum().backward()
    dist.destroy_process_group()
    Times().tell(tuned=ms)


{f.__name__: f for f in (products, training, streams, overlap, graph, attention, many, unread,
                         tuners)}[sys.argv[1]]()
