"""Texts and a tokenizer that the other inputs share: words of a small vocabulary, drawn by seed."""

import json
import random

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TEMPLATE = ("{% for message in messages %}<|{{ message['role'] }}|> {{ message['content'] }} <|end|> "
            "{% endfor %}{% if add_generation_prompt %}<|assistant|> {% endif %}")
SPECIAL = ["<|unknown|>", "<|pad|>", "<|end|>", "<|mask|>", "<|system|>", "<|user|>", "<|assistant|>"]
WORDS = [f"{first}{second}" for first in "bdfgklmnprst" for second in ("a", "e", "i", "o", "u", "ay")]
RANDOM = random.Random(7)


def text(count):
    return " ".join(RANDOM.choices(WORDS, k=count))


def tokenizer():
    vocabulary = {word: index for index, word in enumerate(SPECIAL + WORDS)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unknown|>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<|unknown|>", pad_token="<|pad|>", eos_token="<|end|>",
        bos_token="<|end|>", mask_token="<|mask|>", cls_token="<|system|>", sep_token="<|end|>",
        chat_template=TEMPLATE, model_max_length=512)


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
