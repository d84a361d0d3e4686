"""Prints the table of docs/runs.md: how long a run took to go on after ranks, nodes or jobs ended.

    engine_table.py FOLDER

FOLDER is the one that SHARDLENS_ENGINE_ROWS named while engines_test.cpp, torchrun_test.cpp and
ray_cases.py ran: a file of JSON for each row. Those tests judge; this only prints."""

import json
import pathlib
import sys
from datetime import datetime

HEAD = ("launcher", "what happens", "seconds", "until", "events of the run")
UNTIL = {"started": "it has started", "resumed": "it goes on", "preempted": "it has saved"}


def seconds_of(row):
    first, last = (datetime.fromisoformat(row[key].rstrip("Z")) for key in ("from", "until"))
    return (last - first).total_seconds()


def cells(row):
    """Returns the columns of a row. A row without events is over when the engine has ended."""
    last = row["events"][-1] if row["events"] else ""
    return (
        row["engine"],
        row["situation"],
        f"{seconds_of(row):.1f}",
        UNTIL.get(last, "it has ended"),
        ", ".join(row["events"]),
    )


def main():
    (folder,) = sys.argv[1:]
    rows = [json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*.json"))]
    if not rows:
        sys.exit(f"engine_table.py: there are no rows in {folder}; run the tests that keep them")
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * len(HEAD))
    for row in rows:
        print("| " + " | ".join(cells(row)) + " |")


if __name__ == "__main__":
    main()
