"""Peak memory and host time of PyTorch FSDP2 on the null device: one rank of a world that does not
exist, with collectives that do nothing (PyTorch's own "fake" process group).

    .setup/peers && .deps/peers/bin/python tests/reference/fsdp2_null.py --model vit-l16 --world 8

prints one line of JSON:
  allocated_bytes, reserved_bytes  the peaks from the third step on
  host_ms                          the median step: what Python and PyTorch cost the host, since
                                   the device takes no time

With --record it runs all configurations, each in a process of its own, and writes
tests/fixtures/fsdp2_null_peaks.json.

The peer is at its best: weights are made where they stay, Adam is fused, the batch is resident and
gradients are given up right after the optimizer. The model is torchvision's, its convolution is
PyTorch's own: how much workspace cuDNN would take beside it is not known without a GPU.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import null_runs
import tutorial

MODELS = {
    "vit-tutorial": lambda: tutorial.make_model(0),
    "vit-b16": torchvision.models.vit_b_16,
    "vit-l16": torchvision.models.vit_l_16,
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def make_model(options):
    """FSDP2 as its tutorial wraps it: one group a block and one for the rest."""
    with torch.device("meta"):
        model = MODELS[options.model]()
    keywords = {"reshard_after_forward": options.reshard_after_forward == "true"}
    if options.param_dtype != "fp32":
        # Not for fp32: a policy that casts nothing still looks at the inputs of every block.
        keywords["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=DTYPES[options.param_dtype], reduce_dtype=torch.float32
        )
    for block in model.encoder.layers.children():
        fully_shard(block, **keywords)
    fully_shard(model, **keywords)
    return model.to_empty(device="cuda")


def train_step(model, optimizer, images, labels):
    loss = nn.functional.cross_entropy(model(images).float(), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def make_step(options):
    """One training step as a function, after those of the warm-up."""
    model = make_model(options)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    pixels = (model.image_size, model.image_size)
    images = torch.empty(options.batch, model.conv_proj.in_channels, *pixels, device="cuda")
    labels = torch.zeros(options.batch, dtype=torch.long, device="cuda")
    for _ in range(null_runs.WARM_UP_STEPS):
        train_step(model, optimizer, images, labels)
    torch.cuda.reset_peak_memory_stats()
    return lambda: train_step(model, optimizer, images, labels)


def measure(options):
    step = make_step(options)
    step_ms = []
    for _ in range(options.steps):
        start = time.perf_counter()
        step()
        step_ms.append((time.perf_counter() - start) * 1e3)
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "host_ms": round(statistics.median(step_ms), 3),
    }


def join_world(rank, world_size):
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.enabled = False
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)


def run_rank(options):
    join_world(options.rank, options.world)
    print(json.dumps(measure(options)), flush=True)
    # Autograd's device thread may still be giving up Python objects; Python's own way out would now
    # and then abort it ("terminate called without an active exception").
    os._exit(0)


def parse_options(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="vit-tutorial")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--batch", type=int, default=64, help="samples a rank")
    parser.add_argument("--param-dtype", choices=DTYPES, default="fp32", help="reduction is fp32")
    parser.add_argument("--reshard-after-forward", choices=["true", "false"], default="true")
    parser.add_argument("--steps", type=int, default=null_runs.PEAK_STEPS, help="after the warm-up")
    parser.add_argument("--record", action="store_true", help="write the fixture of all peaks")
    return parser.parse_args(arguments)


def main():
    options = parse_options()
    environment = null_runs.null_device_environment()
    if options.record:
        null_runs.record(torch.__version__.split("+")[0])
    elif os.environ.get("LD_PRELOAD") != environment["LD_PRELOAD"]:
        # The libraries count only where they are there before PyTorch is loaded.
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    else:
        run_rank(options)


if __name__ == "__main__":
    main()
