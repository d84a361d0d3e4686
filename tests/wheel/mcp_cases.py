"""Tests `python -m shardlens mcp` with the protocol's own client: from a question to the answer.

    tests/wheel/mcp_cases.py BUILD_FOLDER

Runs with the first Python that exists in SHARDLENS_PYTHONS, a list separated by colons, or else with
the one that starts this. Exit code 77: it lacks PyTorch or version 2 of the protocol's SDK.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
for python in os.environ.pop("SHARDLENS_PYTHONS", "").split(":"):
    if os.access(python, os.X_OK):
        os.execv(python, [python, *sys.argv])
if importlib.util.find_spec("torch") is None or importlib.util.find_spec("mcp") is None:
    print(f"skipped: {sys.executable} lacks PyTorch or the protocol's SDK")
    sys.exit(SKIPPED)

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ["advise", "compare", "help", "matrix", "plan", "record", "report", "solve", "sweep"]
ON_L4 = {"device": "null:l4"}
PROGRAM = ROOT / "tests/profiler/record/scripts/levers/batches.py"


class Session:
    """A client, the server that it has started, and the folder in which both work."""

    def __init__(self, client, folder):
        self.client, self.folder = client, folder

    async def ask(self, tool, **arguments):
        """Returns (exit code, text)."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, (tool, arguments, result.content)
        return result.structured_content["exit_code"], result.structured_content["text"]

    async def expect(self, code, words, tool, **arguments):
        found, text = await self.ask(tool, **arguments)
        assert found == code and words in text, f"{tool} {arguments}: {found}\n{text}"
        return text

    async def expect_refusal(self, words, tool, arguments):
        result = await self.client.call_tool(tool, arguments)
        said = " ".join(part.text for part in result.content)
        assert result.is_error and words in said, f"{tool} {arguments}: {said}"


async def check_answers(session):
    """A program that does not fit is recorded, what fits is found, and recorded as advised."""
    names = sorted(tool.name for tool in (await session.client.list_tools()).tools)
    assert names == TOOLS, names
    await session.expect(0, "--fit SIZE", "help", command="advise")
    await session.expect(0, "recompute=", "help", command="record --levers")
    await session.expect(3, "does not fit", "plan", flags={"model": "llama-8b", "gpu": "l4"})
    small = {**ON_L4, "capacity": "1700MiB"}
    command = ["train.py", "--batch", "4096"]
    await session.expect(3, "does not fit", "record", command=command, flags={**small, "out": "a"})
    chosen = {**ON_L4, "fit": "1700MiB", "levers": "optimizer=fused,recompute=full"}
    await session.expect(0, "with recompute=full it takes", "advise", command=command, flags=chosen)
    with_it = {**small, "with": "recompute=full", "out": "b"}
    await session.expect(0, "fits: ", "record", command=command, flags=with_it)
    await session.expect(0, "alive at the peak", "report", run="b")
    await session.expect(0, "train.py:", "compare", a="a", b="b")


async def check_searches(session):
    flags = {**ON_L4, "capacity": "1700MiB", "from": 2048, "most": 3072}
    command = ["train.py", "--batch", "{batch}"]
    text = await session.expect(0, "is_solved", "solve", command=command, flags=flags, json=True)
    assert '"name": "batch"' in text, text
    values = {"batch": [1024, 2048]}
    await session.expect(0, "batch=2048", "sweep", command=command, values=values, flags=ON_L4)
    recipe = {"command": [sys.executable, *command], "device": "null:l4", **values}
    (session.folder / "recipes.json").write_text(json.dumps({"recipes": {"small": recipe}}))
    await session.expect(0, "small,batch=2048", "matrix", recipes="recipes.json", flags={"update": True,
                         "baseline": "baseline"})
    await session.expect(0, "(default: ", "help", command="plan --engine pytorch")


async def check_refusals(session):
    fixed, open_ = ["train.py", "--batch", "8"], ["train.py", "--batch", "{batch}"]
    for words, tool, arguments in (
        ("banana", "plan", {"flags": {"model": "banana", "gpu": "l4"}}),
        ("valid dictionary", "plan", {"flags": 7}),
        ("command is empty", "record", {"command": []}),
        ("there is no command 'rm -rf'", "help", {"command": "rm -rf"}),
        ("(exit code 2)", "report", {"run": "nowhere"}),
        ("0 placeholders", "solve", {"command": fixed}),
        ("no-such-lever", "record", {"command": fixed, "flags": {"with": "no-such-lever"}}),
        ("--values batch=", "sweep", {"command": open_, "values": {"batch": []}}),
        ("Unknown tool", "erase", {}),
    ):
        await session.expect_refusal(words, tool, arguments)
    code, _ = await session.ask("plan", flags={"model": "vit-tutorial", "gpu": "h100"})
    assert code == 0, "the server answers after refusals"


async def run_cases(environment, folder):
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "shardlens", "mcp"], env=environment, cwd=folder
    )
    failed = 0
    async with Client(server) as client:
        for check in (check_answers, check_searches, check_refusals):
            name, start = check.__name__.removeprefix("check_"), time.monotonic()
            try:
                await check(Session(client, folder))
                print(f"ok      {name} ({time.monotonic() - start:.1f} s)", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"FAILED  {name}: {error}", flush=True)
    return 1 if failed else 0


def check_missing_sdk(environment):
    text = "import sys; sys.modules['mcp.server.mcpserver'] = None; import shardlens.mcp"
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 1 and "run pip install 'shardlens[mcp]'" in done.stderr, done.stderr


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(folder) / "site/shardlens"
        shutil.copytree(ROOT / "commands/wheel/shardlens", package)
        (package / "bin").symlink_to(build / "bin")
        work = pathlib.Path(folder) / "work"
        work.mkdir()
        shutil.copy(PROGRAM, work / "train.py")
        environment = {**os.environ, "PYTHONPATH": str(package.parent)}
        check_missing_sdk(environment)
        return anyio.run(run_cases, environment, work)


if __name__ == "__main__":
    sys.exit(main())
