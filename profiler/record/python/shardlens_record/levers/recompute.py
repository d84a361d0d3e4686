"""Recomputes activations: by the library's own switch where it has one, else by wrapping the forward of
the model's blocks in torch.utils.checkpoint."""

import collections
import functools
import weakref

from . import blocks, sites, titan

_done = weakref.WeakSet()
_own = sites.Own()


def _every(value):
    return int(value.partition(":")[2]) if value.startswith("every:") else 1


# --- selective ------------------------------------------------------------------------------------

_MULTIPLICATIONS = ("mm", "addmm")
_KEPT = ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
         "_scaled_dot_product_cudnn_attention", "max")


def _operators(names):
    import torch

    return {getattr(torch.ops.aten, name).default for name in names if hasattr(torch.ops.aten, name)}


def _selective_contexts():
    """Returns what torch.utils.checkpoint takes as context_fn. It keeps what torchtitan keeps: the
    results of attention, of reductions over ranks, and of every other matrix multiplication."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    multiplications = _operators(_MULTIPLICATIONS)
    kept = _operators(_KEPT)
    if hasattr(torch.ops._c10d_functional, "reduce_scatter_tensor"):
        kept.add(torch.ops._c10d_functional.reduce_scatter_tensor.default)
    if hasattr(torch.ops.higher_order, "flex_attention"):  # once it has been imported
        kept.add(torch.ops.higher_order.flex_attention)
    count = collections.Counter()

    def policy(context, operator, *_, **__):
        if operator in multiplications:
            count[context.is_recompute] += 1
            is_kept = count[context.is_recompute] % 2 == 1
        else:
            is_kept = operator in kept
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


# --- blocks ---------------------------------------------------------------------------------------


def _options_of(value):
    """Returns the arguments for torch.utils.checkpoint."""
    selects = {"context_fn": _selective_contexts} if value == "selective" else {}
    return {"use_reentrant": False} | selects


def _checkpointed(forward, value):
    from torch.utils.checkpoint import checkpoint

    options = _options_of(value)

    @functools.wraps(forward)
    def recomputed(*args, **kwargs):
        with _own:
            return checkpoint(forward, *args, **options, **kwargs)

    return recomputed


def _wrap_blocks(torch, root):
    found = blocks.of_model(torch, root)
    if not found:
        return sites.cannot("recompute", "the model repeats no block in a ModuleList or Sequential")
    kind = min(type(blocks.unwrapped(block)).__name__ for block in found)
    selects = sites.PULLED.get("recompute") == "selective"
    how = "use_reentrant=False" + (", context_fn=as torchtitan's" if selects else "")
    code = f"for each {kind}: block.forward = partial(checkpoint, block.forward, {how})"
    value = sites.at("recompute", code)
    if value is not None:
        for block in found[::_every(value)]:
            inner = blocks.unwrapped(block)
            inner.forward = _checkpointed(inner.forward, value)
    return None


# --- switches of libraries ------------------------------------------------------------------------


def _enable_in_transformers(model, value):
    model.activation_checkpointing_enable(activation_checkpointing_kwargs=_options_of(value),
                                          every_n_layers=_every(value))


def _enable_in_older_transformers(model, value):
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=_options_of(value))


def _enable_in_diffusers(model, _):
    model.enable_gradient_checkpointing()


def _enable_in_timm(model, _):
    model.set_grad_checkpointing(True)


# A method of the library's models, the code to write, what turns it on, and the values that it takes.
_Switch = collections.namedtuple("_Switch", "method code turn_on values")
_SWITCHES = (
    _Switch("activation_checkpointing_enable", "(every_n_layers=EVERY)", _enable_in_transformers,
            ("full", "every", "selective")),
    _Switch("gradient_checkpointing_enable", "()", _enable_in_older_transformers,
            ("full", "selective")),
    _Switch("enable_gradient_checkpointing", "()", _enable_in_diffusers, ("full",)),
    _Switch("set_grad_checkpointing", "(True)", _enable_in_timm, ("full",)))


def _switch_of(module):
    """Returns the model's own switch, or None."""
    if getattr(type(module), "supports_gradient_checkpointing", None) is False:
        return None
    if getattr(type(module), "_supports_gradient_checkpointing", None) is False:
        return None
    return next((switch for switch in _SWITCHES if hasattr(type(module), switch.method)), None)


def _with_switch(root):
    """Returns the outermost modules of a model that have a switch of their own."""
    found, inside = [], set()
    for module in root.modules():
        if id(module) not in inside and _switch_of(module):
            found.append(module)
            inside |= {id(part) for part in module.modules()}
    return found


def _is_on(module):
    return any(getattr(module, name, False) is True for name in
               ("is_gradient_checkpointing", "is_activation_checkpointing", "grad_checkpointing"))


def _turn_on(module):
    if _is_on(module):
        return sites.cannot("recompute", f"{type(module).__name__} recomputes already")
    switch = _switch_of(module)
    wanted = sites.PULLED.get("recompute")
    if wanted is not None and wanted.partition(":")[0] not in switch.values:
        return sites.cannot("recompute", f"{type(module).__name__} recomputes every block or none")
    code = switch.code.replace("EVERY", str(_every(wanted or "full")))
    if wanted == "selective":
        code = "(context_fn=as torchtitan's)"
    limit = "full" if len(switch.values) == 1 else None
    value = sites.at("recompute", f"model.{switch.method}{code}", value=limit)
    if value is not None:
        with _own:
            switch.turn_on(module, value)
    return None


def apply(torch, optimizer):
    """Applies the lever to the models of an optimizer, once it has been made."""
    for root in blocks.roots_of(torch, optimizer):
        if root in _done:
            continue
        _done.add(root)
        if any(type(module).__name__ == "CheckpointWrapper" for module in root.modules()):
            sites.cannot("recompute", "the program recomputes already (checkpoint_wrapper)")
            continue
        switched = _with_switch(root)
        for module in switched:
            _turn_on(module)
        if not switched:
            _wrap_blocks(torch, root)


def watch(module):
    """Notes where the program itself recomputes (module: torch.utils.checkpoint)."""

    def noting(inner):
        @functools.wraps(inner)
        def begin(*args, **kwargs):
            if not _own.depth and not titan.is_used and not sites.PULLED.get("recompute"):
                sites.cannot("recompute", "the program recomputes already")
            return inner(*args, **kwargs)

        return begin

    for name in ("_checkpoint_without_reentrant_generator_impl",
                 "_checkpoint_without_reentrant_generator"):
        if hasattr(module, name):
            setattr(module, name, noting(getattr(module, name)))
