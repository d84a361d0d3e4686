"""Finds where a program decides by a number that it has read from the GPU. It reads the program's
source and changes nothing: from the line that reads, it follows the number through names and lists,
and through the functions on the stack that return it.

It does not follow numbers through NumPy, or through objects from one function to another."""

import ast
import functools
import linecache
import warnings

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_KEEPERS = ("add", "append", "extend", "update")  # methods whose object holds the argument afterwards
_BLIND = ("len", "isinstance", "type")  # functions whose result does not depend on the number


@functools.lru_cache(maxsize=None)
def _module(filename):
    """Returns the file's syntax tree, which is empty if its source cannot be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the program itself has already warned
        try:
            return ast.parse("".join(linecache.getlines(filename)))
        except (SyntaxError, ValueError, RecursionError):
            return ast.Module([], [])


def _is_at(node, line):
    return node.lineno <= line <= node.end_lineno


def _scope_at(module, line):
    """Returns the innermost function or class around the line, which a breadth-first walk reaches
    last."""
    found = module
    for node in ast.walk(module):
        if isinstance(node, _SCOPES) and _is_at(node, line):
            found = node
    return found


def _own_nodes(scope):
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, _SCOPES):
            yield node
            yield from _own_nodes(node)


def _name(node):
    """Returns the text of a name or attribute, such as `a` or `self.b`, and None for any other
    expression."""
    if isinstance(node, ast.Name):
        return node.id
    return ast.unparse(node) if isinstance(node, ast.Attribute) else None


def _names(target):
    """Returns the names that an assignment's target binds; for `c[0]` that is the list's, `c`."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return {name for element in target.elts for name in _names(element)}
    if isinstance(target, (ast.Subscript, ast.Starred)):
        return _names(target.value)
    return {_name(target)} - {None}


def _is_blind(node):
    """Returns True if the expression asks what a thing is (`is None`, `len`), not which number it
    is."""
    if isinstance(node, ast.Compare):
        return all(isinstance(operator, (ast.Is, ast.IsNot)) for operator in node.ops)
    return isinstance(node, ast.Call) and _name(node.func) in _BLIND


class _Flow:
    """Follows the number that a call in this line of a scope returns, by the names that hold it."""

    def __init__(self, scope, line):
        self.line = line
        self.nodes = list(_own_nodes(scope))
        # Lines above this one may run after it if a loop surrounds both.
        loops = (node for node in self.nodes if isinstance(node, _LOOPS) and _is_at(node, line))
        self.first_line = min((loop.lineno for loop in loops), default=line)
        self.names = set()
        known = None
        while known != len(self.names):
            known = len(self.names)
            for node in self.nodes:
                self._spread(node)

    def _reaches(self, node):
        return node is not None and node.end_lineno >= self.first_line and self._is_in(node)

    def _is_in(self, node):
        if _is_blind(node):
            return False
        if isinstance(node, ast.Call) and _is_at(node, self.line) or _name(node) in self.names:
            return True
        return any(map(self._is_in, ast.iter_child_nodes(node)))

    def _spread(self, node):
        if isinstance(node, ast.Assign):
            targets, source = node.targets, node.value
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            targets, source = [node.target], node.value
        elif isinstance(node, (ast.For, ast.comprehension)):
            targets, source = [node.target], node.iter
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", None) in _KEEPERS:
            targets, source = [node.func.value], node
        else:
            return
        if self._reaches(source):
            self.names.update(*map(_names, targets))

    def decisions(self):
        """Yields the lines of tests that the number reaches."""
        for node in self.nodes:
            tests = [getattr(node, "test", None), *getattr(node, "ifs", [])]
            if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, ast.Call):
                tests += node.iter.args if _name(node.iter.func) == "range" else []
            yield from (test.lineno for test in tests if self._reaches(test))

    def is_returned(self):
        kinds = (ast.Return, ast.Yield)
        return any(isinstance(node, kinds) and self._reaches(node.value) for node in self.nodes)


@functools.lru_cache(maxsize=None)
def _found(filename, line):
    try:
        flow = _Flow(_scope_at(_module(filename), line), line)
        return sorted(set(flow.decisions())), flow.is_returned()
    except RecursionError:  # an expression too deep to follow
        return [], False


def decided_by(frame, is_passed_over):
    """Yields the places, as (file, line), where the program decides by the number that the frame's
    line reads. A frame for which `is_passed_over` returns True only passes on the number that its
    function returns."""
    while frame is not None:
        filename = frame.f_code.co_filename
        is_returned = True
        if not is_passed_over(frame):
            lines, is_returned = _found(filename, frame.f_lineno or 0)
            yield from ((filename, line) for line in lines)
        if not is_returned:
            return
        frame = frame.f_back
