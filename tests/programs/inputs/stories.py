"""Texts under the name for which accelerate's example asks datasets, found in its folder."""

import pathlib
import sys

import words

path = pathlib.Path(sys.argv[1]) / "roneneldan" / "TinyStories" / "train.jsonl"
words.write_lines(path, [{"text": words.text(300)} for _ in range(400)])
