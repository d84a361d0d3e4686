"""Tests what `shardlens record` does with programs that fail, hang, fork, or start processes, and
`shardlens gate` with a program that has grown.

    behaviour_cases.py quick|long

recorded.py says which Python runs them.
"""

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile

from recorded import HERE, PROGRAM, PYTHON, OnNullDevice, report_of, run_cases, shardlens

SCRIPT = HERE / "scripts" / "misbehave.py"


def python(folder, *arguments, **options):
    return OnNullDevice(folder, PYTHON, SCRIPT, *arguments, **options)


def check_fail(folder):
    python(folder, "fail").expect(1, "a mistake of the user's", "exit code is 1").expect_steps(2)


def check_exit_code(folder):
    python(folder, "exit_7").expect(7, "exit code is 7").expect_steps(2)


def check_kill(folder):
    run = python(folder, "kill_itself").expect(137, "the command was ended by Killed", "not closed")
    run.expect_steps(2)


def check_hang(folder):
    run = python(folder, "hang", flags=["--timeout", "45"])
    run.expect(124, "--timeout has passed", "KeyboardInterrupt").expect_steps(2)


def check_hang_for_ever(folder):
    run = python(folder, "hang_for_ever", flags=["--timeout", "45"])
    run.expect(124, "and was killed", "not closed").expect_steps(2)


def check_interrupt(folder):
    """Sends a signal only to the command's program."""
    place = ["--device", "null:h100", "--out", f"{folder}/run", "--"]
    command = [PROGRAM, "record", *place, PYTHON, SCRIPT, "hang"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            if "hanging" in line:
                break
        run.send_signal(signal.SIGINT)
        try:
            out, error = run.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            run.kill()
            raise
    if run.returncode == 0 or "peak" not in out or "the command got Interrupt" not in error:
        raise AssertionError(f"exit code {run.returncode}\n{out}{error}")


def check_fork(folder):
    python(folder, "fork").expect(0).expect_steps(3)


def check_workers(folder):
    python(folder, "load").expect(0).expect_steps(4)


def check_profiler(folder):
    python(folder, "profile").expect(0, "uses torch.profiler").expect_steps(2)


def check_out_of_memory(folder):
    python(folder, "run_out").expect(3, "OutOfMemoryError", "does not fit")


def check_steps(folder):
    run = python(folder, "catch_all", flags=["--steps", "2"])
    run.expect(0, "ended after step 2", "caught SystemExit").expect_steps(2)


def check_resume(folder):
    """The step that PyTorch makes before it reads a state into the optimizer does not count; what
    was read is known."""
    run = python(folder, "resume").expect(0)
    run.expect_steps(3)
    categories = report_of(run.out)["at_peak"]["categories"]
    if categories["optimizer_state"] != 2 * categories["parameter_shard"]:
        raise AssertionError(f"Adam has two moments a parameter, but there are {categories}")


def check_no_gpu(folder):
    python(folder, "stay_on_cpu").expect(5, "nothing was recorded")


def check_decisions(folder):
    """Checks that exactly the lines are reported whose comments say so."""
    script = HERE / "scripts" / "decide.py"
    run = OnNullDevice(folder, PYTHON, script).expect(0, "done")
    lines = list(enumerate(script.read_text().splitlines(), 1))
    marks = {
        "# decides": "decides by a number",
        "# is False": "decides by a GPU tensor",
        "# takes a number": "as a number",
        "# has a shape": "a shape depends on",
    }
    for mark, told in marks.items():
        expected = {number for number, line in lines if mark in line}
        found = re.findall(rf"decide\.py:(\d+): .*{told}", run.lines)
        if set(map(int, found)) != expected or len(found) != len(expected):
            raise AssertionError(f"{told}: lines {found}, not {sorted(expected)}:\n{run.lines}")


def check_decisions_in_verdict(folder):
    """Checks that decisions by unknown values put the verdict in doubt."""
    script = HERE / "scripts" / "decide.py"
    number = next(n for n, line in enumerate(script.read_text().splitlines(), 1) if "# is False" in line)
    OnNullDevice(folder, PYTHON, script, flags=["--true", f"scripts/decide.py:{number}:2"]).expect(
        0, "decisions by values that are not known: decide.py:")
    facts = json.loads((pathlib.Path(folder) / "run" / "profiles" / "rank0.json").read_text())
    said = " ".join(facts["doubts"])
    if not re.search(r"^\d+ decisions by .* and \d+ more$", said):
        raise AssertionError(f"no count of decisions: {said}")


def check_known_values(folder):
    """Programs drawn by seed read and decide the same on the GPU as on the CPU, and never decide by
    an unknown value."""
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"  seed {seed}")
    script = HERE / "scripts" / "known.py"
    run = OnNullDevice(folder, PYTHON, script, "100", seed).expect(0, "equal: 100 programs")
    if "not known" in run.lines + run.text:
        raise AssertionError(f"seed {seed}: a value is not known:\n{run.lines}")


