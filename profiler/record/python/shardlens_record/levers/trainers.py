"""Changes what programs say to the Trainer of transformers, and to its models."""

import functools
import inspect

from . import sites

_OPTIM = {"fused": "adamw_torch_fused", "8bit": "adamw_bnb_8bit", "adafactor": "adafactor"}


def _name_of(takes, *names):
    """Returns the first of these arguments that this version of transformers has."""
    return next(name for name in names if name in takes)


def _recompute(takes, kwargs):
    if not handles("recompute"):
        return
    on = _name_of(takes, "activation_checkpointing", "gradient_checkpointing")
    value = sites.at("recompute", f"TrainingArguments({on}=True)",
                     now="full" if kwargs.get(on) else None)
    if value is None:
        return
    kwargs[on] = True
    if value.startswith("every:"):
        more = dict(kwargs.get(f"{on}_kwargs") or {})
        kwargs[f"{on}_kwargs"] = more | {"every_n_layers": int(value.partition(":")[2])}


def _optimizer(takes, kwargs):
    now = kwargs.get("optim", takes["optim"].default)
    now = getattr(now, "value", now)
    for value, name in _OPTIM.items():
        used = value if name == now else None
        code = f'TrainingArguments(optim="{name}")'
        if sites.at("optimizer", code, now=used, value=value) is not None:
            kwargs["optim"] = name


def _batch(takes, kwargs):
    now = kwargs.get("per_device_train_batch_size",
                     takes["per_device_train_batch_size"].default)
    accumulated = kwargs.get("gradient_accumulation_steps", 1)
    value = sites.at("batch", "TrainingArguments(per_device_train_batch_size=VALUE, "
                     "gradient_accumulation_steps=...)", now=str(now))
    if value is None:
        return
    if now * accumulated % int(value):
        return sites.cannot("batch", f"{value} does not divide the batch of {now * accumulated}")
    kwargs["per_device_train_batch_size"] = int(value)
    kwargs["gradient_accumulation_steps"] = now * accumulated // int(value)


def _switches(kwargs):
    if sites.at("autocast", "TrainingArguments(bf16=True)", value="bf16",
                now="bf16" if kwargs.get("bf16") else None) is not None:
        kwargs["bf16"] = True
    if sites.at("empty-cache", "TrainingArguments(torch_empty_cache_steps=1)",
                now="" if kwargs.get("torch_empty_cache_steps") == 1 else None) is not None:
        kwargs["torch_empty_cache_steps"] = 1
    if sites.at("compile", "TrainingArguments(torch_compile=True)",
                now="" if kwargs.get("torch_compile") else None) is not None:
        kwargs["torch_compile"] = True
    if sites.at("liger", "TrainingArguments(use_liger_kernel=True)",
                now="" if kwargs.get("use_liger_kernel") else None) is not None:
        kwargs["use_liger_kernel"] = True


_HANDLED = ("recompute", "optimizer", "batch", "autocast", "empty-cache", "compile")
is_used = False  # TrainingArguments were made: they say what _HANDLED levers do


def handles(lever):
    """Returns True if TrainingArguments act for the lever, and its other places must not."""
    is_for_model = lever == "recompute" and sites.PULLED.get(lever) == "selective"
    return is_used and lever in _HANDLED and not is_for_model


def watch_arguments(module):
    takes = inspect.signature(module.TrainingArguments.__init__).parameters

    def making(inner):
        @functools.wraps(inner)
        def init(self, *args, **kwargs):
            global is_used
            is_used = True
            _recompute(takes, kwargs)
            _optimizer(takes, kwargs)
            _batch(takes, kwargs)
            _switches(kwargs)
            inner(self, *args, **kwargs)

        return init

    if sites.is_wanted(*_HANDLED, "liger"):
        sites.replace(module.TrainingArguments, "__init__", making)


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
