"""Defines how README.md and docs/ are written, so that a machine can read them.

A command stands in a block that opens with ```console, after `$ `; what it prints stands below it.
A command continues in the next line if that begins with `> `, or if its own line ends with a
backslash. The commands of a page share one folder, which is empty at first, and run from top to
bottom. Words after `console` change this for all commands of the block:

    pytorch   needs a Python with PyTorch; where none is installed it is counted, not run
    data      needs the package dataset-fashion-mnist; the same
    source    runs in the root of the repository, and writes nothing there
    exit=N    ends with N, not with 0
    gpu, network, window, cluster, slow, build
              is counted, not run: it needs a GPU, fetches something, opens a window, needs a
              launcher's machines, takes too long for a test, or builds and tests the repository

A block of any language with the word file=NAME is written into the page's folder as NAME; the line
<!-- copies PATH --> copies a file of the repository into it.
"""

import dataclasses
import re

NOT_RUN = ("gpu", "network", "window", "cluster", "slow", "build")
WORDS = re.compile(r"pytorch|data|source|exit=\d+")
COPY = re.compile(r"<!-- copies (\S+) -->")
FENCE = re.compile(r"(```+|~~~+)(.*)")
SHELLS = ("sh", "bash", "shell", "zsh")
DOTS = "..."
# A time or a rate is found with the spaces before it, which a longer number takes.
TIMES = (
    (re.compile(r" *\b\d+(?:\.\d+)?(?= (?:ms|s|us|min|images/s|tokens/s|GB/s)\b)"), " #"),
    (re.compile(r" *\b\d+:\d\d\b"), " #"),
)


@dataclasses.dataclass
class Command:
    """Holds what a reader types, and the lines that the page says it prints."""

    text: str
    shown: list
    words: list
    line: int
    last_line: int

    @property
    def reason_not_to_run(self):
        return next((word for word in self.words if word in NOT_RUN), None)

    @property
    def exit_code(self):
        codes = [word for word in self.words if word.startswith("exit=")]
        return int(codes[0].removeprefix("exit=")) if codes else 0


@dataclasses.dataclass
class File:
    """Holds a file that a reader saves."""

    name: str
    text: str


@dataclasses.dataclass
class Copy:
    """Names a file of the repository that the page's commands use."""

    path: str


@dataclasses.dataclass
class Page:
    """Its steps are commands, files and copies, in the order of the page."""

    steps: list
    faults: list

    def commands(self):
        return [step for step in self.steps if isinstance(step, Command)]


def commands_of(lines, words, first):
    """Reads the lines of a block, the first of which has the number `first` in its page."""
    commands = []
    typing = False
    for number, line in enumerate(lines, first):
        if line.startswith("$ "):
            commands.append(Command(line[2:], [], words, number, number))
        elif not commands:
            raise ValueError(f"line {number}: output without a command, which begins with `$ `")
        elif typing and line.startswith(">"):
            commands[-1].text += "\n" + line[1:].removeprefix(" ")
        elif typing and commands[-1].text.endswith("\\"):
            commands[-1].text += "\n" + line
        else:
            commands[-1].shown.append(line)
        commands[-1].last_line = number
        typing = not commands[-1].shown
    return commands


def steps_of(info, lines, first):
    language, *words = info.split() or [""]
    if language in SHELLS:
        raise ValueError(f"line {first - 1}: write ```console, and `$ ` before each command")
    if language == "console":
        unknown = [word for word in words if word not in NOT_RUN and not WORDS.fullmatch(word)]
        if unknown:
            raise ValueError(f"line {first - 1}: unknown word {unknown[0]}")
        return commands_of(lines, words, first)
    names = [word.removeprefix("file=") for word in words if word.startswith("file=")]
    return [File(name, "".join(line + "\n" for line in lines)) for name in names]


def read_page(text):
    page = Page([], [])
    info = fence = None
    block = []
    before = ""
    for number, line in enumerate(text.split("\n"), 1):
        opening = FENCE.match(line)
        if fence and line.strip() == fence:
            try:
                page.steps += steps_of(info, block, number - len(block))
            except ValueError as fault:
                page.faults.append(str(fault))
            fence = None
        elif fence:
            block.append(line)
        elif opening:
            fence, info, block = opening[1], opening[2], []
        elif COPY.fullmatch(line):
            page.steps.append(Copy(COPY.fullmatch(line)[1]))
        elif line.startswith("    ") and not before:
            page.faults.append(f"line {number}: an indented block; put it between ``` and ```")
        before = line.strip() and not fence
    if fence:
        page.faults.append(f"a block is open at the end, which began with {fence}{info}")
    return page


def plain(line):
    """Returns a line as it is compared: all times are alike, and so are all rates."""
    for pattern, mark in TIMES:
        line = pattern.sub(mark, line)
    return line.rstrip()


def line_is(shown, printed):
    parts = [re.escape(part) for part in plain(shown).split(DOTS)]
    return re.fullmatch(".*".join(parts), plain(printed)) is not None


def is_as_shown(shown, printed):
    """Says whether the printed lines are the shown ones. `...` alone in a line stands for any number
    of lines, and within a line for any text. Times and rates may differ, nothing else may."""
    reached = {0}  # how many printed lines may have been used up
    for line in shown:
        if line.strip() == DOTS:
            reached = set(range(min(reached), len(printed) + 1))
        else:
            reached = {n + 1 for n in reached if n < len(printed) and line_is(line, printed[n])}
        if not reached:
            return False
    return len(printed) in reached
