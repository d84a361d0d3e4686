"""Programs that are spread over ranks: by data, tensors, stages, sequence and experts."""

from program import Program, Source

EXAMPLES = Source("https://github.com/pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8")
DEEPSPEED = Source("https://github.com/deepspeedai/DeepSpeedExamples",
                   "45b4b7156c8794a3452a5a7d03dbd8d797068569")
MEGATRON = Source("https://github.com/NVIDIA/Megatron-LM",
                  "55ac7082517c3878ae653c07c09c534b8aed49f6")
ACCELERATE = Source("https://github.com/huggingface/accelerate",
                    "16cb6eb80dd9aa8b4df1a63ef57863e455d53b83")
NANOGPT = Source("https://github.com/karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291")


def world(size, **which):
    """Flags of a rank, or of several: world(4, rank=2)."""
    return ("--world", str(size), *(word for name, value in which.items()
                                    for word in (f"--{name}", str(value))))


def example(name, script, **options):
    return Program(name, "torch", "parallel", ("{python}", f"{{source}}/distributed/{script}"),
                   source=EXAMPLES, flags=world(8, rank=3), **options)


def torchtitan(name, flags, *words, module="llama3", config="llama3_debugmodel",
               environment="parallel"):
    command = ("{python}", "-m", "torchtitan.train", "--module", module, "--config", config,
               "--hf_assets_path", "{titan_assets}/tokenizer",
               "--dataloader.dataset_path", "{titan_assets}/c4", "--training.steps", "3")
    return Program(f"torchtitan-{name}", "torchtitan", environment, (*command, *words),
                   inputs=("titan_assets",), flags=flags, timeout_s=600)


def in_parallel(**degrees):
    """torchtitan's flags; its CUDA graphs, which are the default, do not support stages."""
    names = {"shard": "data_parallel_shard", "replicate": "data_parallel_replicate",
             "tensor": "tensor_parallel", "context": "context_parallel",
             "pipeline": "pipeline_parallel", "expert": "expert_parallel"}
    return ("--training.disable_cuda_graphs",
            *(word for name, degree in degrees.items()
              for word in (f"--parallelism.{names[name]}_degree", str(degree))))


def schedule(name):
    return ("--parallelism.pipeline_parallel_schedule", name)


def deepspeed(stage):
    return Program(f"deepspeed-zero{stage}", "deepspeed", "parallel",
                   ("{python}", "{source}/training/bf16_master_weight/train.py",
                    "--deepspeed_config", f"{{zero}}/stage{stage}.json", "--num_layers", "4",
                    "--batch_size", "2", "--num_steps", "3", "--warmup_steps", "1"),
                   source=DEEPSPEED, inputs=("zero",), flags=world(4, rank=2), timeout_s=600)


def megatron(name, flags, *words):
    """Trains with Megatron's own layers, since Transformer Engine, Apex and its fused kernels need
    nvcc. What rank 0 would compile for all ranks is taken from the wheel, and is made newer than the
    sources, which may have been fetched later."""
    helpers = "/megatron/core/datasets/"
    compiled = f"{{site}}{helpers}helpers_cpp*.so"
    command = ("bash", "-c", f"touch {compiled} && ln -sf {compiled} {{source}}{helpers} && "
               'exec "$0" "$@"', "{python}", "{source}/pretrain_gpt.py", "--num-layers", "4",
               "--hidden-size", "256", "--num-attention-heads", "8", "--seq-length", "256",
               "--max-position-embeddings", "256", "--micro-batch-size", "2", "--global-batch-size",
               "16", "--train-iters", "3", "--lr", "1e-4", "--mock-data", "--tokenizer-type",
               "NullTokenizer", "--vocab-size", "1000", "--bf16", "--eval-iters", "1",
               "--eval-interval", "100", "--transformer-impl", "local",
               "--no-gradient-accumulation-fusion", "--no-persist-layer-norm", "--no-rope-fusion",
               "--no-masked-softmax-fusion", "--no-bias-gelu-fusion", "--no-bias-dropout-fusion",
               "--attention-backend", "unfused")
    return Program(f"megatron-{name}", "megatron-core", "parallel", (*command, *words),
                   source=MEGATRON, flags=flags, timeout_s=600,
                   variables={"CUDA_DEVICE_MAX_CONNECTIONS": "1", "PYTHONPATH": "{source}"})


def litgpt(name, script, *words, **options):
    return Program(f"litgpt-{name}", "litgpt", "parallel",
                   ("{bin}/litgpt", script, "{tiny_pythia}", "--data", "JSON", "--data.json_path",
                    "{instructions}/instructions.json", "--data.val_split_fraction", "0.1",
                    "--train.max_steps", "3", "--train.epochs", "1", "--train.global_batch_size", "8",
                    "--train.micro_batch_size", "2", "--train.max_seq_length", "128",
                    "--eval.max_iters", "1", "--out_dir", "{work}/out", "--logger_name", "csv",
                    *words), inputs=("instructions", "tiny_pythia"), **options)


