"""Levers: changes to the program that `shardlens record --with` makes from outside, each as if the
program had been edited by hand. profiler/record/levers/levers.cpp says which there are, and what each stands
for in code. A lever acts when a library is imported or one of its functions called, and notes where
(sites.py); one that has acted nowhere makes the recording fail."""

import functools
import sys

from ..guards import guarded
from . import (allocator, data, forward, lengths, losses, optimizers, recompute, sharding, sites, titan,
               trainers)

_AT_OPTIMIZER = ("recompute", "activations", "autocast", "compile", "step-in-backward", "empty-cache",
                 "batch", "fsdp2")
_LEVERS = "some levers that apply may not be known"


def _apply_to_models(torch, optimizer):
    def is_wanted(lever):
        return sites.is_wanted(lever) and not (trainers.handles(lever) or titan.handles(lever))

    if is_wanted("recompute"):
        recompute.apply(torch, optimizer)
    if any(map(is_wanted, ("activations", "autocast", "compile"))):
        forward.apply(torch, optimizer, is_wanted)
    optimizers.after_made(torch, optimizer, is_wanted)
    if is_wanted("batch"):
        data.accumulate(optimizer)


def _sharded(torch, params):
    """Returns the parameters that an optimizer is to step: other ones if a lever shards their model."""
    if not sites.is_wanted("fsdp2") or optimizers.is_own():
        return params
    params = sharding.listed(params)
    shard = sharding.shard_plain
    if not sites.PULLED:
        shard = guarded(_LEVERS, params)(shard)
    return shard(torch, params)


def _watch_torch(torch):
    """The models of a program are complete when it makes its optimizer: then levers act on them."""

    def making(inner):
        @functools.wraps(inner)
        def init(self, params, *args, **kwargs):
            inner(self, _sharded(torch, params), *args, **kwargs)
            if not optimizers.is_own():
                apply(torch, self)

        return init

    def apply(torch, optimizer):
        # A program that is only looked at goes on as if it were not.
        act = _apply_to_models if sites.PULLED else guarded(_LEVERS)(_apply_to_models)
        act(torch, optimizer)

    optimizers.watch(torch)
    forward.watch(torch)
    torch.cuda._lazy_call(allocator.tell)
    if sites.is_wanted(*_AT_OPTIMIZER):
        sites.replace(torch.optim.Optimizer, "__init__", making)


def begin():
    """Takes the levers of a variant, in a process that was forked for it and has imported PyTorch."""
    sites.begin()
    forward.choose_attention(sys.modules["torch"])


def changes():
    """Returns, by a module's name, the functions that change it once it has been executed."""
    allocator.begin()
    return {
        "torch": [_watch_torch],
        "torch.nn.functional": [forward.watch_attention, losses.watch],
        "torch.nn.parallel.distributed": [sharding.watch_ddp],
        "torch.utils.checkpoint": [recompute.watch] if sites.is_wanted("recompute") else [],
        "torch.utils.data.dataloader": [data.watch, lengths.watch],
        "torch.distributed.distributed_c10d": [sharding.watch_world],
        "torch.distributed.fsdp._fully_shard._fully_shard": [sharding.watch_fully_shard],
        "torch.distributed.fsdp.fully_sharded_data_parallel": [sharding.watch_fsdp1],
        "torchtitan.trainer": [titan.watch],
        "transformers.training_args": [trainers.watch_arguments],
        "transformers.modeling_utils": [trainers.watch_models],
    }
