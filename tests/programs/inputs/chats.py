"""Datasets in the formats that TRL takes, a folder of JSON lines each."""

import pathlib
import sys

from words import text, write_lines

FOLDER = pathlib.Path(sys.argv[1])
ROWS = 64


def message(role, count):
    return {"role": role, "content": text(count)}


for split in ("train", "test"):
    write_lines(FOLDER / "chats" / f"{split}.jsonl",
                ({"messages": [message("user", 20), message("assistant", 30 + row)]}
                 for row in range(ROWS)))
    write_lines(FOLDER / "preferences" / f"{split}.jsonl",
                ({"prompt": [message("user", 20)], "chosen": [message("assistant", 30 + row)],
                  "rejected": [message("assistant", 25)]} for row in range(ROWS)))
    write_lines(FOLDER / "prompts" / f"{split}.jsonl",
                ({"prompt": [message("user", 10 + row % 8)]} for row in range(ROWS)))
    write_lines(FOLDER / "texts" / f"{split}.jsonl", ({"text": text(100)} for _ in range(ROWS)))
