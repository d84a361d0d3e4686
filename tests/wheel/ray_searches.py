"""Cases of ray_cases.py: searches whose programs are tasks of a Ray cluster."""

import json
import pathlib
import sys
import time

from ray_ranks import ranks, wait_for

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


def tunes(cluster):
    """Tune searches over a flag: each trial's loss is that of the run alone, and a trial that Tune
    stops leaves no rank."""
    from ray import tune
    from ray.train import RunConfig, ScalingConfig
    from ray.tune.integration.ray_train import TuneReportCallback
    from shardlens.ray import ShardlensTrainer

    storage = str(cluster.storage)

    def train(config):
        ShardlensTrainer(
            model="vit-tutorial", data="synthetic", batch=8, log_every=5, **config,
            scaling_config=ScalingConfig(num_workers=1),
            run_config=RunConfig(
                name=tune.get_context().get_trial_id(),
                storage_path=storage,
                callbacks=[TuneReportCallback()],
            ),
        ).fit()  # fmt: skip

    def found(name, space, **more):
        tuner = tune.Tuner(
            tune.with_resources(train, {"cpu": 0, "memory": 1 << 20}),
            param_space=space,
            tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=2),
            run_config=tune.RunConfig(name=name, storage_path=storage, **more),
        )
        return tuner.fit()

    results = found("rates", {"steps": 20, "lr": tune.grid_search([1e-5, 1e-3])})
    assert not results.errors, results.errors
    losses = {}
    for result in results:
        rate = result.config["lr"]
        alone = cluster.trainer(f"alone-{rate}", 20, workers=1, lr=rate).fit()
        losses[rate] = result.metrics["loss"]
        assert result.metrics["step"] == 20, result.metrics
        assert losses[rate] == alone.metrics["loss"], (rate, losses, alone.metrics)
    assert len(losses) == 2 and len(set(losses.values())) == 2, losses
    assert results.get_best_result().config["lr"] == min(losses, key=losses.get), losses

    (stopped,) = found("stopped", {"steps": 2000, "epochs": 20}, stop={"step": 10})
    assert 10 <= stopped.metrics["step"] < 2000, stopped.metrics
    wait_for("the rank of a stopped trial ends", lambda: not ranks())


def without_places(answer):
    """Returns an answer without what differs from machine to machine: folders, and how it ran."""
    if isinstance(answer, dict):
        of_machine = ("run", "out", "folder", "was_forked", "host_bytes")
        return {key: without_places(answer[key]) for key in answer if key not in of_machine}
    return [without_places(one) for one in answer] if isinstance(answer, list) else answer
