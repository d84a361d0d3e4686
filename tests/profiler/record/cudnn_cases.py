"""Records programs that use cuDNN on the null device, with NVIDIA's own cuDNN if this Python has
it, and without it.

    cudnn_cases.py quick|long [CASE...]

`quick` is for a Python without cuDNN, `long` for one with it; exit code 77 says that this one does
not fit.
"""

import os
import subprocess
import sys

from recorded import HERE, NO_PYTORCH, PYTHON, OnNullDevice, Recorded, run_cases

SCRIPT = HERE / "scripts" / "with_cudnn.py"
RESNET = HERE / "scripts" / "resnet.py"
CONVOLUTIONS = HERE / "scripts" / "convolutions.py"

EQUAL = "as PyTorch counted: equal"
UNKNOWN = "cuDNN's workspace is not known without a GPU"
PLANS = "of this Python plans for the GPU"
LEFT_OUT = "cuDNN is left out: attention and convolutions take PyTorch's other kernels"

# cuDNN 9.26 takes this many bytes for an H100, if no GPU is named. NVIDIA's Python frontend said
# so, from descriptions of the devices that were written by hand; PyTorch rounds it up to 512 bytes.
ROUND = 512
DEPTHWISE_BYTES = 589_824
SQUARE_BYTES = {"h100": 131, "a100-80": 25_837_584}
ATTENTION_BYTES = 270_532_864  # 4 * B*H*S*D + 4 * B*H*S + 256


def record(folder, function):
    return OnNullDevice(folder, PYTHON, SCRIPT, function)


def workspace_of(recorded):
    line = next(line for line in recorded.text.splitlines() if line.startswith("workspace "))
    return int(line.split()[1])


def expect_workspace(recorded, size):
    taken = workspace_of(recorded)
    if taken != -(-size // ROUND) * ROUND:
        raise AssertionError(f"{taken} bytes of workspace, not {size}")


def expect_no(recorded, text):
    if text in recorded.lines + recorded.text:
        raise AssertionError(f"{text!r} in\n{recorded.text}{recorded.lines}")


# --- with NVIDIA's cuDNN --------------------------------------------------------------------------


def check_depthwise(folder):
    """Its kernel is compiled at run time: without NVRTC cuDNN uses one that takes 106,908,975."""
    recorded = record(folder, "depthwise").expect(0, PLANS, EQUAL)
    expect_workspace(recorded, DEPTHWISE_BYTES)
    expect_no(recorded, "in doubt")


def check_attention(folder):
    recorded = record(folder, "attention").expect(0, PLANS, EQUAL)
    expect_workspace(recorded, ATTENTION_BYTES)
    expect_no(recorded, "in doubt")


def check_attention_of_torchtitan(folder):
    recorded = record(folder, "attention_of_torchtitan").expect(0, PLANS, EQUAL)
    expect_no(recorded, "in doubt")


def check_device(folder):
    """cuDNN plans for the device that is named."""
    for gpu, size in SQUARE_BYTES.items():
        recorded = Recorded(os.path.join(folder, gpu), PYTHON, SCRIPT, "square",
                            flags=["--device", f"null:{gpu}"])
        expect_workspace(recorded.expect(0, PLANS, EQUAL), size)


def check_switched_on(folder):
    recorded = record(folder, "switched_on").expect(0, PLANS, EQUAL, "on True True")
    expect_no(recorded, "in doubt")


def check_products(folder):
    expect_no(record(folder, "products").expect(0, PLANS, EQUAL), "in doubt")


def check_every_kind(folder):
    kinds = ("batch norm", "LSTM", "GRU", "RNN", "CTC loss")
    recorded = record(folder, "every_kind").expect(
        0, EQUAL, *(f"in doubt: {kind} takes PyTorch's own kernels here: {UNKNOWN}"
                    for kind in kinds))
    if recorded.lines.count("takes PyTorch's own kernels") != len(kinds):
        raise AssertionError(f"a kind is reported more than once:\n{recorded.lines}")


def check_bfloat16_norm(folder):
    """PyTorch has its own kernels for them, also on a GPU."""
    expect_no(record(folder, "bfloat16_norm").expect(0, PLANS, EQUAL), "in doubt")


def check_benchmark(folder):
    record(folder, "benchmark").expect(
        0, EQUAL, "benchmark True", "in doubt: torch.backends.cudnn.benchmark: a GPU takes the "
        "kernels that are fastest there: the first that cuDNN proposes are taken here")


def check_training(folder):
    recorded = OnNullDevice(folder, PYTHON, CONVOLUTIONS, "--cudnn", "on")
    recorded.expect(0, PLANS, EQUAL).expect_steps(3)


def check_resnet(folder):
    """Checks the figures of docs/record_libraries.md."""
    recorded = OnNullDevice(folder, PYTHON, RESNET).expect(
        0, PLANS, EQUAL, "peak 3157239296 reserved 3531603968")
    expect_no(recorded.expect_steps(3), "in doubt")


# --- without it -----------------------------------------------------------------------------------


def check_left_out(folder):
    recorded = record(folder, "depthwise").expect(0, f"{LEFT_OUT} (this Python has no nvidia/cudnn)",
                                                  EQUAL)
    expect_no(recorded, "in doubt")


def check_switched_on_in_vain(folder):
    record(folder, "switched_on").expect(
        0, LEFT_OUT, EQUAL, "on False False",
        f"in doubt: the program switches cuDNN on, but it stays off: {UNKNOWN}")


def check_attention_in_vain(folder):
    record(folder, "attention").expect(
        0, LEFT_OUT, EQUAL, "in doubt: the program wants only cuDNN's attention; it takes "
        f"PyTorch's other kernels: {UNKNOWN}")


def check_other_attention(folder):
    """The program also allows other kernels, and takes them."""
    expect_no(record(folder, "attention_of_torchtitan").expect(0, LEFT_OUT, EQUAL), "in doubt")


def check_every_kind_without(folder):
    expect_no(record(folder, "every_kind").expect(0, LEFT_OUT, EQUAL), "in doubt")


def check_training_in_vain(folder):
    recorded = OnNullDevice(folder, PYTHON, CONVOLUTIONS, "--cudnn", "on")
    recorded.expect(0, LEFT_OUT, EQUAL, "but it stays off").expect_steps(3)


WITHOUT = [check_left_out, check_switched_on_in_vain, check_attention_in_vain,
           check_other_attention, check_every_kind_without, check_training_in_vain]
WITH = [check_depthwise, check_attention, check_attention_of_torchtitan, check_device,
        check_switched_on, check_products, check_every_kind, check_bfloat16_norm, check_benchmark,
        check_training, check_resnet]


def has_cudnn():
    question = "import importlib.metadata as m; m.version('nvidia-cudnn-cu13')"
    return subprocess.run([PYTHON, "-c", question], capture_output=True, check=False).returncode == 0


def main():
    wants_cudnn = sys.argv[1] == "long"
    if has_cudnn() != wants_cudnn:
        print(f"skipped: {PYTHON} has {'no ' if wants_cudnn else ''}cuDNN")
        return NO_PYTORCH
    return run_cases(WITH if wants_cudnn else WITHOUT)


if __name__ == "__main__":
    sys.exit(main())
