"""Phase 7: what is left when a run on the GPU does not end well: killed while it records, out of
memory, a rank that no longer answers."""

import json
import os
import signal
import time

import machine as machines
from results import Failed, NotChecked
from steps import SHARDLENS, Step, train_command

START_LIMIT_S = 60
STEPS_BEFORE = 20


def screen_of(text):
    """Returns the lines that a program printed, without the folder of this pack."""
    return text.replace(f"{machines.ROOT}/", "").splitlines()


def start_training(machine, folder, *flags):
    endless = ["--steps", "1000000", "--epochs", "1000000", "--log-every", "5"]
    command = train_command(folder, "run", "cuda", "--anyway", *endless, *flags)
    return machines.start(command, env=machine.gpu_environment())


def wait_for_steps(process, folder):
    """Waits until metrics.jsonl has that many steps; raises Failed if the run ends earlier."""
    metrics = folder / "run" / "metrics.jsonl"
    deadline = machines.Deadline(START_LIMIT_S)
    while deadline.left_s() > 0:
        written = metrics.read_text() if metrics.exists() else ""
        lines = written[: written.rfind("\n") + 1].splitlines()  # the run may be writing the next
        if lines and json.loads(lines[-1]).get("step", 0) >= STEPS_BEFORE:
            return
        if process.poll() is not None:
            raise Failed(
                f"the run ended before it was to: {machines.last_line(*process.communicate())}"
            )
        time.sleep(0.1)
    raise Failed(f"no {STEPS_BEFORE} steps in {START_LIMIT_S} s")


def killed(machine, folder):
    """kill -9 of all ranks: what was recorded must exist, and be judged."""
    process = start_training(machine, folder, "--strategy", "single", "--profile", "on")
    try:
        wait_for_steps(process, folder)
    finally:
        machines.end(process)
        process.communicate()
    out = machine.on_null([SHARDLENS, "profile", "report", folder / "run", "--json"])
    rank = json.loads(out)["ranks"][0]
    steps_, state = len(rank["steps"]), rank["judgement"]["state"]
    if steps_ < STEPS_BEFORE // 2 or rank["peak"]["allocated_bytes"] <= 0:
        raise Failed(f"{steps_} steps are left of {STEPS_BEFORE} and more")
    return {
        "verdict": "passed",
        "judgement": rank["judgement"],
        "said": f"killed after {STEPS_BEFORE} steps or more: {steps_} are left, the recording is "
        f"{state}",
    }


def out_of_memory(machine, folder):
    """Runs really out of memory, with a model whose state is larger than any GPU. The screen must
    say what held the memory."""
    flags = ["--model", "llama-70b", "--strategy", "single", "--param-dtype", "bf16"]
    flags += ["--steps", "2", "--profile", "on", "--anyway"]
    command = train_command(folder, "run", "cuda", *flags)
    code, out, error = machines.run(command, env=machine.gpu_environment())
    screen = screen_of(out + error)
    wanted = ("out of memory", "asked for", "free on the device", "parameters")
    missing = [word for word in wanted if not any(word in line for line in screen)]
    if code == 0 or missing:
        raise Failed(f"exit code {code}; the screen lacks {missing}: {machines.last_line(error)}")
    return {
        "verdict": "passed",
        "exit_code": code,
        "screen": screen[:60],
        "said": f"exit code {code}, and the screen says what held the memory",
    }


def recorded_out_of_memory(machine, folder):
    """Runs out of memory in a Python program that is recorded attached: the exit code is 3."""
    command = [
        SHARDLENS,
        "record",
        "--out",
        folder / "run",
        "--timeout",
        "100",
        "--",
        machine.python,
        machines.SCRIPTS / "ending.py",
        "fill" if not machine.few else "run_out",
    ]
    code, out, error = machines.run(command, env=machine.gpu_environment())
    if code != 3 or "does not fit" not in out + error:
        raise Failed(f"exit code {code}, not 3: {machines.last_line(out, error)}")
    return {
        "verdict": "passed",
        "exit_code": code,
        "screen": screen_of(out + error)[-40:],
        "said": "exit code 3 and a verdict",
    }


def rank_processes(launcher):
    """Returns the processes whose parent is the launcher."""
    found = []
    for path in os.listdir("/proc"):
        if not path.isdigit():
            continue
        try:
            with open(f"/proc/{path}/stat", encoding="utf-8", errors="replace") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == launcher:
            found.append(int(path))
    return sorted(found)


def lost_rank(machine, folder):
    """One of two ranks is stopped: the other's deadline must end the run and name the wait."""
    process = start_training(
        machine, folder, "--workers", "2", "--communicator", "gloo", "--timeout", "5"
    )
    try:
        wait_for_steps(process, folder)
        ranks = rank_processes(process.pid)
        if len(ranks) != 2:
            raise NotChecked(f"the launcher has {len(ranks)} processes, not two ranks")
        os.kill(ranks[-1], signal.SIGSTOP)
        start = time.monotonic()
        process.wait(timeout=60)
        seconds = time.monotonic() - start
    finally:
        machines.end(process)
        out, error = process.communicate()
    said = machines.last_line(error)
    if process.returncode == 0 or "rank" not in out + error:
        raise Failed(f"exit code {process.returncode}: {said}")
    return {
        "verdict": "passed",
        "exit_code": process.returncode,
        "screen": screen_of(error)[:20],
        "said": f"ended after {seconds:.1f} s with exit code {process.returncode}",
    }


def steps(machine):
    functions = {
        "killed while it records": killed,
        "out of memory": out_of_memory,
        "a program out of memory": recorded_out_of_memory,
        "a rank that stops": lost_rank,
    }
    return [
        Step(name, lambda folder, function=function: function(machine, folder))
        for name, function in functions.items()
    ]
