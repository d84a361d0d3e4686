"""Leaves out random fills of large tensors on the host whose values nobody reads: weights that go to
a simulated GPU. profiler/record/known/postponed_fills.h says how; `--init keep` draws them all."""

import contextlib
import ctypes
import functools
import sys
import warnings

from . import OPTIONS, library, parts, uses
from .guards import guarded, replace

_WRONG = "values on the host that were to be drawn at random may be others"

_MOST_KNOWN_BYTES = 1 << 20  # of a copy to the GPU whose values are followed (known_memory.h)
_TRIALS = (32, 48)  # numbers in fills that show how many words the generator draws for a number

_MOST_DEVIATIONS = 9  # from the mean, of a number that is drawn: 8.6 in double precision

_FILL = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_bool)  # takes Python's lock


class _Fills:
    library = None
    by_storage = {}  # postponed fills, by the address of their tensor's storage
    left_out = 0
    left_out_bytes = 0
    drawn = 0  # that were postponed, until something read them
    drawing = 0  # postponed fills that are being drawn: they may call other fills
    call_back = None  # kept alive


class _Fill:
    def __init__(self, function, tensor, arguments, state):
        self.function = function
        self.tensor = tensor.data  # keeps the memory, and has a version counter of its own
        self.arguments = arguments
        self.state = state

    def draw(self, torch):
        args, kwargs = self.arguments
        state = torch.get_rng_state()
        torch.set_rng_state(self.state)
        _Fills.drawing += 1
        try:
            with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
                self.function(self.tensor, *args, **kwargs)
        finally:
            _Fills.drawing -= 1
            torch.set_rng_state(state)


def facts():
    """Returns how many fills were left out, their bytes, and how many were drawn after all."""
    return {"left_out": _Fills.left_out - _Fills.drawn, "bytes": _Fills.left_out_bytes,
            "drawn": _Fills.drawn}


def watch(torch):
    """Postpones what weights are initialised with, until the first backward."""
    if OPTIONS.get("init") == "keep" or not OPTIONS["library"] or OPTIONS.get("asked_for"):
        return
    if str(torch.__version__) != OPTIONS["torch"]:
        return  # the recorder is for another one, and will say so
    for name in ("normal_", "uniform_"):
        replace(torch.Tensor, name, _postponed)
    # It draws, and changes what it has drawn by several operators.
    replace(torch.nn.init, "trunc_normal_", lambda inner: _postponed(inner, _draws_once))
    for name in ("numpy", "tolist", "share_memory_", "__dlpack__", "__reduce_ex__"):
        setattr(torch.Tensor, name, _reading(getattr(torch.Tensor, name)))
    parts.before_saves.append(draw_all)


def _postponed(inner, draws_once=lambda *_, **__: True):
    """Returns a fill that waits. It is drawn at once if draws_once(fill, its arguments) is false:
    numbers are then drawn until all are right, and nobody knows how often."""
    torch = sys.modules["torch"]

    @functools.wraps(inner)
    def fill(tensor, *args, **kwargs):
        if torch.compiler.is_compiling():
            return inner(tensor, *args, **kwargs)  # Dynamo reads this function
        can_wait = _can_wait(tensor, args, kwargs) and draws_once(inner, *args, **kwargs)
        if can_wait and _postpone(inner, tensor, (args, kwargs)):
            return tensor
        return inner(tensor, *args, **kwargs)

    return fill


def _reading(inner):
    torch = sys.modules["torch"]

    @functools.wraps(inner)
    def read(tensor, *args, **kwargs):
        if torch.compiler.is_compiling():
            return inner(tensor, *args, **kwargs)
        if _Fills.by_storage and tensor.device.type == "cpu":
            _draw(tensor)
        return inner(tensor, *args, **kwargs)

    return read


@guarded(_WRONG, otherwise=False)
def _can_wait(tensor, args, kwargs):
    """True for a whole, plain tensor on the host that is too large to be followed on the GPU, if the
    program has not yet begun to train: its own time on the host counts from then on."""
    torch = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "cpu":
        return False
    if tensor.layout is not torch.strided or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    if tensor.nbytes <= _MOST_KNOWN_BYTES or not tensor.is_floating_point() or uses.has_trained():
        return False
    if not tensor.is_contiguous() or tensor.untyped_storage().nbytes() != tensor.nbytes:
        return False
    if tensor.requires_grad and torch.is_grad_enabled():
        return False  # an error of the program, or a fill that autograd must see
    if any(isinstance(one, torch.Generator) for one in (*args, *kwargs.values())):
        return False
    return not _Fills.drawing and not torch.utils._python_dispatch._len_torch_dispatch_stack()


