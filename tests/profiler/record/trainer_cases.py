"""Records Hugging Face's Trainer on the null device, by itself and as torchrun and accelerate start
it, Lightning's, and code that torch.compile compiles, and compares the recordings with what PyTorch
itself says, as record_cases.py does; also every operator of PyTorch's own database.

recorded.py says which Python runs them: here one that has all of them (.setup/python trainer).
"""

import pathlib
import sys

import behaviour_cases
from record_cases import check
from recorded import HERE, PYTHON, OnNullDevice, Recorded, run_cases

DEVICE = ["--device", "null:h100"]
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--nproc_per_node", "8"]
FSDP2 = [PYTHON, "-m", "accelerate.commands.launch", "--config_file",
         HERE / "scripts" / "trainer_fsdp2.yaml"]


def check_alone(_):
    check(["trainer.py"], DEVICE)


def check_saved(_):
    check(["trainer.py", "--save"], DEVICE)


def check_ddp(_):
    check(["trainer.py", "--recompute", "--save"], DEVICE, TORCHRUN)


def check_fsdp2(_):
    check(["trainer.py"], DEVICE, FSDP2)


def check_fsdp2_as_last(_):
    place = [*DEVICE, "--world", "512", "--rank", "511"]
    check(["trainer.py", "--recompute", "--save"], place, FSDP2)


def check_accelerate(folder):
    """Checks that accelerate, when it finds several GPUs, needs no --multi_gpu."""
    script = HERE / "scripts" / "misbehave.py"
    program = pathlib.Path(PYTHON).with_name("accelerate")
    for launcher in (["-m", "accelerate.commands.launch"], [program, "launch"]):
        command = [PYTHON, *launcher, "--num_processes", "4", script, "use_rank"]
        run = Recorded(folder, *command, flags=[*DEVICE, "--rank", "3"])
        run.expect(0, "rank 3 of 4")


def check_lightning_ddp(_):
    check(["lit.py", "ddp"], [*DEVICE, "--world", "4"])


def check_lightning_fsdp(_):
    check(["lit.py", "fsdp"], [*DEVICE, "--world", "4", "--rank", "3"])


def check_compiled(_):
    check(["compiled.py", "plain"], DEVICE)


def check_compiled_graphs(_):
    check(["compiled.py", "graphs"], DEVICE)


def check_compiled_ddp(_):
    check(["compiled.py", "ddp"], [*DEVICE, "--world", "8", "--rank", "2"])


def check_compiled_fsdp2(_):
    check(["compiled.py", "fsdp2"], [*DEVICE, "--world", "16", "--rank", "5"])


def check_longest_batch(folder):
    behaviour_cases.check_longest_batch(folder, "trainer")


def check_tuning(folder):
    """Triton takes the first of its kernels, and compiles no other."""
    run = OnNullDevice(folder, PYTHON, HERE / "scripts" / "tuned.py", more={"TRITON_CACHE_DIR": folder})
    run.expect(0, "taken 128 of 1", "equal")


def check_operators(folder):
    script = HERE / "scripts" / "operators.py"
    Recorded(folder, PYTHON, script, flags=DEVICE).expect(0, " 0 faults")


if __name__ == "__main__":
    sys.exit(run_cases([check_alone, check_saved, check_ddp, check_fsdp2, check_fsdp2_as_last, check_longest_batch,
                        check_accelerate, check_lightning_ddp, check_lightning_fsdp,
                        check_compiled, check_compiled_graphs, check_compiled_ddp,
                        check_compiled_fsdp2, check_tuning, check_operators]))
