"""Tests how `shardlens record` distinguishes programs that failed, that ran out of memory and that
were not recorded, by exit codes and by what it prints.

    ending_cases.py quick|long [CASE...]

recorded.py says which Python runs them.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

from recorded import HERE, PROGRAM, PYTHON, OnNullDevice, report_of, run_cases

SCRIPT = HERE / "scripts" / "ending.py"
# Commands that name no Python run the one on PATH.
WITH_PYTHON = {"PATH": f"{pathlib.Path(PYTHON).parent}:{os.environ['PATH']}"}
IMPORTING = HERE / "scripts" / "importing.py"
WRAPPED = HERE / "scripts" / "wrapped.py"


def python(folder, *arguments, **options):
    return OnNullDevice(folder, PYTHON, SCRIPT, *arguments, **options)


def expect_no_fit(run):
    """Expects that a program that did not run to its end is not said to fit."""
    if re.search(r"\bfits\b", run.text + run.lines):
        raise AssertionError(f"it is said to fit:\n{run.text}{run.lines}")
    return run


def expect_nothing(run, code, cause):
    """Expects a line with the cause, which does not blame flags that were not given."""
    lines = [line for line in run.lines.splitlines() if "nothing was recorded: " in line]
    if len(lines) != 1 or cause not in lines[0] or "-I" in lines[0].replace(cause, ""):
        raise AssertionError(f"no {cause!r} in {lines}:\n{run.lines}")
    expect_no_fit(run).expect(code)


# --- programs that failed -------------------------------------------------------------------------


def check_failed(folder):
    run = expect_no_fit(python(folder, "fail"))
    run.expect(1, "no verdict: the program failed with exit code 1, ValueError: a mistake of the "
               "user's (misbehave.py:", ", after 2 steps; the peak so far, ", " is a lower bound")


def check_exited(folder):
    expect_no_fit(python(folder, "exit_7")).expect(7, "the program ended with exit code 7, after 2 steps")


def check_crashed(folder):
    expect_no_fit(python(folder, "crash")).expect(139, "no verdict: the command was ended by ", "after its step 1 had begun")


def check_interrupted(folder):
    """Interrupts a program that then ends with 0."""
    run = expect_no_fit(python(folder, "stop_on_interrupt", flags=["--timeout", "45"]))
    run.expect(124, "no verdict: the command was interrupted: --timeout has passed, after 2 steps")


def check_terminated(folder):
    command = [PROGRAM, "record", "--device", "null:h100", "--out", f"{folder}/run", "--"]
    command += ["bash", "-c", f"trap 'exit 0' TERM; {PYTHON} {SCRIPT} allocate; echo hanging; "
                "sleep 600 >/dev/null 2>&1 & wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True, env=os.environ | WITH_PYTHON) as run:
        try:
            next((line for line in run.stdout if "hanging" in line), None)
            run.send_signal(signal.SIGTERM)
            out, error = run.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):  # all have ended
                os.killpg(run.pid, signal.SIGKILL)
    if run.returncode != 143 or "no verdict: the command got Terminated" not in out:
        raise AssertionError(f"exit code {run.returncode}\n{out}{error}")


def check_left(folder):
    """Leaves without running atexit's functions: the recording is whole."""
    python(folder, "leave").expect(0, "rank0.slp: fits: ").expect_steps(2)


# --- out of memory --------------------------------------------------------------------------------


OUT_OF_MEMORY = "does not fit: out of memory "


def check_differentiated(folder):
    """Without waiting for autograd's threads, half of such programs end by SIGABRT."""
    for number in range(4):
        python(f"{folder}/{number}", "differentiate").expect(0)


def check_uncaught(folder):
    run = expect_no_fit(python(folder, "run_out"))
    run.expect(3, OUT_OF_MEMORY + "before its first step at misbehave.py:", "4.00 TiB could not be "
               "allocated, with 0 B allocated and 0 B reserved by PyTorch, of 79.19 GiB (745.00 MiB are "
               "taken beside PyTorch); the program failed with exit code 1, OutOfMemoryError: ")


def check_caught(folder):
    run = expect_no_fit(python(folder, "run_out_and_exit"))
    run.expect(3, OUT_OF_MEMORY + "in step 2", "the program ended with exit code 1")


def check_went_on(folder):
    expect_no_fit(python(folder, "run_out_and_go_on")).expect(3, "the program went on without it")


def check_died(folder):
    expect_no_fit(python(folder, "run_out_and_die")).expect(3, "does not fit: ")


def check_child(folder):
    run = python(folder, "run_out_in_child").expect(3, "ran out of memory: ")
    expect_no_fit(run)


