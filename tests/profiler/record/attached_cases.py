"""`shardlens record` without --device, attached to every rank of programs that run on this
machine's GPUs.

    attached_cases.py quick|long

The machine has four GPUs, which are null devices preloaded into everything here: to PyTorch, to
CUPTI's callbacks and to the recorder they look like real ones. What only a GPU shows (contexts,
modules, NCCL's buffers, memory of other processes) is not tested here. recorded.py says which
Python runs them.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import gpu_cases
from record_cases import check
from recorded import HERE, PROGRAM, PYTHON, Recorded, report_of, run_cases, shardlens

SCRIPT = HERE / "scripts" / "misbehave.py"
NO_DEVICE_LAYER = "is not recorded"


def become_machine():
    stubs = sorted((PROGRAM.parent.parent / "null_device").glob("*.so.*"))
    os.environ["LD_PRELOAD"] = ":".join(map(str, stubs))
    os.environ["SHARDLENS_NULL_GPU"] = "h100"
    os.environ["SHARDLENS_NULL_GPUS"] = "4"
    os.environ["SHARDLENS_NULL_KEEP_COPIES"] = "1"


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found}, not {wanted}")


class Attached(Recorded):
    def expect_ranks(self, size):
        """Each rank has its own recording, whose peaks are what its PyTorch has counted."""
        names = sorted(path.name for path in (self.out / "profiles").iterdir())
        expect("files", names, sorted(f"rank{i}.{end}" for i in range(size) for end in ("slp", "json")))
        ranks = json.loads(shardlens("profile", "report", self.out, "--json").stdout)["ranks"]
        expect("ranks", [rank["rank"] for rank in ranks], list(range(size)))
        for rank in ranks:
            said = json.loads((self.out / "profiles" / f"rank{rank['rank']}.json").read_text())
            for key in ("allocated_bytes", "reserved_bytes"):
                expect(key, rank["peak"][key], said[f"peak_{key}"])
        return ranks


def python(folder, *arguments, **options):
    return Attached(folder, PYTHON, SCRIPT, *arguments, **options)


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def check_peaks(_):
    """Checks, as on a named GPU, that peaks and every event are PyTorch's own."""
    check(["transformer.py", "--strategy", "plain"], [])
    check(["transformer.py", "--strategy", "plain", "--optimizer", "fused", "--bf16"], [])


def check_gpu(folder, *arguments, code=0, more=None):
    """Runs `shardlens check-gpu`, and returns its text and what it wrote, if it wrote something."""
    out = pathlib.Path(folder, "check.json")
    limit = [] if "--limit" in arguments else ["--limit", "600"]
    words = ["check-gpu", "--python", PYTHON, "--out", out, *limit, *arguments]
    done = shardlens(*words, env=os.environ | (more or {}))
    expect(f"exit code of {arguments} ({done.stderr})", done.returncode, code)
    return done.stdout, json.loads(out.read_text()) if out.exists() else None


def outcomes(check):
    return [program["outcome"] for program in check["programs"]]


def check_built_in_programs(folder):
    """The machine's GPU and the simulated one are equal here, also where memory runs out."""
    text, check = check_gpu(folder)
    expect("outcomes", outcomes(check), ["same"] * 6)
    expect("verdict", text.splitlines()[-2], "the same, event by event: 6 of 6 programs")
    expect("GPU", (check["gpu"], check["simulated"]), ("NVIDIA H100 80GB HBM3", "h100"))
    last = check["programs"][-1]
    expect("beside", last["on_gpu"]["beside_pytorch_bytes"], 0)
    if last["on_gpu"]["failures"] == 0 or last["on_gpu"]["retries"] == 0:
        raise AssertionError(f"memory did not run out: {last}")
    written = json.dumps(check)
    for word in ('"/', " /", os.uname().nodename, os.environ.get("USER", "root")):
        if word in written:
            raise AssertionError(f"the file to send in says {word}")