def check_known_collectives(folder):
    """Absent ranks have the values of this one: rank 1 of 4, whose values are 1, 2, 3, 4."""
    script = HERE / "scripts" / "known.py"
    run = OnNullDevice(folder, PYTHON, script, "collectives", flags=["--world", "4", "--rank", "1"])
    run.expect(0, "[4, 8, 12, 16] [1, 2, 3, 4] True True [8] [2, 2, 2, 2] [1, 2, 3, 4] [2, 2, 2, 2]")


def check_unknown_masks(folder):
    """An unknown mask selects nothing, and the values that it would have changed stay known.
    Unknown numbers are finite, as is the mean of those that it selects; the mean of an empty set is
    not."""
    run = OnNullDevice(folder, PYTHON, HERE / "scripts" / "known.py", "masks")
    run.expect(0, "ends [7, 7, 7, 7]", "shapes depended on values",
               "finite [False, False, True, False] 8", "nothing nan",
               "large [True, False, [True, True]] False", "few True", "listed torch.Size([1, 2])",
               "told [False, True, False] [True, False, False]")


def check_checks(folder):
    """Checks that the program's checks of unknown values pass and are not counted as decisions."""
    script = HERE / "scripts" / "known.py"
    lines = script.read_text().splitlines()
    decides = next(n for n, line in enumerate(lines, 1) if "not taken" in line)
    run = OnNullDevice(folder, PYTHON, script, "checks").expect(
        0, "passed 1 not taken", f"1 decision by values that are not known: known.py:{decides}")
    told = len(re.findall(r"known\.py:\d+: the program checks GPU values", run.lines))
    if told != 6:
        raise AssertionError(f"6 lines check, not {told}:\n{run.lines}")


def check_true(folder):
    """Names four lines: one decides by a tensor and is taken, one reads a number, one decides by no
    tensor, one does not exist."""
    script = HERE / "scripts" / "decide.py"
    lines = script.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "# is False" in text)
    reads = next(number for number, text in enumerate(lines, 1) if "size = int(loss())" in text)
    true = [f"decide.py:{line}", f"decide.py:{reads}", f"decide.py:{line + 1}", "other.py:1"]
    flags = [word for place in true for word in ("--true", place)]
    run = OnNullDevice(folder, PYTHON, script, flags=flags)
    run.expect(0, "taken\n", "never\n",
               f"decide.py:{reads + 1}: the program decides by a number that it has read from the GPU "
               f"at decide.py:{reads}; it is not known, and is taken to be 1, as --true says",
               *(f"--true {place}: the program asked for no" for place in true[2:]))


def check_two_processes(folder):
    python(folder, "two_processes").expect(0, "uses the GPU too; only the first").expect_steps(1)


LAUNCHER = """
import os, subprocess, sys, torch
torch.cuda.init()
how, command = sys.argv[1], [sys.executable, *sys.argv[2:]]
if how == "becoming":
    os.execv(command[0], command)
if how == "using":
    torch.ones(1, device="cuda")
sys.exit(subprocess.run(command).returncode)
"""


def check_launcher_with_gpu(folder):
    """Checks that the program is recorded, not a launcher that asked for the GPU before."""
    launcher = pathlib.Path(folder) / "launcher.py"
    launcher.write_text(LAUNCHER)
    for how, steps in {"starting": 3, "becoming": 3, "using": 0}.items():
        run = OnNullDevice(folder, PYTHON, launcher, how, SCRIPT, "fork")
        run.expect(0, "as PyTorch counted: equal").expect_steps(steps)
        if ("uses the GPU too" in run.lines) != (how == "using"):
            raise AssertionError(f"{how}: {run.lines}")


def check_capacity(folder):
    """Gives the device less than CUDA itself takes, which the null device does not count."""
    python(folder, "fork", flags=["--capacity", "512MiB"]).expect(3, "does not fit")


