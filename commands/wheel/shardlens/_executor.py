"""Runs the programs of a search on the workers of an executor.

The search is a process of its own, which asks for programs over a socket
(profiler/record/worker_runs.h). Each becomes a task; what it says of itself lies in its folder.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import tempfile
import threading
from typing import IO, Any, Protocol, Sequence

from ._program import Ended, ShardlensError, answer_of, ask, environment, start


class Executor(Protocol):
    """Runs a call elsewhere, as concurrent.futures' executors, Dask's and submitit's do."""

    def submit(self, function: Any, *arguments: Any) -> Any: ...


def record_as_worker(words: Sequence[str], folder: str, log: str) -> str:
    """Runs `shardlens record`. Returns why it could not start, or an empty text: how the program
    ended is in the run's folder. Relative paths are looked up in `folder`, if this machine has it."""
    try:
        with open(log, "w") as output:
            start(
                words,
                env={**environment(), "SHARDLENS_AS_A_WORKER": "1"},
                cwd=folder if os.path.isdir(folder) else None,
                stdout=output,
                stderr=subprocess.STDOUT,
            ).wait()
    except (OSError, ShardlensError) as error:
        return str(error)
    return ""


class Search:
    """A command that searches, such as `shardlens advise`, while the executor runs its programs."""

    def __init__(self, executor: Executor, arguments: Sequence[str]) -> None:
        self._executor, self._name = executor, arguments[0]
        self._futures: list[Any] = []
        self._asked: queue.SimpleQueue[tuple[int, Any, str] | None] = queue.SimpleQueue()
        self._output, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self._socket, theirs = socket.socketpair()
        with theirs:
            variables = {**environment(), "SHARDLENS_WORKERS": str(theirs.fileno())}
            self._process = start(
                arguments,
                env=variables,
                pass_fds=[theirs.fileno()],
                stdout=self._output,
                stderr=self._errors,
            )
        for work in (self._submit_all, self._answer_all):
            threading.Thread(target=work, daemon=True).start()

    def ended(self, answers: Sequence[int]) -> Ended:
        """Waits for the answer. Raises ShardlensError if the exit code is not one of `answers`."""
        exit_code = self._process.wait()
        output, errors = map(_whole_text, (self._output, self._errors))
        self.stop()
        return answer_of(self._name, exit_code, output, errors, answers)

    def stop(self) -> None:
        """Ends the command, and cancels the tasks that have not begun."""
        self._process.terminate()
        self._process.wait()
        for future in list(self._futures):
            future.cancel()
        for used in (self._socket, self._output, self._errors):
            used.close()

    def _submit_all(self) -> None:
        with self._socket.makefile("r", encoding="utf-8") as requests:
            for line in requests:
                request = json.loads(line)
                words, log = request["words"], request["log"]
                try:
                    future = self._executor.submit(record_as_worker, words, os.getcwd(), log)
                    self._futures.append(future)
                    self._asked.put((request["run"], future, ""))
                except Exception as error:  # of the executor, which may be closed
                    self._asked.put((request["run"], None, _named(error)))
        self._asked.put(None)

    def _answer_all(self) -> None:
        """Answers in the order of the requests, since not all executors tell which task ends first."""
        while (asked := self._asked.get()) is not None:
            run, future, error = asked
            try:
                error = error or future.result()
            except BaseException as raised:  # a cancelled task's, too
                error = _named(raised)
            try:
                self._socket.sendall(json.dumps({"run": run, "error": error}).encode() + b"\n")
            except OSError:  # the search has ended
                return


def _whole_text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def ask_with(executor: Executor | None, arguments: Sequence[str], answers: Sequence[int]) -> Ended:
    """Returns what a command prints, as ask() does. With an executor the programs that the command
    runs are its tasks."""
    if executor is None:
        return ask(arguments, answers)
    search = Search(executor, arguments)
    try:
        return search.ended(answers)
    except BaseException:
        search.stop()
        raise