def check_torchrun(folder):
    command = [PYTHON, "-m", "torch.distributed.run", "--nproc_per_node", "8", SCRIPT]
    run = OnNullDevice(folder, *command, "run_out_as_rank", flags=["--rank", "7"])
    expect_no_fit(run).expect(3, OUT_OF_MEMORY + "in step 1")


def check_filled(folder):
    """Checks that the line has the figures of the error's own message, and that what is taken beside
    PyTorch is gone."""
    run = expect_no_fit(python(folder, "fill", flags=["--capacity", "8GiB"]))
    run.expect(3, "1.00 GiB could not be allocated, with 7.00 GiB allocated and 7.00 GiB reserved by "
               "PyTorch, of 8.00 GiB (745.00 MiB are taken beside PyTorch)")
    run = expect_no_fit(python(folder, "fill", flags=["--capacity", "8GiB", "--beside", "2.5GiB"]))
    run.expect(3, "with 5.00 GiB allocated and 5.00 GiB reserved by PyTorch, of 8.00 GiB (2.50 GiB are "
               "taken beside PyTorch)")


# --- nothing was recorded -------------------------------------------------------------------------


def check_no_script(folder):
    run = OnNullDevice(folder, PYTHON, f"{folder}/nowhere.py")
    expect_nothing(run, 5, f"there is no script {folder}/nowhere.py")
    by_torchrun = [PYTHON, "-m", "torch.distributed.run", f"{folder}/nowhere.py"]
    expect_nothing(OnNullDevice(folder, *by_torchrun), 5, f"no script {folder}/nowhere.py")


def check_no_module(folder):
    expect_nothing(OnNullDevice(folder, PYTHON, "-m", "nowhere.train"), 5, "no module nowhere.train")


def check_cpu(folder):
    expect_nothing(python(folder, "stay_on_cpu"), 5, "has imported PyTorch and used no GPU")


def check_no_pytorch(folder):
    expect_nothing(OnNullDevice(folder, PYTHON, "-c", "pass"), 5, "has not imported PyTorch")


def check_import_error(folder):
    cause = "failed at an import, before it used a GPU: ModuleNotFoundError: No module named 'nowhere'"
    expect_nothing(python(folder, "import_missing"), 5, cause + " (ending.py:")


def check_failed_before(folder):
    cause = "the program failed before it used a GPU: ValueError: a mistake (ending.py:"
    expect_nothing(python(folder, "fail_before"), 5, cause)
    expect_nothing(python(folder, "exit_before"), 5, "before it used a GPU; its own output may say why; "
                   "the command's exit code is 3")


def check_nothing_allocated(folder):
    run = expect_no_fit(python(folder, "initialise"))
    run.expect(5, "no verdict: nothing was allocated on the GPU")


def check_not_loaded(folder):
    """Checks that flags are named only in this case, and only the flag that was given."""
    for flags, named in {("-I",): "-I", ("-u", "-sE"): "-E", ("-W", "ignore", "-S"): "-S"}.items():
        run = OnNullDevice(folder, PYTHON, *flags, "-c", "pass")
        run.expect(5, f"the recorder was not loaded: {PYTHON} is started with {named}, which")
    run = OnNullDevice(folder, "true", more=WITH_PYTHON)
    run.expect(5, "true has started no Python, or one with -I, -E or -S")


def torch_version():
    """Returns a version such as "2.11.0+cu130"."""
    where = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    torch = subprocess.check_output([PYTHON, "-c", where], text=True).strip()
    text = pathlib.Path(torch, "version.py").read_text()
    return re.search(r"__version__ = '(.*)'", text)[1]


def check_other_pytorch(folder):
    """The command starts an interpreter with another PyTorch than the one that was asked."""
    other = pathlib.Path(folder) / "python-of-other-version"
    other.write_text(f"""#!/bin/sh
case "$2" in *find_spec*) {PYTHON} "$@" | sed 's/^\\(2\\.[0-9]*\\)\\.[0-9]*+/\\1.99+/'; exit;; esac
exec {PYTHON} "$@"
""")
    other.chmod(0o755)
    run = OnNullDevice(folder, other, SCRIPT, "allocate")
    another = re.sub(r"^(2\.[0-9]*)\.[0-9]*\+", r"\1.99+", torch_version())
    run.expect(5, f"but the recorder is for {another} of ", "activate its environment")


# --- what the whole run took ----------------------------------------------------------------------


def facts_of(run):
    return json.loads((run.out / "profiles" / "rank0.json").read_text())


