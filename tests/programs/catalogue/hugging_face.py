"""Hugging Face's libraries, and libraries that are used with them."""

from program import Program, Source

TRANSFORMERS = Source("https://github.com/macorisd/transformers-qwen3",
                      "4a42c1b083066a4ae212edd4bd8d28ff713c0088")  # a fork, a third of the size
PEFT = Source("https://github.com/huggingface/peft", "5d602fdbff04c33c1c4de55cda9d4ae1d7cb7e40")
ACCELERATE = Source("https://github.com/huggingface/accelerate",
                    "16cb6eb80dd9aa8b4df1a63ef57863e455d53b83")
SBERT = Source("https://github.com/UKPLab/sentence-transformers",
               "85ec64559f4414aa536eca4bf53538291e0a333f")
AO = Source("https://github.com/pytorch/ao", "36027d82d1ad9949597ea16002ff4940374b1b94")
UNSLOTH = Source("https://github.com/unslothai/unsloth", "015bdef0d94a241bcd94eec7a405b1700632180d")
LIGHTNING = Source("https://github.com/Lightning-AI/pytorch-lightning",
                   "7f0c3436cd3f6ad3753125672024fc415cbcb414")

OUT = ("--output_dir", "{work}/out", "--max_steps", "3", "--report_to", "none",
       "--per_device_train_batch_size", "2")
LORA = ("--use_peft", "--lora_r", "8", "--lora_target_modules", "all-linear")
GENERATING = ("--num_generations", "2", "--max_completion_length", "32", "--reward_funcs",
              "think_format_reward")
TORCHRUN = ("{python}", "-m", "torch.distributed.run")
LAUNCH = ("{bin}/accelerate", "launch")


def trl(name, script, data, *more, launcher=("{python}",), library="trl", **options):
    command = (*launcher, f"{{site}}/trl/scripts/{script}.py", "--model_name_or_path", "{tiny_llama}",
               "--dataset_name", f"{{chats}}/{data}", *OUT, *more)
    return Program(f"trl-{name}", library, "hugging_face", command, inputs=("tiny_llama", "chats"),
                   **options)


def example(name, script, *more, inputs, library="transformers", launcher=("{python}",), **options):
    return Program(f"transformers-{name}", library, "hugging_face",
                   (*launcher, f"{{source}}/examples/pytorch/{script}", *more),
                   source=TRANSFORMERS, inputs=inputs, **options)


def unsloth(name, *words):
    """Trains with Unsloth's patched layers; it needs a PyTorch before 2.15. With -P the package is
    imported, not the source beside the script."""
    command = ("{python}", "-P", "{source}/unsloth-cli.py", "--model_name", "{tiny_llama}", "--dataset",
               "{alpaca}", "--max_seq_length", "256", "--max_steps", "3", "--report_to", "none",
               "--output_dir", "{work}/out", *words)
    return Program(f"unsloth-{name}", "unsloth", "torch_2_14", command, source=UNSLOTH,
                   inputs=("tiny_llama", "alpaca"), timeout_s=600)


ND = "{source}/examples/torch_native_parallelism"
ND_FLAGS = ("--model-name", "{tiny_llama}", "--num-steps", "3", "--sequence-length", "128",
            "--save-dir", "{work}/out")
STORIES = {"roneneldan/TinyStories": "{pairs}/stories"}


def peft(name, script, *more, **options):
    return Program(f"peft-{name}", "peft", "hugging_face", source=PEFT,
                   command=("{python}", f"{{source}}/examples/{script}", *more),
                   inputs=("tiny_llama", "alpaca"), **options)


def nd_parallel(name, *sizes, processes, rank):
    """Runs up to its last step: transformers cannot save the model that it then has."""
    command = (*LAUNCH, "--num_processes", processes, f"{ND}/nd_parallel.py", *sizes, *ND_FLAGS)
    return Program(f"accelerate-nd-{name}", "accelerate", "hugging_face", command, source=ACCELERATE,
                   inputs=("tiny_llama", "pairs"), links=STORIES, flags=("--rank", rank, "--steps", "3"))


def sbert(name, script, model):
    return Program(f"sbert-{name}", "sentence-transformers", "hugging_face", source=SBERT, command=(
        "{python}", f"{{source}}/examples/{script}", "bert"), inputs=("tiny_bert", "pairs"), links={
            model: "{tiny_bert}", "sentence-transformers/stsb": "{pairs}/stsb"})


