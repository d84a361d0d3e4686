"""Trains on a Ray cluster. Ray Train places, watches and restarts the ranks; each of its workers
runs one rank of `shardlens train`.

    from ray.train import RunConfig, ScalingConfig
    from shardlens.ray import ShardlensTrainer

    result = ShardlensTrainer(
        model="vit-l16", batch=32, param_dtype="bf16", epochs=90,
        scaling_config=ScalingConfig(num_workers=(2, 8), use_gpu=True),
        run_config=RunConfig(name="big", storage_path="/mnt/cluster_storage"),
    ).fit()

From a shell: `python -m shardlens.ray train --workers 2:8 --storage DIR --name NAME -- FLAGS`.
Needs `shardlens[ray]`.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Sequence

from ._program import PROGRAM, Ended, ShardlensError, ask, environment, flags_of

try:
    import ray
    import ray.train
    from ray.exceptions import GetTimeoutError, RayActorError
    from ray.train import BackendConfig, Checkpoint, CheckpointUploadMode, UserCallback
    from ray.train.backend import Backend
    from ray.train.collective import broadcast_from_rank_zero
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
except ImportError as error:
    raise ImportError(
        f"shardlens.ray needs Ray Train 2.51 or newer ({error}); pip install 'shardlens[ray]'"
    ) from None

__all__ = ["Executor", "RankError", "ShardlensTrainer"]

WRONG_USE, DOES_NOT_FIT, FITS_WITH_RETRIES, PREEMPTED = 2, 3, 4, 143
RUN = "run"  # the run's folder in Ray's folder of the experiment
REPORTED = "reported.json"  # beside it
RETURNED = "returned.json"  # beside it: what rank 0 has returned
# These flags are Ray's to set.
PLACED = ("storage", "name", "workers", "keep", "keep_by", "max_failures")
_POLL_S = 0.5
_LAST_WORDS_S = 5.0  # the longest wait for what the other ranks record of a killed one

_rank: subprocess.Popen[str] | None = None  # of this worker
_is_stopped = False  # Ray ends this worker


class RankError(RuntimeError):
    """Says why a rank has failed; the message names rank, step and action."""


@dataclass
class _Config(BackendConfig):
    grace_s: float = 30.0

    @property
    def backend_cls(self) -> type:
        return _Backend


class _Backend(Backend):
    share_cuda_visible_devices = True  # LOCAL_RANK chooses among the GPUs of the node's ranks
    starts = 0

    def on_start(self, worker_group: Any, backend_config: _Config) -> None:
        address = worker_group.execute_single(0, _free_address)
        worker_group.execute(_meet_at, *address, self.starts)
        self.starts += 1

    def on_shutdown(self, worker_group: Any, backend_config: _Config) -> None:
        """Lets the ranks save before Ray ends their workers. If a worker has died, they end by
        themselves, and first record which rank is lost."""
        grace_s = backend_config.grace_s
        answers = worker_group.execute_async(os.getpid)
        notice_s = 0.0 if all(map(_is_alive, answers)) else _LAST_WORDS_S
        saving = worker_group.execute_async(_save_and_stop, notice_s, grace_s)
        ray.wait(saving, num_returns=len(saving), timeout=notice_s + grace_s + 1)


def _is_alive(answer: Any) -> bool:
    try:
        ray.get(answer, timeout=1)
    except (GetTimeoutError, RayActorError):
        return False
    return True


def _free_address() -> tuple[str, int]:
    with socket.socket() as free:
        free.bind(("", 0))
        return ray.util.get_node_ip_address(), free.getsockname()[1]


def _meet_at(host: str, port: int, restarts: int) -> None:
    os.environ.update(
        MASTER_ADDR=host, MASTER_PORT=str(port), TORCHELASTIC_RESTART_COUNT=str(restarts)
    )


def _save_and_stop(notice_s: float, grace_s: float) -> None:
    """Stops this worker's rank, unless it ends within `notice_s` seconds."""
    global _is_stopped
    _is_stopped = True
    if _rank is None or _has_ended(_rank, notice_s):
        return
    _rank.send_signal(signal.SIGTERM)
    if not _has_ended(_rank, grace_s):
        _rank.kill()