def check_reset(folder):
    run = python(folder, "reset_counters").expect(0)
    peak, reserved = map(int, re.search(r"peak (\d+) (\d+)", run.text).groups())
    facts, report = facts_of(run), report_of(run.out)["peak"]
    found = [facts["peak_allocated_bytes"], facts["peak_reserved_bytes"], report["allocated_bytes"],
             report["reserved_bytes"]]
    if found != [peak, reserved, peak, reserved]:
        raise AssertionError(f"{found}, not {peak} and {reserved}, as PyTorch has said")


def check_retries(folder):
    run = python(folder, "retry_and_reset").expect(4, "retries 1", "fits with retries")
    if facts_of(run)["retries"] != 1:
        raise AssertionError(facts_of(run))


# --- the program does not notice ------------------------------------------------------------------


def check_imports(folder):
    """Two steps are recorded however PyTorch is looked for and imported."""
    ways = ["sought", "sought_by_pkgutil", "sought_in_threads", "in_thread", "by_spec", "lazily",
            "by_other_finder", "reloaded", "in_child", "in_forkserver"]
    for way in ways:
        run = OnNullDevice(folder, PYTHON, IMPORTING, way)
        run.expect(0, "rank0.slp: fits: ").expect_steps(2)


def check_second_try(folder):
    """A second import of PyTorch is recorded, but PyTorch 2.15 and later refuse it."""
    run = OnNullDevice(folder, PYTHON, IMPORTING, "at_second_try")
    if "can only be initialized once" in run.text + run.lines:
        run.expect(5, "nothing was recorded: the program failed at an import")
    else:
        run.expect(0, "rank0.slp: fits: ").expect_steps(2)


def check_sought(folder):
    """Looks for PyTorch as transformers, peft and datasets do before they import it."""
    run = OnNullDevice(folder, PYTHON, IMPORTING, "sought")
    run.expect(0, "rank0.slp: fits: ").expect_steps(2)


def wrapped(folder, kind):
    return OnNullDevice(folder, PYTHON, WRAPPED, kind).expect(0, "trained\n").expect_steps(3)


def check_wrapped(folder):
    """Checks the state of two parameters: a wrapper holds 4 MiB in each part, a batched tensor
    0."""
    mib = {"flattened": 16, "wrapper": 16, "nested_in_wrapper": 24, "jagged": 16, "hostile": 8,
           "closed": 0, "batched": 0, "fake": 0, "meta": 0}
    for kind, expected in mib.items():
        run = wrapped(folder, kind)
        state = report_of(run.out)["at_peak"]["categories"]["optimizer_state"]
        if state // 2**20 != expected:
            raise AssertionError(f"{kind}: {state / 2**20} MiB of state, not {expected}")
        doubts = facts_of(run)["doubts"]
        if (kind in ("closed", "batched")) != any("classes of some blocks" in d for d in doubts):
            raise AssertionError(f"{kind}: {doubts}")


def check_wrapper(folder):
    """Records wrappers of tensors such as torchao's 8-bit optimizers and float8 weights."""
    state = report_of(wrapped(folder, "wrapper").out)["at_peak"]["categories"]["optimizer_state"]
    if state != 2**24:
        raise AssertionError(f"{state} bytes of state")


def check_sparse(folder):
    for kind in ("sparse", "rows", "sparse_gradients", "no_dictionary"):
        if facts_of(wrapped(folder, kind))["doubts"]:
            raise AssertionError(kind)


def check_closed_stderr(folder):
    python(folder, "close_stderr").expect(0).expect_steps(2)


def check_old_history(folder):
    run = python(folder, "old_history").expect(0)
    categories = report_of(run.out)["at_peak"]["categories"]
    if categories["parameter_shard"] == 0 or categories["other"] > 0:
        raise AssertionError(categories)


def check_late_history(folder):
    """Checks that the program's own history has nothing from before it."""
    run = python(folder, "late_history").expect(0)
    if "entries [('alloc', 4000), ('alloc', 12000)] 2" not in run.text + run.lines:
        raise AssertionError(run.text + run.lines)


QUICK = [check_uncaught, check_import_error, check_sought, check_wrapper, check_differentiated,
         check_late_history]
LONG = [
    check_failed, check_exited, check_crashed, check_interrupted, check_terminated, check_left,
    check_caught, check_went_on, check_died, check_child, check_torchrun, check_filled,
    check_no_script, check_no_module, check_cpu, check_no_pytorch, check_failed_before,
    check_nothing_allocated, check_not_loaded, check_other_pytorch, check_reset, check_retries,
    check_imports, check_second_try, check_wrapped, check_sparse, check_closed_stderr,
    check_old_history,
]


def main():
    # A shell that starts this in the background ignores SIGINT, also for programs started from
    # here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return run_cases({"quick": QUICK, "long": LONG}[sys.argv[1]])


if __name__ == "__main__":
    sys.exit(main())
