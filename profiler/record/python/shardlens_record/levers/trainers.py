"""Changes what programs say to the Trainer of transformers, and to its models."""

import functools
import json

from . import sites

_OPTIM = {"fused": "adamw_torch_fused", "8bit": "adamw_bnb_8bit", "adafactor": "adafactor"}
_SWITCHES = ("activation_checkpointing", "gradient_checkpointing")  # a new name, and an old one


def _first(arguments, names):
    """Returns the first of these arguments that was given."""
    values = [getattr(arguments, name, None) for name in names]
    return next((value for value in values if value is not None), None)


def _recompute(arguments):
    if not handles("recompute"):
        return
    switch = next(name for name in _SWITCHES if hasattr(arguments, name))
    now = "full" if _first(arguments, _SWITCHES) else None
    limit = None if switch == _SWITCHES[0] else "full"
    code = f"{type(arguments).__name__}({switch}=True)"
    value = sites.at("recompute", code, now=now, value=limit)
    if value is None:
        return
    setattr(arguments, switch, True)
    if value.startswith("every:"):
        how = _first(arguments, [f"{name}_kwargs" for name in _SWITCHES]) or {}
        how = json.loads(how) if isinstance(how, str) else how
        setattr(arguments, f"{switch}_kwargs", how | {"every_n_layers": int(value.partition(":")[2])})


def _optimizer(arguments):
    now = getattr(arguments.optim, "value", arguments.optim)
    for value, name in _OPTIM.items():
        used = value if name == now else None
        code = f'{type(arguments).__name__}(optim="{name}")'
        if sites.at("optimizer", code, now=used, value=value) is not None:
            arguments.optim = name


def _batch(arguments):
    now, accumulated = arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps
    value = sites.at("batch", f"{type(arguments).__name__}(per_device_train_batch_size=VALUE, "
                     "gradient_accumulation_steps=...)", now=str(now))
    if value is None:
        return
    if now * accumulated % int(value):
        return sites.cannot("batch", f"{value} does not divide the batch of {now * accumulated}")
    arguments.per_device_train_batch_size = int(value)
    arguments.gradient_accumulation_steps = now * accumulated // int(value)


_PLAIN = (("autocast", "bf16", "bf16", True), ("empty-cache", "", "torch_empty_cache_steps", 1),
          ("compile", "", "torch_compile", True), ("liger", "", "use_liger_kernel", True))


def _switches(arguments):
    for lever, value, name, wanted in _PLAIN:
        if not hasattr(arguments, name):
            continue
        now = value if getattr(arguments, name) == wanted else None
        code = f"{type(arguments).__name__}({name}={wanted})"
        if sites.at(lever, code, now=now, value=value or None) is not None:
            setattr(arguments, name, wanted)


_HANDLED = ("recompute", "optimizer", "batch", "autocast", "empty-cache", "compile")
is_used = False  # TrainingArguments were made: they say what _HANDLED levers do


def handles(lever):
    """Returns True if TrainingArguments act for the lever, and its other places must not."""
    is_for_model = lever == "recompute" and sites.PULLED.get(lever) == "selective"
    return is_used and lever in _HANDLED and not is_for_model


def watch_arguments(module):
    """Changes arguments once they have been given (module: transformers.training_args): kinds of other
    libraries are made of TrainingArguments, with defaults of their own."""

    def completing(inner):
        @functools.wraps(inner)
        def complete(self):
            global is_used
            is_used = True
            for change in (_recompute, _optimizer, _batch, _switches):
                change(self)
            inner(self)

        return complete

    if sites.is_wanted(*_HANDLED, "liger"):
        sites.replace(module.TrainingArguments, "__post_init__", completing)


def watch_models(module):
    """Changes which attention a model of transformers uses."""

    def making(inner):
        @functools.wraps(inner)
        def init(self, config, *args, **kwargs):
            now = getattr(config, "_attn_implementation", None)
            code = 'attn_implementation="VALUE"'
            for value in ("eager", "sdpa"):
                if value != now and sites.at("attention", code, value=value) is not None:
                    config._attn_implementation = value
            inner(self, config, *args, **kwargs)

        return init

    if sites.is_wanted("attention"):
        sites.replace(module.PreTrainedModel, "__init__", making)
