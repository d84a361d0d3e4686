"""Measures how long a training step of PyTorch takes on this machine's GPU:

    step_times.py MODEL BATCH fp32|bf16 eager|fsdp2|compile|graphs STEPS LIBRARY

Prints a line of JSON: the median, the 5th and the 95th percentile of a step by the host's clock,
where each step ends when the GPU has done it; then what LIBRARY (count_calls.cpp) counts in later
steps. bf16 is autocast, except with fsdp2, which casts parameters as Shardlens does. Adam is fused,
the batch resident; graphs replay what was captured once."""

import contextlib
import ctypes
import json
import os
import pathlib
import struct
import sys
import time

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "reference"))
import peer_models  # noqa: E402

WARM_UP = 5
COUNTED_STEPS = 5


class Training:
    def __init__(self, name, batch, dtype, way):
        self.peer, self.way, self.dtype = peer_models.MODELS[name], way, dtype
        with torch.device("cuda"):
            model = self.peer.make()
        self.inputs, self.targets = self.peer.make_batch(model, batch)
        self.model = self.prepared(model.cuda())
        options = {"capturable": True} if way == "graphs" else {}
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True, **options)

    def prepared(self, model):
        if self.way == "compile":
            return torch.compile(model)
        if self.way != "fsdp2":
            return model
        torch.distributed.init_process_group(
            "nccl", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
        policy = MixedPrecisionPolicy()
        if self.dtype == "bf16":
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for block in self.peer.blocks(model):
            fully_shard(block, mp_policy=policy)
        return fully_shard(model, mp_policy=policy)

    def precision(self):
        if self.dtype == "bf16" and self.way != "fsdp2":
            return torch.autocast("cuda", torch.bfloat16)
        return contextlib.nullcontext()

    def step(self):
        with self.precision():
            loss = self.peer.loss(self.model(self.inputs), self.targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.way != "graphs")


def captured(training):
    """Warms up on a side stream, as PyTorch's notes on graphs say."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            training.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        training.step()
    return graph.replay


def counters():
    path = f"{os.environ['SHARDLENS_CALLS']}.{os.getpid()}"
    return struct.unpack("<4Q", pathlib.Path(path).read_bytes())


def calls_of(step, library):
    """Counts kernels and graphs that a step launches, by the driver's and the runtime's calls."""
    if ctypes.CDLL(library).InitializeInjection() != 1:
        return dict.fromkeys(("kernels", "graphs", "runtime_kernels"))
    before = counters()
    for _ in range(COUNTED_STEPS):
        step()
    torch.cuda.synchronize()
    kernels, graphs, _, of_runtime = (
        (now - then) / COUNTED_STEPS for now, then in zip(counters(), before)
    )
    return {"kernels": kernels, "graphs": graphs, "runtime_kernels": of_runtime}


def main():
    name, batch, dtype, way, steps, library = sys.argv[1:]
    torch.backends.cuda.enable_cudnn_sdp(False)
    if not torch.backends.cudnn.is_available() or "null device" in torch.cuda.get_device_name():
        torch.backends.cudnn.enabled = False
    training = Training(name, int(batch), dtype, way)
    step = captured(training) if way == "graphs" else training.step
    times = []
    for _ in range(WARM_UP + int(steps)):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    times = sorted(times[WARM_UP:])
    print(
        json.dumps(
            {
                "median_ms": times[len(times) // 2],
                "p5_ms": times[len(times) // 20],
                "p95_ms": times[-1 - len(times) // 20],
                "steps": len(times),
                **calls_of(step, library),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
    os._exit(0)  # a thread of autograd that still runs when the interpreter ends aborts the process
