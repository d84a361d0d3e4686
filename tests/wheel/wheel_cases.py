"""Tests the wheel as a user without our repository gets it: it is made from the build, installed
into a new venv in an empty folder, and its commands are run there.

    tests/wheel/wheel_cases.py [CASE...]

Programs are recorded with the first Python of SHARDLENS_PYTHONS that has PyTorch; without one these
cases are left out. Exit code 77: the tools that make wheels cannot be downloaded.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import venv
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SCRIPT = ROOT / "tests/profiler/record/scripts/transformer.py"
BATCHES = ROOT / "tests/profiler/record/scripts/levers/batches.py"
COMPILERS = ("c++", "cc", "g++", "gcc", "clang++", "clang", "cmake", "ninja", "make", "nvcc")
SKIPPED = 77


def run(*command, env=None, cwd=None):
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, env=env, cwd=cwd
    )


def must(*command, **options):
    done = run(*command, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(what, is_so):
    if not is_so:
        raise AssertionError(what)


def torch_python():
    for path in os.environ.get("SHARDLENS_PYTHONS", "").split(":"):
        found = os.access(path, os.X_OK) and run(
            path, "-c", "import importlib.util as u; print(u.find_spec('torch').origin)"
        )
        if found and found.returncode == 0:
            return pathlib.Path(path), pathlib.Path(found.stdout.strip()).parent
    return None, None


class Installed:
    """The wheel in a venv, and an environment that reveals whatever is compiled, or written to a
    home or a temporary folder."""

    def __init__(self, folder, wheel):
        self.folder = folder
        self.wheel = wheel
        self.venv = folder / "venv"
        self.work = folder / "work"
        self.home = folder / "home"
        self.temporary = folder / "tmp"
        self.compiled = folder / "compiled"
        compilers = folder / "compilers"
        for made in (self.work, self.home, self.temporary, compilers):
            made.mkdir()
        for name in COMPILERS:
            (compilers / name).write_text(f"#!/bin/sh\necho {name} >>{self.compiled}\nexit 1\n")
            (compilers / name).chmod(0o755)
        venv.create(self.venv, with_pip=True)
        must(self.venv / "bin/pip", "install", "--no-deps", "--no-index", wheel)
        self.environment = {
            "PATH": f"{self.venv}/bin:{compilers}:/usr/bin:/bin",
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
        }
        for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"):
            self.environment[name] = os.environ.get(name, "")
        self.torch_python, self.torch = torch_python()

    def shardlens(self, *arguments, more=None):
        environment = self.environment | (more or {})
        return run(self.venv / "bin/shardlens", *arguments, env=environment, cwd=self.work)

    def expect(self, code, text, *arguments, more=None):
        done = self.shardlens(*arguments, more=more)
        said = done.stdout + done.stderr
        expect(f"{arguments}: {done.returncode}, not {code}:\n{said}", done.returncode == code)
        expect(f"{arguments}: no {text!r} in\n{said}", text in said)
        return done

    def expect_nothing_left(self):
        """Checks that nothing is written but in the commands' folder and the viewer's cache."""
        expect("something was compiled", not self.compiled.exists())
        cache = self.home / ".cache/shardlens"
        left = [path for path in self.home.rglob("*") if path.is_file() and cache not in path.parents]
        left += [path for path in self.temporary.rglob("*") if path.is_file()]
        expect(f"files were left: {left}", not left)


def check_every_command_starts(installed):
    commands = "plan record advise solve sweep matrix profile gate check-gpu calibrate checkpoint doctor view"
    for command in commands.split():
        installed.expect(0, "sage", command, "--help")
    installed.expect(0, "--param-dtype", "plan", "--engine", "pytorch", "--help")
    installed.expect(1, "run pip install 'shardlens[mcp]'", "mcp")
    installed.expect(0, "shardlens ", "--version")
    must(installed.venv / "bin/python", "-m", "shardlens", "--version", env=installed.environment)


def check_plan_profile_gate_and_view(installed):
    flags = ("--model", "vit-tutorial", "--gpu", "h100", "--world", "8", "--steps", "4")
    for name, batch in (("a", "16"), ("b", "64")):
        file = ("--batch", batch, "--timeline", f"{name}.slp")
        installed.expect(0, "fits: ", "plan", *flags, *file)
    installed.expect(0, "alive at the peak", "profile", "report", "a.slp")
    installed.expect(1, "too much", "gate", "a.slp", "b.slp")
    installed.expect(0, "", "view", "a.slp", "b.slp", "--report", "both.json")
    drawn = installed.shardlens("view", "a.slp", "--screenshot", "a.png")
    has_no_opengl = drawn.returncode == 1 and "no OpenGL for pictures" in drawn.stderr
    expect(drawn.stderr, has_no_opengl or (installed.work / "a.png").exists())
    installed.expect(1, "cannot open a window", "view", "a.slp")
    installed.expect_nothing_left()


def check_a_program_is_recorded(installed):
    if installed.torch is None:
        return
    installed.expect(
        0, "as PyTorch counted: equal", "record", "--device", "null:h100", "--world", "16", "--rank", "5",
        "--out", "run", "--", installed.torch_python, SCRIPT, "--strategy", "ddp",
    )  # fmt: skip
    installed.expect(0, "run.tar.zst: 2 files", "profile", "bundle", "run")
    installed.expect_nothing_left()


def commands_of(file, heading):
    """Returns the shell lines below a heading in one of docs/ci's files: a block or a list."""
    lines = (ROOT / "docs/ci" / file).read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if heading in line) + 1
    depth = len(lines[start]) - len(lines[start].lstrip())
    body = itertools.takewhile(lambda line: line.startswith(" " * depth), lines[start:])
    return [line.strip().removeprefix("- ") for line in body]


