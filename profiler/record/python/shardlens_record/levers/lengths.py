"""Lets the longest batches of the program's loaders come first, so that what a long sequence takes is
known after a few steps.

[Note: growing batches]
A batch that comes first finds an empty cache, and one that comes late finds blocks of all lengths
before it, which are too small for it. So not the longest batch alone comes first, but each batch
that is longer than all before it, in the order in which they would come: few, and each finds what it
would find then. The longest comes again after the first step of an optimizer, which makes state."""

import functools
import itertools
import random
import sys
import time
import weakref

from ..guards import say
from . import sequences, sites

_MOST_BATCHES = 100_000  # read ahead
_MOST_SECONDS = 600
_REPORT_SECONDS = 10


def watch(module):
    """Changes the first pass over each loader whose batches have sequences (module:
    torch.utils.data.dataloader)."""
    if not sites.is_wanted("lengths"):
        return
    begun = weakref.WeakSet()

    def iterating(inner):
        @functools.wraps(inner)
        def iterate(self):
            code = "sort the DataLoader's samples by length, the longest first"
            value = sites.at("lengths", code)
            if value is None or self in begun:
                return inner(self)
            begun.add(self)
            return _batches(functools.partial(inner, self), value)

        return iterate

    sites.replace(module.DataLoader, "__iter__", iterating)


def _batches(begin, value):
    kind, _, rest = value.partition(":")
    if kind == "drawn":
        return _longest_first(begin, int(rest))
    if kind == "longest":
        return _with_lengths(begin, _first([int(rest)], itertools.repeat(None)))
    with open(value, encoding="utf-8") as file:
        lengths = [int(line) for line in file.read().split()]
    return _as_listed(begin, lengths)


def _first(these, others):
    """Yields these first, and the last of them again if no optimizer had made a step before it."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps = []
    hook = register_optimizer_step_post_hook(lambda *_: steps.append(1) if not steps else None)
    yield from these[:-1]
    is_due = not steps
    yield these[-1]
    for other in others:
        if is_due and steps:
            is_due = False
            hook.remove()
            yield these[-1]
        yield other


def _rising(lengths):
    """Yields the places of the lengths that are greater than all before them."""
    most = 0
    for place, length in enumerate(lengths):
        if length > most:
            most = length
            yield place


# --- lengths that are given ------------------------------------------------------------------------


def _with_lengths(begin, lengths):
    """Yields the loader's batches with these lengths; None leaves a batch as it is."""
    for batch, length in zip(begin(), lengths):
        old = sequences.longest(batch)
        yield batch if length is None or old == 0 else sequences.with_length(batch, old, length)


def _as_listed(begin, lengths):
    """Gives each batch the greatest length of its samples, whose lengths are listed in order."""
    batches = begin()
    first = next(batches)
    size = sequences.samples(first) or 1
    of_batches = [max(lengths[at:at + size]) for at in range(0, len(lengths), size)]
    rising = list(_rising(of_batches))
    longest = rising[-1]
    say(f"the longest of {len(of_batches)} batches is batch {longest + 1}, with "
        f"{of_batches[longest]} tokens; it comes first, after {len(rising) - 1} that are shorter")
    order = _first([of_batches[place] for place in rising], itertools.cycle(of_batches))
    return _with_lengths(lambda: itertools.chain([first], batches), order)


# --- the program's own ------------------------------------------------------------------------------


def _seed(seed):
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def _read_ahead(batches):
    """Returns the rising batches with their numbers, and how many were read."""
    kept, most, read, begun = [], 0, 0, time.monotonic()
    told = begun
    for read, batch in enumerate(batches, 1):
        length = sequences.weight(batch)
        if length > most:
            most = length
            kept.append((read, batch))
        now = time.monotonic()
        if now - told > _REPORT_SECONDS:
            told = now
            say(f"read {read} batches ahead in {now - begun:.0f} s")
        if read == _MOST_BATCHES or now - begun > _MOST_SECONDS:
            break
    return kept, read


def _longest_first(begin, seed):
    _seed(seed)
    kept, read = _read_ahead(begin())
    if not kept:
        sites.cannot("lengths", "the loader's batches have no sequences of tokens")
        return begin()
    number, batch = kept[-1]
    say(f"the longest of {read} batches is batch {number}, with {sequences.weight(batch)} tokens in "
        f"sequences of {sequences.longest(batch)}; it comes first, after {len(kept) - 1} that are "
        "shorter")
    _seed(seed)
    return _first([batch for _, batch in kept], begin())
