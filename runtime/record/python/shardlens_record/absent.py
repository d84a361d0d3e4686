"""What an absent rank sends to this one as a Python object: the program is run again as that rank,
up to the message that is waited for. That run is not recorded, and waits for absent ranks in turn.

Messages lie in a folder that all of these processes share, each in the file SENDER-RECEIVER-NUMBER.
"""

import collections
import json
import os
import pickle
import subprocess
import sys
import tempfile

from . import ASKED_FOR, OPTIONS, ranks
from .guards import in_one_line, say

# As the program was started: it may change its environment and its folder since.
_ENVIRONMENT = dict(os.environ)
_START = os.getcwd()

_sent = collections.Counter()  # how many messages, by sender and receiver
_received = collections.Counter()


class Failure(RuntimeError):
    """The program is told why it cannot go on."""


def _path(name):
    folder = os.path.join(OPTIONS["accounts"], "messages")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, name)


def _next(counted, sender, receiver):
    number = counted[sender, receiver]
    counted[sender, receiver] += 1
    return f"{sender}-{receiver}-{number}"


def _write(name, message):
    """Another process finds it whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=_path(""), delete=False) as file:
        pickle.dump(message, file)
    os.replace(file.name, _path(name))


def send(objects, sender, receiver):
    """Ends a process that was started to send this message."""
    name = _next(_sent, sender, receiver)
    _write(name, list(objects))
    if name == ASKED_FOR:
        os._exit(0)


def receive(sender, receiver):
    """The objects that the sender sends."""
    name = _next(_received, sender, receiver)
    if not os.path.exists(_path(name)):
        _ask(sender, receiver, name)
    with open(_path(name), "rb") as file:
        return pickle.load(file)


def _ask(sender, receiver, name):
    say(f"rank {sender} is absent: the program is run again as that rank, until it has sent what "
        f"rank {receiver} waits for")
    environment = _ENVIRONMENT | ranks.environment_as(sender)
    environment["SHARDLENS_RECORD"] = json.dumps(ranks.options_as(sender) | {"asked_for": name})
    done = subprocess.run(
        [sys.executable, *sys.orig_argv[1:]], cwd=_START, env=environment, check=False, text=True,
        errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE)
    if not os.path.exists(_path(name)):
        raise Failure(_why_not_sent(sender, done))


def _why_not_sent(sender, done):
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    last = f": {in_one_line(lines[-1])}" if lines and done.returncode != 0 else ""
    return (f"rank {sender} is absent, and the program that was run again as that rank ended with "
            f"exit code {done.returncode} before it had sent what this rank waits for{last}; "
            "a PipelineStage that is given input_args and output_args waits for nothing")
