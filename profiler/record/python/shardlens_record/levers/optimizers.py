"""Changes the optimizers that the program makes."""

import functools
import importlib.util
import inspect
import sys

from . import sites

_own = sites.Own()
_HOW = {"fused": {"fused": True}, "foreach": {"foreach": True},
        "single": {"foreach": False, "fused": False}}
_8BIT = {"bitsandbytes": "bitsandbytes.optim", "torchao": "torchao.optim"}


def _how_now(kwargs):
    if kwargs.get("fused"):
        return "fused"
    if kwargs.get("foreach") is not None:
        return "foreach" if kwargs["foreach"] else "single"
    return None


def _change_how(kind, kwargs):
    """Changes whether the optimizer steps all parameters in one call."""
    name = kind.__name__
    takes = inspect.signature(kind.__init__).parameters
    now = _how_now(kwargs)
    for value, arguments in _HOW.items():
        if next(iter(arguments)) not in takes:
            continue
        shown = ", ".join(f"{key}={what}" for key, what in arguments.items() if key in takes)
        used = value if value == now else None
        if sites.at("optimizer", f"{name}(..., {shown})", now=used, value=value) is not None:
            kwargs.pop("foreach", None)
            kwargs.pop("fused", None)
            kwargs.update({key: what for key, what in arguments.items() if key in takes})


def _library_of_8bit():
    return next((name for name in _8BIT if importlib.util.find_spec(name)), None)


def _in_8bit(kind, args, kwargs):
    """Returns the 8-bit optimizer instead of Adam or AdamW, or None."""
    library = _library_of_8bit()
    if library is None:
        if sites.PULLED.get("optimizer") == "8bit":
            sites.cannot("optimizer", "8bit needs bitsandbytes or torchao; run pip install bitsandbytes")
        return None
    name = f"{kind.__name__}8bit"
    code = f"{_8BIT[library]}.{name}(...) instead of {kind.__name__}"
    if sites.at("optimizer", code, value="8bit") is None:
        return None
    left_out = ("foreach", "fused", "capturable")
    taken = {key: what for key, what in kwargs.items() if key not in left_out}
    return getattr(importlib.import_module(_8BIT[library]), name)(*args, **taken)


def _as_adafactor(torch, kind, args, kwargs):
    code = f"torch.optim.Adafactor(...) instead of {kind.__name__}"
    if sites.at("optimizer", code, value="adafactor") is None:
        return None
    taken = {key: kwargs[key] for key in ("lr", "weight_decay") if key in kwargs}
    return torch.optim.Adafactor(args[0] if args else kwargs["params"], **taken)


def _sharded_by_zero(torch, kind, args, kwargs):
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    if not _has_ddp():
        return None
    from torch.distributed.optim import ZeroRedundancyOptimizer

    code = f"ZeroRedundancyOptimizer(parameters, optimizer_class={kind.__name__}, ...)"
    if sites.at("zero-redundancy", code) is None:
        return None
    parameters, *more = args if args else (kwargs.pop("params"),)
    kwargs |= dict(zip(("lr", "betas", "eps", "weight_decay"), more))
    return ZeroRedundancyOptimizer(parameters, optimizer_class=kind, **kwargs)


def _has_ddp():
    from . import blocks

    module = sys.modules.get("torch.nn.parallel.distributed")
    return module is not None and bool(blocks.live(module.DistributedDataParallel))


def _new_of(torch, kind):
    """Returns a __new__ that may make another optimizer: Python then does not call the first one's
    __init__."""

    def new(cls, *args, **kwargs):
        if cls is not kind or _own.depth:
            return object.__new__(cls)
        with _own:
            if kind.__name__ in ("Adam", "AdamW"):
                other = _in_8bit(kind, args, kwargs) or _as_adafactor(torch, kind, args, kwargs)
                if other is not None:
                    return other
            other = _sharded_by_zero(torch, kind, args, dict(kwargs))
        return object.__new__(cls) if other is None else other

    return new


def _changing(kind):
    def decorate(inner):
        @functools.wraps(inner)
        def init(self, *args, **kwargs):
            if type(self) is kind and not _own.depth:
                _change_how(kind, kwargs)
            inner(self, *args, **kwargs)

        return init

    return decorate


