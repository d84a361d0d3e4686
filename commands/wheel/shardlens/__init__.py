"""Gives scripts the answers of Shardlens's commands, as dictionaries and arrays.

    import shardlens

    plan = shardlens.plan(model="llama-8b", gpu="h100", world=8, param_dtype="bf16", batch=1)
    print(plan["verdict"], plan["peak"]["reserved_bytes"])

    run = shardlens.record(["train.py", "--steps", "3"], device="null:h100", world=16, rank=5)
    print(run["exit_code"], run["report"]["ranks"][0]["peak"])

    recording = shardlens.open(run["folder"])
    memory = recording.timeline(rank=5)
    print(memory["time_ms"][memory["total_bytes"].argmax()])

    advice = shardlens.advise(["train.py"], device="null:l4", fit="16GiB")
    print(advice["as_it_is"]["fits"], [run["levers"] for run in advice["tried"] if run["fits"]])

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as executor:
        found = shardlens.solve(["train.py", "--batch", "{batch}"], executor=executor, device="null:l4")

advise(), solve(), sweep() and matrix() run many programs. With an executor each is a task of its own:
give whatever has `submit()`, such as concurrent.futures' executors, Dask's, submitit's or
shardlens.ray.Executor. Its workers need this package, the programs and the folder `out` under the
same paths.

A notebook shows what record(), advise(), solve(), sweep(), matrix() and open() return as the viewer's page.

Every call starts the program of that name (`shardlens plan`, ...) and reads what it prints with
--json or writes as CSV, so the answers are those of the command line. Only `timeline` needs numpy.
"""

from __future__ import annotations

import csv
import html
import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, Sequence, Union

from ._executor import Executor, ask_with
from ._program import Ended, ShardlensError, ask, flags_of, plan_words, words_of
from ._sweep import parts_of, run_all

if TYPE_CHECKING:
    import numpy

__all__ = [
    "Answer",
    "Recording",
    "ShardlensError",
    "advise",
    "compare",
    "matrix",
    "open",
    "plan",
    "record",
    "solve",
    "sweep",
]

_PathLike = Union[str, "os.PathLike[str]"]

# Exit codes of a command that has answered: it fits, it does not, only with allocator retries.
_VERDICTS = (0, 3, 4)
_WORDS = ("phase", "action", "recording")


class Answer(dict):  # type: ignore[type-arg]
    """Holds the answer of a command; `folder` has its recordings, whose page a notebook shows."""

    def _repr_html_(self) -> str:
        return _page_of(self["folder"])


