"""Says how the program of a published figure is started: figures.jsonl has its settings in its
authors' words."""

import pathlib
import re

from program import Program, Source

HERE = pathlib.Path(__file__).resolve().parent

FAKEGPU = Source("https://github.com/FanBB2333/FakeGPU", "7d5cf83cf3cef2080808471d9857a47497b106e1")
LIGER = "https://github.com/linkedin/Liger-Kernel"

# Maps the measured GPU to a null device, which has neither of those of FakeGPU's authors. The A10G
# is of the RTX 3090 Ti's generation, whose figures equal those of the other one.
GPUS = {"RTX": "a10g", "NVIDIA A100-SXM4-80GB": "a100-80", "NVIDIA H100": "h100",
        "NVIDIA B200": "b200"}

METHODS = {"full": (), "LoRA r8": ("--training-method", "lora"),
           "QLoRA": ("--training-method", "qlora"),
           "QLoRA-dq": ("--training-method", "qlora", "--quantization-double-quantization")}

CASE = re.compile(r"provider=(\w+) .*\w=(\d+) (\{.*\}) liger")


def _gpu_of(figure):
    return next(gpu for name, gpu in GPUS.items() if figure["gpu"].startswith(name))


def _program(figure, library, source, command, **more):
    flags = ("--device", f"null:{_gpu_of(figure)}")
    if "ranks" in figure:  # after their step these programs compare what was computed
        flags += ("--world", str(figure["ranks"]), "--steps", "1")
    environment = figure.get("environment", "published")
    return Program(figure["id"], library=library, environment=environment, source=source,
                   command=("{python}", *command), flags=flags, timeout_s=600, **more)


def _method_of(config):
    return max((name for name in METHODS if f" {name} " in f" {config} "), key=len)


def _of_one_gpu(figure):
    """Returns the program's flags from "... Qwen3.5-0.8B LoRA r8 checkpoint=no accum=1 seq 16
    ..."."""
    config = figure["config"]
    words = config.split()
    size = next(word.removeprefix("Qwen3.5-") for word in words if word.startswith("Qwen3.5-"))
    options = ["--mode", "real", "--output", "{work}/out.json", "--model-dir", f"{{qwen}}/{size}",
               "--sequence-length", words[words.index("seq") + 1], *METHODS[_method_of(config)]]
    if "checkpoint=yes" in words or "ckpt" in words:
        options.append("--gradient-checkpointing")
    return [*options, *(part for word in words if word.startswith("accum=")
                        for part in ("--gradient-accumulation-steps", word.removeprefix("accum=")))]


def _of_several_ranks(figure):
    """Returns the program's flags from "..., seq 16" or "..., ZeRO-3 s64 acc2"."""
    config = figure["config"]
    options = ["--model-dir", "{qwen}/0.8B", "--report-dir", "{work}/out", "--sequence-length",
               re.search(r"\bs(?:eq )?(\d+)", config)[1]]
    for flag, pattern in (("--zero-stage", r"ZeRO-(\d)"),
                          ("--gradient-accumulation-steps", r"\bacc(\d+)")):
        if found := re.search(pattern, config):
            options += [flag, found[1]]
    return options


def _of_fakegpu(figure):
    options = _of_several_ranks(figure) if "ranks" in figure else _of_one_gpu(figure)
    library = "deepspeed" if "deepspeed" in figure["program"] else "transformers"
    return _program(figure, library, FAKEGPU, ("{source}/" + figure["program"], *options),
                    inputs=("qwen",))


def _of_liger(figure):
    """Returns the program of "provider=liger mode=full (fwd+bwd) BT=32768 {...} liger 0.4.2"."""
    provider, x, options = CASE.match(figure["config"]).groups()
    command = (str(HERE / "liger_case.py"), "{source}/" + figure["program"], provider, x, options)
    source = Source(LIGER, figure["commit"], is_one_of_several=True)
    return _program(figure, "liger-kernel", source, command)


def program_of(figure):
    return _of_liger(figure) if figure["program"].startswith("benchmark/") else _of_fakegpu(figure)
