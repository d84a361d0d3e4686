"""A checkpoint of litgpt's with random weights, and a tokenizer."""

import pathlib
import sys

import torch
import words
from litgpt import GPT, Config
from litgpt.utils import save_config

folder = pathlib.Path(sys.argv[1])
words.tokenizer().save_pretrained(folder)
config = Config.from_name("pythia-14m", padded_vocab_size=512)
torch.save(GPT(config).state_dict(), folder / "lit_model.pth")
save_config(config, folder)
