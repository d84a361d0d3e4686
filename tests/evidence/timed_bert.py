"""Trains BERT-large of transformers by the loop of its Trainer, as the page on performance of its
documentation had it, whose step times are known: for published_times.py.

    timed_bert.py --batch N --tokens N [--accumulate N] [--checkpoint] [--half]
"""

import argparse
import contextlib

import torch


def bert(o):
    from transformers import BertConfig, BertForSequenceClassification
    config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                        intermediate_size=4096, attn_implementation="eager")
    model = BertForSequenceClassification(config).cuda()
    if o.checkpoint:
        model.gradient_checkpointing_enable()
    ids = torch.zeros(o.batch, o.tokens, dtype=torch.long, device="cuda")
    labels = torch.zeros(o.batch, dtype=torch.long, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, foreach=False)
    return model, optimizer, lambda: model(input_ids=ids, labels=labels).loss


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args()


def main():
    o = parse_arguments()
    for name in ("normal_", "trunc_normal_", "kaiming_uniform_", "uniform_"):
        setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
    model, optimizer, loss_of = bert(o)
    model.train()
    autocast = torch.autocast("cuda", torch.float16) if o.half else contextlib.nullcontext()
    scaler = torch.amp.GradScaler("cuda", enabled=o.half)
    for _ in range(o.steps):
        for _ in range(o.accumulate):
            with autocast:
                loss = loss_of()
            scaler.scale(loss / o.accumulate).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    torch.cuda.synchronize()


main()
