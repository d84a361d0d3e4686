"""Where a program decides by a number that it has read from the GPU. Its source is asked, nothing of
it is changed: from the line that reads, the number is followed through names and lists that it is put
into, and through the functions that return it, which are on the stack while it is read.

Not followed: what goes through NumPy, or through objects from one function to another."""

import ast
import functools
import linecache
import warnings

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_KEEPERS = ("add", "append", "extend", "update")  # methods whose object has the argument afterwards
_BLIND = ("len", "isinstance", "type")  # functions whose result is not the number's


@functools.lru_cache(maxsize=None)
def _module(filename):
    """Empty where there is no source that can be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the program has had its own
        try:
            return ast.parse("".join(linecache.getlines(filename)))
        except (SyntaxError, ValueError, RecursionError):
            return ast.Module([], [])


def _is_at(node, line):
    return node.lineno <= line <= node.end_lineno


def _scope_at(module, line):
    """The innermost one, which a walk by breadth comes to last."""
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
    """`a`, `self.b`; of other expressions None."""
    if isinstance(node, ast.Name):
        return node.id
    return ast.unparse(node) if isinstance(node, ast.Attribute) else None


def _names(target):
    """Of what is assigned to; of `c[0]` it is the list's."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return {name for element in target.elts for name in _names(element)}
    if isinstance(target, (ast.Subscript, ast.Starred)):
        return _names(target.value)
    return {_name(target)} - {None}


def _is_blind(node):
    """Whether it says of a thing what it is, not which number."""
    if isinstance(node, ast.Compare):
        return all(isinstance(operator, (ast.Is, ast.IsNot)) for operator in node.ops)
    return isinstance(node, ast.Call) and _name(node.func) in _BLIND


class _Flow:
    """Of the number that a call at a line of a scope gives."""

    def __init__(self, scope, line):
        self.line = line
        self.nodes = list(_own_nodes(scope))
        # What is above may come afterwards where a loop is around both.
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
        """Lines."""
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
    """Places, (file, line), where what the frame's line reads decides. Frames of which
    `is_passed_over` says so only hand on what their functions return."""
    while frame is not None:
        filename = frame.f_code.co_filename
        is_returned = True
        if not is_passed_over(frame):
            lines, is_returned = _found(filename, frame.f_lineno or 0)
            yield from ((filename, line) for line in lines)
        if not is_returned:
            return
        frame = frame.f_back
