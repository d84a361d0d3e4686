"""Writes as much text as a small language model is trained on, one paragraph a line."""

import pathlib
import random
import sys

WORDS = [f"{first}{second}" for first in "bdfgklmnprst" for second in ("a", "e", "i", "o", "u", "ay")]
RANDOM = random.Random(7)
lines = (" ".join(RANDOM.choices(WORDS, k=60)) + "\n" for _ in range(4000))
(pathlib.Path(sys.argv[1]) / "train.txt").write_text("".join(lines))
