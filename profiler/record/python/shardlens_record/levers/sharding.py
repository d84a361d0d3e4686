"""Changes how the program shards: the arguments of FSDP2's fully_shard, of FSDP1 and of DDP."""

import functools
import os
import sys
import weakref

from . import blocks, optimizers, sites

_FSDP = ("offload", "reshard-after-forward", "param-dtype", "reduce-dtype", "wrap", "hsdp", "recompute")
_own = sites.Own()
_wrapped = weakref.WeakSet()  # roots whose blocks a lever has sharded


# --- the world ------------------------------------------------------------------------------------


def watch_world(module):
    """Notes that the program uses ranks (module: torch.distributed.distributed_c10d). `shardlens record`
    itself sets how many."""

    def beginning(inner):
        @functools.wraps(inner)
        def init_process_group(*args, **kwargs):
            now = None if "world" in sites.PULLED else os.environ.get("WORLD_SIZE")
            sites.at("world", "torchrun --nproc-per-node ..., with VALUE ranks in all", now=now)
            return inner(*args, **kwargs)

        return init_process_group

    if sites.is_wanted("world"):
        sites.replace(module, "init_process_group", beginning)


# --- replicas -------------------------------------------------------------------------------------


def _world_size():
    distributed = sys.modules["torch"].distributed
    if distributed.is_initialized():
        return distributed.get_world_size()
    return int(os.environ.get("WORLD_SIZE", 1))


