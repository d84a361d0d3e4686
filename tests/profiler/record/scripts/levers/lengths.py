"""Trains a small model on texts of many lengths, with a loop of its own or with transformers' Trainer.

    lengths.py [trainer] [STEPS]
"""

import random
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, WIDTH, BATCH, LONGEST = 2000, 128, 4, 900
STEPS = int(sys.argv[-1]) if sys.argv[-1].isdigit() else 500


class Texts(Dataset):
    """One text is much longer than all others."""

    def __init__(self):
        lengths = random.Random(5)
        self.lengths = [lengths.randrange(20, 200) for _ in range(STEPS * BATCH)]
        self.lengths[len(self.lengths) * 5 // 8] = LONGEST

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.randint(VOCABULARY, (self.lengths[index],))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, input_ids, labels):
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        logits = self.head(x)
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())}


def collate(texts):
    tokens = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    return {"input_ids": tokens, "labels": tokens.clone()}


def train_with_trainer():
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(folder, per_device_train_batch_size=BATCH, max_steps=STEPS,
                                     report_to=[], save_strategy="no", disable_tqdm=True)
        Trainer(Model(), settings, data_collator=collate, train_dataset=Texts()).train()


def main():
    torch.manual_seed(3)
    if "trainer" in sys.argv:
        return train_with_trainer()
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step, batch in enumerate(DataLoader(Texts(), BATCH, shuffle=True, collate_fn=collate)):
        if step == STEPS:
            break
        model(batch["input_ids"].cuda(), batch["labels"].cuda())["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
