"""Finds the program's models, whose parameters, buffers, gradients and optimizer states get names,
and the tensors that the first forward of a program gets."""

import functools
import gc
import sys
import weakref

from . import blocks, program_code
from .blocks import (GRADIENT, GRADIENT_SHARD, INPUT, OPTIMIZER_STATE, PARAMETER_SHARD,
                     UNSHARDED_PARAMETER)
from .guards import guarded, replace

# Parts of a parameter's name that wrappers of a module add.
_WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}

_names = {}  # by id of a parameter: a weak reference, and its name
_gathered = {}  # by id: weak references to what FSDP2 gathers, which modules hold meanwhile
_roots_found = []  # weak references to the modules that are in no other one
_optimised = []  # the numbers of parameters of the optimizers so far
optimizers = weakref.WeakSet()  # uses.py adds them
_unstepped = []  # weak references to parameters with a gradient that no optimizer uses
_modules_named = {}  # by id of a module: a weak reference that forgets it, and its name


def _modules(torch):
    """Returns all modules that exist. Asking for an object's class runs nothing of the object. There are
    hundreds of thousands of objects, so no function is called for each."""
    module = torch.nn.Module
    return [thing for thing in gc.get_objects() if module in type(thing).__mro__]


def _find_roots(torch):
    """Finds the modules that are in no other one. This takes 0.1 s, so it is not done at each look."""
    modules = [module for module in _modules(torch) if "_modules" in module.__dict__]
    inner = {id(child) for module in modules for child in module._modules.values()}
    _roots_found[:] = [weakref.ref(module) for module in modules if id(module) not in inner]


def _plain(name):
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _is_gathered(tensor):
    reference = _gathered.get(id(tensor))
    return reference is not None and reference() is tensor


def _held(root):
    """Returns the name and the tensor of each parameter and buffer that stays in its module."""
    held = [*root.named_parameters(), *root.named_buffers()]
    return [(name, tensor) for name, tensor in held if not _is_gathered(tensor)]


def _without_wrappers(root):
    while type(root).__name__ in ("DistributedDataParallel", "OptimizedModule", "DataParallel"):
        inner = root._modules.get("module") or root._modules.get("_orig_mod")
        if inner is None:
            return root
        root = inner
    return root


@guarded(blocks.CLASSES)
def find():
    """Finds the modules and looks at them."""
    _find_roots(sys.modules["torch"])
    look()


@guarded(blocks.CLASSES)
def look():
    """Names what the known modules hold, and reports that their blocks are parameters."""
    roots = [root for root in (reference() for reference in _roots_found) if root is not None]
    roots = [(root, held) for root, held in ((root, _held(root)) for root in roots) if held]
    found, seen = [], set()
    for root, held in sorted(roots, key=lambda pair: -len(pair[1])):
        new = [(name, tensor) for name, tensor in held if id(tensor) not in seen]
        seen.update(id(tensor) for _, tensor in new)
        is_only = len(new) == len(held) and len(roots) == 1
        prefix = "" if is_only or not found else f"{type(_without_wrappers(root)).__name__}."
        for name, tensor in new:
            _names[id(tensor)] = weakref.ref(tensor), prefix + _plain(name)
            found.append((tensor, PARAMETER_SHARD, prefix + _plain(name)))
        _name_modules(root, prefix)
    blocks.tell(found)


def _class_name(module):
    """Returns "Llama", also for the class FSDPLlama that FSDP2 derives from Llama."""
    bases = type(module).__bases__
    is_sharded = any(base.__name__ == "FSDPModule" for base in bases)
    return (bases[-1] if is_sharded else type(module)).__name__


@guarded("some modules have no name")
def _name_modules(root, prefix):
    """Tells the recorder the places of a model's modules. One that ceases to exist is forgotten, since
    another may get its address."""
    for name, module in root.named_modules():
        path = _plain(name)
        named = prefix + path if path else ""
        reference, told = _modules_named.get(id(module), (None, None))
        if reference is not None and reference() is module and told == named:
            continue
        forget = functools.partial(_forget_module, id(module))
        _modules_named[id(module)] = weakref.ref(module, forget), named
        blocks.name_module(id(module), named, _class_name(module))


def _forget_module(number, reference):
    if _modules_named.get(number, (None,))[0] is reference:
        del _modules_named[number]
        blocks.forget_module(number)


