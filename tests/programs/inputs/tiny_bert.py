"""A BERT with random weights and its tokenizer, as save_pretrained leaves them."""

import sys

import words
from transformers import BertConfig, BertForMaskedLM

tokenizer = words.tokenizer()
config = BertConfig(vocab_size=512, hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
                    intermediate_size=256, pad_token_id=tokenizer.pad_token_id)
BertForMaskedLM(config).save_pretrained(sys.argv[1])
tokenizer.save_pretrained(sys.argv[1])
