"""Tests shardlens.ray on two simulated nodes of Ray, in namespaces of their own (hosts.sh): no
other Ray of this machine is seen, and no process stays.

    tests/wheel/ray_cases.py BUILD_FOLDER [CASE...]

Runs with the Python that SHARDLENS_RAY_PYTHON names, or .deps/ray/bin/python. Exit code 77: that
Python has no Ray, or namespaces are not allowed here.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SKIPPED = 77
WITH_TWO_NODES = "SHARDLENS_TEST_CLUSTER"


def has_ray(python):
    return subprocess.run([python, "-c", "import ray.train"], capture_output=True).returncode == 0


def start(build, cases):
    """Runs this script again, inside: with the package, Ray and a machine of its own."""
    deps = os.environ.get("SHARDLENS_DEPS", str(ROOT / ".deps"))
    python = os.environ.get("SHARDLENS_RAY_PYTHON", deps + "/ray/bin/python")
    hosts = ROOT / "tests/support/engines/hosts.sh"
    with tempfile.TemporaryDirectory(prefix="shardlens-ray-") as folder:
        if not os.path.exists(python) or not has_ray(python):
            print("skipped: there is no Python with Ray")
            return SKIPPED
        if subprocess.run([hosts, folder, "true"], capture_output=True).returncode != 0:
            print("skipped: root and namespaces are needed")
            return SKIPPED
        package = pathlib.Path(folder) / "site/shardlens"
        shutil.copytree(ROOT / "commands/wheel/shardlens", package)
        (package / "bin").mkdir()
        (package / "bin/shardlens").symlink_to(build / "bin/shardlens")
        variables = {
            **os.environ,
            "PYTHONPATH": str(package.parent),
            "RAY_TMPDIR": folder,
            "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "120",
            "RAY_worker_niceness": "0",  # else a machine that others use starves them
            WITH_TWO_NODES: folder,
        }
        return subprocess.run(
            [hosts, folder, python, __file__, build, *cases], env=variables, check=False
        ).returncode


class Cluster:
    """Two nodes with a CPU each; the head has none."""

    def __init__(self, folder):
        import ray
        from ray.cluster_utils import Cluster as RayCluster

        options = {"object_store_memory": 80 * 2**20}
        self.storage = pathlib.Path(folder) / "storage"
        self._ray = ray
        self._cluster = RayCluster(
            initialize_head=True,
            head_node_args={**options, "num_cpus": 0, "include_dashboard": False},
        )
        for _ in range(2):
            self._cluster.add_node(**options, num_cpus=1)
        ray.init(address=self._cluster.address)

    def close(self):
        self._ray.shutdown()
        self._cluster.shutdown()

    def trainer(self, name, steps, failures=0, **flags):
        from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
        from shardlens.ray import ShardlensTrainer

        settings = {"model": "vit-tutorial", "data": "synthetic", "batch": 8, "log_every": 5}
        return ShardlensTrainer(
            **{**settings, "checkpoint_every": 10, "steps": steps, **flags},
            scaling_config=ScalingConfig(num_workers=2, placement_strategy="SPREAD"),
            run_config=RunConfig(
                name=name,
                storage_path=str(self.storage),
                failure_config=FailureConfig(max_failures=failures),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        )

    def run(self, name):
        return self.storage / name / "run"

    def weights(self, name):
        return (self.run(name) / "model/model.safetensors").read_bytes()

    def has_saved(self, name):
        """True if the present attempt has a checkpoint to go on from."""
        run = self.run(name)
        return any(run.glob("checkpoints/step-*/manifest.json")) and not self.ended(name)

    def ended(self, name):
        return self.kinds(name)[-1] not in ("started", "resumed", "restarted")

    def steps_logged(self, name):
        lines = (self.run(name) / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["step"] for line in lines]

    def reported(self, name):
        return json.loads((self.storage / name / "reported.json").read_text())

    def kinds(self, name):
        lines = (self.run(name) / "events.jsonl").read_text().splitlines()
        return [json.loads(line)["kind"] for line in lines]


def ranks():
    """Returns the processes of ranks, by rank, and the workers that started them."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text() != "shardlens-train\n":
                continue
            variables = dict(
                entry.split("=", 1)
                for entry in (folder / "environ").read_text().split("\0")
                if "=" in entry
            )
            found[int(variables["RANK"])] = (int(folder.name), int(variables["SHARDLENS_PARENT"]))
        except OSError:
            continue  # it has ended
    return found


