"""Rehearses tests/gpu/run.sh from end to end, with a null device as the machine's GPU:

    rehearsal.py BUILD

A pack is made of the build and run in an empty folder, with PyTorch installed elsewhere, and with
nothing in the environment but a PATH. Every phase must give the expected results; then phases are
broken in three ways, and the results of the others must stay. The results are replayed as if a GPU
had given them. That takes minutes, so `make test` runs QUICK_PHASES and the refusals;
SHARDLENS_CASES=all, as in continuous integration, rehearses all. SHARDLENS_PYTHONS lists Pythons,
and the first that exists lends its packages; exit code 77 says that it has no PyTorch."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import results
from phases import PHASES

HERE = pathlib.Path(__file__).resolve().parent
NO_PYTORCH = 77
MOST_PHASE_S = 460
FILES, MOST_FILE_BYTES, MOST_BYTES = 10, 16 << 20, 60 << 20
ASK = (
    "import importlib.util as u, json, sysconfig; torch = u.find_spec('torch'); "
    "folder = torch and torch.submodule_search_locations[0]; "
    "print(json.dumps([folder, sysconfig.get_path('purelib')]))"
)

QUICK_PHASES = ("facts", "sequences", "prediction")

# A null device gives each phase this many steps of each verdict.
EXPECTED = {
    "facts": {"measured": 5, "same": 2, "not checked": 5},
    "sequences": {"same": 4},
    "programs": {"same": 1, "measured": 1, "not checked": 2},
    "prediction": {"same": 3},
    "numerics": {"not checked": 4},
    "time": {"not checked": 4},
    "survival": {"passed": 4},
    "histories": {"same": 1},
    "peaks": {"same": 1, "measured": 2},
}


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found}, not {wanted}")


def expect_in(text, *parts):
    for part in parts:
        if part not in text:
            raise AssertionError(f"no {part!r} in\n{text}")


def packages_of_pythons():
    """Returns (the torch package, other packages) of the first Python that exists."""
    listed = os.environ.get("SHARDLENS_PYTHONS", sys.executable).split(":")
    python = next((path for path in listed if os.access(path, os.X_OK)), sys.executable)
    done = subprocess.run([python, "-c", ASK], capture_output=True, text=True, check=True)
    torch, packages = json.loads(done.stdout)
    if torch is None:
        print(f"skipped: {python} has no PyTorch")
        sys.exit(NO_PYTORCH)
    return pathlib.Path(torch), packages


def link_tree(source, target):
    """Links the same files under other names, so that no link's target leads back."""
    if subprocess.run(
        ["cp", "-al", source, target], stderr=subprocess.DEVNULL, check=False
    ).returncode:
        shutil.rmtree(target, ignore_errors=True)
        target.symlink_to(source)


def install_python(folder):
    """Makes a Python whose PyTorch is in `folder`. Returns its folder of programs."""
    torch, packages = packages_of_pythons()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    for source in [torch, *torch.parent.glob("torch-*.dist-info"), *torch.parent.glob("torchgen")]:
        link_tree(source, site / source.name)
    (site / "others.pth").write_text(f"{packages}\n")
    return folder / "bin"


