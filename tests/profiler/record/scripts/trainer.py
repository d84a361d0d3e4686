"""Trains a Llama with Hugging Face's Trainer, as its documentation does; torchrun or accelerate
decide what it runs on. Nothing is downloaded."""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

VOCABULARY = 32000


class Tokens(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = torch.randint(VOCABULARY, (256,))
        return {"input_ids": tokens, "labels": tokens}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=512, intermediate_size=1408, num_hidden_layers=6,
        num_attention_heads=8, num_key_value_heads=4, use_cache=False))
    with tempfile.TemporaryDirectory() as folder:
        when = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
        arguments = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=4, gradient_accumulation_steps=2,
            max_steps=3, bf16=True, report_to=[], activation_checkpointing=options.recompute,
            **(when if options.save else {"save_strategy": "no"}))
        data = Tokens()
        Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data).train()


if __name__ == "__main__":
    main()