def torchrun(folder, *torchrun_flags, flags=()):
    command = [PYTHON, "-m", "torch.distributed.run", *torchrun_flags]
    return OnNullDevice(folder, *command, SCRIPT, "use_rank", flags=flags)


def check_torchrun(folder):
    torchrun(folder, "--nproc_per_node", "8").expect(0, "rank 0 of 8")


def check_torchrun_rank(folder):
    flags = ["--world", "64", "--rank", "5"]
    torchrun(folder, "--nproc_per_node", "8", flags=flags).expect(0, "rank 5 of 64")


MORE_CALLS = """
import ctypes, torch
torch.ones(1, device="cuda")
try:
    import more_calls
except SystemError as error:
    print("imported:", error)
library = ctypes.CDLL("./more_calls.so")
print("managed", library.fill_managed_memory(), "others", library.call_what_is_not_supported())
"""


def check_more_calls(folder):
    """A library may call any function of NVIDIA's and still loads, by import and by ctypes. Its
    calls return the errors of cudaErrorNotSupported, 801, and CUSPARSE_STATUS_NOT_SUPPORTED, 10."""
    source, library = HERE / "scripts" / "more_calls.cpp", pathlib.Path(folder) / "more_calls.so"
    subprocess.run(["c++", "-shared", "-fPIC", source, "-o", library], check=True)
    script = library.with_name("program.py")
    script.write_text(MORE_CALLS.replace("./", f"{folder}/"))
    run = OnNullDevice(folder, PYTHON, script)
    run.expect(0, "imported: initialization of more_calls failed", "managed 0 others 80110",
               "null device: cusparseSpMMOp is not supported", "equal")


PRELOADING = """
import ctypes, pathlib, torch
stub = f"libcublas.so.{torch.version.cuda.split('.')[0]}"
library = pathlib.Path("FOLDER", stub)
library.write_text("nothing that a loader takes")
print("is the stub:", ctypes.CDLL(str(library))._handle == ctypes.CDLL(stub)._handle)
torch.ones(2**20, device="cuda")
"""


def check_preloaded_libraries(folder):
    """NVIDIA's libraries in pip's packages, which PyTorch loads by path, are not loaded."""
    script = pathlib.Path(folder) / "program.py"
    script.write_text(PRELOADING.replace("FOLDER", str(folder)))
    OnNullDevice(folder, PYTHON, script).expect(0, "is the stub: True", "equal")


def check_launches(folder):
    """A kernel makes its tensors unknown, or all tensors if its arguments are not known."""
    run = OnNullDevice(folder, PYTHON, HERE / "scripts" / "launch.py")
    run.expect(0, "given two of four: 0 8 0 8", "given one and a table: 0 8 8 0",
               "not described: 0 0 0 0", "equal")


def check_large_zeros(folder):
    """Values of tensors above 1 MiB are not kept, so they take no memory of the host. Of smaller
    ones 160 MiB are kept, whatever else the program allocates between them."""
    code = ("import torch\n"
            "def host_kib():\n"
            "    lines = open('/proc/self/status').read().splitlines()\n"
            "    return next(int(line.split()[1]) for line in lines if line.startswith('RssAnon'))\n"
            "torch.empty(1, device='cuda'); before = host_kib()\n"
            "def say_taken(elements, count, most_mib):\n"
            "    kept = [torch.zeros(elements, device='cuda') for _ in range(count)]\n"
            "    taken = (host_kib() - before) >> 10\n"
            "    print(elements, 'little' if taken < most_mib else f'{taken} MiB')\n"
            "say_taken(1 << 20, 300, 100)\n"
            "say_taken(1 << 18, 1200, 260)\n"
            "say_taken(1 << 14, 6000, 300)\n")
    OnNullDevice(folder, PYTHON, "-c", code).expect(
        0, f"{1 << 20} little", f"{1 << 18} little", f"{1 << 14} little", "1.17 GiB allocated")


def check_other_gpu(folder):
    """The thread that ends the program uses another GPU than the thread that allocated."""
    code = ("import threading, torch\n"
            "def use(): torch.cuda.set_device(1); torch.ones(1 << 20, device='cuda')\n"
            "thread = threading.Thread(target=use); thread.start(); thread.join()\n"
            "print('GPU', torch.cuda.current_device())\n")
    run = OnNullDevice(folder, PYTHON, "-c", code, flags=["--gpus-per-node", "2"])
    run.expect(0, "GPU 0", "peak                  4.00 MiB allocated", "as PyTorch counted: equal")


