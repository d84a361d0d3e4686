"""Hugging Face's libraries, and what is used with them."""

from program import Program

TRL = {"library": "trl", "environment": "hugging_face", "inputs": ("tiny_llama", "chats")}
TRL_OUT = ("--model_name_or_path", "{tiny_llama}", "--output_dir", "{work}/out", "--max_steps", "3",
           "--report_to", "none", "--per_device_train_batch_size", "2")

PROGRAMS = [
    Program("trl-sft", command=("{python}", "{site}/trl/scripts/sft.py", *TRL_OUT,
                                "--dataset_name", "{chats}/chats"), **TRL),
]