def plan(**flags: object) -> dict[str, Any]:
    """Returns what `shardlens plan --json` says: the verdict, peaks, and what the memory is for.

    Every flag of `shardlens plan --help` is a keyword, with `_` for `-`: give a flag that takes no
    value as True, and one that takes a word as that word (`reshard_after_forward="true"`).
    With `engine="pytorch"` a program is run, by this Python, and the answer is its report.
    Raises ShardlensError if the flags make no plan.
    """
    answer: dict[str, Any] = json.loads(
        ask(["plan", "--json", *plan_words(flags)], _VERDICTS).output
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
    folder, ended = _run("record", command, out, flags_of(flags), _VERDICTS)
    return Answer(
        folder=str(folder),
        exit_code=ended.exit_code,
        output=ended.output,
        report=open(folder).report(),
    )


def advise(
    command: Sequence[str],
    *,
    out: _PathLike | None = None,
    executor: Executor | None = None,
    **flags: object,
) -> dict[str, Any]:
    """Runs `shardlens advise FLAGS -- command`: finds what would make the program fit.

    Returns what `--json` prints, `folder` and `exit_code`: 0 if the program fits as it is or with
    levers, 3 if no set that was tried does. Raises ShardlensError if the program failed.
    """
    return _search("advise", command, out, flags_of(flags), executor)


def solve(
    command: Sequence[str],
    *,
    out: _PathLike | None = None,
    executor: Executor | None = None,
    **flags: object,
) -> dict[str, Any]:
    """Runs `shardlens solve FLAGS -- command`: finds the largest number in place of `{batch}`, or
    another name in braces, with which the program fits. Write `from_=N` for `--from N`.

    Returns what `--json` prints, `folder` and `exit_code`: 0 if the number is known, 3 if the
    program fits with none. Raises ShardlensError if the program failed or ignores the number.
    """
    return _search("solve", command, out, flags_of(flags), executor)


def sweep(
    command: Sequence[str],
    values: Mapping[str, Sequence[object]],
    *,
    out: _PathLike | None = None,
    executor: Executor | None = None,
    **flags: object,
) -> dict[str, Any]:
    """Runs `shardlens sweep FLAGS -- command`: the program with each combination of `values`, such
    as `{"batch": [8, 16], "device": ["null:h100", "null:l4"]}`. A name that the command has in
    braces, as in `{batch}`, takes whole numbers there; another one is a flag.

    Returns what `--json` prints, `folder` and `exit_code`. Raises ShardlensError if a run failed,
    once all have ended; its `runs` has their rows.
    """
    folder = Path(out) if out is not None else _new_folder(words_of(command))
    rows = run_all(parts_of(command, values, flags, folder), executor)
    return Answer(
        schema="shardlens.sweep/1", out=str(folder), runs=rows, folder=str(folder), exit_code=0
    )


def matrix(
    recipes: _PathLike,
    *,
    out: _PathLike | None = None,
    executor: Executor | None = None,
    **flags: object,
) -> dict[str, Any]:
    """Runs `shardlens matrix FLAGS recipes`: the recipes of a file, each compared with its baseline.

    Returns what `--json` prints, `folder` and `exit_code`: 0 if no peak grew too much, 1 if one did
    or no longer fits. Raises ShardlensError if a recipe failed or cannot be compared.
    """
    folder = Path(out) if out is not None else _new_folder([os.fspath(recipes)])
    words = ["matrix", os.fspath(recipes), "--out", str(folder), "--json", *flags_of(flags)]
    ended = ask_with(executor, words, (0, 1))
    return Answer(json.loads(ended.output), folder=str(folder), exit_code=ended.exit_code)


def compare(a: _PathLike, b: _PathLike, **flags: object) -> dict[str, Any]:
    """Returns what `shardlens profile diff --json` says of two recordings: what each takes, and the
    lines of the program that make the difference.

    Raises ShardlensError if one of them cannot be read as a recording.
    """
    words = ["profile", "diff", os.fspath(a), os.fspath(b), "--json", *flags_of(flags)]
    answer: dict[str, Any] = json.loads(ask(words, (0,)).output)
    return answer


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

    def _repr_html_(self) -> str:
        return _page_of(self.path)

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


def _run(
    name: str,
    command: Sequence[str],
    out: _PathLike | None,
    options: list[str],
    answers: Sequence[int],
    executor: Executor | None = None,
) -> tuple[Path, Ended]:
    """Runs a command that runs programs. Returns the folder of its recordings, and its end."""
    words = words_of(command)
    folder = Path(out) if out is not None else _new_folder(words)
    arguments = [name, *options, "--out", str(folder), "--", *words]
    return folder, ask_with(executor, arguments, answers)


def _search(
    name: str,
    command: Sequence[str],
    out: _PathLike | None,
    options: list[str],
    executor: Executor | None,
) -> Answer:
    folder, ended = _run(name, command, out, [*options, "--json"], (0, 3), executor)
    return Answer(json.loads(ended.output), folder=str(folder), exit_code=ended.exit_code)


def _page_of(path: _PathLike) -> str:
    """Returns the viewer's page of a recording, in a frame."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        ask(["view", os.fspath(path), "--export", str(file)], (0,))
        page = html.escape(file.read_text(encoding="utf-8"))
    return f'<iframe srcdoc="{page}" width="100%" height="720" frameborder="0"></iframe>'


def _type_of(column: str) -> str:
    if column in _WORDS:
        return "str"
    return "float64" if column == "time_ms" else "int64"


def _new_folder(words: Sequence[str]) -> Path:
    scripts = [Path(word).stem for word in words if word.endswith(".py")]
    name = scripts[0] if scripts else "program"
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
