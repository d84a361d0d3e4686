"""Serves the answers of Shardlens's commands to agents, by the Model Context Protocol:

    pip install 'shardlens[mcp]'
    shardlens mcp        # speaks the protocol on its standard input and output

Each tool starts the command of that name in the folder in which the server was started, and so runs
the programs that an agent names, with the server's own rights. The text of a reply
is what the command prints; with `json` it is what `--json` prints. The protocol's own SDK speaks it:
https://py.sdk.modelcontextprotocol.io.
"""

from __future__ import annotations

from typing import TypedDict

from . import _program
from ._program import ShardlensError, flags_of, plan_words, values_words, words_of

try:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError as error:
    raise SystemExit(
        f"shardlens.mcp: it needs version 2 of the protocol's SDK ({error}); "
        "run pip install 'shardlens[mcp]', with Python 3.10 or newer"
    ) from None

COMMANDS = ("plan", "record", "advise", "solve", "sweep", "matrix", "profile", "gate")
# Values of flags by their names: True for a flag without a value.
Flags = dict[str, "str | int | float | bool"]

server = MCPServer(
    "shardlens",
    instructions="Says what GPU memory training takes, why, and what would make it fit, without a "
    "GPU: plan() knows some models by configuration, the other tools run the user's own PyTorch "
    "program on a simulated GPU. Ask help() for a command's flags first. Figures are bytes of one "
    "rank; keep the doubts that an answer states.",
)


class Reply(TypedDict):
    exit_code: int  # help(command) says what each means
    text: str


def reply_of(words: list[str], answers: tuple[int, ...]) -> Reply:
    """Runs a command. Raises ToolError with its error message if it has no answer."""
    try:
        ended = _program.ask(words, answers)
    except ShardlensError as error:
        raise ToolError(f"{error} (exit code {error.exit_code})") from None
    return {"exit_code": ended.exit_code, "text": ended.output}


def reply_of_program(
    name: str, command: list[str], options: list[str], answers: tuple[int, ...]
) -> Reply:
    """Runs a command that runs a program: a script is run by the server's own Python."""
    if not command:
        raise ToolError("command is empty; give the program's words, such as ['train.py']")
    return reply_of([name, *options, "--", *words_of(command)], answers)


def options_of(flags: Flags | None, json: bool = False) -> list[str]:
    """Returns flags of a command that runs a program, on a simulated H100 unless they say."""
    options = flags_of({"device": "null:h100", **(flags or {})})
    return [*options, "--json"] if json else options


@server.tool()
def help(command: str) -> Reply:
    """Says what a command does, its flags and its exit codes: plan, record, advise, solve, sweep,
    matrix, profile or gate. `record --levers` lists the levers of advise()."""
    words = command.split()
    if not words or words[0] not in COMMANDS:
        raise ToolError(f"there is no command {command!r}; give one of {', '.join(COMMANDS)}")
    return reply_of(words if "--levers" in words else [*words, "--help"], (0,))


@server.tool()
def plan(flags: Flags, json: bool = False) -> Reply:
    """Predicts the peak memory of training a model that Shardlens knows, and whether it fits, in
    less than a second. Flags are those of help("plan"), such as {"model": "llama-8b", "gpu": "l4",
    "world": 8, "param-dtype": "bf16", "batch": 1}. {"engine": "pytorch", "model": "Qwen/Qwen3-8B",
    ...} runs a program for any model of transformers instead: see help("plan --engine pytorch")."""
    return reply_of(["plan", *(["--json"] if json else []), *plan_words(flags)], (0, 3, 4))


@server.tool()
def record(command: list[str], flags: Flags | None = None) -> Reply:
    """Runs a PyTorch program, unmodified, on a simulated GPU (an H100 unless told) and says whether it fits, what was
    alive at the peak by line of code, and what to change. Flags are those of help("record"), such
    as {"device": "null:h100", "world": 16, "rank": 5, "out": "runs/a"}."""
    return reply_of_program("record", command, options_of(flags), (0, 3, 4))


@server.tool()
def advise(command: list[str], flags: Flags | None = None, json: bool = False) -> Reply:
    """Finds the cheapest changes with which a PyTorch program fits a GPU, and the code to write: it
    runs the program with each. Takes minutes. Flags are those of help("advise"), such as
    {"device": "null:l4", "fit": "16GiB"}."""
    return reply_of_program("advise", command, options_of(flags, json), (0, 3))


@server.tool()
def solve(command: list[str], flags: Flags | None = None, json: bool = False) -> Reply:
    """Finds the largest number in place of {batch}, or another name in braces, with which a PyTorch
    program fits, such as ["train.py", "--batch", "{batch}"]. Takes minutes."""
    return reply_of_program("solve", command, options_of(flags, json), (0, 3))


@server.tool()
def sweep(
    command: list[str],
    values: dict[str, list[int]],
    flags: Flags | None = None,
    json: bool = False,
) -> Reply:
    """Runs a PyTorch program with each combination of values, such as {"batch": [8, 16]}, in place
    of {batch} in its command, and prints a table of what it takes."""
    options = [*options_of(flags, json), *values_words(values)]
    return reply_of_program("sweep", command, options, (0,))


@server.tool()
def matrix(recipes: str, flags: Flags | None = None, json: bool = False) -> Reply:
    """Runs the recipes of a file, PyTorch programs with all combinations of flags, on simulated GPUs,
    and compares each with its baseline. `recipes` is a path; help("matrix") describes the file."""
    options = [*flags_of(flags or {}), *(["--json"] if json else [])]
    return reply_of(["matrix", recipes, *options], (0, 1))


@server.tool()
def report(run: str, json: bool = False) -> Reply:
    """Says what a recording knows: peaks, what was alive then by line of code, reserved memory,
    growth, and what to change. `run` is a run's folder, a .slp file, or a memory snapshot of
    PyTorch."""
    return reply_of(["profile", "report", run, *(["--json"] if json else [])], (0,))


@server.tool()
def compare(a: str, b: str, json: bool = False) -> Reply:
    """Says which lines of code make the difference in memory between two recordings."""
    return reply_of(["profile", "diff", a, b, *(["--json"] if json else [])], (0,))


def main() -> None:
    server.run("stdio")


if __name__ == "__main__":
    main()
