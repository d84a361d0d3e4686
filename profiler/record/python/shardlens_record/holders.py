"""Finds the variable that holds the tensors which a program keeps from step to step
(`shardlens record --holders`). It looks after steps 2, 4, 8 and so on, and at the end of a program
without steps, and compares each look with the one before: which tensors have become more, and how
the program reaches them.

A look takes 0.1 s, mostly in the garbage collector, so there is a flag. It changes no memory of the
GPU: what it finds is kept as numbers and texts."""

import collections
import gc
import sys
import types

from . import program_code
from .guards import guarded

_MOST_LEVELS = 4  # from tensors that are alike to what holds most of them
_MOST_OBJECTS = 400  # of a level
_MOST_REACHED = 30  # objects on the ways from there to a variable
_MOST_SAMPLES = 12  # of tensors that are alike
_LEAST_AT_END = 8  # tensors in one place, where there are no steps to compare
_OPTIMIZED = 1  # the flag of a function's code, whose variables are in no dictionary

_LISTED = list, tuple, set, frozenset, collections.deque
_NO_DATA = (types.FrameType, types.ModuleType, types.FunctionType, types.MethodType,
            types.BuiltinFunctionType, types.GeneratorType, types.CoroutineType, type)


class _Own(list):
    """A list of this module, which refers to what it looks for."""


class _Reached:
    """An object from which a tensor is reached, and how."""

    __slots__ = ("thing", "path")

    def __init__(self, thing, path):
        self.thing, self.path = thing, path


class _Looks:
    step = None  # of the last look
    counts = {}  # then, by kind: how many tensors there were
    found = []  # by the last look that found something


def _type_is(thing, *kinds):
    return issubclass(type(thing), kinds)


# --- tensors -----------------------------------------------------------------------------------------


def _kept_tensors(torch):
    """Returns the tensors on GPUs, except for parameters, by kind: those of one kind are alike."""
    found = {}
    for one in gc.get_objects():
        if _type_is(one, torch.Tensor) and not _type_is(one, torch.nn.Parameter) and one.is_cuda:
            function = one.grad_fn
            kind = tuple(one.shape), str(one.dtype), type(function).__name__ if function else ""
            found.setdefault(kind, _Own()).append(one)
    return found