def name_of(parameter):
    """Returns the parameter's name in its model; empty if it is in none that was found."""
    reference, name = _names.get(id(parameter), (None, ""))
    return name if reference is not None and reference() is parameter else ""


def _parameters(optimizer):
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def find_unstepped():
    """Finds the gradients that exist although no optimizer has their parameters, and returns each with the
    name of its parameter. Finds none if an optimizer has tensors beside the parameters of models: copies in
    another type, say, whose steps are written back."""
    stepped = {id(parameter) for optimizer in optimizers for parameter in _parameters(optimizer)}
    torch = sys.modules["torch"]
    held = [(name, tensor) for name, tensor in ((name, reference()) for reference, name in _names.values())
            if isinstance(tensor, torch.nn.Parameter)]
    if not stepped <= {id(parameter) for _, parameter in held}:
        return []
    found = [(name, parameter) for name, parameter in held
             if id(parameter) not in stepped and parameter.grad is not None]
    _unstepped[:] = [weakref.ref(parameter) for _, parameter in found]
    return [(name, getattr(parameter.grad, "_local_tensor", parameter.grad)) for name, parameter in found]


def tell_parameters(optimizer):
    parameters = _parameters(optimizer)
    _optimised.append(len(parameters))
    blocks.tell([(one, PARAMETER_SHARD, name_of(one)) for one in parameters])


def _is_sharded(parameter):
    return hasattr(parameter, "_local_tensor") or hasattr(parameter, "_sharded_size")


def _gradients(parameters):
    return [(one.grad, GRADIENT_SHARD if _is_sharded(one) else GRADIENT, name_of(one))
            for one in parameters if one.grad is not None]


@guarded(blocks.CLASSES)
def tell_gradients(optimizer):
    unstepped = [reference() for reference in _unstepped]
    blocks.tell(_gradients(_parameters(optimizer) + [one for one in unstepped if one is not None]))


@guarded(blocks.CLASSES)
def tell_all_gradients():
    """Reports the gradients of all models, for a program without an optimizer."""
    torch = sys.modules["torch"]
    known = [reference() for reference, _ in list(_names.values())]
    blocks.tell(_gradients([one for one in known if isinstance(one, torch.nn.Parameter)]))


@guarded(blocks.CLASSES)
def tell_state(optimizer):
    """Reports an optimizer's state, whose values may be tensors or dictionaries of tensors."""
    torch = sys.modules["torch"]
    found = []
    for parameter, state in optimizer.state.items():
        name = name_of(parameter)
        values = state.items() if isinstance(state, dict) else [("state", state)]
        found += [(value, OPTIMIZER_STATE, f"{key} of {name}" if name else "")
                  for key, value in values if isinstance(value, torch.Tensor)]
    blocks.tell(found)


# --- the first forward ----------------------------------------------------------------------------


def _tensors_in(value, torch, depth=3):
    if isinstance(value, torch.Tensor):
        return [value]
    if depth == 0 or not isinstance(value, (list, tuple, dict)):
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [tensor for one in inner for tensor in _tensors_in(one, torch, depth - 1)]


def _outermost_call():
    """Returns the frame of the outermost call of a module that runs, in any thread."""
    for frame in sys._current_frames().values():
        found = None
        while frame is not None:
            if program_code.calls_module(frame):
                found = frame
            frame = frame.f_back
        if found is not None:
            return found
    return None


@guarded(blocks.CLASSES)
def look_at_forward(steps_follow):
    """Looks at the forward that runs: at what the outermost module gets, and at that module. The
    arguments live as long as that call, so that reading them keeps nothing alive. All modules are
    found after the first step; a program that makes none, or calls the parts of its model one by
    one, has them found here."""
    torch = sys.modules["torch"]
    call = _outermost_call()
    if call is not None:
        given = [call.f_locals.get("args", ()), call.f_locals.get("kwargs", {})]
        blocks.tell([(one, INPUT, "") for one in _tensors_in(given, torch)], only_unknown=True)
        module = call.f_locals["self"]
        is_whole = sum(1 for _ in module.parameters()) >= max(_optimised, default=0)
        if steps_follow and not _roots_found and is_whole:
            _roots_found.append(weakref.ref(module))
    look() if _roots_found else find()


# --- FSDP2 ----------------------------------------------------------------------------------------


