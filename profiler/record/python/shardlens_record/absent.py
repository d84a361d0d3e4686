"""Gets messages from an absent rank: objects that it sends, and whole numbers that it broadcasts. The
program is run again as that rank, up to the message that this rank waits for, and goes on when
another message is wanted. That run is not recorded, and waits for absent ranks in turn.

Messages are in a folder that all of these processes share, each in the file SENDER-RECEIVER-NUMBER;
the receiver may be a group. A rank that is run for its messages reads from the file
wanted-SENDER-ASKER which one is wanted.
"""

import atexit
import collections
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time

from . import ASKED_FOR, OPTIONS, ranks
from .guards import in_one_line, say

# The environment and folder that the program was started with: it may have changed both since.
_ENVIRONMENT = dict(os.environ)
_START = os.getcwd()

_MOMENT_S = 0.02
_LONG_S = 0.5

_sent = collections.Counter()  # how many messages, by sender and receiver
_received = collections.Counter()


def begin():
    """Notes the environment of a variant, in a process that was forked for it (warm.py)."""
    _ENVIRONMENT.clear()
    _ENVIRONMENT.update(os.environ)


class Failure(RuntimeError):
    """Tells the program why it cannot go on."""


def _path(name):
    os.makedirs(OPTIONS["messages"], exist_ok=True)
    return os.path.join(OPTIONS["messages"], name)


def _next(counted, sender, receiver):
    number = counted[sender, receiver]
    counted[sender, receiver] += 1
    return f"{sender}-{receiver}-{number}"


def _write(name, message):
    """Writes a message so that another process finds it complete or not at all."""
    with tempfile.NamedTemporaryFile(dir=_path(""), delete=False) as file:
        pickle.dump(message, file)
    os.replace(file.name, _path(name))


def send(message, sender, receiver):
    """Leaves a message for its receiver. A process that runs for its messages waits here until
    another message is wanted."""
    name = _next(_sent, sender, receiver)
    if not os.path.exists(_path(name)):
        _write(name, message)
    while ASKED_FOR and _wanted() == name:
        time.sleep(_MOMENT_S)


def receive(sender, receiver):
    """Returns the sender's next message, and runs the program as that rank if the message does not
    exist yet."""
    name = _next(_received, sender, receiver)
    if not os.path.exists(_path(name)):
        _Runs.of(sender).wait_for(name)
    with open(_path(name), "rb") as file:
        return pickle.load(file)


def skip(sender, receiver):
    """Receives a message that this rank has no use for."""
    _next(_received, sender, receiver)


def _wanted():
    try:
        with open(ASKED_FOR["file"], encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:  # the run has ended
        return None


def end_with_asker():
    """Ends this process, which runs for its messages, when the process that asked for them has
    ended."""

    def watch():
        while os.path.exists(f"/proc/{ASKED_FOR['process']}"):
            time.sleep(_LONG_S)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


class _Runs:
    """Runs the program again as an absent rank, once for each rank whose messages are wanted."""

    by_rank = {}

    @classmethod
    def of(cls, rank):
        if rank not in cls.by_rank:
            cls.by_rank[rank] = cls(rank)
        return cls.by_rank[rank]

    def __init__(self, rank):
        self.rank = rank
        self.wanted = _path(f"wanted-{rank}-{os.getpid()}")
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        self.process = None

    def wait_for(self, name):
        with open(self.wanted + "~", "w", encoding="utf-8") as file:
            file.write(name)
        os.replace(self.wanted + "~", self.wanted)
        if self.process is None:
            self._start()
        while not os.path.exists(_path(name)):
            if self.process.poll() is not None and not os.path.exists(_path(name)):
                raise Failure(_why_not_sent(self.rank, self.process.returncode, self.errors))
            time.sleep(_MOMENT_S)

    def _start(self):
        say(f"rank {self.rank} is absent: the program is run again as that rank, to get what it sends "
            f"to rank {ranks.World.rank}")
        environment = _ENVIRONMENT | ranks.environment_as(self.rank)
        asked = {"file": self.wanted, "process": os.getpid()}
        environment["SHARDLENS_RECORD"] = json.dumps(ranks.options_as(self.rank)
                                                     | {"asked_for": asked})
        self.process = subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]], cwd=_START, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors)
        atexit.register(self.process.kill)


def _why_not_sent(sender, code, errors):
    errors.seek(0)
    lines = [line for line in errors if line.strip()]
    last = f": {in_one_line(lines[-1])}" if lines and code != 0 else ""
    return (f"rank {sender} is absent, and the program that was run again as that rank ended with "
            f"exit code {code} before it had sent what this rank waits for{last}; "
            "a PipelineStage that is given input_args and output_args waits for nothing")
