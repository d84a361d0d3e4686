"""Changes the batch that the program's loaders give, and steps once for as many samples as before."""

import functools

from . import sites


class _Batch:
    size = None  # of the program's first loader
    times = 1  # batches to accumulate for one step of the optimizer


def watch(module):
    """Changes the batch size of all loaders whose batch is as large as that of the first (module:
    torch.utils.data.dataloader)."""

    def loading(inner):
        @functools.wraps(inner)
        def init(self, dataset, batch_size=1, *args, **kwargs):
            if batch_size is not None and kwargs.get("batch_sampler") is None:
                batch_size = _changed(batch_size)
            inner(self, dataset, batch_size, *args, **kwargs)

        return init

    if sites.is_wanted("batch"):
        sites.replace(module.DataLoader, "__init__", loading)


def _changed(size):
    from . import trainers

    if trainers.is_used or _Batch.size not in (None, size):
        return size
    code = "DataLoader(..., batch_size=VALUE), and a step of the optimizer only every few batches"
    value = sites.at("batch", code, now=str(size))
    if value is None:
        return size
    if size % int(value):
        sites.cannot("batch", f"{value} does not divide the batch of {size}")
        return size
    _Batch.size, _Batch.times = size, size // int(value)
    return int(value)


def accumulate(optimizer):
    """Makes an optimizer step once for as many batches as one was before."""
    times = _Batch.times
    if times <= 1:
        return
    step, zero_grad, done = optimizer.step, optimizer.zero_grad, [0]

    @functools.wraps(step)
    def stepping(*args, **kwargs):
        done[0] = (done[0] + 1) % times
        return step(*args, **kwargs) if done[0] == 0 else None

    @functools.wraps(zero_grad)
    def zeroing(*args, **kwargs):
        if done[0] == 0:
            zero_grad(*args, **kwargs)

    optimizer.step, optimizer.zero_grad = stepping, zeroing
