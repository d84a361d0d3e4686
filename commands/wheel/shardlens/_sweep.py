"""Runs a program with many values."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

from ._executor import Executor, Search
from ._program import Ended, ShardlensError, ask, flags_of, values_words, words_of

WHOLE, WRONG_USE, PARTLY = 0, 2, 5  # exit codes of `shardlens sweep`


class Part(NamedTuple):
    """Holds a `shardlens sweep` of all placeholders, for some values of flags."""

    words: Sequence[str]
    flags: Mapping[str, str]

    def rows_of(self, ended: Ended) -> list[dict[str, Any]]:
        try:
            answer = json.loads(ended.output)
        except ValueError:
            raise ShardlensError("shardlens sweep was ended before it had an answer", PARTLY) from None
        return [{**row, "values": {**self.flags, **row["values"]}} for row in answer["runs"]]


def parts_of(
    command: Sequence[str],
    values: Mapping[str, Sequence[object]],
    options: Mapping[str, object],
    out: Path,
) -> list[Part]:
    """Returns a part for each combination of values of flags. Raises ShardlensError if a list of
    values is empty."""
    for name in values:
        if not values[name]:
            raise ShardlensError(f"{name}: give at least one value", WRONG_USE)
    words = [os.fspath(word) for word in command]
    is_placed = {name: any("{%s}" % name in word for word in words) for name in values}
    shared = values_words({name: list(values[name]) for name in values if is_placed[name]})
    of_flags = {name: list(values[name]) for name in values if not is_placed[name]}
    parts = []
    for chosen in itertools.product(*of_flags.values()):
        flags = {name: str(value) for name, value in zip(of_flags, chosen)}
        folder = out.joinpath(*(_folder_name(f"{name}={flags[name]}") for name in flags))
        own = flags_of({**options, **flags, "out": folder})
        parts.append(Part(["sweep", *shared, *own, "--json", "--", *words_of(words)], flags))
    return parts


def run_all(parts: Sequence[Part], executor: Executor | None) -> list[dict[str, Any]]:
    """Returns the rows of all parts, in their order. Raises ShardlensError if a run failed, once all
    have ended; its `runs` has all rows."""
    searches = [Search(executor, part.words) for part in parts] if executor is not None else []
    errors: list[ShardlensError] = []
    rows: list[dict[str, Any]] = []
    answers = (WHOLE, PARTLY)
    try:
        for place, part in enumerate(parts):
            try:
                ended = searches[place].ended(answers) if searches else ask(part.words, answers)
                rows += part.rows_of(ended)
            except ShardlensError as error:  # the other parts still count
                errors.append(error)
    finally:
        for search in searches:
            search.stop()
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