@functools.cache
def _mesh_with_replicas(ranks):
    """Returns a mesh of copies of the state, each over as many neighbours: all modules share it."""
    from torch.distributed.device_mesh import init_device_mesh

    sizes = (_world_size() // ranks, ranks)
    return init_device_mesh("cuda", sizes, mesh_dim_names=("replicate", "shard"))


def _why_no_replicas(mesh, ranks):
    world = _world_size()
    if mesh is not None and (mesh.ndim > 1 or mesh.size() != world):
        return "the program divides its ranks itself"
    if ranks is not None and (world % ranks or ranks == world):
        return f"{ranks} is not a divisor of the world size, {world}, below it"
    return None


def _replicate(mesh, code):
    """Returns the mesh to shard over: the lever's, or the program's."""
    wanted = sites.PULLED.get("hsdp")
    if not sites.is_wanted("hsdp"):
        return mesh
    why = _why_no_replicas(mesh, int(wanted) if wanted else None)
    if why:
        sites.cannot("hsdp", why)
        return mesh
    value = sites.at("hsdp", code)
    return mesh if value is None else _mesh_with_replicas(int(value))


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


_OF_FSDP2 = 'fully_shard(..., mesh=init_device_mesh("cuda", (COPIES, VALUE)))'
_OF_FSDP1 = ('FullyShardedDataParallel(..., sharding_strategy=HYBRID_SHARD, '
             'device_mesh=init_device_mesh("cuda", (COPIES, VALUE)))')
_HYBRID = {"FULL_SHARD": "HYBRID_SHARD", "SHARD_GRAD_OP": "_HYBRID_SHARD_ZERO2"}


def watch_fully_shard(module):
    def sharding(inner):
        @functools.wraps(inner)
        def fully_shard(module, *args, **kwargs):
            _policy(kwargs)
            _offload(kwargs)
            _reshard(kwargs)
            mesh = _replicate(kwargs.get("mesh"), _OF_FSDP2)
            if mesh is not None:
                kwargs["mesh"] = mesh
            if sites.is_wanted("wrap") and not _own.depth:
                with _own:
                    _wrap(module, kwargs, inner)
            return inner(module, *args, **kwargs)

        return fully_shard

    if sites.is_wanted(*_FSDP):
        sites.replace(module, "fully_shard", sharding)


# --- FSDP1 ----------------------------------------------------------------------------------------

_STRATEGIES = {"true": "FULL_SHARD", "false": "SHARD_GRAD_OP"}


def _replicate_fsdp1(fsdp, kwargs):
    strategy = getattr(kwargs.get("sharding_strategy"), "name", "FULL_SHARD")
    if strategy not in _HYBRID or kwargs.get("process_group") is not None:
        return sites.cannot("hsdp", "the program divides its ranks itself")
    before = kwargs.get("device_mesh")
    mesh = _replicate(before, _OF_FSDP1)
    if mesh is not before:
        kwargs["device_mesh"] = mesh
        kwargs["sharding_strategy"] = getattr(fsdp.ShardingStrategy, _HYBRID[strategy])
    return None


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
    _replicate_fsdp1(fsdp, kwargs)
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
    if sites.is_wanted("step-in-backward"):
        sites.replace(module.FullyShardedDataParallel, "clip_grad_norm_", optimizers.clipping)


# --- DDP ------------------------------------------------------------------------------------------


class _Synced:
    """Stands for DDP.no_sync on a model that is sharded instead."""

    def __init__(self, model):
        self.model = model

    def __enter__(self):
        self.model.set_requires_gradient_sync(False)

    def __exit__(self, *_):
        self.model.set_requires_gradient_sync(True)


def _shard_all(torch, model):
    from torch.distributed.fsdp import FSDPModule, fully_shard

    if any(issubclass(type(part), FSDPModule) for part in model.modules()):
        return  # before its optimizer was made (shard_plain)
    for block in blocks.repeated(torch, model):
        fully_shard(block)
    fully_shard(model)


def _shard_instead(torch, model):
    _shard_all(torch, model)
    object.__setattr__(model, "module", model)  # the program may ask DDP for the model
    object.__setattr__(model, "no_sync", lambda: _Synced(model))
    return model


def watch_ddp(module):
    torch = sys.modules["torch"]
    kind = module.DistributedDataParallel

    def making(inner):
        @functools.wraps(inner)
        def init(self, *args, **kwargs):
            now = "" if kwargs.get("gradient_as_bucket_view") else None
            code = "DistributedDataParallel(..., gradient_as_bucket_view=True)"
            if sites.at("bucket-view", code, now=now) is not None:
                kwargs["gradient_as_bucket_view"] = True
            size = kwargs.get("bucket_cap_mb")
            value = sites.at("bucket-size", "DistributedDataParallel(..., bucket_cap_mb=VALUE)",
                             now=None if size is None else str(size))
            if value is not None:
                kwargs["bucket_cap_mb"] = int(value)
            inner(self, *args, **kwargs)

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


# --- programs for one GPU -------------------------------------------------------------------------


def listed(params):
    """Returns what an optimizer is given as a list: parameters, names with parameters, or groups."""
    return [params] if hasattr(params, "requires_grad") else list(params)


def _flat(params):
    for one in params:
        if isinstance(one, dict):
            yield from _flat(listed(one["params"]))
        else:
            yield one[1] if isinstance(one, tuple) else one


def _with_new(params, new):
    """Returns the same list with the parameters that sharding has put in place of others."""

    def changed(one):
        if isinstance(one, dict):
            return one | {"params": _with_new(listed(one["params"]), new)}
        if isinstance(one, tuple):
            return one[0], new.get(id(one[1]), one[1])
        return new.get(id(one), one)

    return [changed(one) for one in params]


def _begin_world(torch):
    """Returns why the program has no ranks to shard over, or None."""
    distributed = torch.distributed
    if not distributed.is_available():
        return "this PyTorch has no torch.distributed"
    if distributed.is_initialized():
        return None
    if _world_size() < 2:
        return "the program has one rank; give --world, too"
    if sites.PULLED.get("fsdp2") is not None:
        distributed.init_process_group("nccl")
    return None


def _why_sharded_later():
    """Returns why the program is not one for one GPU, though it has not sharded its model yet, or None."""
    shards = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() in ("true", "1")
    return "accelerate shards the model once its optimizer is made" if shards else None


def _is_parallel(torch, roots):
    """Returns True if the program itself divides a model, or copies it, over ranks."""
    names = {kind.__name__ for root in roots for part in root.modules() for kind in type(part).__mro__}
    names |= {type(one).__name__ for root in roots for one in root.parameters()}
    return bool(names & {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DTensor",
                         "DeepSpeedEngine"})


def shard_plain(torch, params):
    """Shards the models of a program for one GPU before its optimizer sees their parameters. Returns the
    parameters to step instead."""
    roots = blocks.roots_with(torch, list(_flat(params)))
    if not roots or _is_parallel(torch, roots):
        return params
    why = _why_sharded_later() or _begin_world(torch)
    if why:
        sites.cannot("fsdp2", why)
        return params
    code = ("init_process_group(); fully_shard(block) for each block, then fully_shard(model), before the "
            "optimizer")
    if sites.at("fsdp2", code) is None:
        return params
    new = {}
    for root in roots:
        names = {name: id(one) for name, one in root.named_parameters()}
        _shard_all(torch, root)
        new |= {names[name]: one for name, one in root.named_parameters()}
    return _with_new(params, new)
