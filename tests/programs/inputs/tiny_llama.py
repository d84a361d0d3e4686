"""A Llama with random weights and its tokenizer, as save_pretrained leaves them."""

import sys

import words
from transformers import LlamaConfig, LlamaForCausalLM

tokenizer = words.tokenizer()
config = LlamaConfig(
    vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=4,
    num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=1024,
    pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.bos_token_id,
    eos_token_id=tokenizer.eos_token_id)
LlamaForCausalLM(config).save_pretrained(sys.argv[1])
tokenizer.save_pretrained(sys.argv[1])
