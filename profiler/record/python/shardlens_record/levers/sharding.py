"""Changes how the program shards: the arguments of FSDP2's fully_shard, of FSDP1 and of DDP."""

import functools
import sys
import weakref

from . import blocks, sites

_FSDP = ("offload", "reshard-after-forward", "param-dtype", "reduce-dtype", "wrap", "recompute")
_own = sites.Own()
_wrapped = weakref.WeakSet()  # roots whose blocks a lever has sharded


# --- FSDP2 ----------------------------------------------------------------------------------------


def _policy(kwargs):
    """Changes the dtypes of a MixedPrecisionPolicy, and keeps what else it says."""
    import dataclasses

    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy = kwargs.get("mp_policy") or MixedPrecisionPolicy()
    for lever, field in (("param-dtype", "param_dtype"), ("reduce-dtype", "reduce_dtype")):
        now = sites.name_of_dtype(torch, getattr(policy, field))
        code = f"fully_shard(..., mp_policy=MixedPrecisionPolicy({field}=VALUE))"
        name = sites.at(lever, code, now=now)
        if name is not None:
            policy = dataclasses.replace(policy, **{field: sites.named_dtype(torch, name)})
            kwargs["mp_policy"] = policy


def _offload(kwargs):
    from torch.distributed.fsdp import CPUOffloadPolicy

    now = "parameters" if isinstance(kwargs.get("offload_policy"), CPUOffloadPolicy) else None
    code = "fully_shard(..., offload_policy=CPUOffloadPolicy())"
    if sites.at("offload", code, now=now) is not None:
        kwargs["offload_policy"] = CPUOffloadPolicy()


def _reshard(kwargs):
    now = kwargs.get("reshard_after_forward")
    named = None if now is None else str(now).lower()
    wanted = sites.PULLED.get("reshard-after-forward", "").title()
    code = f"fully_shard(..., reshard_after_forward={wanted})"
    value = sites.at("reshard-after-forward", code, now=named)
    if value is not None:
        is_word = value in ("true", "false")
        kwargs["reshard_after_forward"] = value == "true" if is_word else int(value)


def _first_sizes(children, least):
    """Divides modules into runs of neighbours with at least `least` parameters each."""
    run, size = [], 0
    for child in children:
        run.append(child)
        size += sum(parameter.numel() for parameter in child.parameters())
        if size >= least:
            yield run
            run, size = [], 0
    if run:
        yield run


def _wrap(module, kwargs, shard):
    """Shards the blocks of a root of which no part has been sharded."""
    import torch

    if isinstance(module, (list, tuple)) or module in _wrapped:
        return
    kind = torch.distributed.fsdp.FSDPModule
    if any(issubclass(type(part), kind) for part in module.modules()):
        return
    found = blocks.repeated(torch, module)
    if not found or any(part is module for part in found):
        return
    value = sites.at("wrap", "fully_shard(block, ...) for each block, before fully_shard(model, ...)")
    if value is None:
        return
    _wrapped.add(module)
    least = 0 if value == "blocks" else int(value.partition(":")[2])
    for run in _first_sizes(found, least):
        shard(run[0] if len(run) == 1 else run, **kwargs)


def watch_fully_shard(module):
    def sharding(inner):
        @functools.wraps(inner)
        def fully_shard(module, *args, **kwargs):
            _policy(kwargs)
            _offload(kwargs)
            _reshard(kwargs)
            if sites.is_wanted("wrap") and not _own.depth:
                with _own:
                    _wrap(module, kwargs, inner)
            return inner(module, *args, **kwargs)

        return fully_shard

    if sites.is_wanted(*_FSDP):
        sites.replace(module, "fully_shard", sharding)


# --- FSDP1 ----------------------------------------------------------------------------------------

_STRATEGIES = {"true": "FULL_SHARD", "false": "SHARD_GRAD_OP"}


