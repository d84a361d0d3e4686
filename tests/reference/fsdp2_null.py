"""Measures peak memory and host time of PyTorch FSDP2, HSDP and DDP on the null device: one rank of
a simulated world, with collectives that do nothing (PyTorch's own "fake" process group).

    .setup/peers && .deps/peers/bin/python tests/reference/fsdp2_null.py --model vit-l16 --world 8

prints one line of JSON:
  peaks    of every variant (peer_strategies.py): [allocated, reserved] bytes from the third step on
  host_ms  the median step of the first variant: what Python and PyTorch cost the host, since the
           device takes no time

With --record it adds the configurations of null_configurations.py that are missing in
tests/fixtures/fsdp2_null_peaks.json. It may be interrupted and continues where it was.

PyTorch is at its best: weights are made where they stay, Adam is fused (also on the CPU under
offload), the batch is resident, gradients are freed right after the optimizer, and the loss reads
logits in reduced precision without a copy in fp32. Parameters in fp16 come with a GradScaler. The
models are in peer_models.py; a convolution is PyTorch's own: how much workspace cuDNN would also
take is unknown without a GPU.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

import null_runs
import peer_models
import peer_strategies

# The optimizer goes through the parameters in one of these ways.
LOOPS = {"fused": {"fused": True}, "foreach": {"foreach": True}, "single": {"foreach": False}}


class Trainer:
    def __init__(self, options):
        self.options = options
        self.peer = peer_models.MODELS[options.model]
        self.model = peer_strategies.MAKE[options.strategy](self.peer, options)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, **LOOPS[options.loop])
        self.scaler = torch.amp.GradScaler("cuda", enabled=options.param_dtype == "fp16")
        inner = getattr(self.model, "module", self.model)
        self.inputs, self.targets = self.peer.make_batch(inner, options.batch)

    def step(self):
        if self.options.zero_grad == "before":
            self.optimizer.zero_grad()
        for left in reversed(range(self.options.accumulate)):
            if self.options.sync == "last":
                self.model.set_requires_gradient_sync(left == 0)
            with peer_strategies.forward_context(self.options):
                loss = self.peer.loss(self.model(self.inputs), self.targets)
            self.scaler.scale(loss).backward()
        if self.options.clip_norm > 0:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.options.zero_grad != "before":
            self.optimizer.zero_grad(set_to_none=self.options.zero_grad == "after")


def join_world(rank, world_size):
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.enabled = False
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)


def make_step(options):
    """Returns one training step as a function, after the warm-up steps."""
    trainer = Trainer(options)
    for _ in range(null_runs.WARM_UP_STEPS):
        trainer.step()
    torch.cuda.reset_peak_memory_stats()
    return trainer.step


def measure(options):
    """Returns [allocated, reserved] bytes, and the median step in ms."""
    join_world(options.rank, options.world)
    step = make_step(options)
    step_ms = []
    for _ in range(options.steps):
        start = time.perf_counter()
        step()
        step_ms.append((time.perf_counter() - start) * 1e3)
    peak = [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]
    return {"peak": peak, "host_ms": round(statistics.median(step_ms), 3)}


def measure_or_say_why(options):
    try:
        return measure(options)
    except torch.OutOfMemoryError:
        return {"out_of_memory": True}


def in_child(measure_what, options):
    """Returns what the function returns, from its own process in which PyTorch is already
    loaded."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, json.dumps(measure_what(options)).encode())
        except BaseException:  # the child must not go on as the parent
            sys.excepthook(*sys.exc_info())
        # Autograd's device thread may still be releasing Python objects; Python's own exit would
        # sometimes abort it ("terminate called without an active exception").
        sys.stderr.flush()
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    if not text:
        sys.exit(f"fsdp2_null.py: {options} failed (see above)")
    return json.loads(text)


def measure_variants(options):
    """Measures the variants that fit the GPU; "peaks" is empty if none does."""
    names = peer_strategies.variants_of(options)
    if options.variant != "all":
        names = [options.variant]
    results = {}
    for name in names:
        changed = argparse.Namespace(**vars(options) | {"variant": name})
        result = in_child(measure_or_say_why, changed)
        if "peak" in result:
            results[name] = result
    return {
        "peaks": {name: result["peak"] for name, result in results.items()},
        "host_ms": next((result["host_ms"] for result in results.values()), None),
    }


def measure_configuration(configuration):
    """Returns the peaks of all variants of a configuration, for null_runs.record."""
    arguments = [*configuration.arguments(), "--steps", str(null_runs.PEAK_STEPS)]
    return measure_variants(parse_options(arguments))["peaks"]


def parse_options(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=peer_models.MODELS, default="vit-tutorial")
    parser.add_argument("--strategy", choices=peer_strategies.MAKE, default="fsdp")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--replicas", type=int, default=1, help="copies of the state, for hsdp")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--batch", type=int, default=64, help="samples a rank")
    parser.add_argument("--param-dtype", choices=peer_strategies.DTYPES, default="fp32")
    parser.add_argument("--reduce-dtype", choices=peer_strategies.DTYPES, default="fp32")
    parser.add_argument("--reshard-after-forward", default="true", help="true, false or ranks")
    parser.add_argument("--offload", choices=["none", "all"], default="none")
    parser.add_argument("--loop", choices=LOOPS, default="fused", help="which loop the optimizer uses")
    parser.add_argument("--clip-norm", type=float, default=0)
    parser.add_argument("--zero-grad", choices=["after", "before", "keep"], default="after",
                        help="when in a step, or set_to_none=False")
    parser.add_argument("--accumulate", type=int, default=1, help="microbatches a step")
    parser.add_argument("--sync", choices=["every", "last"], default="every",
                        help="the microbatches that reduce gradients")
    parser.add_argument("--forward-prefetch", type=int, default=0, help="blocks; 0: FSDP2's own")
    parser.add_argument("--backward-prefetch", type=int, default=0, help="blocks; 0: FSDP2's own")
    parser.add_argument("--variant", choices=["all", *peer_strategies.VARIANTS], default="all")
    parser.add_argument("--steps", type=int, default=null_runs.PEAK_STEPS, help="after the warm-up")
    parser.add_argument("--record", action="store_true", help="add to the fixture of all peaks")
    return parser.parse_args(arguments)


def main():
    options = parse_options()
    null_runs.enter_null_device()
    if options.record:
        version = torch.__version__.split("+")[0]
        null_runs.record(version, peer_strategies.VARIANTS, measure_configuration)
    else:
        print(json.dumps(measure_variants(options)), flush=True)


if __name__ == "__main__":
    main()