def torchtune(name, recipe, config, *more, model="torchtune.models.llama3.llama3", launcher=(),
              **options):
    size = ("vocab_size=128256", "num_layers=2", "num_heads=4", "num_kv_heads=2", "embed_dim=64",
            "max_seq_len=1024", "intermediate_dim=128")
    command = ("{bin}/tune", "run", *launcher, recipe, "--config", config, "output_dir={work}/out",
               "tokenizer.path={llama3_files}/tokenizer.model", f"model._component_={model}",
               *(f"model.{part}" for part in size),
               "checkpointer._component_=torchtune.training.FullModelHFCheckpointer",
               "checkpointer.checkpoint_dir={llama3_files}",
               "checkpointer.checkpoint_files=[model.safetensors]", "max_steps_per_epoch=3",
               "gradient_accumulation_steps=1", *more)
    return Program(f"torchtune-{name}", "torchtune", "torchtune", command, inputs=("llama3_files",),
                   links={"tatsu-lab/alpaca": "{llama3_files}/alpaca",
                          "yahma/alpaca-cleaned": "{llama3_files}/alpaca"}, **options)


def lightning(name, script, *flags):
    command = ("{python}", f"{{source}}/examples/{script}")
    return Program(f"lightning-{name}", "lightning", "lightning", command, source=LIGHTNING,
                   inputs=("words_of_wiki",), links={"data/wikitext-2.txt": "{words_of_wiki}/train.txt"},
                   flags=flags)


def ao(name, script, **more):
    return Program(f"torchao-{name}", "torchao", "hugging_face", source=AO, command=(
        "{python}", f"{{source}}/docs/source/examples/{script}.py"), **more)


