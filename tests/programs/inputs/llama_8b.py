"""A Llama of 8 B parameters, all zero, and a tokenizer, as save_pretrained leaves them. The file with the
weights is a hole: it takes no space."""

import json
import pathlib
import struct
import sys

import torch
import words
from transformers import LlamaConfig, LlamaForCausalLM


def write_zeros(path, state):
    """Writes a file in the format of safetensors."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in state.items():
        start, end = end, end + 2 * tensor.numel()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


folder = pathlib.Path(sys.argv[1])
tokenizer = words.tokenizer()
tokenizer.save_pretrained(folder)
config = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=8192, dtype="bfloat16",
    architectures=["LlamaForCausalLM"], pad_token_id=tokenizer.pad_token_id,
    bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id)
config.save_pretrained(folder)
with torch.device("meta"):
    model = LlamaForCausalLM(config)
write_zeros(folder / "model.safetensors", model.state_dict())
words.write_lines(folder / "texts" / "train.jsonl", [{"text": words.text(1500)} for _ in range(32)])
