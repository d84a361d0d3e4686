"""Keeps the recorder from harming the program: a hook that fails is reported once, as a doubt about
the recording, and the program continues."""

import functools
import sys

_said = set()
_doubts = {}  # what is in doubt, and the first reason

_MOST_CHARACTERS = 160


def say(line):
    """Prints a line on stderr once. A program may have closed or replaced stderr; then nothing is
    printed."""
    if line in _said:
        return
    _said.add(line)
    try:
        print(f"shardlens record: {line}", file=sys.stderr, flush=True)
    except Exception:  # pylint: disable=broad-except
        pass


def in_one_line(text):
    """Returns the first non-blank line, in printable characters and shortened."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    return shown if len(shown) <= _MOST_CHARACTERS else shown[:_MOST_CHARACTERS] + "..."


def describe(error):
    """Returns an error's class and text in one line, such as "ValueError: a mistake of the
    user's"."""
    try:
        text = in_one_line(str(error))
    except Exception:  # pylint: disable=broad-except
        text = "its text cannot be read"
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def note(what, why):
    """Adds a doubt about the recording: what is uncertain, and why. Only the first reason counts."""
    if what not in _doubts:
        _doubts[what] = why
        say(f"{what}: {why}")


def doubt(what, error):
    note(what, describe(error))


def doubts():
    return [f"{what}: {why}" for what, why in _doubts.items()]


def guarded(what, otherwise=None):
    """Makes a hook return `otherwise` if it fails, and notes `what` as a doubt. Exceptions that end
    a program (SystemExit, KeyboardInterrupt) pass through."""

    def decorate(hook):
        @functools.wraps(hook)
        def call(*args, **kwargs):
            try:
                return hook(*args, **kwargs)
            except Exception as error:  # pylint: disable=broad-except
                doubt(what, error)
                return otherwise

        return call

    return decorate


def replace(owner, name, wrap):
    """Replaces owner.name with wrap(owner.name), once. A module may be executed again
    (importlib.reload), which defines some of its names again and leaves others. Returns the new and
    the old function, or None if it had been replaced before."""
    inner = getattr(owner, name)
    if getattr(inner, "of_shardlens", False):
        return None
    outer = wrap(inner)
    outer.of_shardlens = True
    setattr(owner, name, outer)
    return outer, inner


def replace_function(torch, module, name, wrap):
    """Replaces a PyTorch function as replace does, and registers it with torch.jit.script, which
    knows such functions by identity."""
    pair = replace(module, name, wrap)
    if pair is None:
        return
    outer, inner = pair
    operator = torch.jit._builtins._find_builtin(inner)
    if operator is not None:
        torch.jit._builtins._register_builtin(outer, operator)
    choice = torch._jit_internal.boolean_dispatched.get(inner)
    if choice is not None:
        torch._jit_internal.boolean_dispatched[outer] = choice
