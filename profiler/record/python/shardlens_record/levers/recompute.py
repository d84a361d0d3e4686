"""Recomputes activations: by the library's own switch where it has one, else by wrapping the forward of
the model's blocks in torch.utils.checkpoint."""

import functools
import weakref

from . import blocks, sites

_done = weakref.WeakSet()
_own = sites.Own()


def _every(value):
    return int(value.partition(":")[2]) if value.startswith("every:") else 1


def _checkpointed(forward):
    from torch.utils.checkpoint import checkpoint

    @functools.wraps(forward)
    def recomputed(*args, **kwargs):
        with _own:
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return recomputed


def _wrap_blocks(torch, root):
    found = blocks.of_model(torch, root)
    if not found:
        return sites.cannot("recompute", "the model repeats no block in a ModuleList or Sequential")
    kind = min(type(blocks.unwrapped(block)).__name__ for block in found)
    code = f"for each {kind}: block.forward = partial(checkpoint, block.forward, use_reentrant=False)"
    value = sites.at("recompute", code)
    if value is not None:
        for block in found[::_every(value)]:
            inner = blocks.unwrapped(block)
            inner.forward = _checkpointed(inner.forward)
    return None


def _switches():
    """Yields the functions that turn recomputing on by a library's own switch: each takes a model and N
    of every:N, and returns False if the model has no such switch."""
    yield "activation_checkpointing_enable(every_n_layers=VALUE)", _enable_in_transformers
    yield "gradient_checkpointing_enable()", _enable_in_older_transformers
    yield "enable_gradient_checkpointing()", _enable_in_diffusers
    yield "set_grad_checkpointing(True)", _enable_in_timm


def _enable_in_transformers(model, every):
    model.activation_checkpointing_enable(every_n_layers=every)


def _enable_in_older_transformers(model, every):
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def _enable_in_diffusers(model, every):
    model.enable_gradient_checkpointing()


def _enable_in_timm(model, every):
    model.set_grad_checkpointing(True)


def _switch_of(module):
    """Returns the code of the model's own switch, and the function that turns it on; or None."""
    if getattr(type(module), "supports_gradient_checkpointing", None) is False:
        return None
    if getattr(type(module), "_supports_gradient_checkpointing", None) is False:
        return None
    return next(((code, turn_on) for code, turn_on in _switches()
                 if hasattr(type(module), code.partition("(")[0])), None)


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
    code, turn_on = _switch_of(module)
    has_every = "VALUE" in code
    wanted = sites.PULLED.get("recompute")
    every = _every(wanted) if wanted else 1
    if every > 1 and not has_every:
        return sites.cannot("recompute", f"{type(module).__name__} recomputes every block or none")
    code = "model." + code.replace("VALUE", str(every))
    limit = None if has_every else "full"
    if sites.at("recompute", code, value=limit) is not None:
        with _own:
            turn_on(module, every)
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
            if not _own.depth and not sites.PULLED.get("recompute"):
                sites.cannot("recompute", "the program recomputes already")
            return inner(*args, **kwargs)

        return begin

    for name in ("_checkpoint_without_reentrant_generator_impl",
                 "_checkpoint_without_reentrant_generator"):
        if hasattr(module, name):
            setattr(module, name, noting(getattr(module, name)))