def command_with(file, words):
    """Returns the only line of one of docs/ci's files that has these words."""
    (line,) = [it for it in (ROOT / "docs/ci" / file).read_text().splitlines() if words in it]
    return line.strip().removeprefix("run: ")


def make_project(folder):
    """Makes a repository whose last commit doubles the batch."""
    folder.mkdir()
    git = ("git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@localhost")
    must(*git, "init", "--quiet")
    for batch in (8, 16):
        text = SCRIPT.read_text().replace("(8, 256)", f"({batch}, 256)")
        expect("the script has another batch", f"({batch}, 256)" in text)
        (folder / "train.py").write_text(text)
        must(*git, "add", "train.py")
        must(*git, "commit", "--quiet", "--message", f"batch {batch}")


def check_what_ci_files_run(installed):
    """Checks that the lines of docs/ci refuse the last commit of a project."""
    if installed.torch is None:
        return
    project = installed.work / "project"
    make_project(project)
    environment = installed.environment | {
        "PATH": f"{installed.torch_python.parent}:{installed.venv}/bin:/usr/bin:/bin",
        "SCRIPT": "train.py --strategy ddp", "DEVICE": "null:h100", "WORLD": "16",
        "CI_PROJECT_DIR": str(project), "CI_MERGE_REQUEST_DIFF_BASE_SHA": "HEAD~1",
    }  # fmt: skip
    gitlab = commands_of("gitlab-ci.yml", "  script:")
    github = ["git worktree add new HEAD", "git worktree add base HEAD~1"]  # as its checkouts do
    github += commands_of("github-actions.yml", "run: |")
    github += [command_with("github-actions.yml", "shardlens gate")]
    for commands in (gitlab, github):
        done = run("bash", "-ec", "\n".join(commands), env=environment, cwd=project)
        said = f"{commands}: {done.returncode}\n{done.stdout}{done.stderr}"
        expect(said, done.returncode == 1 and "too much" in done.stderr)
        expect(said, (project / "memory.md").stat().st_size > 0)
        must("git", "clean", "--quiet", "-ffdx", cwd=project)
        must("git", "worktree", "prune", cwd=project)


def check_training_takes_the_torch_that_is_there(installed):
    installed.expect(2, "run pip install torch==", "train", "--steps", "1")
    nowhere = {"SHARDLENS_TORCH": "/nowhere"}
    installed.expect(2, "there is no PyTorch in /nowhere; run pip", "infer", "a.png", more=nowhere)
    other = installed.folder / "site/torch"
    other.mkdir(parents=True)
    (other / "version.py").write_text("__version__ = '2.1.0+cu121'\n")
    installed.expect(2, "is 2.1.0+cu121", "train", more={"SHARDLENS_TORCH": str(other)})
    if installed.torch is None:
        return
    torch = {"SHARDLENS_TORCH": str(installed.torch)}
    flags = ("--data", "synthetic", "--steps", "2")
    installed.expect(0, "epoch 1", "train", *flags, "--device", "cpu", "--workers", "2", more=torch)
    installed.expect(
        0, "the same to the byte", "train", *flags, "--device", "null:h200", "--world", "8",
        "--solo-rank", "3", more=torch,
    )  # fmt: skip
    installed.expect_nothing_left()


