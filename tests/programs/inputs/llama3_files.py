"""A small Llama 3 with random weights and a tokenizer in its own format, whose tokens are bytes,
and instructions in Alpaca's format."""

import base64
import pathlib
import sys

from transformers import LlamaConfig, LlamaForCausalLM
from words import text, write_lines

FOLDER = pathlib.Path(sys.argv[1])
SPECIAL_END = 128256  # Llama 3's special tokens have fixed numbers up to it

LlamaForCausalLM(LlamaConfig(
    vocab_size=SPECIAL_END, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
)).save_pretrained(FOLDER)
(FOLDER / "tokenizer.model").write_text("".join(
    f"{base64.b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256)))
write_lines(FOLDER / "alpaca" / "train.jsonl",
            ({"instruction": text(8), "input": text(4), "output": text(12), "text": ""}
             for _ in range(64)))
