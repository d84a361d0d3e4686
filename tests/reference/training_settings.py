"""Defines the settings of fsdp2_losses.py: what each adds to plain FSDP2, in PyTorch."""

import contextlib
import dataclasses

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.tensor import DTensor

import tutorial

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclasses.dataclass(frozen=True)
class Setting:
    """Its values are those of our flags of the same names."""

    strategy: str = "fsdp"
    world_size: int = 2
    replicas: int = 1  # for hsdp
    param_dtype: str = "fp32"
    reduce_dtype: str = "fp32"
    reshard_after_forward: bool | int = True
    offload: str = "none"
    optimizer: str = "adam"
    lr: float | None = None  # None: the script's
    weight_decay: float = 0.0
    momentum: float = 0.0  # for sgd
    clip_norm: float | None = None
    accumulate: int = 1  # microbatches a step
    sync: str = "every"  # every microbatch's gradients are reduced, or those of the last one
    recompute: str = "none"


PLAIN = Setting()
SETTINGS = {
    "plain": PLAIN,
    "ddp": Setting(strategy="ddp"),
    "bf16": Setting(param_dtype="bf16"),
    "bf16-reduced": Setting(param_dtype="bf16", reduce_dtype="bf16"),
    "fp16": Setting(param_dtype="fp16"),
    "fp16-reduced": Setting(param_dtype="fp16", reduce_dtype="fp16"),
    "hsdp": Setting(strategy="hsdp", world_size=4, replicas=2),
    "reshard-2": Setting(world_size=4, reshard_after_forward=2),
    "offload": Setting(offload="all"),
    "adamw": Setting(optimizer="adamw", weight_decay=0.1),
    "sgd": Setting(optimizer="sgd", lr=1e-2, momentum=0.9),
    "clip": Setting(clip_norm=1.0),
    # Adam nearly hides a factor that all of its gradients share.
    "clip-sgd": Setting(optimizer="sgd", lr=1e-2, momentum=0.9, clip_norm=0.5),
    "accumulate-every": Setting(accumulate=2),
    "accumulate-last": Setting(accumulate=2, sync="last"),
    "recompute": Setting(recompute="full"),
}


def differences(setting):
    """Returns the values that differ from PLAIN's, by name."""
    values, plain = dataclasses.asdict(setting), dataclasses.asdict(PLAIN)
    return {name: value for name, value in values.items() if value != plain[name]}


def make_parallel(setting, model):
    if setting.recompute == "full":
        layers = model.encoder.layers
        for name, block in list(layers.named_children()):
            setattr(layers, name, checkpoint_wrapper(block))
    if setting.strategy == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    options = {"reshard_after_forward": setting.reshard_after_forward}
    if setting.param_dtype != "fp32":
        options["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=DTYPES[setting.param_dtype], reduce_dtype=DTYPES[setting.reduce_dtype]
        )
    if setting.offload == "all":
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    return tutorial.shard(
        model, tutorial.make_mesh(setting.world_size, setting.replicas), **options
    )


def make_optimizer(setting, model, default_lr):
    options = {"lr": setting.lr or default_lr, "weight_decay": setting.weight_decay}
    if setting.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), momentum=setting.momentum, **options)
    make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[setting.optimizer]
    return make(model.parameters(), **options)


def make_scaler(setting):
    """Scales with PyTorch's defaults; the ranks agree on overflows."""
    return ShardedGradScaler("cpu", enabled=setting.param_dtype == "fp16")


def clip(setting, model):
    """Returns the norm of all gradients, before they are clipped."""
    limit = float("inf") if setting.clip_norm is None else setting.clip_norm
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    return (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()


@contextlib.contextmanager
def gradient_sync(setting, model, is_last):
    """Reduces the gradients of one microbatch, or only those of the last, as the setting says."""
    if setting.sync == "last":
        model.set_requires_gradient_sync(is_last)
    yield
