"""Reports where a branch of the program or a shape depends on a value that the null device does not
know: it computes nothing, and only some values are known anyway (profiler/record/known/values.h)."""

import ctypes
import functools
import os
import re
import sys

from . import OPTIONS, bounds, checks, decisions, program_code
from .guards import guarded, replace, replace_function, say

_VALUES = "where the program decides by values of the GPU may be reported incompletely"

_COUNTS = {}
_DECISIONS = {}  # decisions by unknown values: the outcome, by place
_PRINTING = f"{os.sep}torch{os.sep}_tensor_str.py"
_OWN = os.path.dirname(__file__) + os.sep
_MOST_NAMED = 4  # decisions in a line

_DECIDES = "the program decides by a GPU tensor whose value is not known, False on the null device"
_INDEXES = ("the program uses a GPU tensor as a number; its value is not known, and on the null "
            "device it is 0")
_CHECKS = "the program checks GPU values that are not known: the check is assumed to pass"
_SHAPES = "a shape depends on GPU values that are not known; on the null device they are 0"


def _counter_of_unknown_reads():
    """Returns a function that returns the number of this thread's reads of unknown values; on a real
    GPU every value is known, so it returns 0."""
    return bounds.stub("shardlens_null_unknown_reads", ctypes.c_uint64) or (lambda: 0)


unknown_reads = _counter_of_unknown_reads()


class _TrueAt:
    """Holds a place that --true names: FILE:LINE, or FILE:LINE:N to start at the Nth time. FILE may
    have folders before it."""

    def __init__(self, text):
        file, line, first = re.fullmatch(r"(.+?):(\d+)(?::(\d+))?", text).groups()
        self.text = text
        self.file = os.path.normpath(file)
        self.line = int(line)
        self.first = int(first or 1)
        self.times = 0

    def is_at(self, frame):
        file = os.path.normpath(frame.f_code.co_filename)
        ends_so = file == self.file or file.endswith(os.sep + self.file)
        return ends_so and frame.f_lineno == self.line

    def takes(self):
        self.times += 1
        return self.times >= self.first


_TRUE_AT = [_TrueAt(text) for text in OPTIONS["true_at"]]


def counts():
    """Returns how often the program has read an unknown value, by the kind of read."""
    return dict(_COUNTS)


def decisions_taken():
    """Returns a line that says which decisions the program made by unknown values, in a list; the
    list is empty if there are none."""
    if not _DECISIONS:
        return []
    named = [f"{place} ({how})" for place, how in _DECISIONS.items()]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    places = "1 decision" if len(named) == 1 else f"{len(named)} decisions"
    return [f"{places} by values that are not known: {', '.join(named[:_MOST_NAMED])}{more}"]


# --- the frame that asks --------------------------------------------------------------------------


def _is_pytorchs(frame):
    return program_code.is_pytorchs(frame.f_code.co_filename)


def _asking(frame):
    """Returns the first frame that is not in a file of ours."""
    while frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return frame


def _is_printing(frame):
    return frame.f_code.co_filename.endswith(_PRINTING)


def _place(frame):
    own = program_code.frame_outside_pytorch(frame)
    return f"{os.path.basename(own.f_code.co_filename)}:{own.f_lineno}"


def _count(name):
    _COUNTS[name] = _COUNTS.get(name, 0) + 1


# --- what is asked --------------------------------------------------------------------------------


def _true_at(frame):
    """Returns the --true that names the program's line, or None."""
    own = program_code.frame_outside_pytorch(frame)
    return next((true for true in _TRUE_AT if true.is_at(own)), None)


@guarded(_VALUES, otherwise=0)
def _number_read(name, frame):
    """Returns an unknown number that was read: 1 if --true names the line, else 0. Reports the lines
    that decide by the number. Most numbers are only printed."""
    _count(name)
    if _is_pytorchs(frame):
        return 0
    chosen = _true_at(frame)
    number = int(chosen is not None and chosen.takes())
    for filename, line in decisions.decided_by(frame, _is_pytorchs):
        place = f"{os.path.basename(filename)}:{line}"
        _DECISIONS[place] = f"a number, {number} here"
        read = (f"{place}: the program decides by a number that it has read from the GPU at "
                f"{_place(frame)}; it is not known")
        if number:
            say(f"{read}, and is taken to be 1, as --true says")
        elif chosen is None:
            say(f"{read}, and on the null device it is 0; --true {_place(frame)} makes it 1")
    return number


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
    """Answers an unknown truth value that the program decides by: as --true says, else so that a
    check of the program passes, else False."""
    passing = checks.answer_that_passes(frame)
    if _is_pytorchs(frame):
        return bool(passing)
    place, chosen = _place(frame), _true_at(frame)
    if chosen is None and passing is not None:
        say(f"{place}: {_CHECKS}")
        return passing
    taken = chosen is not None and chosen.takes()
    _DECISIONS[place] = f"taken {str(taken).lower()}"
    if taken:
        say(f"{place}: {_DECIDES}, but taken to be True, as --true says")
    elif chosen is None:
        say(f"{place}: {_DECIDES}; --true {place} makes it True")
    return taken


