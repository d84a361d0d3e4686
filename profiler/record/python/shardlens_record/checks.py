"""Finds where a program checks a value: one answer to its test leads straight to a `raise`. It
reads the function's bytecode, in which each part of a test (`a and b`) is a separate jump."""

import bisect
import dis
import functools

_BETWEEN = ("UNARY_NOT", "TO_BOOL", "NOT_TAKEN")  # a call and the jump that its result decides
_ALWAYS = ("JUMP", "JUMP_ABSOLUTE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")


class _Code:
    """Holds the instructions of a function and finds them by the offset at which they begin."""

    def __init__(self, code):
        self.listed = list(dis.get_instructions(code))
        self.number_at = {each.offset: number for number, each in enumerate(self.listed)}

    def _is_conditional(self, number):
        return "IF_TRUE" in self.listed[number].opname or "IF_FALSE" in self.listed[number].opname

    def _test_from(self, number):
        """Returns the number of the jump that the value made at `number` decides, or None if there
        is none, and whether the jump decides by the opposite (`not`)."""
        is_opposite = False
        if not self._is_conditional(number):
            number += 1
            while self.listed[number].opname in _BETWEEN:
                is_opposite ^= self.listed[number].opname == "UNARY_NOT"
                number += 1
        return (number if self._is_conditional(number) else None), is_opposite

    def _raises(self, number):
        """Returns True if the code from here on reaches a `raise` without another decision."""
        passed = set()
        while number < len(self.listed) and number not in passed:
            passed.add(number)
            each = self.listed[number]
            if each.opname == "RAISE_VARARGS":
                return True
            if each.opname in _ALWAYS:
                number = self.number_at[each.argval]
            elif each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
                return False
            elif each.opname.startswith("RETURN"):
                return False
            else:
                number += 1
        return False

    def passing(self, offset):
        """Returns the answer, True or False, that keeps the program from raising, or None if no
        check follows. The offset may be one of the caches that follow an instruction."""
        begun = bisect.bisect_right(list(self.number_at), offset) - 1
        jump, is_opposite = self._test_from(begun)
        if jump is None:
            return None
        there, next_one = self.number_at[self.listed[jump].argval], jump + 1
        if_true, if_false = ((there, next_one) if "IF_TRUE" in self.listed[jump].opname
                             else (next_one, there))
        raises_if_true, raises_if_false = self._raises(if_true), self._raises(if_false)
        if raises_if_true == raises_if_false:
            return None
        return raises_if_false != is_opposite


@functools.lru_cache(maxsize=None)
def _passing(code, offset):
    return _Code(code).passing(offset)


def answer_that_passes(frame):
    """Returns the answer with which the program passes its own check, or None if there is no check.
    In `if not x.all(): raise ValueError`, the answer for `x.all()` is True."""
    return _passing(frame.f_code, frame.f_lasti)
