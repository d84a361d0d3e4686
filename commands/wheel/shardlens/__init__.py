"""Gives scripts the answers of Shardlens's commands, as dictionaries and arrays.

    import shardlens

    plan = shardlens.plan(model="llama-8b", gpu="h100", world=8, param_dtype="bf16", batch=1)
    print(plan["verdict"], plan["peak"]["reserved_bytes"])

    run = shardlens.record(["train.py", "--steps", "3"], device="null:h100", world=16, rank=5)
    print(run["exit_code"], run["report"]["ranks"][0]["peak"])

    recording = shardlens.open(run["folder"])
    memory = recording.timeline(rank=5)
    print(memory["time_ms"][memory["total_bytes"].argmax()])

Every call starts the program of that name (`shardlens plan`, ...) and reads what it prints with
--json or writes as CSV, so the answers are those of the command line. Only `timeline` needs numpy.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Sequence, Union

from ._program import ShardlensError, ask, flags_of

if TYPE_CHECKING:
    import numpy

__all__ = ["Recording", "ShardlensError", "open", "plan", "record"]

_PathLike = Union[str, "os.PathLike[str]"]

# Exit codes of a command that has answered: it fits, it does not, only with allocator retries.
_VERDICTS = (0, 3, 4)
_WORDS = ("phase", "action", "recording")


def plan(**flags: object) -> dict[str, Any]:
    """Returns what `shardlens plan --json` says: the verdict, peaks, and what the memory is for.

    Every flag of `shardlens plan --help` is a keyword, with `_` for `-`: give a flag that takes no
    value as True, and one that takes a word as that word (`reshard_after_forward="true"`).
    Raises ShardlensError if the flags make no plan.
    """
    answer: dict[str, Any] = json.loads(
        ask(["plan", "--json", *flags_of(flags)], _VERDICTS).output
    )
    return answer


def record(
    command: Sequence[str], *, out: _PathLike | None = None, **flags: object
) -> dict[str, Any]:
    """Runs `shardlens record FLAGS -- command` and returns the memory that the command took.

    The command's first word may be a script, which this Python then runs. The flags are those of
    `shardlens record --help`, given as for plan(). The answer has

    - `folder`: where the recording is; `out`, or a new folder in runs/
    - `exit_code`: 0 if it fits, 3 if it does not, 4 if it fits only with allocator retries
    - `output`: what was printed, the program's own lines first
    - `report`: what `shardlens profile report --json` says of the folder

    Raises ShardlensError if nothing was recorded or the program failed.
    """
    words = [os.fspath(word) for word in command]
    if words and words[0].endswith(".py"):
        words.insert(0, sys.executable)
    folder = Path(out) if out is not None else _new_folder(words)
    options = flags_of({**flags, "out": folder})
    ended = ask(["record", *options, "--", *words], _VERDICTS)
    return {
        "folder": str(folder),
        "exit_code": ended.exit_code,
        "output": ended.output,
        "report": open(folder).report(),
    }


def open(path: _PathLike) -> Recording:
    """Opens a recording: a run's folder, or one rank's .slp file.

    Raises ShardlensError if there is no recording.
    """
    recording = Recording(path)
    recording.report()
    return recording


class Recording:
    """Reads the recording of a run, or its plan (`shardlens plan --timeline`)."""

    def __init__(self, path: _PathLike) -> None:
        self.path = Path(path)
        self._report: dict[str, Any] | None = None

    def report(self) -> dict[str, Any]:
        """Returns what `shardlens profile report --json` says: each rank's peak, its time, and what
        was alive then."""
        if self._report is None:
            answer = ask(["profile", "report", str(self.path), "--json"], (0,))
            self._report = json.loads(answer.output)
        return self._report

    def timeline(self, rank: int | None = None) -> dict[str, numpy.ndarray]:
        """Returns memory over time, one value per change: the columns of `shardlens profile export
        --format csv` as arrays by name. `time_ms` counts from the start, `total_bytes` and the
        categories are in bytes, `step` is -1 before the first step.

        The arrays cover one rank, or all ranks one after another.
        """
        import numpy

        rows = self._exported([] if rank is None else ["--rank", str(rank)])
        header, values = rows[0], rows[1:]
        columns = zip(*values) if values else [()] * len(header)
        return {
            name: numpy.array(column, dtype=_type_of(name))
            for name, column in zip(header, columns)
        }

    def _exported(self, flags: list[str]) -> list[list[str]]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "timeline.csv"
            options = ["--format", "csv", *flags, "--out", str(file)]
            ask(["profile", "export", str(self.path), *options], (0,))
            with file.open(newline="", encoding="utf-8") as lines:
                return list(csv.reader(lines))


def _type_of(column: str) -> str:
    if column in _WORDS:
        return "str"
    return "float64" if column == "time_ms" else "int64"


def _new_folder(words: Sequence[str]) -> Path:
    scripts = [Path(word).stem for word in words if word.endswith(".py")]
    name = scripts[0] if scripts else "program"
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
