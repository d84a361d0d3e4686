"""Finds the sequences of tokens in a batch, and gives them another length."""

import collections.abc


def parts_of(batch):
    """Yields the tensors of a batch that hold sequences: of whole numbers, with two dimensions."""
    import torch

    if isinstance(batch, torch.Tensor):
        if batch.dim() == 2 and not batch.is_floating_point() and not batch.is_complex():
            yield batch
    elif isinstance(batch, collections.abc.Mapping):
        for part in batch.values():
            yield from parts_of(part)
    elif isinstance(batch, (list, tuple)):
        for part in batch:
            yield from parts_of(part)


def longest(batch):
    """Returns the greatest length of a batch's sequences; 0 if it has none."""
    return max((part.shape[1] for part in parts_of(batch)), default=0)


def weight(batch):
    """Returns the greatest number of tokens in a tensor of the batch, fillers included."""
    return max((part.numel() for part in parts_of(batch)), default=0)


def samples(batch):
    """Returns the number of sequences in a batch."""
    return max((part.shape[0] for part in parts_of(batch)), default=0)


def with_length(batch, old, new):
    """Returns a batch whose sequences of `old` tokens have `new`: the first ones, or all again."""
    import torch

    if isinstance(batch, torch.Tensor):
        if all(part.shape[1] != old for part in parts_of(batch)):
            return batch
        changed = batch.index_select(1, torch.arange(new, device=batch.device) % old)
        return changed.pin_memory() if batch.is_pinned() else changed
    if isinstance(batch, collections.abc.Mapping):
        for key in list(batch):
            batch[key] = with_length(batch[key], old, new)
        return batch
    if isinstance(batch, (list, tuple)):
        changed = [with_length(part, old, new) for part in batch]
        return type(batch)(*changed) if hasattr(batch, "_fields") else type(batch)(changed)
    return batch
