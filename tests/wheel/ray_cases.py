"""Tests shardlens.ray on two simulated nodes of Ray, in namespaces of their own (hosts.sh): no
other Ray of this machine is seen, and no process stays.

    tests/wheel/ray_cases.py BUILD_FOLDER [CASE...]

Runs with the Python that SHARDLENS_RAY_PYTHON names, or .deps/ray/bin/python. Exit code 77: that
Python has no Ray, or namespaces are not allowed here.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime, timezone

from ray_ranks import is_running, ranks, wait_for
from ray_searches import searches, sweeps, tunes

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SKIPPED = 77
WITH_TWO_NODES = "SHARDLENS_TEST_CLUSTER"


def has_ray(python):
    return subprocess.run([python, "-c", "import ray.train"], capture_output=True).returncode == 0


def has_elastic_workers():
    """Ray has them since 2.55."""
    from ray.train import ScalingConfig

    return hasattr(ScalingConfig, "elastic_resize_monitor_interval_s")


def has_notices():
    """Ray has them since 2.58."""
    import ray.train

    return hasattr(ray.train, "get_preemption_info")


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

        options = self._options = {"object_store_memory": 80 * 2**20}
        self.storage = pathlib.Path(folder) / "storage"
        self.storage.mkdir()
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

    def trainer(self, name, steps, failures=0, workers=2, **flags):
        from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, UserCallback
        from shardlens.ray import ShardlensTrainer

        reports = self.reports(name)

        class Collector(UserCallback):
            """Writes down what Ray Train was told, in its own process."""

            def after_report(self, run_context, metrics, checkpoint):
                if checkpoint is None:
                    with reports.open("a") as file:
                        file.write(f"{metrics[0]['step']}\n")

        settings = {"model": "vit-tutorial", "data": "synthetic", "batch": 8, "log_every": 5}
        watched = {"elastic_resize_monitor_interval_s": 2} if has_elastic_workers() else {}
        return ShardlensTrainer(
            **{**settings, "checkpoint_every": 10, "steps": steps, **flags},
            epochs=-(-steps // 100),  # synthetic data have 100 steps
            scaling_config=ScalingConfig(
                num_workers=workers,
                placement_strategy="SPREAD",
                **watched,
            ),
            run_config=RunConfig(
                name=name,
                storage_path=str(self.storage),
                failure_config=FailureConfig(max_failures=failures),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
                callbacks=[Collector()],
            ),
        )

    def reports(self, name):
        """Returns the file of the steps that were reported."""
        return self.storage / f"{name}.reports"

    def steps_reported(self, name):
        if not self.reports(name).exists():
            return []
        return [int(line) for line in self.reports(name).read_text().splitlines()]

    def add_node(self):
        self._cluster.add_node(**self._options, num_cpus=1)

    def node_of(self, worker):
        """Returns the node whose raylet has started a worker."""
        raylet = int(pathlib.Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[1])
        for node in self._cluster.worker_nodes:
            processes = [one.process.pid for some in node.all_processes.values() for one in some]
            if raylet in processes:
                return node
        raise AssertionError(f"no node has process {worker}")

    def lose(self, node):
        self._cluster.remove_node(node, allow_graceful=False)

    def announce(self, node, seconds):
        """Says, as a provider of spot machines does, that a node will go."""
        ray = pathlib.Path(sys.executable).with_name("ray")
        words = "--reason DRAIN_NODE_REASON_PREEMPTION --reason-message spot"
        words += f" --deadline-remaining-seconds {seconds} --node-id {node.node_id}"
        command = [sys.executable, ray, "drain-node", "--address", self._cluster.address]
        subprocess.run([*command, *words.split()], check=True, capture_output=True)

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

    def kinds(self, name):
        lines = (self.run(name) / "events.jsonl").read_text().splitlines()
        return [json.loads(line)["kind"] for line in lines]


class Situation:
    """A row of the table in docs/runs.md: what a run needed to go on after it was struck. The row is in
    a file in SHARDLENS_ENGINE_ROWS, and tests/docs/engine_table.py makes the table."""

    def __init__(self, cluster, run, said):
        self.said, self._events = said, cluster.run(run) / "events.jsonl"
        self._from = self.now()
        saved = [folder.name for folder in cluster.run(run).glob("checkpoints/step-*[0-9]")]
        self._saved_steps = max((int(name.split("-")[1]) for name in saved), default=0)

    @staticmethod
    def now():
        """Returns the moment as events.jsonl writes it."""
        return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def ends_with(self, kind):
        """Requires an event of this kind, and no step before the newest checkpoint to be lost.
        Returns the events up to that one."""
        said = []
        for event in map(json.loads, self._events.read_text().splitlines()):
            if event["time"] < self._from:
                continue
            said.append(event["kind"] + (f" of {event['rank']}" if event["rank"] is not None else ""))
            if event["kind"] != kind:
                continue
            if kind == "resumed":
                assert event["step"] >= self._saved_steps, [self.said, event, self._saved_steps]
            self.keep(event["time"], said)
            return said
        raise AssertionError(f"{self.said}: no event {kind} among {said}")

    def keep(self, until, said=()):
        folder = os.environ.get("SHARDLENS_ENGINE_ROWS")
        if folder is None:
            return
        row = {"engine": "Ray", "situation": self.said, "from": self._from, "until": until}
        file = pathlib.Path(folder) / f"Ray, {self.said}.json"
        file.write_text(json.dumps({**row, "events": said}))


def trains_and_reports(cluster):
    """Metrics, checkpoints and the model come back; the weights are those of `train` itself."""
    start = Situation(cluster, "whole", "start")
    result = cluster.trainer("whole", 20).fit()
    start.ends_with("started")
    assert result.return_value["result"]["status"] == "ok", result.return_value
    returned = (cluster.storage / "whole/returned.json").read_text()  # what an old Ray needs
    assert json.loads(returned) == result.return_value, returned
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
    struck, situations = [], []

    def strike():
        for victim in ("rank", "worker"):
            wait_for("a checkpoint", lambda: 1 in ranks() and cluster.has_saved("struck"))
            wait_for("all ranks", lambda: cluster.kinds("struck")[-1] != "resumed")
            rank, worker = ranks()[1]
            situations.append(Situation(cluster, "struck", f"{victim} killed"))
            os.kill(rank if victim == "rank" else worker, 9)
            wait_for("the end of the rank", lambda: not is_running(rank), 10)
            struck.append(victim)

    striker = threading.Thread(target=strike)
    striker.start()
    result = cluster.trainer("struck", 60, failures=4).fit()
    striker.join()
    assert struck == ["rank", "worker"], struck
    for situation in situations:
        assert situation.ends_with("resumed")[0] == "lost of 1", situation.said
    assert result.return_value["result"]["status"] == "ok"
    kinds = cluster.kinds("struck")
    assert kinds.count("lost") == 2 and kinds[-1] == "finished", kinds
    cluster.trainer("calm", 60).fit()
    assert cluster.weights("struck") == cluster.weights("calm")
    assert cluster.steps_logged("struck") == list(range(5, 61, 5))
    assert cluster.steps_reported("struck") == list(range(5, 61, 5))
    assert not ranks(), ranks()


def refuses_wrong_use(cluster):
    """Wrong use is not tried again, and says what the command line says."""
    from shardlens import ShardlensError

    begin = time.monotonic()
    wrong = Situation(cluster, "wrong", "wrong use")
    try:
        cluster.trainer("wrong", 20, failures=3, lr="minus").fit()
    except ShardlensError as error:
        wrong.keep(wrong.now())
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


def plans_before_placing(cluster):
    """A run that does not fit on the GPU of the workers ends before Ray places anything; the least
    number of workers is the one that `shardlens plan --solve world` names."""
    from ray.train import RunConfig, ScalingConfig
    from shardlens import ShardlensError
    from shardlens.ray import ShardlensTrainer

    flags = {"model": "llama-8b", "batch": 1, "data": "synthetic", "param_dtype": "bf16"}

    def trainer(workers, accelerator="L4", **more):
        scaling = ScalingConfig(num_workers=workers, use_gpu=True, accelerator_type=accelerator)
        run = RunConfig(name="planned", storage_path=str(cluster.storage))
        made = ShardlensTrainer(scaling_config=scaling, run_config=run, **flags, **more)
        return made.scaling_config.num_workers

    words = ["--" + name.replace("_", "-") for name in flags]
    given = [word for pair in zip(words, map(str, flags.values())) for word in pair]
    fitting = []
    for world in range(1, 25):
        plan = [sys.argv[1] + "/bin/shardlens", "plan", "--gpu", "l4", "--world", str(world)]
        if subprocess.run([*plan, *given], capture_output=True).returncode != 3:
            fitting.append(world)
    assert 1 < fitting[0] < 24, fitting
    assert trainer(fitting[0]) == fitting[0]
    assert trainer(fitting[0], min_workers="plan") == fitting[0]
    refused = [(fitting[0] - 1, {}), (1, {"min_workers": "plan"})]
    if has_elastic_workers():
        assert trainer((1, 24), min_workers="plan") == (fitting[0], 24)
        assert trainer((fitting[0], 24)) == (fitting[0], 24)
        refused += [((1, 24), {}), ((1, 2), {"min_workers": "plan"})]
    for workers, more in refused:
        try:
            trainer(workers, **more)
        except ShardlensError as error:
            assert error.exit_code == 3 and str(error).startswith("does not fit: takes"), error
        else:
            raise AssertionError(workers)
    assert trainer(1, "A100") == 1  # has 40 or 80 GB
    for accelerator, more in (("A100", {"min_workers": "plan"}), ("L4", {"min_workers": "few"})):
        try:
            trainer((1, 2) if has_elastic_workers() else 2, accelerator, **more)
        except ValueError as error:
            assert "min_workers" in str(error), error
        else:
            raise AssertionError(accelerator)


def result_beside(trainer, act):
    """Trains in a thread of its own: Ray starts nodes only in the main thread, which acts."""
    ended = []
    thread = threading.Thread(target=lambda: ended.append(trainer.fit()))
    thread.start()
    act()
    thread.join()
    return ended[0].return_value["result"]


def outlives_a_lost_node(cluster):
    """If one of two nodes is lost, the other goes on alone; a node that is added is used again."""
    name, seen = "elastic", []

    def strike():
        wait_for("a checkpoint", lambda: 1 in ranks() and cluster.has_saved(name))
        lost = Situation(cluster, name, "node lost")
        cluster.lose(cluster.node_of(ranks()[1][1]))
        resumed = cluster.kinds(name).count("resumed")
        wait_for("a resumption", lambda: cluster.kinds(name).count("resumed") > resumed, 300)
        logged = len(cluster.steps_reported(name))
        wait_for("a step", lambda: len(cluster.steps_reported(name)) > logged)
        assert len(ranks()) == 1, ranks()
        lost.ends_with("resumed")
        added = Situation(cluster, name, "node added")
        cluster.add_node()
        wait_for("two ranks", lambda: len(ranks()) == 2, 300)
        wait_for("a resumption", lambda: cluster.kinds(name).count("resumed") > resumed + 1, 60)
        added.ends_with("resumed")
        seen.append("lost and added")

    trainer = cluster.trainer(
        name, 5000, failures=3, workers=(1, 2), log_every=100, checkpoint_every=100
    )
    result = result_beside(trainer, strike)
    assert seen
    assert result["status"] == "ok", result
    assert cluster.steps_reported(name) == list(range(100, 5001, 100))
    kinds = cluster.kinds(name)
    assert kinds.count("lost") == 1 and "preempted" in kinds and kinds[-1] == "finished", kinds
    assert not ranks(), ranks()


def saves_on_notice(cluster):
    """Told that a node will go, all ranks save, and the others go on; it counts as no failure."""
    name, notice = "told", []

    def strike():
        wait_for("a checkpoint", lambda: 1 in ranks() and cluster.has_saved(name))
        node = cluster.node_of(ranks()[1][1])
        notice.append(Situation(cluster, name, "told that a node goes, saved"))
        notice.append(Situation(cluster, name, "told that a node goes, goes on"))
        cluster.announce(node, 20)
        begin = time.monotonic()
        wait_for("saving", lambda: "preempted" in cluster.kinds(name), 20)
        time.sleep(max(0, begin + 20 - time.monotonic()))
        cluster.lose(node)

    trainer = cluster.trainer(name, 600, failures=0, workers=(1, 2), log_every=50)
    result = result_beside(trainer, strike)
    cluster.add_node()
    assert result["status"] == "ok", result
    for situation, kind in zip(notice, ("preempted", "resumed")):
        situation.ends_with(kind)
    assert cluster.steps_reported(name) == list(range(50, 601, 50))
    kinds = cluster.kinds(name)
    assert kinds.count("lost") == 0 and kinds[-1] == "finished", kinds


def outlives_storms(cluster):
    """Ranks and workers are killed in an order drawn by seed: each run has the weights of the calm
    one, to the bit, and reports each logged step once."""
    import random

    settings = {"steps": 200, "log_every": 10}
    cluster.trainer("still", **settings).fit()
    first = int(os.environ.get("SHARDLENS_SEED", time.time_ns() % 100000))
    for seed in range(first, first + 5):
        draw = random.Random(seed)
        name = f"storm-{seed}"
        killed = []
        is_over = threading.Event()

        def strike():
            while len(killed) < 3 and not is_over.is_set():
                time.sleep(draw.uniform(0, 3))
                found = ranks()
                if len(found) < 2:
                    continue
                number, victim = draw.randrange(2), draw.randrange(2)
                os.kill(found[number][victim], 9)
                killed.append(f"{('rank', 'worker')[victim]} {number}")
                wait_for("the end of the rank", lambda: not is_running(found[number][0]), 10)

        striker = threading.Thread(target=strike)
        begin = time.monotonic()
        striker.start()
        result = cluster.trainer(name, failures=9, **settings).fit()
        is_over.set()
        striker.join()
        seconds = time.monotonic() - begin
        print(f"seed {seed}: killed {killed}, {cluster.kinds(name)}, {seconds:.0f} s", flush=True)
        assert killed and result.return_value["result"]["status"] == "ok", seed
        assert cluster.weights(name) == cluster.weights("still"), seed
        assert cluster.steps_reported(name) == list(range(10, 201, 10)), seed
        assert not ranks(), ranks()


def runs_the_tutorial(cluster):
    """The page of the tutorial, on CPU workers and synthetic data: losses as `train --workers 2`."""
    text = (ROOT / "docs/cluster/ray_tutorial.md").read_text()
    for words, ours in (
        ("/mnt/cluster_storage", str(cluster.storage)),
        ('"fashion-mnist"', '"synthetic"'),
        ('"epochs": 5', '"epochs": 1'),
        ("use_gpu=True", "use_gpu=False"),
    ):
        assert words in text, words
        text = text.replace(words, ours)
    names = {}
    settings, launch, load = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(settings + launch, names)  # noqa: S102  the page's own code
    assert names["result"].return_value["result"]["status"] == "ok"
    # This PyTorch has the null device's stubs in place of NVIDIA's libraries.
    stubs = {**os.environ, "LD_LIBRARY_PATH": sys.argv[1] + "/null_device"}
    words = [sys.executable, "-c", load + "\nassert len(weights) == 128, len(weights)"]
    subprocess.run(words, env=stubs, check=True)
    environment = {**os.environ, "PATH": sys.argv[1] + "/bin:" + os.environ["PATH"]}
    commands = re.findall(r"^\$ (shardlens .*)$", text, re.MULTILINE)
    assert len(commands) == 5, commands
    image = str(cluster.storage / "image.png")
    write_image(image)
    for command in commands:
        # Synthetic data have no images to classify.
        words = command.replace("--index 0", f"--image {image}").split()
        done = subprocess.run(words, env=environment, cwd=cluster.storage, capture_output=True, text=True)
        assert done.returncode == 0, [command, done.stdout, done.stderr]
    assert (cluster.storage / "dcp/.metadata").exists()
    assert (cluster.storage / "memory.html").stat().st_size > 10000

    flags = [
        word
        for name, value in names["settings"].items()
        for word in ("--" + name.replace("_", "-"), str(value))
    ]
    alone = [sys.argv[1] + "/bin/shardlens", "train", *flags, "--workers", "2", "--device", "cpu"]
    alone += ["--communicator", "gloo", "--storage", str(cluster.storage), "--name", "tutorial-alone"]
    subprocess.run(alone, check=True, capture_output=True)
    losses = []
    for run in (cluster.run("fsdp_mnist"), cluster.storage / "tutorial-alone"):
        lines = (run / "metrics.jsonl").read_text().splitlines()
        losses.append([(json.loads(line)["step"], json.loads(line)["loss"]) for line in lines])
    assert len(losses[0]) == 10 and losses[0] == losses[1], losses


def write_image(file):
    """Writes a grey PNG of 28 x 28 pixels."""
    import struct
    import zlib

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes([100] * 28) for _ in range(28))
    header = struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    pathlib.Path(file).write_bytes(b"\x89PNG\r\n\x1a\n" + body)


CASES = {case.__name__: case for case in (
    trains_and_reports, outlives_a_rank_and_a_worker, refuses_wrong_use, plans_before_placing, runs_the_tutorial,
    outlives_a_lost_node, saves_on_notice, outlives_storms, sweeps,
    searches, tunes)}  # fmt: skip
# These cases need what an old Ray lacks.
NEEDS = {
    outlives_a_lost_node.__name__: has_elastic_workers,
    saves_on_notice.__name__: lambda: has_elastic_workers() and has_notices(),
}


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    folder = os.environ.get(WITH_TWO_NODES)
    if folder is None:
        return start(build, sys.argv[2:])
    cluster = Cluster(folder)
    failed = 0
    for name in sys.argv[2:] or CASES:
        if not NEEDS.get(name, lambda: True)():
            print(f"skipped: {name}: this Ray is too old for it", flush=True)
            continue
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