class Rehearsal:
    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        self.pack = folder / "carried"
        self.results, self.copy = folder / "results", folder / "given back"
        self.bin = install_python(folder / "somewhere" / "else")

    def run_script(self, *arguments, pack=None):
        """Returns (exit code, what it said), in an empty folder with little environment."""
        env = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "SHARDLENS_GPU": "null:h200",
            "HOME": str(self.folder / "home"),
        }
        if "PYTHONPYCACHEPREFIX" in os.environ:  # set by the test, to compile PyTorch once
            env["PYTHONPYCACHEPREFIX"] = os.environ["PYTHONPYCACHEPREFIX"]
        empty = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        command = [(pack or self.pack) / "tests" / "gpu" / "run.sh", "--few", *arguments]
        done = subprocess.run(
            list(map(str, command)),
            env=env,
            cwd=empty,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        expect("files beside the results", list(empty.iterdir()), [])
        return done.returncode, done.stdout

    def everywhere(self):
        return ["--out", self.results, "--copy", self.copy]

    def broken_pack(self):
        """Makes a copy of the pack, whose files are its own as soon as they are replaced."""
        pack = self.folder / "broken"
        shutil.copytree(self.pack, pack)
        return pack


def check_pack(rehearsal):
    command = [HERE / "pack", "--build", rehearsal.build, "--out", rehearsal.pack]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    expect(f"exit code of pack\n{done.stdout}{done.stderr}", done.returncode, 0)
    print(done.stdout.strip())
    again = subprocess.run(
        [*command[:-1], rehearsal.folder / "somewhere"], capture_output=True, text=True, check=False
    )
    expect("exit code of pack into a folder that is not its own", again.returncode, 2)
    expect_in(again.stderr, "exists and is not a pack")
    program = rehearsal.pack / "build" / "bin" / "print_allocations"
    alone = subprocess.run([program], capture_output=True, text=True, check=False, env={})
    expect("exit code of a program that was not told where LibTorch is", alone.returncode, 127)
    expect_in(alone.stderr, "libtorch_cpu.so: cannot open")


def failures_in(said):
    """Returns the lines of run.sh's screen that say why it does not end with 0."""
    return [line for line in said.splitlines() if line.lstrip().startswith(("failed", "differs"))]


def check_phases(rehearsal, phases=()):
    """Runs the phases with these names, or all."""
    code, said = rehearsal.run_script(*rehearsal.everywhere(), *phases)
    print(said, end="")
    expect("\n".join([*failures_in(said), "exit code of run.sh"]), code, 0)
    for number, (name, verdicts) in enumerate(EXPECTED.items(), 1):
        if phases and name not in phases:
            continue
        phase = results.read(rehearsal.results / f"{number}-{name}.json")
        found = {}
        for step in phase["steps"]:
            found[step["verdict"]] = found.get(step["verdict"], 0) + 1
        said = [f"{step['verdict']}: {step['name']}: {step['said']}" for step in phase["steps"]]
        expect("\n".join([*said, f"verdicts of {name}"]), found, verdicts)
        expect(f"state of {name}", phase["state"], "done")
        expect(f"where {name} ran", (phase["on"], phase["gpu"]), ("null device", "h200"))
        if phase["seconds"] > MOST_PHASE_S:
            raise AssertionError(f"{name} took {phase['seconds']} s")
        print(f"{name}: {phase['seconds']} s")


def check_sequences(rehearsal):
    """Checks that they exist, and are sequences of an allocator."""
    for name in ("2-sequences.json", "3-programs.json"):
        phase = results.read(rehearsal.results / name)
        kept = [step["sequence"] for step in phase["steps"] if step["verdict"] == "same"]
        for packed in kept:
            lines = results.unpack_sequence(packed)
            expect("events", len(lines), packed["events"])
            expect("a sequence has allocations", any("alloc" in line for line in lines), True)


def check_files(rehearsal):
    names = sorted(path.name for path in rehearsal.results.iterdir())
    expect("files", len(names), FILES)
    expect(
        "names",
        names,
        sorted([f"{n}-{name}.json" for n, name in enumerate(PHASES, 1)] + ["summary.md"]),
    )
    sizes = [(rehearsal.results / name).stat().st_size for name in names]
    if max(sizes) > MOST_FILE_BYTES or sum(sizes) > MOST_BYTES:
        raise AssertionError(f"too large: {sizes}")
    for name in names:
        expect(
            f"the copy of {name}",
            (rehearsal.copy / name).read_bytes(),
            (rehearsal.results / name).read_bytes(),
        )
    summary = (rehearsal.results / "summary.md").read_text()
    expect_in(
        summary,
        "A null device stood for the GPU",
        "No step that was run differs or failed",
        *(f"| {name} | done |" for name in PHASES),
    )


def check_elsewhere(rehearsal):
    facts = results.read(rehearsal.results / "1-facts.json")
    folder = next(step["facts"]["torch_folder"] for step in facts["steps"] if "facts" in step)
    is_elsewhere = pathlib.Path(folder).is_relative_to(rehearsal.folder / "somewhere" / "else")
    expect(f"PyTorch in {folder} is the one that was installed elsewhere", is_elsewhere, True)


def check_done_before(rehearsal):
    """Runs again after all is done: no phase is run, and a new folder gets all files."""
    copy = rehearsal.folder / "again"
    code, said = rehearsal.run_script("--out", rehearsal.results, "--copy", copy)
    expect("exit code where all is done", code, 0)
    expect("phases that were not run again", said.count("done before"), len(PHASES))
    expect("files in the new folder", len(list(copy.iterdir())), FILES)


def check_broken_phases(rehearsal):
    """A phase fails, one loses a program, one never ends: the files of the others stay as they
    were."""
    pack = rehearsal.broken_pack()
    (pack / "build" / "bin" / "shardlens-plan").unlink()
    (pack / "tests" / "gpu" / "phase_numerics.py").write_text(
        "raise RuntimeError('a broken phase')\n"
    )
    (pack / "tests" / "gpu" / "phase_survival.py").write_text(
        "import time\nfrom steps import Step\n\n\ndef steps(machine):\n"
        "    return [Step('sleep', lambda _: time.sleep(600)), Step('never', lambda _: None)]\n"
    )
    others = [
        f"{n}-{name}.json"
        for n, name in enumerate(PHASES, 1)
        if name not in ("prediction", "numerics", "survival")
    ]
    before = {name: (rehearsal.results / name).read_bytes() for name in others}
    start = time.monotonic()
    code, said = rehearsal.run_script(
        *rehearsal.everywhere(), "--limit", "10", "prediction", "5", "7", pack=pack
    )
    expect(f"exit code\n{said}", code, 1)
    if time.monotonic() - start > 60:
        raise AssertionError(f"a phase without end took {time.monotonic() - start:.0f} s")
    for name, content in before.items():
        expect(f"{name} is as it was", (rehearsal.results / name).read_bytes() == content, True)
    summary = (rehearsal.copy / "summary.md").read_text()
    expect_in(
        summary,
        "numerics | ended with exit code 1",
        "survival | was ended after",
        "survival, sleep",
        "survival, never",
        "prediction, vit-tutorial: ",
        "## Differences and failures",
    )


def check_lost_file(rehearsal):
    """A lost or truncated result is reported, and only its phase is run again."""
    (rehearsal.results / "4-prediction.json").unlink()
    path = rehearsal.results / "3-programs.json"
    path.write_text(path.read_text()[:1000])
    code, said = rehearsal.run_script(*rehearsal.everywhere(), "prediction")
    expect(f"exit code\n{said}", code, 1)
    summary = (rehearsal.results / "summary.md").read_text()
    expect_in(
        summary,
        "| prediction | done |",
        "3-programs.json cannot be read",
        "| facts | done |",
    )


def check_refusals(rehearsal):
    for arguments, words in (
        (["10"], "no phase has that name"),
        (["--limit", "0"], "must be above 0"),
        (["--out", "/proc/none"], "cannot be made"),
    ):
        code, said = rehearsal.run_script(*arguments)
        expect(f"exit code of {arguments}", code, 2)
        expect_in(said, words)
    env = {"PATH": f"{rehearsal.bin}:/usr/bin:/bin", "SHARDLENS_GPU": "null:none"}
    done = subprocess.run(
        [rehearsal.pack / "tests/gpu/run.sh", "1"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    expect("exit code with an unknown GPU", (done.returncode, done.stderr.count("\n")), (2, 1))
    expect_in(done.stderr, "nothing was checked")


def replay(folder, *flags):
    command = [sys.executable, HERE / "replay.py", folder, *flags]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def check_replay(rehearsal):
    """Replays sequences in the form of a fixture. A null device's recordings are refused."""
    fixtures = rehearsal.folder / "fixtures"
    (fixtures / "h200").mkdir(parents=True)
    expect("exit code without fixtures", replay(fixtures)[0], NO_PYTORCH)
    shutil.copy(rehearsal.copy / "2-sequences.json", fixtures / "h200")
    shutil.copy(rehearsal.folder / "3-programs.json", fixtures / "h200")
    code, said = replay(fixtures, "--rehearsed")
    expect(f"exit code\n{said}", code, 0)
    expect_in(said, "5 sequences, 0 failed")
    code, said = replay(fixtures)
    expect(f"exit code\n{said}", (code, "proves nothing" in said), (2, True))
    (fixtures / "h200" / "3-programs.json").unlink()
    change_one_event(fixtures / "h200" / "2-sequences.json")
    code, said = replay(fixtures, "--rehearsed")
    expect(f"exit code\n{said}", code, 1)
    expect_in(said, "4 sequences, 1 failed", "on the GPU, ", "on the null device")


def change_one_event(path):
    phase = json.loads(path.read_text())
    lines = results.unpack_sequence(phase["steps"][0]["sequence"])
    lines[100] += "0"
    phase["steps"][0]["sequence"] = results.pack_sequence(lines)
    path.write_text(json.dumps(phase))


def check_quick_phases(rehearsal):
    check_phases(rehearsal, QUICK_PHASES)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(dir=build, prefix="rehearsal-") as folder:
        rehearsal = Rehearsal(build, pathlib.Path(folder))
        if os.environ.get("SHARDLENS_CASES") != "all":
            for check in (check_pack, check_quick_phases, check_elsewhere, check_refusals):
                timed(check, rehearsal)
            return 0
        first = (check_pack, check_phases, check_elsewhere, check_sequences, check_files)
        for check in (*first, check_done_before):
            timed(check, rehearsal)
        shutil.copy(rehearsal.results / "3-programs.json", folder)
        for check in (check_broken_phases, check_lost_file, check_refusals, check_replay):
            timed(check, rehearsal)
    return 0


def timed(check, rehearsal):
    start = time.monotonic()
    check(rehearsal)
    print(
        f"ok      {check.__name__.removeprefix('check_')} ({time.monotonic() - start:.1f} s)",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