def _kinds(torch):
    kinds = [getattr(torch.optim, name) for name in dir(torch.optim)]
    return [kind for kind in kinds if inspect.isclass(kind) and kind is not torch.optim.Optimizer
            and issubclass(kind, torch.optim.Optimizer)]


# --- how it steps ---------------------------------------------------------------------------------


class _StepInBackward:
    """Steps each parameter, and frees its gradient, as soon as backward has its gradient."""

    def __init__(self, optimizer):
        self.of_parameter = {}
        self.stepped = set()
        for group in optimizer.param_groups:
            takes = inspect.signature(type(optimizer).__init__).parameters
            options = {key: what for key, what in group.items() if key in takes and key != "params"}
            for parameter in group["params"]:
                if parameter.requires_grad:
                    self._add(optimizer, parameter, options)

        def begin_next(_, closure=None):
            self.stepped.clear()
            return closure() if closure else None

        sites.replace_method(optimizer, "step", begin_next)
        sites.replace_method(optimizer, "zero_grad", lambda _, set_to_none=True: None)

    def _add(self, optimizer, parameter, options):
        with _own:
            self.of_parameter[parameter] = type(optimizer)([parameter], **options)
        parameter.register_post_accumulate_grad_hook(self._step)

    def _step(self, parameter):
        if parameter in self.stepped:
            sites.cannot("step-in-backward", "the program adds gradients of several backwards")
        self.stepped.add(parameter)
        self.of_parameter[parameter].step()
        self.of_parameter[parameter].zero_grad()


def _step_in_backward(torch, optimizer):
    if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        return
    if "params" not in inspect.signature(type(optimizer).__init__).parameters:
        return  # it is made of optimizers, which have been seen
    code = "parameter.register_post_accumulate_grad_hook(step) with an optimizer for each parameter"
    if sites.at("step-in-backward", code) is not None:
        _StepInBackward(optimizer)


def clipping(inner):
    """Wraps a function that reads all gradients, which are freed in backward then."""

    @functools.wraps(inner)
    def clip(*args, **kwargs):
        sites.cannot("step-in-backward", "the program clips gradients, or asks for their norm")
        return inner(*args, **kwargs)

    return clip


def _watch_clipping(torch):
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        for name in ("clip_grad_norm_", "clip_grad_value_", "get_total_norm"):
            if hasattr(module, name):
                sites.replace(module, name, clipping)


def _empty_cache(torch, optimizer):
    if sites.at("empty-cache", "torch.cuda.empty_cache() after optimizer.step()") is None:
        return
    step = optimizer.step

    @functools.wraps(step)
    def stepping(_, *args, **kwargs):
        result = step(*args, **kwargs)
        torch.cuda.empty_cache()
        return result

    sites.replace_method(optimizer, "step", stepping)


def after_made(torch, optimizer, is_wanted):
    """Applies what acts on an optimizer that the program has made."""
    if is_wanted("step-in-backward"):
        _step_in_backward(torch, optimizer)
    if is_wanted("empty-cache"):
        _empty_cache(torch, optimizer)


def is_own():
    return _own.depth > 0


def _zeroing(inner):
    @functools.wraps(inner)
    def zero_grad(self, set_to_none=True):
        now = "" if set_to_none else None
        if sites.at("set-to-none", "zero_grad(set_to_none=True)", now=now) is not None:
            set_to_none = True
        return inner(self, set_to_none)

    return zero_grad


def watch(torch):
    for kind in _kinds(torch):
        if sites.is_wanted("optimizer"):
            sites.replace(kind, "__init__", _changing(kind))
        if sites.is_wanted("optimizer", "zero-redundancy"):
            kind.__new__ = staticmethod(_new_of(torch, kind))
    if sites.is_wanted("step-in-backward"):
        _watch_clipping(torch)
    if sites.is_wanted("set-to-none"):
        sites.replace(torch.optim.Optimizer, "zero_grad", _zeroing)
        sites.replace(torch.nn.Module, "zero_grad", _zeroing)
