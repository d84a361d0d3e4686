"""One phase of run.sh, as the driver starts it:

    phase.py NAME LIMIT again|on FILE...

It runs the phase's steps and writes each FILE again after every one of them. `on` keeps the steps
that an earlier run has done, except those that failed. Steps for which the limit leaves no time are
listed as not reached.
"""

import concurrent.futures
import importlib
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback

import machine as machines
import results

RESERVE_S = 5  # is left for the file when time is over


def result_of(step, scratch):
    """Returns what the step's function returns, or what its exception says."""
    start = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            result = step.function(pathlib.Path(folder))
    except results.NotChecked as reason:
        result = {"verdict": "not checked", "said": str(reason)}
    except results.Failed as error:
        result = {"verdict": "failed", "said": str(error)}
    except Exception as error:  # pylint: disable=broad-except
        print(traceback.format_exc(), file=sys.stderr, flush=True)
        result = {"verdict": "failed", "said": f"{type(error).__name__}: {error}"[:300]}
    assert result["verdict"] in results.VERDICTS and "name" not in result, result
    return {"name": step.name, **result, "seconds": round(time.monotonic() - start, 2)}


class Phase:
    def __init__(self, name, limit_s, files, scratch):
        self.machine = machines.of_environment()
        self.deadline = machines.Deadline(limit_s - RESERVE_S)
        self.scratch = scratch
        self.steps = importlib.import_module(f"phase_{name}").steps(self.machine)
        self.start = time.monotonic()
        head = {
            "phase": name,
            "gpu": self.machine.gpu,
            "torch": self.machine.about["torch"],
            "on": "null device" if self.machine.is_rehearsal else "GPU",
            "few": self.machine.few,
            "planned": [step.name for step in self.steps],
        }
        self.file = results.PhaseFile(files, head)

    def adopt(self, path):
        """Keeps the results of an earlier run on such a machine, except those that failed."""
        try:
            earlier = results.read(path)
        except ValueError:
            return
        if any(earlier.get(key) != self.file.content[key] for key in ("phase", "gpu", "on", "few")):
            return
        kept = [step for step in earlier["steps"] if step["verdict"] != "failed"]
        names = {step["name"] for step in kept}
        self.steps = [step for step in self.steps if step.name not in names]
        self.file.adopt(kept)

    def run(self, step):
        if self.deadline.left_s() <= 0:
            return
        result = result_of(step, self.scratch)
        self.file.add(result)
        print(f"  {result['verdict']:12} {step.name}: {result['said']}", flush=True)

    def run_all(self):
        together = [step for step in self.steps if step.lanes > 1]
        lanes = max((step.lanes for step in together), default=1)
        with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
            list(pool.map(self.run, together))
        for step in self.steps:
            if step.lanes == 1:
                self.run(step)
        done = {step["name"] for step in self.file.content["steps"]}
        missing = [name for name in self.file.content["planned"] if name not in done]
        self.file.close(
            state="unfinished" if missing else "done",
            not_reached=missing,
            seconds=round(time.monotonic() - self.start, 1),
        )
        for name in missing:
            print(f"  not reached  {name}", flush=True)


def stop(*_):
    """The driver's SIGTERM: what was started here must not outlive this process."""
    machines.end_all()
    os._exit(143)


def main():
    signal.signal(signal.SIGTERM, stop)
    name, limit, how, *files = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="shardlens-gpu-") as scratch:
        phase = Phase(name, float(limit), files, scratch)
        if how == "on":
            phase.adopt(files[0])
        phase.file.save()
        phase.run_all()


if __name__ == "__main__":
    main()
