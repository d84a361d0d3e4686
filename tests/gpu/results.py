"""Writes what a phase of run.sh leaves: one JSON file, written again after each of its steps.

A step has a verdict: `same` and `differs` for what was compared, `passed` for what worked as it
should, `failed` for programs that did not, `measured` for what has nothing to be compared with,
`not checked` for what this machine cannot show. Sequences of events are kept in the step as base64
of their text in xz."""

import base64
import hashlib
import json
import lzma
import os
import pathlib
import threading

SCHEMA = "shardlens.gpu_run/1"
VERDICTS = ("same", "passed", "differs", "failed", "measured", "not checked")
MOST_FILE_BYTES = 15 << 20  # a lent machine limits the size of each file that it gives back


class NotChecked(Exception):
    """Raised by a step that this machine cannot do; its text says why."""


class Failed(Exception):
    """Raised by a step whose programs failed; its text is one line."""


def write(path, text):
    """Writes under another name first, so that a process that is killed leaves the file as it was
    before or after."""
    path = pathlib.Path(path)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    os.replace(partial, path)


def pack_sequence(lines):
    text = "\n".join(lines) + "\n"
    packed = base64.b64encode(lzma.compress(text.encode(), preset=6)).decode()
    return {"events": len(lines), "sha256": hashlib.sha256(text.encode()).hexdigest(), "xz": packed}


def unpack_sequence(packed):
    """Raises ValueError where it is not what was packed."""
    try:
        text = lzma.decompress(base64.b64decode(packed["xz"], validate=True)).decode()
    except (KeyError, lzma.LZMAError, ValueError) as error:
        raise ValueError(f"a sequence cannot be unpacked: {error!r}") from error
    if hashlib.sha256(text.encode()).hexdigest() != packed.get("sha256"):
        raise ValueError("a sequence is not the one that its sha256 names")
    return text.splitlines()


def first_difference(on_gpu, on_null):
    """Returns one line, which is empty if the sequences are the same."""
    for index, (one, other) in enumerate(zip(on_gpu, on_null)):
        if one != other:
            return f"event {index} of {len(on_gpu)}: {one} on the GPU, {other} on the null device"
    if len(on_gpu) != len(on_null):
        return f"{len(on_gpu)} events on the GPU, {len(on_null)} on the null device"
    return ""


def events_of_export(path):
    """Returns the allocator's events in an export for PyTorch's memory viewer, a line each. An
    export does not say when a block's free was completed, so this is left out."""
    entries = json.loads(pathlib.Path(path).read_text())["device_traces"][0]
    return [
        f"{entry['action']} {entry['size']}"
        for entry in entries
        if entry["action"] not in ("free_completed", "snapshot")
    ]


def compared(on_gpu, on_null, **data):
    """A step's result. The GPU's sequence is kept, and the null device's if it differs."""
    difference = first_difference(on_gpu, on_null)
    result = {
        "verdict": "differs" if difference else "same",
        "said": difference or f"{len(on_gpu)} events",
        "sequence": pack_sequence(on_gpu),
        **data,
    }
    if difference:
        result["null_sequence"] = pack_sequence(on_null)
    return result


def read(path):
    """Raises ValueError with one line if it is not a phase's file."""
    path = pathlib.Path(path)
    try:
        phase = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}); run its phase again") from error
    if not isinstance(phase, dict) or phase.get("schema") != SCHEMA:
        raise ValueError(f"{path} is not a result of run.sh; give a folder of its own with --out")
    return phase


class PhaseFile:
    """The file of one phase, while it runs. Steps may end on several threads."""

    def __init__(self, paths, head):
        self.paths = [pathlib.Path(path) for path in paths]
        self.lock = threading.Lock()
        self.content = {"schema": SCHEMA, **head, "state": "unfinished", "steps": []}

    def adopt(self, steps):
        """Keeps steps of an earlier run that are still valid."""
        self.content["steps"] = list(steps)
        self.save()

    def add(self, step):
        with self.lock:
            self.content["steps"].append(self._within_limit(step))
            self.save()

    def close(self, **words):
        with self.lock:
            self.content |= words
            self.save()

    def save(self):
        text = json.dumps(self.content, indent=1) + "\n"
        for path in self.paths:
            write(path, text)

    def _within_limit(self, step):
        used = sum(len(json.dumps(other)) for other in self.content["steps"])
        if used + len(json.dumps(step)) < MOST_FILE_BYTES:
            return step
        lean = {key: value for key, value in step.items() if key in ("name", "verdict", "said")}
        return lean | {"left_out": f"its data: the file would pass {MOST_FILE_BYTES >> 20} MiB"}
