"""Changes the batches that the program's loaders give: their size, with a step for as many samples as
before, and the length of their sequences."""

import functools
import sys
import weakref

from . import blocks, sequences, sites, titan, trainers


_own = sites.Own()


class _Batch:
    size = None  # of the program's first loader
    times = 1  # batches to accumulate for one step of the optimizer
    told = weakref.WeakSet()  # trainers that accumulate as many more


def watch(module):
    """Changes the batch size of all loaders whose batch is as large as that of the first (module:
    torch.utils.data.dataloader)."""

    def loading(inner):
        @functools.wraps(inner)
        def init(self, dataset, batch_size=1, *args, **kwargs):
            if batch_size is not None and kwargs.get("batch_sampler") is None:
                batch_size = _changed(batch_size)
            inner(self, dataset, batch_size, *args, **kwargs)
            is_ours = sites.is_wanted("sequence") and not titan.handles("sequence")
            if is_ours and not isinstance(self.collate_fn, _Collation):
                self.collate_fn = _Collation(self.collate_fn)

        return init

    if sites.is_wanted("batch", "sequence"):
        sites.replace(module.DataLoader, "__init__", loading)


def _changed(size):
    is_handled = trainers.is_used or titan.is_used
    if not sites.is_wanted("batch") or is_handled or _Batch.size not in (None, size):
        return size
    code = "DataLoader(..., batch_size=VALUE), and a step of the optimizer only every few batches"
    value = sites.at("batch", code, now=str(size))
    if value is None:
        return size
    if size % int(value):
        sites.cannot("batch", f"{value} does not divide the batch of {size}")
        return size
    _Batch.size, _Batch.times = size, size // int(value)
    _trainers_of_lightning()
    return int(value)


# --- steps ----------------------------------------------------------------------------------------


def _trainers_of_lightning():
    """Returns Lightning's trainers, which themselves decide when an optimizer steps. Each is told once
    to step for as many samples as before."""
    found = []
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if name in sys.modules:
            found += blocks.live(sys.modules[name].Trainer)
    for trainer in found:
        if _Batch.times > 1 and trainer not in _Batch.told:
            _Batch.told.add(trainer)
            trainer.accumulate_grad_batches *= _Batch.times
    return found


def accumulate(optimizer):
    """Makes an optimizer step once for as many batches as one was before. The loaders may come later."""
    if "batch" in sites.PULLED and not _trainers_of_lightning():
        _step_rarely(optimizer)


def _step_rarely(optimizer):
    step, zero_grad, done = optimizer.step, optimizer.zero_grad, [0]

    @functools.wraps(step)
    def stepping(_, closure=None):
        if _own.depth:  # another optimizer steps, which this one is a part of
            return step() if closure is None else step(closure)
        if done[0] + 1 >= _Batch.times:
            with _own:
                result = step() if closure is None else step(closure)
        else:
            result = None if closure is None else closure()
        done[0] = (done[0] + 1) % _Batch.times
        return result

    @functools.wraps(zero_grad)
    def zeroing(_, *args, **kwargs):
        if _own.depth:
            zero_grad(*args, **kwargs)
        elif done[0] == 0:
            with _own:
                zero_grad(*args, **kwargs)

    sites.replace_method(optimizer, "step", stepping)
    sites.replace_method(optimizer, "zero_grad", zeroing)


# --- the length of sequences ----------------------------------------------------------------------


class _Collation:
    """Collates as the program does, then gives sequences the wanted length."""

    def __init__(self, inner):
        self.inner = inner

    def __call__(self, samples):
        batch = self.inner(samples)
        old = sequences.longest(batch)
        if old == 0:
            return batch
        code = "sequences of VALUE tokens in the batches of the DataLoader"
        value = sites.at("sequence", code, now=str(old))
        return batch if value is None else sequences.with_length(batch, old, int(value))