def _change_fsdp1(fsdp, kwargs):
    import torch

    strategy = kwargs.get("sharding_strategy")
    name = getattr(strategy, "name", "FULL_SHARD")
    now = next((value for value, one in _STRATEGIES.items() if one == name), None)
    value = sites.at("reshard-after-forward",
                     "FullyShardedDataParallel(..., sharding_strategy=FULL_SHARD or SHARD_GRAD_OP)",
                     now=now)
    if value in _STRATEGIES:
        kwargs["sharding_strategy"] = getattr(fsdp.ShardingStrategy, _STRATEGIES[value])
    elif value is not None:
        sites.cannot("reshard-after-forward", "FSDP1 takes true or false")
    offload = kwargs.get("cpu_offload")
    code = "FullyShardedDataParallel(..., cpu_offload=CPUOffload(offload_params=True))"
    if sites.at("offload", code, now="parameters" if getattr(offload, "offload_params", 0) else None):
        kwargs["cpu_offload"] = fsdp.CPUOffload(offload_params=True)
    for lever, field in (("param-dtype", "param_dtype"), ("reduce-dtype", "reduce_dtype")):
        policy = kwargs.get("mixed_precision") or fsdp.MixedPrecision()
        now = sites.name_of_dtype(torch, getattr(policy, field))
        code = f"FullyShardedDataParallel(..., mixed_precision=MixedPrecision({field}=VALUE))"
        wanted = sites.at(lever, code, now=now)
        if wanted is not None:
            import dataclasses

            dtype = sites.named_dtype(torch, wanted)
            kwargs["mixed_precision"] = dataclasses.replace(policy, **{field: dtype})


def watch_fsdp1(module):
    """FSDP1 wraps inner modules by its own constructor, with the arguments that the outer one got."""

    def wrapping(inner):
        @functools.wraps(inner)
        def init(self, wrapped, *args, **kwargs):
            if not args and not _own.depth:
                _change_fsdp1(module, kwargs)
            with _own:
                inner(self, wrapped, *args, **kwargs)

        return init

    if sites.is_wanted(*_FSDP):
        sites.replace(module.FullyShardedDataParallel, "__init__", wrapping)


# --- DDP ------------------------------------------------------------------------------------------


class _Synced:
    """Stands for DDP.no_sync on a model that is sharded instead."""

    def __init__(self, model):
        self.model = model

    def __enter__(self):
        self.model.set_requires_gradient_sync(False)

    def __exit__(self, *_):
        self.model.set_requires_gradient_sync(True)


def _shard_instead(torch, model):
    from torch.distributed.fsdp import fully_shard

    for block in blocks.repeated(torch, model):
        fully_shard(block)
    fully_shard(model)
    object.__setattr__(model, "module", model)  # the program may ask DDP for the model
    object.__setattr__(model, "no_sync", lambda: _Synced(model))
    return model


def watch_ddp(module):
    torch = sys.modules["torch"]
    kind = module.DistributedDataParallel

    def making(inner):
        @functools.wraps(inner)
        def init(self, model, *args, **kwargs):
            now = "" if kwargs.get("gradient_as_bucket_view") else None
            code = "DistributedDataParallel(..., gradient_as_bucket_view=True)"
            if sites.at("bucket-view", code, now=now) is not None:
                kwargs["gradient_as_bucket_view"] = True
            size = kwargs.get("bucket_cap_mb")
            value = sites.at("bucket-size", "DistributedDataParallel(..., bucket_cap_mb=VALUE)",
                             now=None if size is None else str(size))
            if value is not None:
                kwargs["bucket_cap_mb"] = int(value)
            inner(self, model, *args, **kwargs)

        return init

    def new(cls, model=None, *_, **kwargs):
        code = "fully_shard(block) for each block, then fully_shard(model), instead of DDP"
        wrapped = kwargs.get("module", model)  # None: a copy is being made
        if cls is kind and wrapped is not None and sites.at("fsdp2", code) is not None:
            return _shard_instead(torch, wrapped)
        return object.__new__(cls)

    if sites.is_wanted("bucket-view", "bucket-size", "fsdp2"):
        sites.replace(kind, "__init__", making)
        kind.__new__ = staticmethod(new)
