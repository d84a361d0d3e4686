"""Cases of ray_cases.py: searches whose programs are tasks of a Ray cluster."""

import json
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def sweeps(cluster):
    """20 recordings on two nodes are those of this machine's processes."""
    import concurrent.futures

    import shardlens
    from shardlens.ray import Executor

    script = ROOT / "tests/profiler/record/scripts/levers/batches.py"
    command = [str(script), "--batch", "{batch}"]
    values = {"batch": [*range(256, 2816, 256)], "device": ["null:h100", "null:l4"]}
    found = {}
    for name, executor in (
        ("ray", Executor(memory_bytes=1 << 30)),
        ("processes", concurrent.futures.ProcessPoolExecutor(2)),
    ):
        begin = time.monotonic()
        answer = shardlens.sweep(command, values, out=cluster.storage / name, executor=executor)
        print(f"{name}: {len(answer['runs'])} runs, {time.monotonic() - begin:.0f} s", flush=True)
        found[name] = [
            [row["values"], row["outcome"], row["allocated_bytes"], row["reserved_bytes"]]
            for row in answer["runs"]
        ]
        assert all(pathlib.Path(row["run"]).is_dir() for row in answer["runs"]), answer
    assert len(found["ray"]) == 20 and found["ray"] == found["processes"], found


def searches(cluster):
    """A search finds the same on two nodes as on this machine."""
    import shardlens
    from shardlens.ray import Executor

    script = str(ROOT / "tests/profiler/record/scripts/levers/batches.py")
    recipe = {"command": [sys.executable, script, "--batch", "{batch}"], "batch": [256, 512],
              "device": ["null:h100", "null:l4"]}  # fmt: skip
    file = cluster.storage / "recipes.json"
    file.write_text(json.dumps({"recipes": {"blocks": recipe}}))
    executor = Executor(memory_bytes=1 << 30)
    begin = time.monotonic()
    for name, search in {
        "advise": lambda **more: shardlens.advise(
            [script, "--batch", "256"], device="null:l4", fit="1.2GiB", **more
        ),
        "solve": lambda **more: shardlens.solve(
            [script, "--batch", "{batch}"], device="null:l4", from_=256, most=512, **more
        ),
        "matrix": lambda **more: shardlens.matrix(file, **more),
    }.items():
        on_ray = search(out=cluster.storage / f"{name}-ray", executor=executor)
        alone = search(out=cluster.storage / f"{name}-alone")
        assert without_places(on_ray) == without_places(alone), (on_ray, alone)
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)


def without_places(answer):
    """Returns an answer without what differs from machine to machine: folders, and how it ran."""
    if isinstance(answer, dict):
        of_machine = ("run", "out", "folder", "was_forked", "host_bytes")
        return {key: without_places(answer[key]) for key in answer if key not in of_machine}
    return [without_places(one) for one in answer] if isinstance(answer, list) else answer