def is_running(process):
    """A process that has ended but was not waited for does not count."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(what, holds, seconds=120):
    last_moment = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > last_moment:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.05)


def trains_and_reports(cluster):
    """Metrics, checkpoints and the model come back; the weights are those of `train` itself."""
    result = cluster.trainer("whole", 20).fit()
    assert result.return_value["result"]["status"] == "ok", result.return_value
    assert result.metrics["step"] == 20, result.metrics
    assert pathlib.Path(result.checkpoint.path).parent == cluster.run("whole") / "checkpoints"
    assert len(result.best_checkpoints) == 2, result.best_checkpoints
    assert cluster.steps_logged("whole") == [5, 10, 15, 20]
    program = sys.argv[1] + "/bin/shardlens"
    flags = "--model vit-tutorial --data synthetic --batch 8 --steps 20 --device cpu --workers 2"
    flags += " --checkpoint-every 10 --communicator gloo --name alone"
    alone = [program, "train", *flags.split(), "--storage", cluster.storage]
    subprocess.run(alone, check=True, capture_output=True)
    ours = (cluster.storage / "alone/model/model.safetensors").read_bytes()
    assert cluster.weights("whole") == ours


def outlives_a_rank_and_a_worker(cluster):
    """A killed rank, then a killed worker: the run goes on, to the same bits; none is an orphan."""
    struck = []

    def strike():
        for victim in ("rank", "worker"):
            wait_for("a checkpoint", lambda: 1 in ranks() and cluster.has_saved("struck"))
            rank, worker = ranks()[1]
            os.kill(rank if victim == "rank" else worker, 9)
            wait_for("the end of the rank", lambda: not is_running(rank), 10)
            struck.append(victim)

    striker = threading.Thread(target=strike)
    striker.start()
    result = cluster.trainer("struck", 60, failures=4).fit()
    striker.join()
    assert struck == ["rank", "worker"], struck
    assert result.return_value["result"]["status"] == "ok"
    kinds = cluster.kinds("struck")
    assert kinds.count("lost") == 2 and kinds[-1] == "finished", kinds
    cluster.trainer("calm", 60).fit()
    assert cluster.weights("struck") == cluster.weights("calm")
    assert cluster.steps_logged("struck") == list(range(5, 61, 5))
    assert cluster.reported("struck")["step"] == 60
    assert not ranks(), ranks()


def refuses_wrong_use(cluster):
    """Wrong use is not tried again, and says what the command line says."""
    from shardlens import ShardlensError

    begin = time.monotonic()
    try:
        cluster.trainer("wrong", 20, failures=3, lr="minus").fit()
    except ShardlensError as error:
        assert error.exit_code == 2 and "--lr" in str(error), error
    else:
        raise AssertionError("it was accepted")
    assert time.monotonic() - begin < 90
    for ours in ({"storage": "x"}, {"keep": 3}, {"max_failures": 1}):
        try:
            cluster.trainer("wrong", 20, **ours)
        except ValueError as error:
            assert "is Ray's to set" in str(error), error
        else:
            raise AssertionError(ours)


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


CASES = {case.__name__: case for case in (
    trains_and_reports, outlives_a_rank_and_a_worker, refuses_wrong_use, sweeps)}  # fmt: skip


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    folder = os.environ.get(WITH_TWO_NODES)
    if folder is None:
        return start(build, sys.argv[2:])
    cluster = Cluster(folder)
    failed = 0
    for name in sys.argv[2:] or CASES:
        begin = time.monotonic()
        try:
            CASES[name](cluster)
            print(f"passed: {name}, {time.monotonic() - begin:.0f} s", flush=True)
        except Exception as error:  # noqa: BLE001  the other cases still run
            failed += 1
            print(f"FAILED: {name}: {type(error).__name__}: {error}", flush=True)
    cluster.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
