"""Programs that train on text, sound, graphs and games."""

from program import Program, Source

EXAMPLES = {"library": "torch", "environment": "vision", "inputs": ("letters",),
            "source": Source("https://github.com/pytorch/examples",
                             "77f55b912142e11fcfdf5b530231fb9c52f181e8")}
WORDS = ("{python}", "{source}/word_language_model/main.py", "--data", "{letters}", "--epochs", "1",
         "--accel", "--save", "{work}/model.pt")

GEOMETRIC = {"library": "torch-geometric", "environment": "vision", "inputs": ("cora",),
             "source": Source("https://github.com/pyg-team/pytorch_geometric",
                              "5c6461b2305ad068a6d61165b3c55852a11aaa41")}
NANOGPT = {"library": "torch", "environment": "vision", "inputs": ("letters",),
           "source": Source("https://github.com/karpathy/nanoGPT",
                            "3adf61e154c3fe3fca428ad6bc3818b27a3b8291")}
MINGPT = {"library": "torch", "environment": "vision", "variables": {"PYTHONPATH": "{source}"},
          "source": Source("https://github.com/karpathy/minGPT",
                           "37baab71b9abea1b76ab957409a1cc2fbfba8a26")}


X_TRANSFORMERS = {"library": "x-transformers", "environment": "vision", "inputs": ("letters",),
                  "source": Source("https://github.com/lucidrains/x-transformers",
                                   "9252ed7838021ee61e6c5be0930b3a9a88efdf06")}


def on_letters(script):
    """One of x-transformers' training scripts, which look for their text in a folder data."""
    return ("bash", "-c", f"ln -s {{letters}} data && exec {{python}} {{source}}/{script}")


def on_cora(script, *arguments):
    """An example that reads Planetoid's graphs beside its own folder."""
    command = " ".join(("{python}", "{source}/examples/" + script, *arguments))
    return ("bash", "-c", "mkdir -p {source}/data && ln -sfn {cora} {source}/data/Planetoid && "
            f"exec {command}")


def nanogpt(*arguments):
    command = " ".join(("{python}", "train.py", "--dataset=letters", "--out_dir={work}/out",
                        "--max_iters=3", "--eval_iters=2", "--batch_size=4", "--block_size=256",
                        "--n_layer=4", "--n_head=4", "--n_embd=256",
                        "--gradient_accumulation_steps=2", *arguments))
    return ("bash", "-c", "cd {source} && ln -sfn {letters}/shakespeare_char data/letters && "
            f"exec {command}")


def linear_attention(model, *arguments):
    return Program(f"fla-{model.replace('_', '-')}", library="flash-linear-attention",
                   environment="linear_attention", timeout_s=600, source=Source(
                       "https://github.com/fla-org/flash-linear-attention",
                       "bc3b101dcb713ddc5bd8924b66754eb68b5ccf89"),
                   command=("{python}", "{source}/benchmarks/benchmark_training_throughput.py",
                            "--name", model, "--batch_size", "1", "--seq_len", "1024",
                            "--num_hidden_layers", "2", "--warmup_steps", "2", "--steps", "2",
                            *arguments))


PROGRAMS = [
    Program("nanogpt", command=nanogpt("--compile=False"), **NANOGPT),
    Program("mingpt-adder", command=("{python}", "{source}/projects/adder/adder.py",
                                     "--trainer.max_iters=3"),
            **MINGPT),
    Program("mingpt-letters", inputs=("letters",), command=(
        "bash", "-c", "ln -s {letters}/input.txt input.txt && exec {python} "
        "{source}/projects/chargpt/chargpt.py --trainer.max_iters=3 --model.model_type=gpt-mini"),
            **MINGPT),
    Program("word-language-lstm", command=(*WORDS, "--model", "LSTM"), **EXAMPLES),
    Program("word-language-gru", command=(*WORDS, "--model", "GRU", "--tied"), **EXAMPLES),
    Program("word-language-transformer", command=(*WORDS, "--model", "Transformer"), **EXAMPLES),
    Program("x-transformers", **X_TRANSFORMERS, command=on_letters(
        "train_enwik8.py --num_batches 3 --seq_len 256 --generate_length 8")),
    Program("x-transformers-copy", **X_TRANSFORMERS, command=on_letters("train_copy.py"),
            flags=("--steps", "3")),
    Program("x-transformers-vae", **X_TRANSFORMERS, command=on_letters("train_gpt_vae.py"),
            flags=("--steps", "3")),
    Program("whisper", library="openai-whisper", environment="vision", inputs=("tiny_whisper",),
            command=("bash", "-c", "PATH={tiny_whisper}/bin:$PATH exec {bin}/whisper "
                     "{tiny_whisper}/silence.wav --model {tiny_whisper}/tiny.pt --device cuda "
                     "--language en --output_dir out")),
    Program("geometric-gcn", command=on_cora("gcn.py", "--epochs", "3"), **GEOMETRIC),
    # It prints the test accuracy of its best epoch, which only exists if one is better than 0.
    Program("geometric-gat", command=on_cora("gat.py", "--epochs", "3"), flags=("--true", "gat.py:76"),
            **GEOMETRIC),
    Program("geometric-autoencoder", command=on_cora("autoencoder.py", "--epochs", "3"), **GEOMETRIC),
    Program("geometric-link-prediction", command=on_cora("link_pred.py"), flags=("--steps", "3"),
            **GEOMETRIC),
    Program("geometric-adversarial", command=on_cora("argva_node_clustering.py"),
            flags=("--steps", "3"), **GEOMETRIC),
    Program("geometric-mixhop", command=on_cora("mixhop.py"), flags=("--steps", "3"), **GEOMETRIC),
    Program("flex-attention", library="torch", environment="vision",
            variables={"PYTHONPATH": "{source}"}, timeout_s=600, source=Source(
                "https://github.com/meta-pytorch/attention-gym",
                "7fdb85d0b96668397adee48de54b6f1036497717"),
            command=("{python}", "{source}/examples/benchmark.py", "--examples", "causal")),
    linear_attention("gla"),
    linear_attention("delta_net"),
    Program("cleanrl-ppo", library="gymnasium", environment="vision", source=Source(
        "https://github.com/vwxyzjn/cleanrl", "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb"),
            command=("{python}", "{source}/cleanrl/ppo.py", "--total-timesteps", "1024")),
]
