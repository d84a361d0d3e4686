"""Qwen3.5 with 0.8 and 2 billion parameters and random weights, as save_pretrained leaves them. The
shapes give the published counts, which is checked."""

import pathlib
import sys

import torch
from transformers import Qwen3_5ForCausalLM
from transformers.initialization import no_init_weights
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig

SHAPES = {"0.8B": (1024, 3584, 752_393_024), "2B": (2048, 6144, 1_881_825_088)}


def main():
    torch.set_default_dtype(torch.bfloat16)
    for name, (hidden, intermediate, parameters) in SHAPES.items():
        config = Qwen3_5TextConfig(
            hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=24,
            num_attention_heads=8, num_key_value_heads=2, linear_num_key_heads=16,
            linear_num_value_heads=16, tie_word_embeddings=True)
        with no_init_weights():
            model = Qwen3_5ForCausalLM(config)
        model.tie_weights()
        if sum(one.numel() for one in model.parameters()) != parameters:
            sys.exit(f"Qwen3.5 {name} does not have {parameters} parameters")
        model.save_pretrained(pathlib.Path(sys.argv[1]) / name)


main()
