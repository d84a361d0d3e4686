"""A tokenizer and texts, where torchtitan's flags look for them."""

import pathlib
import sys

import words

folder = pathlib.Path(sys.argv[1])
words.tokenizer().save_pretrained(folder / "tokenizer")
words.write_lines(folder / "c4" / "data.json", [{"text": words.text(600)} for _ in range(400)])
