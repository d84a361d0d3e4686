"""Replays what a GPU has recorded on the null device of its name, event by event:

    replay.py FOLDER [--rehearsed]

FOLDER has what run.sh gave back, in folders of any depth: the steps of 2-sequences.json and
3-programs.json that were the same there must be the same here and now. Each needs the PyTorch that it
was recorded with: 2-sequences.json in the build, 3-programs.json in this Python. Exit code 77 says
that FOLDER has no such file. Recordings of a null device are refused, except with --rehearsed."""

import argparse
import os
import pathlib
import sys
import tempfile

import machine as machines
import results
from steps import SHARDLENS, export_command, train_command

NOTHING_THERE = 77
FILES = ("2-sequences.json", "3-programs.json")


def start(command, env=None):
    code, out, error = machines.run(command, env=env)
    if code != 0:
        raise results.Failed(f"exit code {code}: {machines.last_line(out, error)}")
    return out


def replayed(phase, step, folder):
    """Returns the null device's events now. Raises NotChecked if this Python cannot run the
    program."""
    device = f"null:{phase['gpu']}"
    if step["program"] == "print_allocations":
        command = [machines.BIN / "print_allocations", "--device", device, *step["flags"]]
        return start(command).splitlines()[1:]
    if step["program"] == "train":
        return of_ranks(step["flags"], device, folder)
    return of_program(step["words"], device, folder)


def events(run, rank, folder):
    path = folder / "events.json"
    start(export_command(run, rank, path))
    return results.events_of_export(path)


def of_ranks(flags, device, folder):
    start(train_command(folder, "run", device, *flags))
    count = int(flags[flags.index("--workers") + 1])
    return [
        f"rank {rank} {line}"
        for rank in range(count)
        for line in events(folder / "run", rank, folder)
    ]


def programs():
    try:
        import phase_programs  # ends this Python where none has PyTorch
    except SystemExit:
        raise results.NotChecked("no Python here has PyTorch") from None
    return phase_programs


def torch_here(phase):
    """Returns the version of PyTorch with which this phase would be replayed."""
    if phase["phase"] == "sequences":
        return start([SHARDLENS, "--version"]).split("PyTorch ")[1].split(",")[0]
    python = programs().gpu_cases.PYTHON
    ask = "from importlib.metadata import version; print(version('torch'))"
    return start([python, "-c", ask]).strip()


def of_program(words, device, folder):
    phase_programs = programs()
    python = phase_programs.gpu_cases.PYTHON
    phase_programs.check_modules(words, python)
    env = os.environ | phase_programs.gpu_cases.ALONE
    start(
        [
            SHARDLENS,
            "record",
            "--device",
            device,
            "--world",
            "1",
            "--out",
            folder / "run",
            "--",
            python,
            *phase_programs.full_words(words),
        ],
        env=env,
    )
    return events(folder / "run", 0, folder)


def replay(phase, step):
    """Returns the difference of the events, which is empty if they are the same."""
    if "left_out" in step:
        return step["left_out"]
    recorded = results.unpack_sequence(step["sequence"])
    with tempfile.TemporaryDirectory() as folder:
        found = replayed(phase, step, pathlib.Path(folder))
    return results.first_difference(recorded, found)


def steps_of(path, is_rehearsed):
    """Returns the phase and its steps to replay. Raises ValueError if the file is not a GPU's."""
    phase = results.read(path)
    if phase["on"] != "GPU" and not is_rehearsed:
        raise ValueError(
            f"{path} was recorded on a {phase['on']}, which proves nothing; keep what a "
            "GPU gave back"
        )
    return phase, [step for step in phase["steps"] if step["verdict"] == "same"]


def replay_file(path, is_rehearsed):
    """Returns how many steps were replayed, and how many of them were not the same."""
    phase, steps = steps_of(path, is_rehearsed)
    recorded, here = phase["torch"], torch_here(phase)
    if recorded.split("+")[0] != here.split("+")[0]:
        print(f"skipped {path.name}: recorded with PyTorch {recorded}, but {here} is here")
        return 0, 0
    failed = 0
    for step in steps:
        try:
            difference = replay(phase, step)
        except results.NotChecked as reason:
            print(f"skipped {step['name']}: {reason}", flush=True)
            continue
        except (results.Failed, ValueError) as error:
            difference = str(error)
        failed += bool(difference)
        print(f"{'FAILED ' if difference else 'ok     '} {step['name']} {difference}", flush=True)
    return len(steps), failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rehearsed", action="store_true", help="take a null device's, too")
    options = parser.parse_args()
    files = sorted(path for name in FILES for path in options.folder.rglob(name))
    if not files:
        print(f"skipped: {options.folder} has no {' or '.join(FILES)} of a GPU")
        return NOTHING_THERE
    try:
        counts = [replay_file(path, options.rehearsed) for path in files]
    except ValueError as error:
        print(f"replay.py: {error}", file=sys.stderr)
        return 2
    replayed_, failed = (sum(column) for column in zip(*counts))
    print(f"{replayed_} sequences, {failed} failed")
    if replayed_ == 0:
        return NOTHING_THERE
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
