"""Runs the phases of run.sh, each in a process of its own with its own time limit.

Whatever happens to a phase, the files of the others stay, and summary.md is written again. A phase
whose file says that it is done is run again only if it is named, and then only its failed steps, if
it has any; one that was interrupted goes on with the steps that are missing."""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

import machine as machines
import results
import summary
from phases import PHASES

LIMIT_S = 460  # for a phase: two of them and the start of a machine fit into 16 minutes
MOST_BYTES = 60 << 20
GRACE_S = 5  # by which a phase should have stopped by itself before it is ended


def parse():
    parser = argparse.ArgumentParser(
        prog="run.sh",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="What only a GPU can show, in phases by value:\n"
        + "\n".join(
            f"  {number} {name:11} {shows}"
            for number, (name, shows) in enumerate(PHASES.items(), 1)
        ),
        epilog="Exit code: 0 where all was done and nothing differs, 1 where something differs, "
        "failed or was not reached, 2 for wrong use or without a GPU.",
    )
    parser.add_argument(
        "phases",
        nargs="*",
        metavar="PHASE",
        help=f"1 to 9, or {', '.join(PHASES)}; " "default: all that are not done",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=machines.ROOT / "results",
        help="folder of the results (default: results, beside tests/)",
    )
    parser.add_argument("--copy", type=pathlib.Path, help="a second folder that gets every file")
    parser.add_argument("--few", action="store_true", help="a few cases of each phase")
    parser.add_argument(
        "--limit",
        type=float,
        default=LIMIT_S,
        metavar="S",
        help=f"seconds that a phase may take (default {LIMIT_S})",
    )
    options = parser.parse_args()
    options.phases = [phase_named(parser, word) for word in options.phases]
    if options.limit <= 0:
        parser.error(f"--limit {options.limit}: must be above 0; give seconds")
    return options


def phase_named(parser, word):
    names = list(PHASES)
    if word.isdigit() and 1 <= int(word) <= len(names):
        return names[int(word) - 1]
    if word not in names:
        parser.error(f"{word}: no phase has that name; give 1 to 9 or one of {', '.join(names)}")
    return word


def file_name(phase):
    return f"{list(PHASES).index(phase) + 1}-{phase}.json"


def paths_of(options, name):
    folders = [options.out] + ([options.copy] if options.copy else [])
    return [folder / name for folder in folders]


def earlier(options, phase):
    """The phase's file, or nothing where there is none that can be read."""
    try:
        return results.read(options.out / file_name(phase))
    except ValueError:
        return {"state": "", "steps": []}


def is_done(options, phase):
    return earlier(options, phase)["state"] == "done"


def how_to_run(options, phase):
    """Decides how a named phase is run: again if it is done, but only its failed steps if it has
    any."""
    before = earlier(options, phase)
    has_failed = any(step["verdict"] == "failed" for step in before["steps"])
    return "again" if before["state"] == "done" and not has_failed else "on"


def end(process):
    """Ends a process together with all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            continue


def run_phase(options, machine, phase):
    """Runs a phase and returns how it ended, in one line, which is empty if it ended well by
    itself."""
    command = [
        sys.executable,
        pathlib.Path(__file__).with_name("phase.py"),
        phase,
        str(options.limit),
        how_to_run(options, phase),
    ]
    command += paths_of(options, file_name(phase))
    env = machine.null_environment() | {machines.VARIABLE: machine.encode()}
    process = subprocess.Popen(
        list(map(str, command)), env=env, start_new_session=True, stdin=subprocess.DEVNULL
    )
    try:
        code = process.wait(timeout=options.limit + GRACE_S)
    except subprocess.TimeoutExpired:
        return f"was ended after {options.limit + GRACE_S:.0f} s"
    finally:
        end(process)
    return "" if code == 0 else f"ended with exit code {code}"


def copy_earlier(options):
    """Copies earlier results into a folder that does not have them yet."""
    for path in options.out.glob("[1-9]-*.json"):
        copy = options.copy / path.name
        if not copy.exists():
            results.write(copy, path.read_text())


def write_summary(options, machine, endings):
    phases = {}
    for phase in PHASES:
        path = options.out / file_name(phase)
        if not path.exists():
            continue
        try:
            phases[phase] = results.read(path)
        except ValueError as error:
            endings[phase] = str(error)
    text = summary.of(machine.about, phases, endings, list(PHASES))
    for path in paths_of(options, "summary.md"):
        results.write(path, text)
    return phases


def exit_code(options, phases, endings):
    wanted = options.phases or list(PHASES)
    steps = [step for phase in phases.values() for step in phase["steps"]]
    is_bad = any(step["verdict"] in ("differs", "failed") for step in steps)
    is_whole = all(phases.get(phase, {}).get("state") == "done" for phase in wanted)
    return 0 if is_whole and steps and not is_bad and not endings else 1


def check_folders(options):
    for folder in filter(None, (options.out, options.copy)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"{folder} cannot be made ({error.strerror}); give another folder"
            ) from error


def run_phases(options, machine):
    endings = {}
    for phase in options.phases or PHASES:
        if not options.phases and is_done(options, phase):
            print(f"{phase}: done before; name it to run it again", flush=True)
            continue
        start = time.monotonic()
        print(f"{phase}:", flush=True)
        ending = run_phase(options, machine, phase)
        if ending:
            endings[phase] = ending
        elif not (options.out / file_name(phase)).exists():
            endings[phase] = "left no file"
        print(
            f"{phase}: {endings.get(phase, 'ended')}, {time.monotonic() - start:.1f} s", flush=True
        )
        write_summary(options, machine, dict(endings))
    return endings


def main():
    options = parse()
    try:
        check_folders(options)
        machine = machines.find(options.few, options.out)
    except ValueError as error:
        print(f"run.sh: {error}", file=sys.stderr)
        return 2
    if options.copy:
        copy_earlier(options)
    endings = run_phases(options, machine)
    phases = write_summary(options, machine, endings)
    size = sum(path.stat().st_size for path in options.out.iterdir() if path.is_file())
    print(f"{len(phases)} phases, {size / 2**20:.1f} MiB; read {options.out / 'summary.md'}")
    if size > MOST_BYTES:
        print(f"run.sh: {options.out} has more than {MOST_BYTES >> 20} MiB", file=sys.stderr)
        return 1
    return exit_code(options, phases, endings)


if __name__ == "__main__":
    sys.exit(main())
