"""Changes the configuration that torchtitan's trainer is given."""

import functools
import os

from ..guards import guarded
from . import sites

_HANDLED = ("recompute", "batch", "sequence", "offload")
is_used = False  # a trainer was made: its configuration says what _HANDLED levers do
_recomputes = False  # without a lever


def handles(lever):
    """Returns True if the configuration acts for the lever, and its other places must not."""
    is_for_blocks = not _recomputes and sites.PULLED.get(lever, "every:").startswith("every:")
    return is_used and lever in _HANDLED and not (lever == "recompute" and is_for_blocks)


def _recompute(config):
    from torchtitan.distributed import activation_checkpoint

    global _recomputes
    _recomputes = config.activation_checkpoint is not None
    if _recomputes:
        sites.cannot("recompute", "the program recomputes already", value="every:")
    kinds = {"full": activation_checkpoint.FullAC, "selective": activation_checkpoint.SelectiveAC}
    now = next((value for value, kind in kinds.items()
                if isinstance(config.activation_checkpoint, kind.Config)), None)
    for value, kind in kinds.items():
        shown = value if value == now else None
        if sites.at("recompute", f"activation-checkpoint:{value}", now=shown, value=value) is not None:
            config.activation_checkpoint = kind.Config()


def _copies_of_batch(config):
    """Returns the ranks that have batches of their own."""
    degrees = config.parallelism
    others = (degrees.tensor_parallel_degree * degrees.context_parallel_degree
              * degrees.pipeline_parallel_degree)
    return int(os.environ["WORLD_SIZE"]) // others


def _batch(config):
    training = config.training
    now = training.local_batch_size
    code = "--training.local_batch_size VALUE --training.global_batch_size as before"
    value = sites.at("batch", code, now=str(now))
    if value is None:
        return
    whole = training.global_batch_size
    if whole < 0:
        whole = now * _copies_of_batch(config)
    if now % int(value):
        return sites.cannot("batch", f"{value} does not divide the batch of {now}")
    training.local_batch_size, training.global_batch_size = int(value), whole


def _change(config):
    _recompute(config)
    _batch(config)
    training = config.training
    if sites.at("sequence", "--training.seq_len VALUE", now=str(training.seq_len)) is not None:
        training.seq_len = int(sites.PULLED["sequence"])
    now = "parameters" if training.enable_cpu_offload else None
    if sites.at("offload", "--training.enable_cpu_offload", now=now) is not None:
        training.enable_cpu_offload = True


def watch(module):
    """Changes what the trainer reads (module: torchtitan.trainer)."""

    def making(inner):
        @functools.wraps(inner)
        def init(self, config, *args, **kwargs):
            global is_used
            is_used = True
            act = _change if sites.PULLED else guarded("some levers that apply may not be known")(_change)
            act(config)
            inner(self, config, *args, **kwargs)

        return init

    if sites.is_wanted(*_HANDLED):
        sites.replace(module.Trainer, "__init__", making)
