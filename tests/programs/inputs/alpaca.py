"""Instructions in Alpaca's format."""

import pathlib
import sys

from words import text, write_lines

write_lines(pathlib.Path(sys.argv[1]) / "train.jsonl",
            ({"instruction": text(8), "input": text(4), "output": text(12)} for _ in range(64)))
