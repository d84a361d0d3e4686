"""Computes cross entropy in parts, so that the copies of the logits that it makes are small."""

import functools
import inspect

from . import sites

_LEVER = "loss-chunks"
_CODE = ("sum(checkpoint(cross_entropy, some, labels, reduction=\"sum\", use_reentrant=False) for some, "
         "labels in zip(logits.chunk(VALUE), targets.chunk(VALUE))) / (targets != -100).sum()")
_LEAST_NUMBERS = 1 << 20  # of logits worth it: a lever that changes nothing is not offered

_own = sites.Own()


def watch(module):
    """Watches cross entropy (module: torch.nn.functional)."""

    def replaced(inner):
        signature = inspect.signature(inner)

        @functools.wraps(inner)
        def cross_entropy(*args, **kwargs):
            if _own.depth:
                return inner(*args, **kwargs)
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            if not _is_for(given.arguments):
                return inner(*args, **kwargs)
            parts = sites.at(_LEVER, _CODE)
            if parts is None:
                return inner(*args, **kwargs)
            with _own:
                return _in_parts(inner, given.arguments, int(parts))

        return cross_entropy

    if sites.is_wanted(_LEVER):
        sites.replace(module, "cross_entropy", replaced)


def _is_for(given):
    """True for logits of many tokens, with one class for each, whose loss is one number."""
    logits, targets = given["input"], given["target"]
    return (logits.dim() == 2 and targets.dim() == 1 and logits.requires_grad
            and logits.numel() >= _LEAST_NUMBERS and given["weight"] is None
            and given["reduction"] in ("mean", "sum")
            and given["size_average"] is None and given["reduce"] is None)


def _in_parts(inner, given, parts):
    import torch
    from torch.utils.checkpoint import checkpoint

    ignored = given["ignore_index"]

    def loss_of(logits, targets):
        with _own:  # also when backward computes it again
            return inner(logits, targets, reduction="sum", ignore_index=ignored,
                         label_smoothing=given["label_smoothing"])

    logits, targets = given["input"], given["target"]
    total = sum(checkpoint(loss_of, some, labels, use_reentrant=False)
                for some, labels in zip(logits.chunk(parts), targets.chunk(parts)))
    if given["reduction"] == "sum":
        return total
    return total / (targets != ignored).sum()