def say_unmet():
    for true in _TRUE_AT:
        if not true.times:
            say(f"--true {true.text}: the program asked for no unknown GPU value there")


def _is_on_gpu(value):
    return getattr(value, "is_cuda", False)


def _watching(owner, name, told):
    """Returns a function that replaces a function, and calls `told` if that one read an unknown
    value."""

    def watching(inner):
        @functools.wraps(inner)
        def watched(*args, **kwargs):
            before = unknown_reads()
            try:
                return inner(*args, **kwargs)
            finally:
                if unknown_reads() != before:
                    told(f"{owner.__name__}.{name}", _asking(sys._getframe(1)))

        return watched

    return watching


def _watch(owner, name, told):
    replace(owner, name, _watching(owner, name, told))


def _watch_number(tensor, name):
    """Watches a function that returns a tensor's only number, or its numbers as a list: unknown ones
    in a list stay 0."""

    def watching(inner):
        @functools.wraps(inner)
        def watched(self):
            before = unknown_reads()
            answer = inner(self)
            if unknown_reads() == before:
                return answer
            number = _number_read(f"Tensor.{name}", _asking(sys._getframe(1)))
            return answer if number == 0 or isinstance(answer, list) else type(answer)(number)

        return watched

    replace(tensor, name, watching)


def _watch_truth(tensor):
    is_on_gpu = guarded(_VALUES, otherwise=False)(_is_on_gpu)

    def watching(inner):
        @functools.wraps(inner)
        def watched(self):
            before = unknown_reads()
            answer = inner(self)
            if unknown_reads() == before or not is_on_gpu(self):
                return answer
            _count("Tensor.__bool__")
            return answer or _is_true(_asking(sys._getframe(1)))

        return watched

    replace(tensor, "__bool__", watching)


def _answering(inner):
    """Replaces a function that compares tensors and returns the answer to the host."""

    @functools.wraps(inner)
    def watched(*args, **kwargs):
        before = unknown_reads()
        answer = inner(*args, **kwargs)
        return answer or unknown_reads() != before and _is_true(_asking(sys._getframe(1)))

    return watched


def _watch_comparisons(torch):
    for name in ("allclose", "equal"):
        replace(torch.Tensor, name, _answering)
        replace_function(torch, torch, name, _answering)


def _watch_function(torch, module, name):
    replace_function(torch, module, name, _watching(module, name, _shaped))


def _item_slot(kind):
    """Returns where CPython keeps a class's sq_item, which makes the class a sequence: PyTypeObject
    has ten words before tp_as_sequence, and sq_item is the fourth word there."""
    word = ctypes.sizeof(ctypes.c_void_p)
    slots = ctypes.c_void_p.from_address(id(kind) + tuple.__basicsize__ + 10 * word).value
    return ctypes.c_void_p.from_address(slots + 3 * word)


def _and_subclasses(kind):
    return [kind, *(one for sub in kind.__subclasses__() for one in _and_subclasses(sub))]


def _watch_indices(tensor):
    """Watches __getitem__ and then restores sq_item: Python makes a class with a __getitem__ in
    Python a sequence, which tensors are not. torch.tensor would then ask 0-dimensional tensors in a
    list for their length."""
    slots = [_item_slot(kind) for kind in _and_subclasses(tensor)]
    before = [slot.value for slot in slots]
    _watch(tensor, "__getitem__", _shaped)
    for slot, value in zip(slots, before):
        slot.value = value


def watch(torch):
    tensor = torch.Tensor
    for name in ("item", "tolist", "__float__", "__int__"):
        _watch_number(tensor, name)
    _watch(tensor, "__index__", _indexed)
    _watch_truth(tensor)
    _watch_comparisons(torch)
    for name in ("argwhere", "bincount", "masked_select", "nonzero", "repeat_interleave"):
        _watch(tensor, name, _shaped)
        _watch_function(torch, torch, name)
    for name in ("unique", "unique_consecutive", "where"):  # which a tensor's own methods call
        _watch_function(torch, torch, name)
    _watch_indices(tensor)
    _watch_function(torch, torch.nn.functional, "one_hot")
    _watch_scaler(torch)
    _draw_normal(torch)


def pass_comparisons(module):
    """Lets torch.testing.assert_close pass if the values are unknown; it raises through its own
    functions."""

    @guarded(_VALUES)
    def tell(frame):
        say(f"{_place(frame)}: {_CHECKS}")

    def passing(inner):
        @functools.wraps(inner)
        def compare_values(self, *args, **kwargs):
            before = unknown_reads()
            try:
                inner(self, *args, **kwargs)
            except Exception:  # pylint: disable=broad-except
                if unknown_reads() == before:
                    raise
                tell(sys._getframe(1))

        return compare_values

    replace(module.TensorLikePair, "_compare_values", passing)


def check_no_arguments(module):
    """Keeps distributions from checking their arguments: every comparison is False, so none would
    pass."""
    module.Distribution.set_default_validate_args(False)


def _draw_normal(torch):
    """Replaces torch.normal, which asks twice whether all deviations are positive and would fail.
    The replacement allocates the same blocks and continues."""

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
