"""Runs the commands of README.md, CONTRIBUTING.md and docs/, and compares what they print with what
the pages show, by the rules of pages.py:

    run_pages.py [--write] [PAGE ...]

--write replaces what the pages show by what was printed where the two differ; read the change, and
shorten it by lines of `...`. SHARDLENS_PYTHONS lists Pythons with PyTorch; the first that exists
runs the commands that need one. Links between pages are checked, too, and how each page begins."""

import argparse
import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import pages

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = ROOT / "build" / "bin"
MOST_SECONDS = 300  # a command, on a busy machine
PAGES_AT_ONCE = 2
PROMISE = "After this page you can "
LINK = re.compile(r"\[[^]]*\]\(([^)#:]*)(?:#([^):]*))?\)")


def find_python():
    listed = os.environ.get("SHARDLENS_PYTHONS", "").split(":")
    return next((path for path in listed if path and os.access(path, os.X_OK)), None)


PYTHON = find_python()
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
AVAILABLE = {"pytorch": PYTHON, "data": DATA.exists()}


def all_pages():
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def environment(folder):
    path = [str(PROGRAMS), "/usr/local/bin", "/usr/bin", "/bin", os.path.dirname(sys.executable)]
    if PYTHON:
        path.insert(0, str(pathlib.Path(PYTHON).parent))
    kept = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "TMPDIR")
    given = {name: os.environ[name] for name in kept if name in os.environ}
    return given | {"PATH": ":".join(path), "HOME": str(folder), "LANG": "C.UTF-8"}


def reason_not_to_run(command):
    for word, is_here in AVAILABLE.items():
        if word in command.words and not is_here:
            return word
    return command.reason_not_to_run


def run(command, folder):
    """Returns the lines that were printed, on either stream, and the exit code."""
    place = ROOT if "source" in command.words else folder
    try:
        done = subprocess.run(
            ["bash", "-c", command.text], cwd=place, env=environment(folder),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=MOST_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [f"(still runs after {MOST_SECONDS} s)"], None
    return done.stdout.decode(errors="replace").splitlines(), done.returncode


@dataclasses.dataclass
class Result:
    """Counts the commands of a page that were run, and by reason those that were not. Lists faults,
    and the commands that printed other lines than the page shows, with these lines."""

    path: pathlib.Path
    ran: int = 0
    left: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    faults: list = dataclasses.field(default_factory=list)
    differing: list = dataclasses.field(default_factory=list)
    seconds: float = 0

    def add_fault(self, fault):
        self.faults.append(f"{self.path.relative_to(ROOT)}: {fault}")

    def line(self):
        counts = words_of(self.left)
        note = f"; not run: {counts}" if counts else ""
        return f"{self.path.name:26}{self.ran:3} ran in {self.seconds:4.1f} s{note}"


def words_of(counter):
    return ", ".join(f"{reason} {count}" for reason, count in sorted(counter.items()))


def check(command, folder, result):
    printed, code = run(command, folder)
    result.ran += 1
    now = "\n".join(printed)
    where = f"line {command.line}: {command.text}"
    if code != command.exit_code:
        result.add_fault(f"{where}: exit code {code}, not {command.exit_code}\n{now}")
    elif not pages.is_as_shown(command.shown, printed):
        shown = "\n".join(command.shown)
        result.add_fault(f"{where}\n--- shown\n{shown}\n--- printed\n{now}")
        result.differing.append((command, printed))


def take(step, folder, result):
    if isinstance(step, pages.File):
        pathlib.Path(folder, step.name).write_text(step.text)
    elif isinstance(step, pages.Copy):
        shutil.copy(ROOT / step.path, folder)
    elif reason_not_to_run(step):
        result.left[reason_not_to_run(step)] += 1
    else:
        check(step, folder, result)


def run_page(path):
    result = Result(path)
    page = pages.read_page(path.read_text())
    for fault in page.faults:
        result.add_fault(fault)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for step in page.steps:
            take(step, folder, result)
    result.seconds = time.monotonic() - begin
    if page.commands() and not result.ran and not any(result.left[word] for word in AVAILABLE):
        result.add_fault("it has commands, and none of them is run")
    return result


def write(path, differing):
    lines = path.read_text().split("\n")
    for command, printed in reversed(differing):
        end = command.last_line
        lines[end - len(command.shown) : end] = printed
    path.write_text("\n".join(lines))


def anchors_of(text):
    """Makes anchors from headings as GitHub does: lower case, no punctuation, '-' for spaces."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def prose_faults(path):
    """Finds dead links, and pages of docs/ that do not say what they are for."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    faults = []
    if path.parent.name == "docs" and not text.split("\n\n")[1].startswith(PROMISE):
        faults.append(f"its first words are not {PROMISE!r}")
    for name, anchor in LINK.findall(text):
        target = path.parent / name if name else path
        if not target.exists():
            faults.append(f"it links {name}, which is missing")
        elif anchor and anchor not in anchors_of(target.read_text()):
            faults.append(f"it links {name}#{anchor}, which has no such heading")
    return [f"{path.relative_to(ROOT)}: {fault}" for fault in faults]


def unread_faults():
    """Finds pages without a link from another page, which nobody would find."""
    linked = set()
    for path in all_pages():
        linked |= {(path.parent / name).resolve() for name, _ in LINK.findall(path.read_text())}
    return [f"no page links {path.name}" for path in all_pages()[1:] if path not in linked]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    chosen = [path.resolve() for path in arguments.pages] or all_pages()
    if unknown := [path for path in chosen if path not in all_pages()]:
        parser.error(f"{unknown[0]} is not a page; give README.md, CONTRIBUTING.md or docs/ files")
    ran, left, faults = 0, collections.Counter(), [] if arguments.pages else unread_faults()
    with concurrent.futures.ThreadPoolExecutor(PAGES_AT_ONCE) as pool:
        for result in pool.map(run_page, chosen):
            print(result.line())
            faults += prose_faults(result.path) + result.faults
            ran += result.ran
            left += result.left
            if arguments.write:
                write(result.path, result.differing)
    print("\n\n".join(["", *faults]))
    not_run = words_of(left) or "none"
    print(f"{ran} commands of {len(chosen)} pages ran, {len(faults)} faults; not run: {not_run}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