PROGRAMS = [
    example("pytorch-fsdp2", "FSDP2/example.py"),
    example("pytorch-tensor-parallel", "tensor_parallelism/tensor_parallel_example.py"),
    example("pytorch-sequence-parallel", "tensor_parallelism/sequence_parallel_example.py"),
    example("pytorch-fsdp-tp", "tensor_parallelism/fsdp_tp_example.py"),

    torchtitan("fsdp", world(8, rank=3)),
    torchtitan("hsdp", world(8, rank=5), *in_parallel(replicate=2, shard=4)),
    torchtitan("tp", world(8, rank=3), *in_parallel(tensor=2)),
    torchtitan("cp", world(8, rank=3), *in_parallel(context=2)),
    torchtitan("pp4", world(4, ranks="all"), *in_parallel(pipeline=4), *schedule("1F1B")),
    torchtitan("interleaved", world(4, rank=1), *in_parallel(pipeline=2, shard=2),
               *schedule("Interleaved1F1B")),
    torchtitan("4d", world(16, rank=5), *in_parallel(pipeline=2, tensor=2, context=2, shard=2),
               *schedule("Interleaved1F1B")),

    torchtitan("experts", world(4, rank=1), *in_parallel(shard=4, expert=4), module="deepseek_v3",
               config="deepseek_v3_debugmodel"),

    torchtitan("experts-stages", world(8, rank=3), *in_parallel(shard=4, expert=2, pipeline=2),
               *schedule("Interleaved1F1B"), module="deepseek_v3", config="deepseek_v3_debugmodel"),
    torchtitan("qwen3", world(4, rank=1), module="qwen3", config="qwen3_debugmodel"),
    torchtitan("qwen3-experts", world(4, rank=1), *in_parallel(shard=4, expert=2), module="qwen3",
               config="qwen3_moe_debug"),
    torchtitan("gpt-oss", world(4, rank=1), module="gpt_oss", config="gpt_oss_debugmodel_flex"),
    # The Triton of PyTorch 2.15 refuses torchao's kernels for float8.
    torchtitan("float8", world(4, rank=1), config="llama3_debugmodel_float8",
               environment="torch_2_14"),

    megatron("tp-pp", world(8, rank=5), "--tensor-model-parallel-size", "2",
             "--pipeline-model-parallel-size", "2"),
    megatron("optimizer", world(8, rank=3), "--tensor-model-parallel-size", "2",
             "--use-distributed-optimizer"),
    megatron("interleaved", world(4, rank=2), "--pipeline-model-parallel-size", "2",
             "--num-layers-per-virtual-pipeline-stage", "1"),
    megatron("pp4", world(4, ranks="all"), "--pipeline-model-parallel-size", "4"),

    *map(deepspeed, (1, 2, 3)),
    Program("deepspeed-offload", "deepspeed", "parallel",
            ("{python}", "{source}/training/offload_states/offload_states.py", "--nlayers", "4",
             "--iteration", "6"),
            source=DEEPSPEED, flags=world(4, rank=1)),

    Program("ray-linear", "ray", "parallel",
            ("{python}", "{site}/ray/train/examples/pytorch/torch_linear_example.py", "--use-gpu",
             "--num-workers", "2", "--epochs", "1"),
            flags=("--gpus-per-node", "2"), variables={"HOME": "{work}"}),

    Program("accelerate-nd-parallel", "accelerate", "accelerate",
            ("env", "-C", "{stories}", "{python}", "-m", "accelerate.commands.launch",
             "--config-file", "{source}/examples/torch_native_parallelism/configs/tp_hsdp.yaml",
             "{source}/examples/torch_native_parallelism/nd_parallel.py", "--dp-replicate-size", "2",
             "--dp-shard-size", "2", "--tp-size", "2", "--num-steps", "3", "--sequence-length", "128",
             "--model-name", "{tiny_llama}", "--save-dir", "{work}/out"),
            source=ACCELERATE, inputs=("stories", "tiny_llama"), flags=("--rank", "3")),
    litgpt("finetune", "finetune_full", "--devices", "4", flags=world(4, rank=2)),
    litgpt("lora", "finetune_lora", "--precision", "bf16-true"),
    Program("nanogpt-ddp", "torch", "parallel",
            ("env", "-C", "{source}", "{python}", "train.py", "--dataset={token_files}",
             "--out_dir={work}", "--compile=False", "--max_iters=3",
             "--eval_iters=1", "--batch_size=4", "--block_size=256", "--n_layer=4", "--n_head=4",
             "--n_embd=256", "--gradient_accumulation_steps=8"),
            source=NANOGPT, inputs=("token_files",), flags=world(4, rank=1)),
]
