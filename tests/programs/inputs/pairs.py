"""Datasets of pairs with scores and labels, under the names that scripts load from the Hub."""

import pathlib
import sys

from words import RANDOM, text, write_lines

FOLDER = pathlib.Path(sys.argv[1])

for split in ("train", "validation", "test"):
    write_lines(FOLDER / "stsb" / f"{split}.jsonl",
                ({"sentence1": text(12), "sentence2": text(RANDOM.randint(4, 20)),
                  "score": RANDOM.random()} for _ in range(48)))
    write_lines(FOLDER / "glue" / "mrpc" / f"{split}.jsonl",
                ({"sentence1": text(20), "sentence2": text(RANDOM.randint(5, 30)),
                  "label": RANDOM.randint(0, 1), "idx": row} for row in range(64)))
    write_lines(FOLDER / "stories" / f"{split}.jsonl", ({"text": text(200)} for _ in range(200)))
splits = "".join(f"  - split: {split}\n    path: mrpc/{split}.jsonl\n"
                 for split in ("train", "validation", "test"))
(FOLDER / "glue" / "README.md").write_text(
    f"---\nconfigs:\n- config_name: mrpc\n  data_files:\n{splits}---\n")
