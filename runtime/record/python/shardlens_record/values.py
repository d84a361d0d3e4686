"""What the null device cannot give: values. Where a program asks for one, that is said, since its
course may depend on it; what reads cuDNN's answers is taken out of PyTorch's choice."""

import os
import sys

from . import say

_COUNTS = {}
_PYTORCH = f"{os.sep}torch{os.sep}"


def counts():
    """How often the program has read which kind of value."""
    return dict(_COUNTS)


def leave_out_cudnn(torch):
    """Its stub does not give the answers that its frontend reads."""
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.enabled = False
    say("cuDNN is left out: attention and convolutions take PyTorch's other kernels")


def _place():
    """Where the program is, beneath PyTorch's functions and ours."""
    frame = sys._getframe(1)
    while frame.f_back and (
        frame.f_code.co_filename == __file__ or _PYTORCH in frame.f_code.co_filename
    ):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _count(name, line):
    if name not in _COUNTS:
        _COUNTS[name] = 0
        if line:
            say(f"{_place()}: {line}")
    _COUNTS[name] += 1


def _watch(tensor_class, name, line):
    inner = getattr(tensor_class, name)

    def watched(self, *args, **kwargs):
        if self.is_cuda:
            _count(name, line)
        return inner(self, *args, **kwargs)

    setattr(tensor_class, name, watched)


_DECIDES = "{}: the program decides by a value of the GPU; on the null device it is 0 or False"
_SHAPES = "{}: a shape depends on values of the GPU; on the null device they are 0"


def watch(torch):
    _watch(torch.Tensor, "item", None)  # mostly for printing
    _watch(torch.Tensor, "tolist", None)
    for name in ("__bool__", "__index__"):
        _watch(torch.Tensor, name, _DECIDES.format(f"Tensor.{name}"))
    for name in ("nonzero", "masked_select", "unique"):
        _watch(torch.Tensor, name, _SHAPES.format(f"Tensor.{name}"))
    _watch_function(torch, "nonzero")
    _watch_function(torch, "masked_select")
    _watch_function(torch, "unique")
    _watch_scaler(torch)


def _watch_function(torch, name):
    inner = getattr(torch, name)

    def watched(*args, **kwargs):
        if args and isinstance(args[0], torch.Tensor) and args[0].is_cuda:
            _count(name, _SHAPES.format(f"torch.{name}"))
        return inner(*args, **kwargs)

    setattr(torch, name, watched)


def _watch_scaler(torch):
    scaler = torch.amp.GradScaler
    inner = scaler.step

    def step(self, *args, **kwargs):
        if self.is_enabled():
            _count("GradScaler.step", "GradScaler: no step is ever skipped on the null device")
        return inner(self, *args, **kwargs)

    scaler.step = step