TWO_GPUS = """
import torch
first = [torch.nn.Linear(2048, 2048).to("cuda:0") for _ in range(3)]
last = [torch.nn.Linear(2048, 2048).to("cuda:1") for _ in range(5)]
optimizer = torch.optim.Adam([p for layer in first + last for p in layer.parameters()])
for _ in range(3):
    x = torch.randn(1024, 2048, device="cuda:0")
    for layer in first:
        x = layer(x)
    x = x.to("cuda:1")
    for layer in last:
        x = layer(x)
    x.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def check_two_gpus_of_a_process(folder):
    """A recording has the GPU that is asked for, and names what the process had on the other: the peaks
    that PyTorch counts there are those of the other recording."""
    recorded, left_out = {}, {}
    for gpu, flags in ((0, ()), (1, ("--gpu-index", "1"))):
        place = pathlib.Path(folder) / str(gpu)
        place.mkdir()
        run = OnNullDevice(place, PYTHON, "-c", TWO_GPUS, flags=["--gpus-per-node", "2", *flags])
        run.expect(0, "as PyTorch counted: equal", f"in doubt: GPU {1 - gpu} is left out").expect_steps(3)
        facts = json.loads((run.out / "profiles" / "rank0.json").read_text())
        recorded[gpu] = (facts["peak_allocated_bytes"], facts["peak_reserved_bytes"])
        (other,) = facts["other_gpus"]
        left_out[other["gpu"]] = (other["allocated_bytes"], other["reserved_bytes"])
        assert facts["gpu"] == gpu, facts
        assert report_of(run.out)["peak"]["allocated_bytes"] == recorded[gpu][0]
    assert recorded == left_out and recorded[1] > recorded[0], [recorded, left_out]
    run = OnNullDevice(folder, PYTHON, "-c", TWO_GPUS, flags=["--gpu-index", "1"])
    run.expect(2, "--gpu-index 1: the program's last GPU is 0")


def check_nvml(folder):
    """Checks that NVML has the GPUs that CUDA has, and their memory: a tensor and what is beside."""
    run = OnNullDevice(folder, PYTHON, HERE / "scripts" / "nvml.py",
                       flags=["--gpus-per-node", "3", "--beside", "700MiB"])
    run.expect(0, "GPUs 3 3 differ [[], [], []]", "used 956 MiB", "another None None None", "equal")


def check_data_parallel(folder):
    """Runs one process with four GPUs, which NCCL connects within it."""
    run = python(folder, "use_all_gpus", flags=["--world", "4"])
    run.expect(0, "4 GPUs").expect_steps(2)


def check_spawn(folder):
    python(folder, "spawn").expect(0, "rank 0 of 4")


def check_spawned_rank(folder):
    python(folder, "spawn", flags=["--rank", "3"]).expect(0, "rank 3 of 4").expect_steps(1)


LIKE_DEEPSPEED = """
import os, subprocess, sys
own = {"WORLD_SIZE": "4", "LOCAL_SIZE": "4", "CROSS_RANK": "0", "CROSS_SIZE": "1"}
ranks = [subprocess.Popen([sys.executable, *sys.argv[1:]],
                          env=os.environ | own | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
         for rank in range(4)]
sys.exit(max(rank.wait() for rank in ranks))
"""


def check_deepspeed(folder):
    """DeepSpeed's launcher starts four processes, of which one is run."""
    launcher = pathlib.Path(folder) / "launch.py"
    launcher.write_text(LIKE_DEEPSPEED)
    command = [PYTHON, launcher, SCRIPT, "use_node"]
    run = OnNullDevice(folder, *command, flags=["--rank", "2"])
    run.expect(0, "rank 2 of 4", "gpu 2 of 4, node 0 of 1 4")
    if len(list((run.out / "profiles").glob("*.slp"))) != 1 or run.text.count("gpu 2") != 1:
        raise AssertionError(run.text)


def check_runners(folder):
    """Launchers of environments start an environment's Python, not the one on PATH, which has no
    PyTorch here."""
    tools = pathlib.Path(folder) / "tools"
    tools.mkdir()
    # conda is a Python program itself, and its own environment does not matter here.
    conda = f"#!{PYTHON}\nimport os, sys; os.execv({PYTHON!r}, [{PYTHON!r}, *sys.argv[2:]])\n"
    uv = f'#!/bin/sh\nshift; exec "{PYTHON}" "$@"\n'
    for name, text in {"uv": uv, "conda": conda, "python3": "#!/bin/sh\nexit 1\n"}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    for name in ("uv", "conda"):
        OnNullDevice(folder, name, "run", SCRIPT, "use_rank", flags=["--world", "4"],
                     more=path).expect(0, "rank 0 of 4", "equal")
    (tools / "uv").write_text("#!/bin/sh\nexit 1\n")
    OnNullDevice(folder, "uv", "run", SCRIPT, more=path).expect(2, "run uv add torch")


def check_node(folder):
    """Rank 13 of 16 is the sixth of the second node, or the second of the fourth."""
    for flags, said in {
        (): "gpu 5 of 8, node 1 of 2 8",
        ("--gpus-per-node", "4"): "gpu 1 of 4, node 3 of 4 4",
    }.items():
        flags = ["--world", "16", "--rank", "13", *flags]
        hidden = {"CUDA_VISIBLE_DEVICES": ""}  # as on a machine where no GPU is to be used
        python(folder, "use_node", flags=flags, more=hidden).expect(0, said)


def check_shards_of_nodes(folder):
    """FSDP1's hybrid strategy asks PyTorch how many GPUs a node has, and cuts by that."""
    script = [PYTHON, HERE / "scripts" / "transformer.py", "--strategy", "fsdp1-nodes"]

    def state_bytes(gpus):
        flags = ["--world", "16", "--rank", "13", "--gpus-per-node", gpus, "--steps", "2"]
        out = OnNullDevice(folder, *script, flags=flags).expect(0).out
        return report_of(out)["at_peak"]["requested_categories"]["optimizer_state"]

    ratio = state_bytes(4) / state_bytes(8)
    if not 1.99 < ratio < 2.01:
        raise AssertionError(f"the state of a shard of 4 is {ratio} times that of one of 8")


def check_torchrun_node(folder):
    command = [PYTHON, "-m", "torch.distributed.run", "--nproc_per_node", "4", "--nnodes", "4"]
    run = OnNullDevice(folder, *command, SCRIPT, "use_node", flags=["--rank", "13"])
    run.expect(0, "gpu 1 of 4, node 3 of 4 4")


def check_own_sitecustomize(folder):
    site = pathlib.Path(folder) / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("print('the users own')")
    run = python(folder, "exit_7", more={"PYTHONPATH": str(site)})
    run.expect(7, "the users own").expect_steps(2)


def check_refusals(folder):
    def refused(part, *arguments):
        done = shardlens("record", *arguments)
        if done.returncode != 2 or part not in done.stderr or done.stderr.count("\n") != 1:
            raise AssertionError(f"exit code {done.returncode}: {done.stderr}")

    refused("no command", "--device", "null:h100")
    refused("no such command", "--device", "null:h100", "--", "no-such-program")
    refused("h1000", "--device", "null:h1000", "--", PYTHON)
    refused("--world 0", "--device", "null:h100", "--world", "0", "--", PYTHON)
    refused("--rank 8", "--device", "null:h100", "--world", "8", "--rank", "8", "--", "python")
    bare = pathlib.Path(folder) / "python-without"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    refused("has no PyTorch", "--device", "null:h100", "--", bare)
    bare.write_text("#!/bin/sh\nprintf '%s\\n' /python /nowhere 2.4.0 none feedfacecafe\n")
    refused("is built without CUDA", "--device", "null:h100", "--", bare)


def check_longest_batch(folder, *words):
    """The longest batch comes first: 20 steps take what all 500 take, and memory that would run out
    at a late step runs out at once."""
    def recorded(*flags, code=0):
        script = HERE / "scripts" / "levers" / "lengths.py"
        return OnNullDevice(tempfile.mkdtemp(dir=folder), PYTHON, script, *words, flags=flags).expect(code)

    def peak_of(run):
        peak = report_of(run.out)["peak"]
        return peak["allocated_bytes"], peak["reserved_bytes"]

    whole = peak_of(recorded())
    drawn = recorded("--steps", "20", "--lengths", "drawn:3")
    drawn.expect(0, "with 3600 tokens in sequences of 900; it comes first")
    assert all(abs(a / b - 1) < 0.05 for a, b in zip(peak_of(drawn), whole)), (peak_of(drawn), whole)
    longest = peak_of(recorded("--steps", "20", "--lengths", "longest:900"))
    assert all(a >= b for a, b in zip(longest, whole)), (longest, whole)
    file = pathlib.Path(folder) / "lengths.txt"
    file.write_text("\n".join(["100"] * 70 + ["900"] + ["50"] * 29))
    listed = recorded("--steps", "20", "--lengths", str(file))
    listed.expect(0, "the longest of 25 batches is batch 18, with 900 tokens; it comes first")
    assert peak_of(listed)[0] == whole[0], (peak_of(listed), whole)
    small = recorded("--lengths", "drawn:3", "--capacity", "820MiB", code=3)
    assert small.steps() < 10, small.steps()


def check_gate(folder):
    for name, percent in {"base": 0, "same": 0, "grown": 3}.items():
        os.mkdir(f"{folder}/{name}")
        python(f"{folder}/{name}", "grow", percent).expect(0)
    base, same, grown = (f"{folder}/{name}/run" for name in ("base", "same", "grown"))
    report = f"{folder}/gate.md"
    unchanged = shardlens("gate", base, same, "--fail-above", "2%")
    regressed = shardlens("gate", base, grown, "--fail-above", "2%", "--markdown", report)
    shrunk = shardlens("gate", grown, base)
    codes = [unchanged.returncode, regressed.returncode, shrunk.returncode]
    if codes != [0, 1, 0]:
        raise AssertionError(f"exit codes {codes}: {regressed.stderr}")
    text = pathlib.Path(report).read_text().strip()
    if "grew too much" not in text or "misbehave.py" not in text:
        raise AssertionError(text)
    if text not in (HERE.parents[2] / "docs" / "gate.md").read_text():
        raise AssertionError(f"docs/gate.md differs from\n{text}")


def check_groups(folder):
    """Counts the communicators that PyTorch knows as its process groups, without gloo's."""
    script = HERE / "scripts" / "groups.py"
    run = OnNullDevice(folder, PYTHON, script, flags=["--world", "16", "--rank", "15"])
    run.expect(0, "for 1 communicator of 16 ranks, 1 of 8, 1 of 4, 1 of 2, if all of them are used")
    known = json.loads(re.search("^known (.*)$", run.text, re.MULTILINE).group(1))
    facts = json.loads((run.out / "profiles" / "rank15.json").read_text())
    counted, known = (sorted((one["ranks"], one["on_node"]) for one in groups)
                      for groups in (facts["communicators"], known))
    if counted != known:
        raise AssertionError(f"PyTorch knows {known}, not {counted}")


def check_stacks(folder):
    """A report without stacks, as a benchmark asks for, says the same as with them."""
    said = []
    for wanted in ("0", "1"):
        out = pathlib.Path(folder) / wanted
        run = OnNullDevice(out, PYTHON, SCRIPT, "exit_7", more={"SHARDLENS_RECORD_STACKS": wanted})
        alive = shardlens("profile", "alive", run.expect(7).out).stdout
        if ("this recording has no stacks" in alive) != (wanted == "0"):
            raise AssertionError(f"stacks {wanted}:\n{alive}")
        report = report_of(run.out)
        said.append([report["peak"], report["at_peak"]["tensors"]])
    if said[0] != said[1] or not said[0][1]:
        raise AssertionError(f"without stacks {said[0]}\nwith stacks {said[1]}")


QUICK = [check_fail, check_kill, check_known_values, check_known_collectives, check_unknown_masks,
         check_checks, check_groups, check_more_calls, check_preloaded_libraries, check_launches,
         check_stacks, check_large_zeros]
LONG = [
    check_exit_code, check_hang, check_hang_for_ever, check_interrupt, check_fork,
    check_workers, check_profiler, check_out_of_memory, check_steps, check_resume, check_no_gpu,
    check_decisions, check_decisions_in_verdict, check_true, check_two_processes, check_launcher_with_gpu,
    check_capacity, check_torchrun, check_torchrun_rank, check_torchrun_node, check_deepspeed, check_runners,
    check_spawn, check_spawned_rank, check_node, check_shards_of_nodes, check_own_sitecustomize,
    check_refusals, check_gate, check_data_parallel, check_other_gpu, check_two_gpus_of_a_process,
    check_nvml, check_longest_batch,
]


def main():
    # A shell that starts this in the background ignores SIGINT, also for programs started from
    # here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return run_cases({"quick": QUICK, "long": LONG}[sys.argv[1]])


if __name__ == "__main__":
    sys.exit(main())
