"""What the null device cannot give: values. Where the program's course or a shape depends on one, that
is said; what reads cuDNN's answers is taken out of PyTorch's choice."""

import functools
import os
import sys

from . import OPTIONS, decisions
from .guards import guarded, replace, say

_VALUES = "where the program decides by values of the GPU may be told incompletely"

_COUNTS = {}
_UNMET = set(OPTIONS["true_at"])
_PYTORCH = f"{os.sep}torch{os.sep}"
_PRINTING = f"{_PYTORCH}_tensor_str.py"

_DECIDES = "the program decides by a tensor of the GPU, False on the null device"
_INDEXES = "the program takes a tensor of the GPU for a number; on the null device it is 0"
_SHAPES = "a shape depends on values of the GPU; on the null device they are 0"


def counts():
    """How often the program has read which kind of value."""
    return dict(_COUNTS)


def leave_out_cudnn(torch):
    """Its stub does not give the answers that its frontend reads."""
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.enabled = False
    say("cuDNN is left out: attention and convolutions take PyTorch's other kernels")


# --- who asks -------------------------------------------------------------------------------------


def _is_pytorchs(frame):
    return _PYTORCH in frame.f_code.co_filename


def _is_printing(frame):
    return frame.f_code.co_filename.endswith(_PRINTING)


def _place(frame):
    """Where the program is, beneath PyTorch's functions."""
    while frame.f_back and _is_pytorchs(frame):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _count(name):
    _COUNTS[name] = _COUNTS.get(name, 0) + 1


# --- what is asked --------------------------------------------------------------------------------


@guarded(_VALUES)
def _numbers_read(name, frame):
    """Mostly to be printed."""
    _count(name)
    if _is_pytorchs(frame):
        return
    for filename, line in decisions.decided_by(frame, _is_pytorchs):
        say(
            f"{os.path.basename(filename)}:{line}: the program decides by a number that it has read "
            f"from the GPU at {_place(frame)}; on the null device it is 0"
        )


@guarded(_VALUES)
def _indexed(name, frame):
    _count(name)
    if not _is_pytorchs(frame):
        say(f"{_place(frame)}: {_INDEXES}")


@guarded(_VALUES)
def _shaped(name, frame):
    if not _is_printing(frame):
        _count(name)
        _count("shapes")
        say(f"{_place(frame)}: {name}: {_SHAPES}")


@guarded(_VALUES, otherwise=False)
def _is_true(frame):
    """Of what the program decides by."""
    if _is_pytorchs(frame):
        return False
    place = _place(frame)
    if place not in OPTIONS["true_at"]:
        say(f"{place}: {_DECIDES}; --true {place} makes it True")
        return False
    _UNMET.discard(place)
    say(f"{place}: {_DECIDES}, is taken to be True, as --true says")
    return True


def say_unmet():
    for place in sorted(_UNMET):
        say(f"--true {place}: nothing of the GPU has decided there")


def _is_on_gpu(value):
    return getattr(value, "is_cuda", False)


def _has_gpu_tensor(args, kwargs):
    return any(map(_is_on_gpu, args)) or any(map(_is_on_gpu, kwargs.values()))


def _selects(args, kwargs):
    """tensor[mask]"""
    index = args[1]
    parts = index if isinstance(index, tuple) else (index,)
    return any(_is_on_gpu(part) and part.dtype.itemsize == 1 and part.dim() > 0 for part in parts)


def _given(args, kwargs, index, name, default):
    return args[index] if len(args) > index else kwargs.get(name, default)


def _repeats_by_tensor(args, kwargs):
    """repeat_interleave(input, repeats), or (repeats) alone"""
    repeats = _given(args, kwargs, 1, "repeats", args[0] if args else None)
    return kwargs.get("output_size") is None and _is_on_gpu(repeats)


def _counts_classes(args, kwargs):
    """one_hot(input, num_classes=-1)"""
    return _given(args, kwargs, 1, "num_classes", -1) < 0 and _has_gpu_tensor(args, kwargs)


