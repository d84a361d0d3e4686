"""Plain text, and pairs of sentences with labels."""

import pathlib
import sys

from words import RANDOM, text, write_lines

FOLDER = pathlib.Path(sys.argv[1])

for split in ("train", "test"):
    (FOLDER / f"{split}.txt").write_text("".join(f"{text(60)}\n" for _ in range(200)))
    write_lines(FOLDER / f"pairs.{split}.json",
                ({"sentence1": text(20), "sentence2": text(RANDOM.randint(5, 30)),
                  "label": RANDOM.randint(0, 1)} for _ in range(64)))
