"""Finds and starts the programs that came with this package."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

if sys.version_info < (3, 9):
    raise SystemExit(
        "shardlens: Python {}.{} is too old; use Python 3.9 or newer".format(*sys.version_info[:2])
    )

PROGRAM = Path(__file__).resolve().parent / "bin" / "shardlens"


class ShardlensError(Exception):
    """Says why a command could not answer: its line of error, and its exit code. `runs` has what a
    sweep found besides."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message, exit_code)  # what pickle makes it again from
        self.exit_code = exit_code
        self.runs: Sequence[Mapping[str, Any]] = ()

    def __str__(self) -> str:
        return str(self.args[0])


class Ended(NamedTuple):
    exit_code: int
    output: str


def environment() -> Mapping[str, str]:
    """Returns the environment in which `train` and `infer` find this Python's torch. This function
    finds torch without importing it."""
    variables = dict(os.environ)
    if "SHARDLENS_TORCH" not in variables:
        try:
            torch = importlib.util.find_spec("torch")
        except ValueError:  # something else is in sys.modules under that name
            torch = None
        if torch is not None and torch.submodule_search_locations:
            variables["SHARDLENS_TORCH"] = list(torch.submodule_search_locations)[0]
    return variables


def cannot_start(error: OSError) -> str:
    return (
        f"shardlens: {PROGRAM} cannot be started: {error.strerror}; it is for x86-64 Linux with "
        "glibc 2.34 or newer"
    )


def start(arguments: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Starts a command with options of subprocess.Popen. Raises ShardlensError if it cannot."""
    try:
        return subprocess.Popen(
            [str(PROGRAM), *arguments],
            stdin=subprocess.DEVNULL,  # a server's own requests may come through it
            encoding="utf-8",
            errors="replace",
            **options,
        )
    except OSError as error:
        raise ShardlensError(cannot_start(error), 127) from None


def answer_of(
    name: str, exit_code: int, output: str, errors: str, answers: Sequence[int]
) -> Ended:
    """Returns how a command ended. Raises ShardlensError if its exit code is not in `answers`."""
    if exit_code in answers:
        return Ended(exit_code, output)
    lines = errors.strip().splitlines() or output.strip().splitlines()
    raise ShardlensError(lines[-1] if lines else f"shardlens {name}: exit code {exit_code}", exit_code)


def ask(arguments: Sequence[str], answers: Sequence[int]) -> Ended:
    """Returns what a command prints. Raises ShardlensError if its exit code is not in `answers`."""
    pipe = subprocess.PIPE
    with start(arguments, env=environment(), stdout=pipe, stderr=pipe) as process:
        output, errors = process.communicate()
    return answer_of(arguments[0], process.returncode, output, errors, answers)


def words_of(command: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Returns a program's words. A script is run by this Python."""
    words = [os.fspath(word) for word in command]
    return [sys.executable, *words] if words and words[0].endswith(".py") else words


def plan_words(options: Mapping[str, object]) -> list[str]:
    """Returns the flags of a plan. A plan that runs a program does so with this Python."""
    runs = str(options.get("engine", "")).startswith("pytorch")
    return flags_of({"python": sys.executable, **options} if runs else options)


def values_words(values: Mapping[str, Sequence[object]]) -> list[str]:
    """Returns the values of placeholders as flags of `shardlens sweep`."""
    words: list[str] = []
    for name, numbers in values.items():
        words += ["--values", f"{name}={','.join(map(str, numbers))}"]
    return words


def flags_of(options: Mapping[str, object]) -> list[str]:
    """Returns options as flags: `param_dtype="bf16", explain=True` as `--param-dtype bf16
    --explain`. A keyword of Python has a `_` after it: `from_=2`, `with_="recompute"`."""
    flags: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        flags.append("--" + name.rstrip("_").replace("_", "-"))
        if value is not True:
            flags.append(str(value))
    return flags