def _lists_places(args, kwargs):
    """where(condition)"""
    return len(args) + len(kwargs) == 1 and _has_gpu_tensor(args, kwargs)


def _watch(owner, name, told, when=_has_gpu_tensor):
    """The function now and before; None where it was watched already."""
    asks = guarded(_VALUES, otherwise=False)(when)

    def watching(inner):
        @functools.wraps(inner)
        def watched(*args, **kwargs):
            if asks(args, kwargs):
                told(f"{owner.__name__}.{name}", sys._getframe(1))
            return inner(*args, **kwargs)

        return watched

    return replace(owner, name, watching)


def _watch_truth(tensor):
    is_on_gpu = guarded(_VALUES, otherwise=False)(_is_on_gpu)

    def watching(inner):
        @functools.wraps(inner)
        def watched(self):
            if not is_on_gpu(self):
                return inner(self)
            _count("Tensor.__bool__")
            return inner(self) or _is_true(sys._getframe(1))

        return watched

    replace(tensor, "__bool__", watching)


def _watch_function(torch, module, name, when=_has_gpu_tensor):
    """torch.jit.script knows PyTorch's functions by identity."""
    pair = _watch(module, name, _shaped, when)
    if pair is None:
        return
    watched, inner = pair
    operator = torch.jit._builtins._find_builtin(inner)
    if operator is not None:
        torch.jit._builtins._register_builtin(watched, operator)
    choice = torch._jit_internal.boolean_dispatched.get(inner)
    if choice is not None:
        torch._jit_internal.boolean_dispatched[watched] = choice


def watch(torch):
    tensor = torch.Tensor
    for name in ("item", "tolist", "__float__", "__int__"):
        _watch(tensor, name, _numbers_read)
    _watch(tensor, "__index__", _indexed)
    _watch_truth(tensor)
    for name in ("argwhere", "bincount", "masked_select", "nonzero"):
        _watch(tensor, name, _shaped)
        _watch_function(torch, torch, name)
    for name in ("unique", "unique_consecutive"):  # which a tensor's own methods call
        _watch_function(torch, torch, name)
    _watch(tensor, "__getitem__", _shaped, when=_selects)
    _watch(tensor, "repeat_interleave", _shaped, when=_repeats_by_tensor)
    _watch_function(torch, torch, "repeat_interleave", when=_repeats_by_tensor)
    _watch_function(torch, torch, "where", when=_lists_places)
    _watch_function(torch, torch.nn.functional, "one_hot", when=_counts_classes)
    _watch_scaler(torch)
    _draw_normal(torch)


def check_no_arguments(module):
    """Of distributions: every comparison is False, so that none would pass."""
    module.Distribution.set_default_validate_args(False)


def _draw_normal(torch):
    """torch.normal asks twice whether all deviations are positive, and fails. This allocates as it
    does, and goes on."""

    def ask(std):
        least = std.min()
        least.ge(0)

    def drawing(inner):
        @functools.wraps(inner)
        def normal(mean, std=1.0, *args, **kwargs):
            if not _is_on_gpu(std) or args or "out" in kwargs:
                return inner(mean, std, *args, **kwargs)
            like = mean if torch.is_tensor(mean) else std
            ask(std)
            shape = torch.broadcast_shapes(getattr(mean, "shape", ()), std.shape)
            drawn = torch.empty(shape, dtype=like.dtype, device=like.device)
            ask(std)
            with torch.no_grad():
                return drawn.normal_(**kwargs).mul_(std).add_(mean)

        return normal

    replace(torch, "normal", drawing)


@guarded(_VALUES)
def _note_scaler(scaler):
    if scaler.is_enabled():
        _count("GradScaler.step")
        say("GradScaler: no step is ever skipped on the null device")


def _watch_scaler(torch):
    def noting(inner):
        @functools.wraps(inner)
        def step(self, *args, **kwargs):
            _note_scaler(self)
            return inner(self, *args, **kwargs)

        return step

    replace(torch.amp.GradScaler, "step", noting)