def _has_ended(process: subprocess.Popen[str], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def ranks_of(run: Path, workers: int) -> int:
    """Returns how many of the workers train: all, but a run that goes on keeps its batch, which its
    ranks must share evenly. The other workers stand by."""
    try:
        before = json.loads((run / "config.json").read_text())
    except (OSError, ValueError):
        return workers
    accumulate = max(1, before["accumulate"])
    samples = before["batch"] * before["workers"]  # of a micro-batch, all ranks together
    return max(n for n in range(1, workers + 1) if samples * accumulate % (n * accumulate) == 0)


def _reported(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return {"step": 0, "checkpoints": []}
    return found


class _Received(UserCallback):
    """Writes down, in Ray's controller, what has come there. A report of a worker that is killed
    soon after may never come, and is made again by the next attempt."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        first = metrics[0] if metrics else {}
        known = _reported(self._file)
        if "saved" in first:
            known["checkpoints"].append(first["saved"])
        elif "step" in first:
            known["step"] = max(known["step"], first["step"])
        temporary = self._file.with_suffix(".tmp")
        temporary.write_text(json.dumps(known))
        temporary.replace(self._file)


class Reports:
    """Knows what Ray has not been told: lines of metrics and checkpoints. The file beside the run
    has what an earlier attempt has told: a run logs the steps after its checkpoint again."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._read = (0, 0)  # the file of metrics, by inode, and how many bytes were read
        known = _reported(run.parent / REPORTED)
        self._step: int = known["step"]
        self._checkpoints: list[str] = known["checkpoints"]

    def new_metrics(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._new_lines()]
        return [line for line in lines if line["step"] > self._step]

    def new_checkpoints(self) -> list[str]:
        saved = {file.parent.name for file in self._run.glob("checkpoints/step-*/manifest.json")}
        return sorted(saved - set(self._checkpoints))

    def note(self, metrics: list[dict[str, Any]], checkpoints: list[str]) -> None:
        self._step = max([self._step, *(line["step"] for line in metrics)])
        self._checkpoints += checkpoints

    def _new_lines(self) -> Iterator[str]:
        try:
            metrics = (self._run / "metrics.jsonl").open("rb")
        except OSError:
            return
        with metrics:
            inode = os.fstat(metrics.fileno()).st_ino  # another one after a resumption
            at = self._read[1] if inode == self._read[0] else 0
            metrics.seek(at)
            text = metrics.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read = (inode, at + len(whole))
        yield from whole.decode().splitlines()


class _Rank:
    """Runs one rank, and passes its output on."""

    def __init__(self, flags: Sequence[str], folder: str, run: Path, ranks: int) -> None:
        global _rank
        place = ray.train.get_context()
        self.rank: int = place.get_world_rank()
        self._run = run
        self._last_line = ""
        first_here = self.rank - place.get_local_rank()
        with tempfile.NamedTemporaryFile(suffix=".json", delete=False) as errors:
            self._errors = Path(errors.name)
        variables = {
            "RANK": self.rank,
            "WORLD_SIZE": ranks,
            "LOCAL_RANK": place.get_local_rank(),
            "LOCAL_WORLD_SIZE": min(place.get_local_world_size(), ranks - first_here),
            "TORCHELASTIC_RUN_ID": place.get_experiment_name(),
            "TORCHELASTIC_MAX_RESTARTS": 1,
            "TORCHELASTIC_ERROR_FILE": errors.name,
            "SHARDLENS_LAUNCHER": "ray",
            "SHARDLENS_PARENT": os.getpid(),
        }
        self.process = subprocess.Popen(
            [str(PROGRAM), "train", *flags, "--storage", str(run.parent), "--name", run.name],
            env={**environment(), **{name: str(value) for name, value in variables.items()}},
            cwd=folder if os.path.isdir(folder) else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        _rank = self.process
        self._output = threading.Thread(target=self._pass_on, daemon=True)
        self._output.start()

    def why(self, code: int) -> str:
        """Returns what this rank says, or what the others have recorded if it was killed."""
        self._output.join(1)
        try:
            if self._errors.stat().st_size > 0:
                return str(json.loads(self._errors.read_text())["message"]["message"])
        finally:
            self._errors.unlink(missing_ok=True)
        if code > 0:
            return self._last_line
        return f"rank {self.rank} was killed by signal {-code}; {self._recorded_end()}"

    def _pass_on(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._last_line = line.strip() or self._last_line
            sys.stdout.write(line)  # Ray Train doubles what print() prints
            sys.stdout.flush()

    def _recorded_end(self) -> str:
        last_moment = time.monotonic() + _LAST_WORDS_S
        while time.monotonic() < last_moment:
            for line in _lines(self._run / "events.jsonl")[-1:]:
                event = json.loads(line)
                if event["rank"] == self.rank:
                    return str(event["text"])
            time.sleep(0.2)
        return "the other ranks have recorded nothing about it"


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _run_worker(config: dict[str, Any]) -> dict[str, Any]:
    """Runs one rank, and returns how it ended. Ray hands that to the driver from 2.56 on, so rank 0
    writes it down as well."""
    place = ray.train.get_context()
    run = Path(config["storage"]) / place.get_experiment_name() / RUN
    ended = _run_to_the_end(config, run)
    if place.get_world_rank() == 0:
        (run.parent / RETURNED).write_text(json.dumps(ended))
    return ended


def _run_to_the_end(config: dict[str, Any], run: Path) -> dict[str, Any]:
    """Runs one rank, or stands by. All workers report as often: Ray's report() is a barrier."""
    place = ray.train.get_context()
    ranks = ranks_of(run, place.get_world_size())
    rank = None
    if place.get_world_rank() < ranks:
        rank = _Rank(config["flags"], config["folder"], run, ranks)
    reports = Reports(run)
    is_first = place.get_world_rank() == 0
    last: dict[str, Any] = {}
    is_leaving = False
    while True:
        code = rank.process.poll() if rank else None
        is_leaving = is_leaving or _is_stopped
        if rank and code not in (None, 0) and not is_leaving:
            if code in (WRONG_USE, DOES_NOT_FIT):
                break
            raise RankError(rank.why(code))  # Ray ends the others and starts all again
        news: dict[str, Any] = {}
        if is_first:
            news = {
                "lines": reports.new_metrics(),
                "saved": reports.new_checkpoints(),
                "code": code,
            }
        told = broadcast_from_rank_zero(
            {
                "lines": len(news["lines"]),
                "saved": news["saved"],
                "code": code,
            }
            if is_first
            else None
        )
        for number in range(told["lines"]):
            last = news["lines"][number] if is_first else {}
            ray.train.report(last)
        for name in told["saved"]:
            ray.train.report(
                {**last, "saved": name},
                checkpoint=Checkpoint(str(run / "checkpoints" / name)),
                checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD,
            )
        if is_first:
            reports.note(news["lines"], news["saved"])
        if told["code"] is not None and told["lines"] == 0 and not told["saved"]:
            if told["code"] == 0 or told["code"] in (WRONG_USE, DOES_NOT_FIT):
                break
            # The run is saved, and Ray will start it again. To return would say that it is finished.
            time.sleep(_POLL_S)
        if not is_leaving and _is_leaving():
            is_leaving = True
            if rank:
                rank.process.send_signal(signal.SIGTERM)
        time.sleep(0 if told["lines"] else _POLL_S)
    if rank is None:
        return {"exit_code": told["code"]}
    code = rank.process.wait()
    if code != 0:
        return {"exit_code": code, "why": rank.why(code)}
    return {
        "exit_code": 0,
        "result": json.loads((run / "result.json").read_text()) if is_first else None,
        "model": str(run / "model"),
    }


def _is_leaving() -> bool:
    """True if Ray was told that a node will go: all save now, and Ray goes on without it. Ray passes
    such a notice on from 2.58 on."""
    has_notices = hasattr(ray.train, "get_preemption_info")
    return has_notices and ray.train.get_preemption_info() is not None


# Names of Ray's that say how much memory the GPU has, but not as `shardlens plan --gpu` does; the
# others are that name in capitals. None: the name does not say it.
_GPUS = {"A100-40G": "a100-40", "A100-80G": "a100-80", "A100": None, "V100": None}


def plan_of(accelerator_type: str, workers: int, flags: Sequence[str]) -> Ended | None:
    """Returns what `shardlens plan` says of a run; None if it cannot say, as for an unknown GPU or
    data that only the workers see."""
    gpu = _GPUS.get(accelerator_type, accelerator_type.lower())
    if gpu is None:
        return None
    try:
        words = ["plan", "--gpu", gpu, "--world", str(workers), *flags]
        return ask(words, (0, DOES_NOT_FIT, FITS_WITH_RETRIES))
    except ShardlensError:
        return None


def planned_workers(
    accelerator_type: str, least: int, most: int, flags: Sequence[str]
) -> int | None:
    """Returns the fewest workers from `least` to `most` with which a run fits; None if `shardlens
    plan` cannot say. Raises ShardlensError if it fits with none."""
    verdict = ""
    for workers in range(least, most + 1):
        plan = plan_of(accelerator_type, workers, flags)
        if plan is None:
            return None
        if plan.exit_code != DOES_NOT_FIT:
            return workers
        verdict = plan.output.splitlines()[1]
    which = f"{least}" if least == most else f"{least} to {most}"
    raise ShardlensError(
        f"{verdict} on {which} x {accelerator_type}: `shardlens plan` says what takes less",
        DOES_NOT_FIT,
    )


def placed_as(scaling: Any, is_open: bool, flags: Sequence[str]) -> Any:
    """Returns the scaling that Ray gets, once a plan says that the run fits on its fewest workers,
    which are as many as needed if that number is open."""
    if scaling.accelerator_type is None and not is_open:
        return scaling
    given = scaling.num_workers  # a pair from Ray 2.55 on
    least, most = (given, given) if isinstance(given, int) else given
    found = None
    if scaling.accelerator_type is not None:
        largest = most if is_open else least
        found = planned_workers(scaling.accelerator_type, least, largest, flags)
    if not is_open:
        return scaling
    if found is None:
        raise ValueError(
            'min_workers="plan": `shardlens plan` cannot say; give ScalingConfig an accelerator_type '
            "whose memory is known, such as H100 or A100-80G, and data that this machine sees"
        )
    chosen = copy.copy(scaling)
    chosen.num_workers = found if isinstance(given, int) else (found, most)
    return chosen


def _with_callback(run_config: Any, storage: str) -> Any:
    given = copy.copy(run_config)
    received = _Received(Path(storage) / str(run_config.name) / REPORTED)
    given.callbacks = [*(run_config.callbacks or []), received]
    return given


class ShardlensTrainer(DataParallelTrainer):
    """Trains with `shardlens train` on the workers of a Ray cluster.

    Flags of `shardlens train --help` are keywords, as in shardlens.plan(), or words in `flags`.
    `grace_s` says how long saving may take when Ray stops the workers. If the scaling_config names
    an accelerator_type, the run is planned before anything is placed, and ShardlensError says that
    it does not fit. `min_workers="plan"` raises the least number of workers to one that fits.
    """

    def __init__(
        self,
        flags: Sequence[str] = (),
        *,
        scaling_config: Any,
        run_config: Any,
        grace_s: float = 30.0,
        min_workers: str | None = None,
        **options: object,
    ) -> None:
        for name in PLACED:
            if name in options or "--" + name.replace("_", "-") in flags:
                raise ValueError(f"{name} is Ray's to set: use ScalingConfig and RunConfig")
        storage = str(run_config.storage_path or "")
        if not storage or "://" in storage:
            raise ValueError(
                f"storage_path {storage!r}: give a folder that all nodes share, such as "
                "/mnt/cluster_storage: the ranks write it as files"
            )
        words = [*flags, *flags_of(options)]
        if "--device" not in words:
            words += ["--device", "cuda" if scaling_config.use_gpu else "cpu"]
        if min_workers not in (None, "plan"):
            raise ValueError(f"min_workers={min_workers!r}: give \"plan\", or ScalingConfig(num_workers)")
        super().__init__(
            _run_worker,
            backend_config=_Config(grace_s=grace_s),
            train_loop_config={
                "flags": [*words, "--keep", "0"],  # Ray removes checkpoints
                "folder": os.getcwd(),
                "storage": storage,
            },
            scaling_config=placed_as(scaling_config, min_workers == "plan", words),
            run_config=_with_callback(run_config, storage),
        )

    def fit(self) -> Any:
        """Trains to the end, and returns Ray's Result; its return_value has `result` (result.json)
        and `model` (the folder of the trained model). Raises ShardlensError for wrong use and for a
        run that does not fit, which Ray would otherwise try again."""
        result = super().fit()
        if not hasattr(result, "return_value"):
            result.return_value = json.loads((Path(result.path) / RETURNED).read_text())
        ended = result.return_value or {}
        if ended.get("exit_code", 0) != 0:
            raise ShardlensError(ended.get("why", "the run has failed"), ended["exit_code"])
        return result


class Executor:
    """Runs calls as tasks of a Ray cluster: `shardlens.sweep(..., executor=Executor())`.

    Each task reserves `cpus` cores and `memory_bytes` of a node. Ray runs the tasks of a lost node
    again, up to `retries` times each.
    """

    def __init__(self, cpus: float = 1, memory_bytes: int = 2 << 30, retries: int = 3) -> None:
        self._options = {"num_cpus": cpus, "memory": memory_bytes, "max_retries": retries}

    def submit(self, function: Any, *arguments: Any) -> Any:
        """Returns a future of concurrent.futures."""
        return ray.remote(**self._options)(function).remote(*arguments).future()


def _workers(text: str) -> int | tuple[int, int]:
    least, _, most = text.partition(":")
    return (int(least), int(most)) if most else int(least)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m shardlens.ray")
    train = parser.add_subparsers(required=True).add_parser("train", help="train on a Ray cluster")
    train.add_argument("--workers", type=_workers, required=True, help="N, or LEAST:MOST")
    train.add_argument("--storage", required=True, help="a folder that all nodes share")
    train.add_argument("--name", required=True, help="of the run; the same name goes on")
    train.add_argument("--gpu", action="store_true", help="a GPU for each worker")
    train.add_argument("--max-failures", type=int, default=3)
    train.add_argument("flags", nargs="*", help="-- flags of shardlens train")
    given = parser.parse_args(arguments)
    try:
        trainer = ShardlensTrainer(
            given.flags,
            scaling_config=ray.train.ScalingConfig(num_workers=given.workers, use_gpu=given.gpu),
            run_config=ray.train.RunConfig(
                name=given.name,
                storage_path=given.storage,
                failure_config=ray.train.FailureConfig(max_failures=given.max_failures),
            ),
        )
        trainer.fit()
    except ShardlensError as error:
        print(f"shardlens.ray: {error}", file=sys.stderr)
        return error.exit_code
    except ValueError as error:
        print(f"shardlens.ray: {error}", file=sys.stderr)
        return WRONG_USE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
