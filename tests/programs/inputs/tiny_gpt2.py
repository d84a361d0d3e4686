"""A GPT-2 with random weights and the tokenizer that its own tokenizer class reads."""

import json
import pathlib
import sys

from transformers import GPT2Config, GPT2LMHeadModel, GPT2TokenizerFast

FOLDER = pathlib.Path(sys.argv[1])
LETTERS = [chr(code) for code in range(ord("!"), ord("~") + 1)] + ["\u0120", "<|endoftext|>"]

(FOLDER / "vocab.json").write_text(json.dumps({letter: at for at, letter in enumerate(LETTERS)}))
(FOLDER / "merges.txt").write_text("#version: 0.2\n")
tokenizer = GPT2TokenizerFast(str(FOLDER / "vocab.json"), str(FOLDER / "merges.txt"))
config = GPT2Config(vocab_size=128, n_positions=512, n_embd=128, n_layer=4, n_head=4,
                    bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id)
GPT2LMHeadModel(config).save_pretrained(FOLDER)
tokenizer.save_pretrained(FOLDER)
