"""Records with PyTorch's own memory history if there is no recorder in C++ for this PyTorch.
`shardlens record` turns the history into a recording when the program has ended
(profiler/exchange/import_history.h).

The history has no place for what this process knows about a step or a block. That is kept beside it
as marks, each with the number of blocks that had been allocated and freed by then: these counts give
the mark's exact place among the history's events, which times would not.
"""

import contextlib
import gc
import os
import pickle
import sys

from . import counters

# Each entry takes about 280 bytes while the program runs, and 1.1 KB when it is written.
MOST_ENTRIES = 4_000_000


@contextlib.contextmanager
def _nothing_collected():
    """Keeps the garbage collector off: garbage may hold GPU memory, and freeing it between the
    counters and the snapshot would make the two disagree."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _write(path, snapshot):
    """Writes the file under another name first, so that it exists completely or not at all."""
    unfinished = f"{path}.unfinished"
    try:
        with open(unfinished, "wb") as file:
            pickle.dump(snapshot, file, protocol=4)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(unfinished)
        raise


def _lost(trace, found):
    """Returns how many events the history has dropped to make room for later ones."""
    actions = [entry["action"] for entry in trace]
    kept = actions.count("alloc") + actions.count("free_requested")
    return max(0, found["allocations"] + found["frees"] - kept)


class Recorder:
    ENDING = "history"  # of the file that it writes

    def __init__(self, start, record_history):
        self._torch = sys.modules["torch"]
        self._start = start
        self._marks = []
        record_history(max_entries=MOST_ENTRIES, stacks="python")

    def _mark(self, **what):
        device = self._torch.cuda.current_device()
        found = counters.of_whole_run(self._torch, device)
        self._marks.append({"device": device, "allocations": found["allocations"],
                            "frees": found["frees"], **what})

    def step(self, step):
        self._mark(step=step)

    def recategorise(self, address, category, _name=0):
        self._mark(address=address, category=category)

    def classify(self, address, category, name):
        """Does nothing: only the recorder in C++ knows which blocks have no class yet."""

    def name(self, _text):
        """Returns the number for no name: a history has no place for names."""
        return 0

    name_next = name

    def name_module(self, module, path, class_name):
        """Does nothing: a history has the frames of modules, but not which module they belong to."""

    def forget_module(self, module):
        """Does nothing: none has a name."""

    def await_forward(self, look):
        """Does nothing: only the recorder in C++ sees a forward."""

    def begin_part(self, part):
        """Does nothing: a history has no place for parts of steps."""

    end_part = begin_part

    def begin_backward(self):
        """Does nothing: what autograd allocates has no line here."""

    end_backward = begin_backward

    def compiled(self, *source):
        """Does nothing: a history has the lines of generated code."""

    def find_workspaces(self):
        """Does nothing: only the recorder in C++ knows which blocks belong to cuBLAS."""

    def leave_driver(self):
        """Does nothing: this recorder does not watch the driver."""

    def event_fault(self):
        return "PyTorch's own history has no trace of work"

    def end(self):
        """Writes the history and returns its counters, or None if it has no events."""
        device = self._torch.cuda.current_device()
        with _nothing_collected():
            found = counters.of_whole_run(self._torch, device)
            snapshot = self._torch.cuda.memory._snapshot()
            trace = snapshot["device_traces"][device]
            if not trace:
                return None
            lost = _lost(trace, found)
            _write(self._start["path"], self._with_facts(snapshot, device, found, lost))
        return found | {"events": len(trace), "lost_events": lost, "gpu": device}

    def _with_facts(self, snapshot, device, found, lost):
        """Returns the snapshot with our facts beside it, without other GPUs and without data that only
        PyTorch's viewer shows."""
        properties = self._torch.cuda.get_device_properties(device)
        traces = snapshot["device_traces"]
        said = {
            "gpu": properties.name,
            "capacity_bytes": properties.total_memory,
            "device_index": device,
            "allocations": found["allocations"],
            "frees": found["frees"],
            "lost_events": lost,
            "marks": [mark for mark in self._marks if mark["device"] == device],
        }
        return {
            "segments": snapshot["segments"],
            "device_traces": [trace if i == device else [] for i, trace in enumerate(traces)],
            "shardlens": self._start | said,
        }