def check_the_python_module(installed):
    flags = {"PYTHONPATH": str(next(installed.venv.glob("lib/python3*/site-packages")))}
    python = installed.torch_python or installed.venv / "bin/python"
    text = (
        "import json, shardlens\n"
        "plan = shardlens.plan(model='vit-tutorial', gpu='h100', world=8, timeline='p.slp')\n"
        "peak = shardlens.open('p.slp').report()['ranks'][0]['peak']['allocated_bytes']\n"
        "try:\n    shardlens.plan(model='banana', gpu='h100')\n    why = ''\n"
        "except shardlens.ShardlensError as error:\n    why = str(error)\n"
        "same = shardlens.compare('p.slp', 'p.slp')['ranks'][0]['comparison']['rows']\n"
        "assert all(row['change_bytes'] == 0 for row in same), same\n"
        "assert '<iframe' in shardlens.open('p.slp')._repr_html_()\n"
        "print(json.dumps([plan['peak']['allocated_bytes'], peak, why]))\n"
    )
    planned, reported, why = json.loads(
        must(python, "-c", text, env=installed.environment | flags, cwd=installed.work)
    )
    expect(f"{planned} is not {reported}", planned == reported)
    expect(why, "banana" in why)
    if installed.torch is None:
        return
    text = (
        "import shardlens\n"
        f"run = shardlens.record([{str(SCRIPT)!r}, '--strategy', 'plain'], device='null:h100')\n"
        "memory = shardlens.open(run['folder']).timeline(rank=0)\n"
        "peak = run['report']['ranks'][0]['peak']['allocated_bytes']\n"
        "assert memory['total_bytes'].max() == peak, (memory, peak)\n"
        "assert memory['time_ms'].dtype == 'float64' and run['exit_code'] == 0\n"
        f"command = [{str(SCRIPT)!r}, '--strategy', 'plain']\n"
        "advice = shardlens.advise(command, device='null:h100', levers='optimizer=fused')\n"
        "assert advice['as_it_is']['fits'] and advice['exit_code'] == 0, advice\n"
        "assert '<iframe' in advice._repr_html_()\n"
        "import concurrent.futures, json, pathlib, pickle, sys\n"
        f"command = [{str(BATCHES)!r}, '--batch', '{{batch}}']\n"
        "values = {'batch': [256, 512], 'device': ['null:h100', 'null:l4']}\n"
        "with concurrent.futures.ThreadPoolExecutor(2) as executor:\n"
        "    swept = shardlens.sweep(command, values, executor=executor)\n"
        "    found = shardlens.solve(\n"
        "        command, device='null:l4', from_=256, most=256, executor=executor)\n"
        "    recipe = {'command': [sys.executable, *command], 'device': 'null:l4', 'batch': 256}\n"
        "    pathlib.Path('recipes.json').write_text(json.dumps({'recipes': {'one': recipe}}))\n"
        "    ran = shardlens.matrix('recipes.json', executor=executor)['recipes'][0]\n"
        "alone = shardlens.sweep(command, values)\n"
        "for run in [*swept['runs'], *alone['runs']]:\n"
        "    del run['run'], run['was_forked']\n"
        "assert swept['runs'] == alone['runs'] and len(alone['runs']) == 4, [swept, alone]\n"
        "peaks = [found['runs'][0]['reserved_bytes'], ran['reserved_bytes']]\n"
        "of_l4 = [run for run in alone['runs'] if run['values'] == {'device': 'null:l4', 'batch': 256}]\n"
        "assert peaks == 2 * [of_l4[0]['reserved_bytes']], [peaks, of_l4]\n"
        "try:\n    shardlens.advise(command[:1], device='null:l4', executor=executor)\n"
        "except shardlens.ShardlensError as error:  # the executor is closed\n"
        "    assert 'no worker could run it: ' in str(error), error\n"
        "try:\n    shardlens.sweep([*command, '--limit', '300'], values, device='null:l4')\n"
        "except shardlens.ShardlensError as error:\n    why = pickle.loads(pickle.dumps(error))\n"
        "assert str(why).startswith('2 runs failed; the first: device=null:h100, batch=512'), why\n"
        "assert len(why.runs) == 4, why.runs\n"
    )
    must(python, "-c", text, env=installed.environment | flags, cwd=installed.work)


def check_an_old_python_is_told_so(installed):
    text = "import sys; sys.version_info = (3, 8, 18); import shardlens"
    done = run(installed.venv / "bin/python", "-c", text, env=installed.environment)
    expect(done.stderr, done.stderr == "shardlens: Python 3.8 is too old; use Python 3.9 or newer\n")
    expect(f"{done.returncode}", done.returncode == 1)


def check_a_home_that_cannot_be_written(installed):
    home = {"HOME": "/proc/none"}  # root can write to what is merely read-only
    installed.expect(0, "fits: ", "plan", "--gpu", "h100", "--timeline", "home.slp", more=home)
    installed.expect(0, "", "view", "home.slp", "--report", "home.txt", more=home)