def _label_of_group(group):
    """Returns the number of a group's name. FSDP2 names its groups when it first runs; the name stays."""
    number = group.__dict__.get("_shardlens_label")
    if number is None:
        count = len(group.fsdp_params)
        name = getattr(group, "_module_fqn", None) or "the root module"
        number = blocks.label(f"{_plain(name)} ({count} {'parameter' if count == 1 else 'parameters'})")
        if number and getattr(group, "_module_fqn", None) is not None:
            group._shardlens_label = number
    return number


def _naming(name_next):
    """Returns a wrapper that names what a method of a group of parameters allocates."""

    @guarded(blocks.CLASSES)
    def begin(group):
        name_next(_label_of_group(group))

    def wrap(inner):
        @functools.wraps(inner)
        def call(self, *args, **kwargs):
            begin(self)
            try:
                return inner(self, *args, **kwargs)
            finally:
                name_next(0)

        return call

    return wrap


def _labels_of_whole(group, is_kept):
    """Returns the numbers of the names of whole gradients, which stay."""
    known = group.__dict__.setdefault("_shardlens_whole", {})
    if is_kept not in known:
        what = "whole, not reduced" if is_kept else "whole"
        names = [_plain(getattr(one, "_param_fqn", None) or "") for one in group.fsdp_params]
        known[is_kept] = [blocks.label(f"{name} ({what})" if name else "") for name in names]
    return known[is_kept]


def _tell_whole_gradients(group):
    """Names the gradients of gathered parameters, which are freed before the optimizer sees any. Those
    that are kept for a later reduction were named before."""
    is_kept = not getattr(group, "reduce_grads", True)
    were_kept = group.__dict__.get("_shardlens_kept", False)
    group._shardlens_kept = is_kept
    for parameter, label in zip(group.fsdp_params, _labels_of_whole(group, is_kept)):
        whole = getattr(parameter, "_unsharded_param", None)
        for gradient in (getattr(whole, "grad", None),
                         getattr(parameter, "unsharded_accumulated_grad", None)):
            for address in blocks.addresses_of(gradient) if gradient is not None else ():
                blocks.tell_block(address, GRADIENT, 0 if were_kept else label)


def _tell_gathered(group):
    """Names the blocks of gathered parameters. This happens twice a layer in each step, so it takes
    the shortest way: these tensors are plain, and the names stay."""
    labels = group.__dict__.get("_shardlens_labels")
    if labels is None:
        labels = [blocks.label(_plain(getattr(parameter, "_param_fqn", None) or ""))
                  for parameter in group.fsdp_params]
        group._shardlens_labels = labels
        wholes = [getattr(parameter, "_unsharded_param", None) for parameter in group.fsdp_params]
        _gathered.update({id(one): weakref.ref(one) for one in wholes if one is not None})
    for parameter, label in zip(group.fsdp_params, labels):
        for tensor in parameter.all_gather_outputs:
            address = tensor.data_ptr()  # 0: its memory has been given back
            if address:
                blocks.tell_block(address, UNSHARDED_PARAMETER, label)


def watch_fsdp2(module, is_recording, name_next):
    """Names what the groups of parameters allocate, and the gradients of gathered parameters."""

    @guarded(blocks.CLASSES)
    def tell(group):
        if is_recording():
            with blocks.without_torch_function():
                _tell_whole_gradients(group)

    @guarded(blocks.CLASSES)
    def tell_gathered(group):
        if is_recording():
            _tell_gathered(group)

    def telling(inner):
        @functools.wraps(inner)
        def post_backward(self, *args, **kwargs):
            tell(self)
            return inner(self, *args, **kwargs)

        return post_backward

    def telling_gathered(inner):
        @functools.wraps(inner)
        def wait_for_unshard(self, *args, **kwargs):
            is_new = getattr(self, "_all_gather_result", None) is not None
            result = inner(self, *args, **kwargs)
            if is_new:
                tell_gathered(self)
            return result

        return wait_for_unshard

    naming = _naming(name_next)
    replace(module.FSDPParamGroup, "post_backward", lambda inner: telling(naming(inner)))
    replace(module.FSDPParamGroup, "unshard", naming)
    replace(module.FSDPParamGroup, "wait_for_unshard", lambda inner: telling_gathered(naming(inner)))
