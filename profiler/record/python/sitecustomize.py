"""Python runs this when it starts, because `shardlens record` puts this folder before all others. It
waits for PyTorch to be imported, and runs the user's own sitecustomize, if there is one."""

import contextlib
import importlib.machinery
import importlib.util
import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _wait_for_pytorch():
    """Arranges for the recording to begin with PyTorch. If that fails, the program runs unrecorded
    and a line on stderr says why."""
    try:
        import shardlens_record

        shardlens_record.wait_for_pytorch()
    except Exception as error:  # pylint: disable=broad-except
        print(f"shardlens record: nothing is recorded: {type(error).__name__}: {error}",
              file=sys.stderr, flush=True)


def _serve():
    """Waits for variants of the program to run, if this process is to fork for them, and returns in
    each child."""
    if "shardlens_record" in sys.modules:
        sys.modules["shardlens_record"].serve()


def _run_own_sitecustomize():
    others = [path for path in sys.path if os.path.abspath(path or ".") != _FOLDER]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _is_runner():
    """Returns True in a runner that is itself a Python program, such as `conda run`: the question is
    for the Python that it starts."""
    started = getattr(sys, "orig_argv", sys.argv)[:3]
    return os.environ["SHARDLENS_RUNNER"] in map(os.path.basename, started)


def _answer(question):
    """Answers which Python a command starts: prints it and ends, if it has PyTorch."""
    with contextlib.suppress(Exception):
        exec(question, {})


if "SHARDLENS_QUESTION" in os.environ and not _is_runner():
    _answer(os.environ["SHARDLENS_QUESTION"])
if "SHARDLENS_RECORD" in os.environ:
    _wait_for_pytorch()
_run_own_sitecustomize()
_serve()
