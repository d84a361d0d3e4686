"""Runs a program with many values, each as a task of an executor."""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Protocol, Sequence

from ._program import ShardlensError, ask, flags_of, values_words, words_of

WHOLE, WRONG_USE, PARTLY = 0, 2, 5  # exit codes of `shardlens sweep`


class Executor(Protocol):
    """Runs a call elsewhere, as concurrent.futures' executors, Dask's and submitit's do."""

    def submit(self, function: Any, *arguments: Any) -> Any: ...


class Task(NamedTuple):
    """Has what a worker needs to run some combinations of values."""

    command: Sequence[str]
    options: Sequence[str]  # of `shardlens sweep`
    folder: str  # in which relative paths are looked up
    flags: Mapping[str, str]  # that this task has a value of

    def run(self) -> list[dict[str, Any]] | ShardlensError:
        """Returns the rows of the answer. An error is returned, too, so that one task that fails
        hides no other one."""
        words = ["sweep", *self.options, "--json", "--", *words_of(self.command)]
        try:
            answer = json.loads(ask(words, (WHOLE, PARTLY), self.folder).output)
        except ShardlensError as error:
            return error
        except ValueError:
            return ShardlensError("shardlens sweep was ended before it had an answer", PARTLY)
        return [{**row, "values": {**self.flags, **row["values"]}} for row in answer["runs"]]


def tasks_of(
    command: Sequence[str],
    values: Mapping[str, Sequence[object]],
    options: Mapping[str, object],
    out: Path,
    is_split: bool,
) -> list[Task]:
    """Returns one task for each combination of values of flags, or of all values if they are
    split. Raises ShardlensError if a list of values is empty."""
    for name in values:
        if not values[name]:
            raise ShardlensError(f"{name}: give at least one value", WRONG_USE)
    words = [os.fspath(word) for word in command]
    is_placed = {name: any("{%s}" % name in word for word in words) for name in values}
    placed = {name: list(values[name]) for name in values if is_placed[name]}
    of_flags = {name: list(values[name]) for name in values if not is_placed[name]}
    shared = values_words(placed)
    parts = math.prod(map(len, placed.values())) if is_split else 1
    tasks = []
    for chosen in itertools.product(*of_flags.values()):
        flags = {name: str(value) for name, value in zip(of_flags, chosen)}
        folder = out.joinpath(*(_folder_name(f"{name}={flags[name]}") for name in flags))
        own = flags_of({**options, **flags, "out": folder.resolve() if is_split else folder})
        for part in range(1, parts + 1):
            which = ["--part", f"{part}/{parts}"] if parts > 1 else []
            tasks.append(Task(words, [*shared, *own, *which], os.getcwd(), flags))
    return tasks


def run_all(tasks: Sequence[Task], executor: Executor | None) -> list[dict[str, Any]]:
    """Returns the rows of all tasks, in their order. Raises ShardlensError if a run failed; its
    `runs` has all rows."""
    if executor is None:
        ends = [task.run() for task in tasks]
    else:
        futures = [executor.submit(Task.run, task) for task in tasks]
        try:
            ends = [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    errors = [end for end in ends if isinstance(end, ShardlensError)]
    rows = [row for end in ends if not isinstance(end, ShardlensError) for row in end]
    failed = [f"{_named(row)}: {row['why']}" for row in rows if row["outcome"] in ("failed", "idle")]
    if errors or failed:
        first = str(errors[0]) if errors else failed[0]
        if len(errors) + len(failed) > 1:
            first = f"{len(errors) + len(failed)} runs failed; the first: {first}"
        error = ShardlensError(first, errors[0].exit_code if errors else PARTLY)
        error.runs = rows
        raise error
    return rows


def _named(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in row["values"].items())


def _folder_name(text: str) -> str:
    return text.replace(",", "+").replace(":", "-").replace("/", "-")