PROGRAMS = [
    trl("sft", "sft", "chats"),
    trl("sft-packed", "sft", "texts", "--packing", "--bf16", "True", "--gradient_checkpointing",
        "--max_length", "256"),
    trl("sft-liger", "sft", "chats", "--use_liger_kernel", "--bf16", "True",
        library="liger-kernel"),
    trl("sft-lora", "sft", "chats", *LORA),
    trl("sft-qlora", "sft", "chats", *LORA, "--load_in_4bit", "--bf16", "True",
        library="bitsandbytes"),
    trl("sft-adamw-8bit", "sft", "chats", "--optim", "adamw_8bit", library="bitsandbytes"),
    trl("sft-adamw-torch-8bit", "sft", "chats", "--optim", "adamw_torch_8bit", library="torchao"),
    trl("sft-adamw-paged", "sft", "chats", "--optim", "paged_adamw_8bit", "--bf16", "True",
        library="bitsandbytes"),
    trl("sft-adafactor", "sft", "chats", "--optim", "adafactor", "--fp16", "True",
        "--gradient_accumulation_steps", "2", "--neftune_noise_alpha", "5"),
    trl("sft-galore", "sft", "chats", "--optim", "galore_adamw", "--optim_target_modules", ".*mlp.*",
        library="galore-torch"),
    trl("sft-evaluation", "sft", "chats", "--eval_strategy", "steps", "--eval_steps", "2"),
    trl("sft-compiled", "sft", "chats", "--torch_compile", timeout_s=600),
    trl("sft-ddp", "sft", "chats", launcher=(*LAUNCH, "--num_processes", "2", "--multi_gpu"),
        flags=("--rank", "1")),
    trl("sft-fsdp2", "sft", "chats", launcher=(
        *LAUNCH, "--config_file", "{site}/trl/accelerate_configs/fsdp2.yaml", "--num_processes", "4")),
    trl("sft-fsdp1", "sft", "chats", launcher=(
        *LAUNCH, "--config_file", "{site}/trl/accelerate_configs/fsdp1.yaml", "--num_processes", "4"),
        flags=("--rank", "3")),
    trl("dpo", "dpo", "preferences"),
    trl("dpo-lora", "dpo", "preferences", *LORA, "--load_in_4bit"),
    trl("grpo", "grpo", "prompts", *GENERATING),
    trl("grpo-lora", "grpo", "prompts", *GENERATING, *LORA),
    trl("rloo", "rloo", "prompts", *GENERATING),
    trl("kto", "kto", "preferences"),
    trl("reward", "reward", "preferences"),
    Program("trl-cli-sft", "trl", "hugging_face", inputs=("tiny_llama", "chats"), command=(
        "{bin}/trl", "sft", "--model_name_or_path", "{tiny_llama}", "--dataset_name", "{chats}/chats",
        *OUT, "--accelerate_config", "multi_gpu", "--num_processes", "4")),
    example("run-clm", "language-modeling/run_clm.py", "--model_name_or_path", "{tiny_llama}",
            "--train_file", "{texts}/train.txt", "--validation_file", "{texts}/test.txt",
            "--do_train", "--do_eval", "--block_size", "128", *OUT, inputs=("tiny_llama", "texts")),
    example("run-clm-ddp", "language-modeling/run_clm.py", "--model_name_or_path", "{tiny_llama}",
            "--train_file", "{texts}/train.txt", "--do_train", "--block_size", "128", *OUT,
            inputs=("tiny_llama", "texts"), launcher=(*TORCHRUN, "--nproc_per_node", "8")),
    example("run-mlm", "language-modeling/run_mlm.py", "--model_name_or_path", "{tiny_bert}",
            "--train_file", "{texts}/train.txt", "--validation_file", "{texts}/test.txt",
            "--do_train", "--do_eval", "--max_seq_length", "128", *OUT,
            inputs=("tiny_bert", "texts", "metrics"), links={"accuracy": "{metrics}"}),
    example("run-glue", "text-classification/run_glue.py", "--model_name_or_path", "{tiny_bert}",
            "--train_file", "{texts}/pairs.train.json", "--validation_file",
            "{texts}/pairs.test.json", "--do_train", "--fp16", *OUT,
            inputs=("tiny_bert", "texts", "metrics"), links={"accuracy": "{metrics}"}),
    example("run-image-classification", "image-classification/run_image_classification.py",
            "--model_name_or_path", "{tiny_vit}", "--train_dir", "{tiny_vit}/images/train",
            "--validation_dir", "{tiny_vit}/images/test", "--label_column_name", "label",
            "--remove_unused_columns", "False", "--do_train", "--do_eval", *OUT,
            inputs=("tiny_vit", "metrics"), links={"accuracy": "{metrics}"}),
    example("run-generation", "text-generation/run_generation.py", "--model_type", "gpt2",
            "--model_name_or_path", "{tiny_gpt2}", "--prompt", "ba be bi", "--length", "24",
            inputs=("tiny_gpt2",)),
    peft("olora", "olora_finetuning/olora_finetuning.py", "--base_model", "{tiny_llama}",
         "--data_path", "{alpaca}", "--output_dir", "{work}/out", "--batch_size", "4",
         "--num_epochs", "1", "--val_set_size", "8", "--cutoff_len", "128"),
    peft("miss", "miss_finetuning/miss_finetuning.py", "--base_model_name_or_path", "{tiny_llama}",
         "--output_dir", "{work}/out", "--data_path", "{alpaca}", "--dataset_split", "train",
         "--dataset_field", "instruction", "output", "--max_steps", "3", "--report_to", "none"),
    unsloth("lora"),
    unsloth("qlora", "--load_in_4bit"),
    nd_parallel("fsdp", "--dp-shard-size", "4", processes="4", rank="0"),
    nd_parallel("hsdp", "--dp-replicate-size", "2", "--dp-shard-size", "4", processes="8", rank="5"),
    nd_parallel("fsdp-cp", "--dp-shard-size", "2", "--cp-size", "2", processes="4", rank="1"),
    Program("accelerate-peak-memory", "accelerate", "hugging_face", command=(
        *LAUNCH, "--num_processes", "2", "--use_fsdp", "--fsdp_version", "2",
        "--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP", "--fsdp_state_dict_type",
        "SHARDED_STATE_DICT",
        "{site}/accelerate/test_utils/scripts/external_deps/test_peak_memory_usage.py",
        "--model_name_or_path", "{tiny_llama}", "--output_dir", "{work}", "--n_train", "64",
        "--n_val", "32", "--num_epochs", "1"), inputs=("tiny_llama", "pairs"),
        links={"nyu-mll/glue": "{pairs}/glue"}),
    Program("accelerate-autoregressive", "accelerate", "hugging_face", source=ACCELERATE, command=(
        "{python}", "{source}/examples/by_feature/gradient_accumulation_for_autoregressive_models.py",
        "--mixed_precision", "bf16"), variables={"TESTING_MOCKED_DATALOADERS": "1"},
        inputs=("tiny_llama",), links={"HuggingFaceTB/SmolLM-360M": "{tiny_llama}",
                                       "tests": "{source}/tests"}),
    sbert("sts", "sentence_transformer/training/adaptive_layer/adaptive_layer_sts.py", "bert"),
    sbert("cross-encoder", "cross_encoder/training/sts/training_stsbenchmark.py",
          "distilroberta-base"),
    sbert("splade", "sparse_encoder/training/sts/train_splade_stsbenchmark.py",
          "naver/splade-cocondenser-ensembledistil"),
    ao("float8", "float8_training_example"),
    
    ao("int8", "inference/int8_dynamic_activation_int8_weight"),
    ao("float8-weights", "inference/float8_weight_only",
       unnamed="it only quantises a weight: the rest is what that takes, and belongs to no step"),
    torchtune("full", "full_finetune_single_device", "llama3/8B_full_single_device"),
    torchtune("lora", "lora_finetune_single_device", "llama3/8B_lora_single_device",
              model="torchtune.models.llama3.lora_llama3"),
    torchtune("full-fsdp2", "full_finetune_distributed", "llama3/8B_full",
              launcher=("--nproc_per_node", "4"), flags=("--rank", "2")),
    lightning("transformer", "pytorch/basics/transformer.py", "--steps", "5"),
    lightning("fabric-language-model", "fabric/language_model/train.py", "--steps", "5"),
    lightning("bug-report", "pytorch/bug_report/bug_report_model.py"),
    lightning("tensor-parallel", "pytorch/tensor_parallel/train.py", "--world", "4", "--rank", "3",
              "--steps", "2"),
    lightning("fabric-tensor-parallel", "fabric/tensor_parallel/train.py", "--world", "4",
              "--steps", "2"),
]