def _draws_once(function, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """True if a truncated normal distribution is drawn once for each number: PyTorch does so up to
    2.14; later it draws again until all numbers are within the bounds, as they are at once if the
    bounds are farther away than its generator can reach."""
    torch = sys.modules["torch"]
    if not all(isinstance(one, (int, float)) for one in (mean, std, a, b)) or generator is not None:
        return False
    if min(mean - a, b - mean) > _MOST_DEVIATIONS * std:
        return True
    narrow = ((), {"a": -0.1, "b": 0.1})
    return _words_of(torch, function, 64, torch.float32, narrow) == 64


@guarded(_WRONG, otherwise=False)
def _postpone(function, tensor, arguments):
    """Returns False if the fill cannot wait."""
    torch = sys.modules["torch"]
    state = torch.get_rng_state()
    words = _words_drawn(torch, function, tensor, arguments)
    if words is None:
        return False
    _Fills.library.shardlens_skip_draws(words)
    storage = tensor.untyped_storage()._cdata
    if storage in _Fills.by_storage:  # this fill overwrites it
        _Fills.left_out_bytes -= tensor.nbytes
        _Fills.left_out -= 1
    _Fills.by_storage[storage] = _Fill(function, tensor, arguments, state)
    _Fills.library.shardlens_postpone_fill(storage)
    _Fills.left_out += 1
    _Fills.left_out_bytes += tensor.nbytes
    return True


def _begin(torch):
    loaded = library.load()
    loaded.shardlens_postpone_fill.argtypes = [ctypes.c_uint64]
    loaded.shardlens_take_fill.argtypes = [ctypes.c_uint64]
    loaded.shardlens_take_fill.restype = ctypes.c_bool
    loaded.shardlens_end_draws.restype = ctypes.c_int64
    loaded.shardlens_skip_draws.argtypes = [ctypes.c_int64]
    _Fills.call_back = _FILL(_end_fill)
    loaded.shardlens_postpone_fills.argtypes = [_FILL, ctypes.c_uint64]
    alone = torch.empty(1, device="cpu").data
    loaded.shardlens_postpone_fills(_Fills.call_back, alone.untyped_storage()._cdata)
    _Fills.library = loaded


def _words_drawn(torch, function, tensor, arguments):
    """Returns how many words of the generator the fill draws, None if that is not known. It depends
    on PyTorch's version, on the type and on the processor, so it is measured: a fill draws the same
    for each 16 numbers, and more for the rest."""
    rest = tensor.numel() % 16
    few, more = (_words_of(torch, function, size + rest, tensor.dtype, arguments) for size in _TRIALS)
    if few < 0 or more < 0:
        return None
    return few + (more - few) * ((tensor.numel() - rest - _TRIALS[0]) // 16)


def _words_of(torch, function, numbers, dtype, arguments):
    if _Fills.library is None:
        _begin(torch)
    args, kwargs = arguments
    tensor = torch.empty(numbers, dtype=dtype, device="cpu")
    _Fills.library.shardlens_begin_draws()
    is_filled = False
    with warnings.catch_warnings(), contextlib.suppress(Exception), torch.no_grad():
        warnings.simplefilter("ignore")  # the program's own fill warns, and raises what this one does
        function(tensor, *args, **kwargs)
        is_filled = True
    words = _Fills.library.shardlens_end_draws()
    return words if is_filled else -1


@guarded(_WRONG)
def _end_fill(storage, is_read):
    """Is called before an operator reads the tensor or overwrites it, and once the program has freed
    it."""
    fill = _Fills.by_storage.pop(storage, None)
    if fill is not None and is_read:
        _Fills.drawn += 1
        _Fills.left_out_bytes -= fill.tensor.nbytes
        fill.draw(sys.modules["torch"])


def _end_if_postponed(storage):
    if storage in _Fills.by_storage and _Fills.library.shardlens_take_fill(storage):
        _end_fill(storage, True)


@guarded(_WRONG)
def _draw(tensor):
    _end_if_postponed(tensor.untyped_storage()._cdata)


@guarded(_WRONG)
def draw_all():
    """Draws what is postponed: a file is about to be written, which does not ask for each tensor."""
    for storage in list(_Fills.by_storage):
        _end_if_postponed(storage)