def check_program_that_differs(folder):
    """Its second run, on the simulated GPU, asks for another size: the event is named."""
    script = pathlib.Path(folder, "differs.py")
    script.write_text(
        "import pathlib, torch\n"
        "ran = pathlib.Path(__file__).with_name('ran')\n"
        "kept = [torch.empty(1 << 20, device='cuda', dtype=torch.uint8) for _ in range(3)]\n"
        "kept.append(torch.empty(3000 if ran.exists() else 2000, device='cuda', dtype=torch.uint8))\n"
        "ran.touch()\n")
    text, check = check_gpu(folder, "--", PYTHON, script, code=1)
    [program] = check["programs"]
    expect("outcome", program["outcome"], "differs")
    expect("then", (program["events"]["then_on_gpu"][0], program["events"]["then_simulated"][0]),
           ("alloc 2000 bytes", "alloc 3000 bytes"))
    if "alloc 2000 bytes on the GPU, alloc 3000 bytes on the simulated one" not in text:
        raise AssertionError(text)
    if script.name in json.dumps(check) or "not the same" not in text:
        raise AssertionError(f"{text}{check}")


def check_bad_checks(folder):
    """A program that fails is never the same."""
    check_gpu(folder, "--", PYTHON, SCRIPT, "exit_7", code=2)
    script = pathlib.Path(folder, "fails_later.py")
    script.write_text(
        "import pathlib, torch\n"
        "torch.ones(1, device='cuda')\n"
        "pathlib.Path(__file__).with_name('ran').mkdir()\n")  # fails the second time
    _, check = check_gpu(folder, "--", PYTHON, script, code=1)
    expect("outcomes", outcomes(check), ["failed"])


def check_ended_early(folder):
    """No time, and Ctrl-C: what was not reached is never the same."""
    _, check = check_gpu(folder, "--limit", "0.5", code=1)
    expect("outcomes", outcomes(check), ["not_reached"] * 6)
    words = ["check-gpu", "--python", PYTHON, "--out", pathlib.Path(folder, "check.json")]
    with subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        run.stderr.readline()  # it is about to run the first program
        time.sleep(2)
        run.send_signal(signal.SIGINT)
        run.communicate()
    expect("exit code after Ctrl-C", run.returncode, 130)
    check = json.loads(pathlib.Path(folder, "check.json").read_text())
    expect("outcomes", outcomes(check), ["not_reached"] * 6)
    expect("was interrupted", check["was_interrupted"], True)


def check_two_gpus(folder):
    """The first of two GPUs is checked, and the program sees no other."""
    script = pathlib.Path(folder, "one_gpu.py")
    script.write_text("import torch\n"
                      "assert torch.cuda.device_count() in (2, 1)  # the simulated one is alone\n"
                      "torch.ones(1 << 20, device='cuda')\n")
    more = {"SHARDLENS_NULL_GPUS": "2"}
    text, check = check_gpu(folder, "--", PYTHON, script, more=more)
    expect("outcomes", outcomes(check), ["same"])
    expect("verdict", text.splitlines()[-2], "the same, event by event: 1 of 1 programs")


def check_machine_without_gpu(folder):
    """One line says why nothing is checked, and no file is written."""
    done = shardlens("check-gpu", "--python", PYTHON, "--out", pathlib.Path(folder, "check.json"),
                     env={key: text for key, text in os.environ.items() if key != "LD_PRELOAD"})
    expect("exit code", done.returncode, 2)
    last = done.stderr.splitlines()[-1]
    if "nothing was checked" not in last or os.listdir(folder):
        raise AssertionError(f"{done.stderr}{os.listdir(folder)}")


def check_gpu_cases(folder):
    """Compares a GPU with its null device. DDP is left out for the reason below."""
    for name, (script, *flags) in gpu_cases.PROGRAMS.items():
        if name != "ddp":
            _, check = check_gpu(folder, "--", PYTHON, HERE / "scripts" / script, *flags)
            expect(name, outcomes(check), ["same"])


def check_driver(folder):
    """All memory from the driver here is what PyTorch's allocator has asked for."""
    python(folder, "exit_7").expect(7, "exit code is 7")
    report = report_of(folder + "/run")
    ledger = report["ledger"]
    expect("the driver's bytes", ledger["driver_bytes"], report["peak"]["reserved_bytes"])
    expect("in use", ledger["device_used_bytes"], report["peak"]["reserved_bytes"])
    expect("steps", len(report["steps"]), 2)


def check_profiler(folder):
    """The profiler begins before CUDA is initialised, and so before the recorder asks for CUPTI:
    either the driver is said not to be recorded, or all of its bytes are."""
    run = python(folder, "profile").expect(0)
    [rank] = run.expect_ranks(1)
    if NO_DEVICE_LAYER not in run.text + run.lines:
        expect("the driver's bytes", rank["ledger"]["driver_bytes"], rank["peak"]["reserved_bytes"])


def check_late_profiler(folder):
    python(folder, "profile_late").expect(0, "torch.profiler, which wants CUPTI", NO_DEVICE_LAYER)