def _samples(tensors):
    return _Own(tensors[::max(1, len(tensors) // _MOST_SAMPLES)][-_MOST_SAMPLES:])


# --- what holds them ---------------------------------------------------------------------------------


def _referrers(things):
    """Returns the data that refers to these things, without the arguments of this call."""
    return _Own(one for one in gc.get_referrers(*things) if not _type_is(one, _Own, _Reached, *_NO_DATA))


def _holding(level):
    """Returns the objects that refer to things of a level, and for which samples. The level has for each
    sample the things that lead to it."""
    samples = {}
    for number, things in enumerate(level):
        for thing in things:
            samples.setdefault(id(thing), set()).add(number)
    found = _Own()
    for outer in _referrers(_Own(thing for things in level for thing in things))[:_MOST_OBJECTS]:
        numbers = set().union(*(samples.get(id(inner), ()) for inner in gc.get_referents(outer)))
        found.append(_Own((numbers, outer)))
    return found


def _container_of(samples):
    """Returns the object that holds most of the samples, each perhaps by an object of its own; None if
    no object does."""
    level = _Own(_Own([one]) for one in samples)
    for _ in range(_MOST_LEVELS):
        found = _holding(level)
        if not found:
            return None
        numbers, best = max(found, key=lambda pair: len(pair[0]))
        if 2 * len(numbers) > len(samples):
            return best
        level = _Own(_Own(outer for numbers, outer in found if number in numbers)
                     for number in range(len(samples)))
    return None


# --- the way from a variable -------------------------------------------------------------------------


def _base(path):
    return path.rsplit("/", 1)[-1]


def _frames():
    for frame in sys._current_frames().values():
        while frame is not None:
            if program_code.is_own(frame.f_code.co_filename):
                yield frame
            frame = frame.f_back


def _locals_of(frame):
    """Returns names and values. Python may keep a dictionary of them in the frame, where they would keep
    tensors alive; it is emptied."""
    values = frame.f_locals
    found = _Own(_Own(pair) for pair in values.items())
    if frame.f_code.co_flags & _OPTIMIZED and type(values) is dict:
        values.clear()
    return found


def _variables():
    """Returns, by an object's id, the variable of the program that it is: its name and its place."""
    found = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) if _type_is(module, types.ModuleType) else None
        if file and program_code.is_own(file):
            for name, value in list(vars(module).items()):
                found.setdefault(id(value), (name, _base(file)))
    for frame in _frames():
        code = frame.f_code
        if code.co_flags & _OPTIMIZED:
            for name, value in _locals_of(frame):
                found.setdefault(id(value), (name, f"{code.co_name} of {_base(code.co_filename)}"))
    return found


def _attributes(owner):
    try:
        return object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return {}


def _slots(owner):
    for kind in type(owner).__mro__:
        for name, member in list(vars(kind).items()):
            if _type_is(member, types.MemberDescriptorType):
                try:
                    yield name, member.__get__(owner)
                except AttributeError:
                    pass


def _key_of(pairs, value):
    return next((key for key, one in list(pairs) if one is value), None)


def _step(outer, inner):
    """Returns how `inner` is reached from `outer`, as Python writes it; None: it is not."""
    if _type_is(outer, dict):
        key = _key_of(outer.items(), inner)
        return f"[{key!r}]" if _type_is(key, str, int) else "[...]"
    if _type_is(outer, *_LISTED):
        return "[...]"
    name = _key_of(_attributes(outer).items(), inner) or _key_of(_slots(outer), inner)
    return f".{name}" if name else None


def _owner_of(mapping):
    """Returns the object or class whose attributes this dictionary has, or None."""
    for owner in gc.get_referrers(mapping):
        if _type_is(owner, type) and "__module__" in mapping and "__dict__" in mapping:
            return owner
        if not _type_is(owner, dict, *_LISTED, *_NO_DATA) and _attributes(owner) is mapping:
            return owner
    return None


def _variable_of_cell(cell):
    for closure in gc.get_referrers(cell):
        for function in gc.get_referrers(closure) if _type_is(closure, tuple) else ():
            if _type_is(function, types.FunctionType) and function.__closure__ is closure:
                code = function.__code__
                name = code.co_freevars[[id(one) for one in closure].index(id(cell))]
                return name, f"{function.__qualname__} of {_base(code.co_filename)}"
    return None


def _variable_of_default(values):
    for function in gc.get_referrers(values):
        if _type_is(function, types.FunctionType) and function.__defaults__ is values:
            code = function.__code__
            return "a default argument", f"{function.__qualname__} of {_base(code.co_filename)}"
    return None


def _variable_of_class(owner, step):
    file = getattr(sys.modules.get(owner.__module__), "__file__", None) or owner.__module__
    return f"{owner.__qualname__}{step}", _base(file)


def _end_of(outer, inner):
    """Returns the variable in which `outer` has `inner`, if it is one of a function or a class."""
    if _type_is(outer, types.CellType):
        return _variable_of_cell(outer)
    if _type_is(outer, tuple):
        return _variable_of_default(outer)
    owner = _owner_of(outer) if _type_is(outer, dict) else None
    if _type_is(owner, type):
        return _variable_of_class(owner, f".{_key_of(outer.items(), inner)}")
    return None


def _further(outer, inner, path):
    owner = _owner_of(outer) if _type_is(outer, dict) else None
    if owner is not None:
        return _Reached(owner, f".{_key_of(outer.items(), inner)}{path}")
    step = _step(outer, inner)
    return _Reached(outer, step + path) if step else None


def _named(thing):
    """Returns the shortest path to an object and the place of its variable, such as ("meter.values",
    "main of train.py"); None if no variable of the program is near."""
    variables, queue = _variables(), collections.deque([_Reached(thing, "")])
    for _ in range(_MOST_REACHED):
        if not queue:
            return None
        reached = queue.popleft()
        if id(reached.thing) in variables:
            name, where = variables[id(reached.thing)]
            return name + reached.path, where
        for outer in _referrers(_Own([reached.thing])):
            end = _end_of(outer, reached.thing)
            if end is not None:
                return end[0] + reached.path, end[1]
            further = _further(outer, reached.thing, reached.path)
            if further is not None:
                queue.append(further)
    return None


# --- looks -------------------------------------------------------------------------------------------


def _holder(tensors, gained, steps):
    samples = _samples(tensors)
    container = _container_of(samples)
    named = _named(container) if container is not None else None
    if named is None:
        return None
    one = samples[-1]
    size, per_step = one.numel() * one.element_size(), gained / steps if steps else None
    return {"variable": named[0], "where": named[1], "container": type(container).__name__,
            "tensors": len(tensors), "tensor_bytes": size, "tensors_per_step": per_step,
            "has_graph": one.grad_fn is not None}


def _is_gain(gained, steps):
    return gained >= max(2, steps / 16) if steps else gained >= _LEAST_AT_END


def _holders(groups, steps):
    for kind, tensors in groups.items():
        gained = len(tensors) - (_Looks.counts.get(kind, 0) if steps else 0)
        holder = _holder(tensors, gained, steps) if _is_gain(gained, steps) else None
        if holder is not None:
            yield holder


@guarded("the variable that holds what grows is unknown")
def look(step):
    """Looks after this step; None: at the end of a program that has made none."""
    is_first = step is not None and _Looks.step is None
    steps = step - _Looks.step if step is not None and _Looks.step is not None else 0
    groups = _kept_tensors(sys.modules["torch"])
    found = [] if is_first else list(_holders(groups, steps))
    _Looks.step, _Looks.counts = step, {kind: len(tensors) for kind, tensors in groups.items()}
    _Looks.found = found or _Looks.found


def is_due(step):
    return step >= 2 and step & (step - 1) == 0


def all_found():
    """Returns what was found, what holds most tensors first."""
    return sorted(_Looks.found, key=lambda one: -one["tensors"] * one["tensor_bytes"])
