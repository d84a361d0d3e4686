"""Makes what a program needs, on first use, below $SHARDLENS_DEPS/programs: packages, source,
inputs.

Every environment sees the packages of .deps/peers, the only PyTorch with NVIDIA's libraries, which
are gigabytes, after its own. One that names its own torch sees no others.
"""

import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess

from program import DEPS, FOLDER, HERE, ROOT, Failure

BASE = DEPS / "peers" / "bin" / "python"
LAST_LINES = 3  # of a failed command


def _run(words, log, **options):
    with log.open("a") as file:
        print("$", *words, file=file, flush=True)
        done = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, check=False, **options)
    if done.returncode != 0:
        last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        raise Failure(f"{' '.join(map(str, words[:4]))} ... failed (see {log}): {' / '.join(last)}")


def _hash_of(*paths):
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def _make_once(folder, mark, make):
    """Calls make(folder) unless the folder has been made for this mark. If several processes need
    it, one makes it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = folder / ".made"
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists() and done.read_text() == mark:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        make(folder)
        done.write_text(mark)  # last: without it the folder counts as half made
    return folder


def _own_modules(script):
    """Returns the scripts beside it that it imports."""
    names = re.findall(r"^(?:import|from) (\w+)", script.read_text(), re.MULTILINE)
    return [path for name in names if (path := script.with_name(f"{name}.py")).exists()]


def _site_of(folder):
    return next(folder.glob("lib/python3.*/site-packages"))


def _base_site():
    if not BASE.exists():
        _run([ROOT / ".setup" / "peers"], _log("base"), env=os.environ | {"SHARDLENS_DEPS": DEPS})
    return _site_of(BASE.parent.parent)


def _log(name):
    FOLDER.mkdir(parents=True, exist_ok=True)
    return FOLDER / f"{name}.log"


class Environment:
    """Installs the packages of environments/NAME.txt."""

    def __init__(self, name):
        self.name = name
        self.pins = HERE / "environments" / f"{name}.txt"
        base = _base_site()
        mark = _hash_of(self.pins) + str(base)
        self.folder = _make_once(FOLDER / name, mark, lambda folder: self._make(folder, base))
        self.python = self.folder / "bin" / "python"
        self.site = _site_of(self.folder)

    def _make(self, folder, base):
        log = _log(self.name)
        _run([BASE, "-m", "venv", "--without-pip", folder], log)
        if not re.search(r"^torch==", self.pins.read_text(), re.MULTILINE):
            (_site_of(folder) / "base.pth").write_text(f"{base}\n")
        _run([BASE, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps",
              "--no-input", "--progress-bar", "off", "--requirement", self.pins], log)

    def version_of(self, library):
        words = [self.python, "-c", f"import importlib.metadata as m; print(m.version({library!r}))"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failure(f"{self.pins.name} has no {library}")
        return done.stdout.strip()

    def make_input(self, name):
        """Runs inputs/NAME.py with a folder to write into, and with this environment's packages."""
        script = HERE / "inputs" / f"{name}.py"
        mark = _hash_of(script, *_own_modules(script), self.pins)

        def make(folder):
            folder.mkdir()
            _run([self.python, script, folder], _log(f"{self.name}-{name}"))

        return _make_once(FOLDER / "inputs" / self.name / name, mark, make)


def make_source(source):
    def make(folder):
        folder.mkdir()
        log = _log("sources")
        _run(["git", "init", "--quiet", folder], log)
        _run(["git", "-C", folder, "fetch", "--quiet", "--depth", "1", source.url, source.commit], log)
        _run(["git", "-C", folder, "checkout", "--quiet", "FETCH_HEAD"], log)

    return _make_once(FOLDER / "sources" / source.name, source.commit, make)


def words_of(program, environment, work):
    """Returns what the command's words in braces stand for."""
    words = {"python": environment.python, "bin": environment.folder / "bin",
             "site": environment.site, "work": work}
    if program.source:
        words["source"] = make_source(program.source)
    for name in program.inputs:
        words[name] = environment.make_input(name)
    return words


def replaced(text, words):
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def make_links(program, words):
    """Puts models and data that the program names by itself where it looks for them."""
    for name, target in program.links.items():
        link = pathlib.Path(words["work"]) / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(replaced(target, words))


def variables_of(program, environment, words):
    """The program's environment: nothing is fetched or sent while it runs."""
    own = {name: replaced(value, words) for name, value in program.variables.items()}
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "disabled",
               "HF_HOME": str(pathlib.Path(words["work"]) / "hf"), "TOKENIZERS_PARALLELISM": "false"}
    path = f"{environment.folder / 'bin'}:{os.environ['PATH']}"
    return os.environ | offline | {"PATH": path, "PYTHONPATH": ""} | own
