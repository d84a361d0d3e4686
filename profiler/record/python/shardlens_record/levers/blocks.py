"""Finds the models of the program: their roots, and the blocks that they repeat."""

import gc


def live(kind):
    """Returns all objects of a class. A lazy object may import what it stands for when it is asked for
    its class, so its type is asked."""
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


def roots_of(torch, optimizer):
    """Returns the modules that are part of no other and hold parameters of the optimizer."""
    return roots_with(torch, [one for group in optimizer.param_groups for one in group["params"]])


def roots_with(torch, parameters):
    """Returns the modules that are part of no other and hold some of these parameters."""
    stepped = {id(parameter) for parameter in parameters}
    modules = live(torch.nn.Module)
    inner = {id(child) for module in modules for child in module.children()}
    return [module for module in modules if id(module) not in inner
            and any(id(parameter) in stepped for parameter in module.parameters())]


def _is_layer(torch, module):
    """Returns True for a module that PyTorch provides as one layer, or that has no parts."""
    return next(module.children(), None) is None


def unwrapped(module):
    """Returns the module inside FSDP1's and torch.compile's wrappers."""
    for name in ("_fsdp_wrapped_module", "_orig_mod"):
        while name in module._modules:
            module = module._modules[name]
    return module


def _repeated_in(torch, container):
    """Returns the children of a container that have a class in common with another one."""
    children = [child for child in container.children()]
    kinds = [type(unwrapped(child)) for child in children]
    lists = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)
    return [child for child, kind in zip(children, kinds) if kinds.count(kind) > 1
            and kind not in lists and not _is_layer(torch, unwrapped(child))]


def repeated(torch, root):
    """Returns the outermost blocks that a model repeats: children of one ModuleList, ModuleDict or
    Sequential that are of the same class and have parts of their own."""
    found, inside = [], set()
    for module in root.modules():  # parents come first
        if id(module) in inside:
            continue
        if issubclass(type(module), (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)):
            blocks = _repeated_in(torch, module)
            found += blocks
            inside |= {id(part) for block in blocks for part in block.modules()}
    return [block for block in found
            if any(parameter.requires_grad for parameter in block.parameters())]


def sharded_blocks(torch, root):
    """Returns the modules that the program gave to FSDP2, except for the root and single layers."""
    import torch.distributed.fsdp as fsdp

    kind = getattr(fsdp, "FSDPModule", ())
    found, inside = [], set()
    for module in root.modules():
        is_inner = module is not root and issubclass(type(module), kind)
        if is_inner and id(module) not in inside and not _is_layer(torch, module):
            found.append(module)
            inside |= {id(part) for part in module.modules()}
    return found


def of_model(torch, root):
    return sharded_blocks(torch, root) or repeated(torch, root)
