"""Records one program of the catalogue and compares the recording with PyTorch's counters.

The counters are those of the process's own allocator (torch.cuda.memory_stats), across every reset
by the program, which rankR.json holds; the peaks are those that `shardlens profile report` finds in
the recording, which knows nothing of the counters.
"""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import time

import environment
from program import Failure

GRACE_S = 60  # after --timeout, which ends the program itself


MOST_OTHER = 0.02
MOST_WITHOUT_LINE = 0.01


@dataclasses.dataclass(frozen=True)
class Peaks:
    """Holds one rank's peaks in bytes, each as (allocated, reserved), and the parts of the allocated
    one that have no category and no line."""

    rank: int
    recorded: tuple
    counted: tuple
    is_equal: bool  # also in allocations and what is left at the end
    other: float = 0
    without_line: float = 0

    @property
    def is_named(self):
        return self.other <= MOST_OTHER and self.without_line <= MOST_WITHOUT_LINE


@dataclasses.dataclass(frozen=True)
class Trial:
    """Holds the result of a program."""

    program: object
    version: str = "-"
    seconds: float = 0
    exit_code: int | None = None
    peaks: tuple = ()
    doubts: tuple = ()
    failure: str = ""

    @property
    def is_equal(self):
        return self.exit_code == 0 and bool(self.peaks) and all(one.is_equal for one in self.peaks)

    @property
    def is_named(self):
        return all(one.is_named for one in self.peaks)

    @property
    def is_fault(self):
        is_wrong = not self.is_equal and not self.program.explained
        return is_wrong or (not self.is_named and not self.program.unnamed)


def without_line(places):
    """Returns the part of the places' bytes that no line of a program has."""
    whole = sum(place["bytes"] for place in places)
    bare = sum(place["bytes"] for place in places if not place["label"])
    return bare / whole if whole else 0


def _peaks_in(shardlens, out):
    """Returns each recorded rank's peaks; a rank that left no counters is not equal."""
    words = [shardlens, "profile", "report", out, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(done.stderr.strip())
    for report in json.loads(done.stdout)["ranks"]:
        rank, peak = report["rank"], report["peak"]
        recorded = (peak["allocated_bytes"] or 0, peak["reserved_bytes"] or 0)
        path = out / "profiles" / f"rank{rank}.json"
        facts = json.loads(path.read_text()) if path.exists() else {}
        counted = (facts.get("peak_allocated_bytes", 0), facts.get("peak_reserved_bytes", 0))
        at_peak = report["at_peak"]
        yield Peaks(rank, recorded, counted,
                    recorded == counted and facts.get("as_pytorch_counted") is True,
                    at_peak["other_share"], without_line(at_peak["places"]))


def _doubts_in(text):
    return tuple(line.split("in doubt: ", 1)[1] for line in text.splitlines()
                 if line.strip().startswith("in doubt: "))


def _failure_in(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if "no verdict" in line or "nothing was recorded" in line]
    return (said or lines or ["it printed nothing"])[-1]


def _record(words, log, timeout_s, **options):
    """Returns the exit code of `shardlens record`; what it prints goes into the log."""
    with log.open("w") as file:
        run = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file,
                               stderr=subprocess.STDOUT, start_new_session=True, **options)
        try:
            return run.wait(timeout_s + GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            return 124


def run(program, shardlens, folder):
    """Records the program below the folder, which is emptied. Never raises Failure: failures are in
    the Trial."""
    shutil.rmtree(folder, ignore_errors=True)
    work, out, log = folder / "work", folder / "run", folder / "log.txt"
    work.mkdir(parents=True)
    try:
        made = environment.Environment(program.environment)
        version = made.version_of(program.library)
        words = environment.words_of(program, made, work)
        environment.make_links(program, words)
    except Failure as failure:
        return Trial(program, failure=str(failure))
    command = [environment.replaced(word, words) for word in program.command]
    device = () if "--device" in program.flags else ("--device", "null:h100")
    flags = [*device, "--timeout", str(program.timeout_s), *program.flags]
    variables = environment.variables_of(program, made, words)
    start = time.monotonic()
    code = _record([shardlens, "record", *flags, "--out", out, "--", *command], log,
                   program.timeout_s, cwd=work, env=variables)
    seconds = time.monotonic() - start
    text = log.read_text(errors="replace")
    try:
        peaks = tuple(_peaks_in(shardlens, out))
        failure = "" if code == 0 and peaks else _failure_in(text)
    except Failure as fault:
        peaks, failure = (), str(fault)
    return Trial(program, version, seconds, code, peaks, _doubts_in(text), failure)