READ_ONLY_SHM = "mount -t tmpfs -o ro none /dev/shm"
WITHOUT_SHM = """
mkdir {folder} && for name in null zero full random urandom; do
  touch {folder}/$name && mount --bind /dev/$name {folder}/$name || exit 1
done && mount --rbind {folder} /dev"""


def check_a_machine_without_shared_memory(installed):
    hidden = ("unshare", "--map-root-user", "--mount", "sh", "-c")
    if installed.torch is None or run(*hidden, f"{READ_ONLY_SHM} && true").returncode != 0:
        return
    for number, mount in enumerate((READ_ONLY_SHM, WITHOUT_SHM)):
        mount = mount.format(folder=installed.folder / "dev")
        flags = "--data synthetic --steps 2 --workers 2 --device cpu"
        flags += f" --storage {installed.work}/shm{number}"
        done = run(
            *hidden, f"{mount} && exec {installed.venv}/bin/shardlens train {flags}",
            env=installed.environment | {"SHARDLENS_TORCH": str(installed.torch)}, cwd=installed.work,
        )  # fmt: skip
        is_one_line = done.returncode != 0 and len(done.stderr.strip().splitlines()) == 1
        expect(f"{mount}: {done.stdout}{done.stderr}", done.returncode == 0 or is_one_line)


def check_other_machines_are_refused(installed):
    """Asks pip as other machines would, and is refused."""

    def answer(*flags):
        return run(
            installed.venv / "bin/pip", "download", "--no-deps", "--no-index", "--only-binary=:all:",
            "--find-links", installed.wheel.parent, "--dest", installed.folder / "other", *flags,
            "shardlens",
        )  # fmt: skip

    taken = answer("--platform", "manylinux_2_34_x86_64", "--python-version", "3.9")
    expect(taken.stderr, taken.returncode == 0)
    for platform in ("musllinux_1_2_x86_64", "manylinux_2_34_aarch64", "manylinux_2_28_x86_64"):
        refused = answer("--platform", platform)
        expect(refused.stderr, "No matching distribution found for shardlens" in refused.stderr)
    refused = answer("--platform", "manylinux_2_34_x86_64", "--python-version", "3.8")
    expect(refused.stderr, "requires a different Python" in refused.stderr)


def check_a_folder_that_cannot_be_preloaded(installed):
    if installed.torch is None:
        return
    package = next(installed.venv.glob("lib/python3*/site-packages/shardlens"))
    spaced = installed.folder / "two words"
    spaced.mkdir()
    (spaced / "shardlens").symlink_to(package)
    must("cp", "-r", package, spaced / "copy")
    done = run(
        spaced / "copy/bin/shardlens", "record", "--device", "null:h100", "--", installed.torch_python,
        "-c", "pass", env=installed.environment, cwd=installed.work,
    )  # fmt: skip
    expect(done.stderr, done.returncode == 2 and "install Shardlens in a folder without" in done.stderr)


def check_auditwheel_finds_nothing_to_add(installed):
    """Judges the tag by symbols, too. The torch beside which train, infer and the recorders are
    loaded is left out."""
    tools = pathlib.Path(os.environ["SHARDLENS_DEPS"]) / "wheel-tools/bin"
    of_torch = ("libtorch*.so", "libc10*.so", "libcudart.so.*")
    exclude = [word for name in of_torch for word in ("--exclude", name)]
    must(
        tools / "auditwheel", "repair", *exclude, "--plat", "manylinux_2_34_x86_64", "--wheel-dir",
        installed.folder / "audited", installed.wheel,
        env=installed.environment | {"PATH": f"{tools}:/usr/bin:/bin"},
    )  # fmt: skip
    audited = next((installed.folder / "audited").glob("*.whl"))
    with zipfile.ZipFile(audited) as after, zipfile.ZipFile(installed.wheel) as before:
        added = {name for name in after.namelist() if not name.endswith("/")} - {*before.namelist()}
    expect(f"it has put {added} in", not added)


def check_the_same_files_make_the_same_wheel(installed):
    again = make_wheel(installed.folder / "again")
    expect("the wheels differ", again.read_bytes() == installed.wheel.read_bytes())


def make_wheel(folder):
    folder.mkdir()
    done = run(ROOT / ".setup/wheel", "as-built", folder)
    if "check the network" in done.stderr:
        print(f"skipped: {done.stderr.strip()}")
        sys.exit(SKIPPED)
    expect(done.stdout + done.stderr, done.returncode == 0)
    return next(folder.glob("*.whl"))


def main():
    wanted = sys.argv[1:]
    cases = {name[6:]: check for name, check in globals().items() if name.startswith("check_")}
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        installed = Installed(folder, make_wheel(folder / "dist"))
        for name, check in cases.items():
            if wanted and name not in wanted:
                continue
            try:
                check(installed)
                print(f"ok: {name}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"FAILED: {name}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
