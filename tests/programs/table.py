"""Writes trials as lines for people, and as the table of docs/programs.md."""

import dataclasses
import re

from program import ROOT

PAGE = ROOT / "docs" / "programs.md"
BEGIN, END = "<!-- programs -->\n", "<!-- end of programs -->\n"
HEAD = ("| program | library | seconds | peak recorded, allocated / reserved | of the process | "
        "in doubt | exit code |", "|---|---|---:|---:|---|---|---:|")
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \|.*\|$")
EQUAL = "equal"


def _bytes(peaks):
    return " / ".join(f"{number:,}" for number in peaks)


def _verdict(trial):
    """Says how the process's own counters compare with the recording's."""
    if trial.exit_code != 0 and trial.program.explained:
        return f"it failed: {trial.program.explained}"
    if not trial.peaks:
        return trial.failure or "nothing was recorded"
    if all(one.is_equal for one in trial.peaks):
        return EQUAL
    return "; ".join(_bytes(one.counted) for one in trial.peaks if not one.is_equal)


def unnamed_text(trial):
    """Says how much of the peak has no category and no line, and why, if the catalogue knows."""
    other = max(one.other for one in trial.peaks)
    bare = max(one.without_line for one in trial.peaks)
    why = f": {trial.program.unnamed}" if trial.program.unnamed else ""
    return f"{other:.1%} of the peak is other, {bare:.1%} has no line{why}"


def line_of(trial):
    mark = "equal" if trial.is_equal else "FAILED" if trial.is_fault else "explained"
    peak = _bytes(trial.peaks[0].recorded) if trial.peaks else "-"
    parts = [f"{mark:9}", f"{trial.program.name:32}", f"{trial.program.library} {trial.version}",
             f"{trial.seconds:.0f} s", peak, f"exit code {trial.exit_code}"]
    if trial.failure or not trial.is_equal:
        parts.append(trial.failure or _verdict(trial))
    if not trial.is_named:
        parts.append(unnamed_text(trial))
    return "  ".join(parts + [f"in doubt: {doubt}" for doubt in trial.doubts])


def _row_of(trial):
    doubts = "; ".join(trial.doubts).replace("|", "\\|")
    said = _verdict(trial).replace("|", "\\|")
    if trial.program.explained and trial.exit_code == 0 and not trial.is_equal:
        said += f": {trial.program.explained}"
    if trial.peaks and not trial.is_named:
        said += f"; {unnamed_text(trial)}"
    peak = "; ".join(_bytes(one.recorded) for one in trial.peaks) or "-"
    return (f"| {trial.program.name} | {trial.program.library} {trial.version} | "
            f"{trial.seconds:.0f} | {peak} | {said} | {doubts or '-'} | {trial.exit_code} |")


@dataclasses.dataclass(frozen=True)
class _Row:
    library: str
    text: str
    is_equal: bool


def _rows_in(block):
    found = {}
    for line in block.splitlines():
        match = ROW.match(line)
        if match and match.group(1) != "program":
            cells = line.split(" | ")
            is_equal = cells[4] == EQUAL and cells[-1] == "0 |"
            found[match.group(1)] = _Row(match.group(2).split()[0], line, is_equal)
    return found


def _command_of(program):
    """Returns the program as it is typed, with words in braces for folders."""
    words = [*program.flags, "--", *(f"'{word}'" if " " in word or not word else word
                                     for word in program.command)]
    text = " ".join(["shardlens record --device null:h100", *words])
    return text.replace("{python}", "python").replace("{bin}/", "")


def _block(rows, catalogue):
    known = [program for program in catalogue if program.name in rows]
    kept = [rows[program.name] for program in known]
    equal = sum(row.is_equal for row in kept)
    libraries = len({row.library for row in kept})
    lines = [f"{equal} of {len(kept)} programs of {libraries} libraries are equal.", "", *HEAD]
    lines += [row.text for row in kept]
    lines += ["", "## The commands", "",
              "Words in braces stand for folders: the source's, and those of inputs that "
              "`tests/programs/inputs` makes.", ""]
    for program in known:
        origin = f" ({program.source.url} at {program.source.commit[:12]})" if program.source else ""
        lines.append(f"- {program.name}{origin}: `{_command_of(program)}`")
    return "\n".join(lines) + "\n"


def write(trials, catalogue):
    """Puts the trials into the page's table; the rows of other programs stay as they are."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    block, after = rest.split(END)
    rows = _rows_in(block) | _rows_in("\n".join(map(_row_of, trials)))
    PAGE.write_text(before + BEGIN + _block(rows, catalogue) + END + after)