def torchrun(folder, node, port, *command):
    """Runs two ranks, those of one node of two."""
    nodes = ["--nnodes", 2, "--nproc_per_node", 2, "--node_rank", node]
    place = ["--master_addr", "127.0.0.1", "--master_port", port]
    return Attached(folder, PYTHON, "-m", "torch.distributed.run", *nodes, *place, *command)


def check_ranks(folder):
    """Runs under torchrun, with a recorder on each of two nodes, which share the folder. DDP is
    left out: it compares shapes with ranks from which a null device receives nothing."""
    for strategy in ("fsdp2", "fsdp1"):
        with tempfile.TemporaryDirectory(dir=folder) as place, ThreadPoolExecutor() as nodes:
            script = [HERE / "scripts" / "transformer.py", "--strategy", strategy]
            port = free_port()
            runs = list(nodes.map(lambda node: torchrun(place, node, port, *script), range(2)))
            for node, run in enumerate(runs):
                for rank in (2 * node, 2 * node + 1):
                    run.expect(0, f"rank {rank} of 4 on cuda", f"rank{rank}.slp: fits")
            ranks = runs[0].expect_ranks(4)
            expect("events lost", [rank["lost"] for rank in ranks], [0] * 4)


def check_spawn(folder):
    python(folder, "spawn").expect(0, "rank 3 of 4").expect_ranks(4)


def check_launchers(folder):
    """Another launcher starts the ranks, with a recorder each, in one folder."""
    for rank in range(2):
        mpi = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2"}
        run = python(folder, "exit_7", more=mpi).expect(7, f"rank {rank} of 2 on cuda")
    run.expect_ranks(2)


def check_no_step(folder):
    """Records a program that allocates, and has no optimizer."""
    run = python(folder, "allocate").expect(0, "(including 0 B beside PyTorch)")
    ledger = run.expect_ranks(1)[0]["ledger"]
    expect("in use", ledger["device_used_bytes"], ledger["reserved_bytes"])


def check_steps(folder):
    python(folder, "catch_all", flags=["--steps", "2"]).expect(0, "ended after step 2")


def check_out_of_memory(folder):
    python(folder, "run_out").expect(3, "OutOfMemoryError", "does not fit")
    ending = HERE / "scripts" / "ending.py"
    command = [PYTHON, "-m", "torch.distributed.run", "--nproc_per_node", "2", ending]
    run = Attached(folder, *command, "run_out_as_rank")
    run.expect(3, "rank1.slp: does not fit: out of memory in step 1", "rank0.slp: no verdict: ")


def check_no_gpu(folder):
    python(folder, "stay_on_cpu").expect(5, "nothing was recorded", "without a GPU, give --device")


def check_refusals(_):
    for flag, value in {"--world": "8", "--rank": "0", "--capacity": "40GiB"}.items():
        done = shardlens("record", flag, value, "--", PYTHON)
        if done.returncode != 2 or flag not in done.stderr or done.stderr.count("\n") != 1:
            raise AssertionError(f"exit code {done.returncode}: {done.stderr}")


def check_without_stubs(folder):
    """A machine with a GPU has none of the null device's libraries: no hook needs one when it is
    imported."""
    options = dict.fromkeys(("library", "rank", "world", "gpus_per_node", "steps"))
    options |= {"device": "cuda", "true_at": [], "doubts": [], "accounts": folder, "folder": folder,
                "claim": "claim"}
    environment = {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
    environment |= {"SHARDLENS_RECORD": json.dumps(options),
                    "PYTHONPATH": str(PROGRAM.parent.parent / "record" / "python")}
    done = subprocess.run(
        [PYTHON, "-c", "from shardlens_record import recording, values\n"
         "assert values.unknown_reads() == 0"],
        capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0 or done.stderr:
        raise AssertionError(done.stderr)


QUICK = [
    check_driver, check_spawn, check_refusals, check_without_stubs, check_built_in_programs,
    check_machine_without_gpu, check_ended_early, check_two_gpus,
]
LONG = [
    check_peaks, check_gpu_cases, check_program_that_differs, check_bad_checks, check_profiler,
    check_late_profiler, check_ranks, check_launchers,
    check_no_step, check_steps, check_out_of_memory, check_no_gpu,
]


def main():
    become_machine()
    return run_cases({"quick": QUICK, "long": LONG}[sys.argv[1]])


if __name__ == "__main__":
    sys.exit(main())
