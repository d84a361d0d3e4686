"""Questions and answers, as litgpt reads them."""

import json
import pathlib
import sys

import words

rows = [{"instruction": words.text(20), "input": "", "output": words.text(60)} for _ in range(200)]
(pathlib.Path(sys.argv[1]) / "instructions.json").write_text(json.dumps(rows))
