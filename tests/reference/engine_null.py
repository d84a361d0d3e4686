"""Measures peaks of PyTorch's FSDP2 on the null device for the cases of engine_cases.py, and what
PyTorch's own FSDPMemTracker says about the same run.

    .deps/peers/bin/python tests/reference/engine_null.py

adds the cases that this PyTorch's file in tests/fixtures/engine lacks; it may be interrupted and
continues where it was. With --live every case is measured again and printed, a line of JSON each,
and the fixture stays unchanged; with --live --events so are the events. With --seed other cases
than those of the fixture are drawn and printed.
"""

import argparse
import contextlib
import dataclasses
import json
import os

import null_runs

if __name__ == "__main__":
    null_runs.enter_null_device()

import torch  # noqa: E402
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker  # noqa: E402

import engine_cases  # noqa: E402
import fsdp2_null  # noqa: E402
import programs  # noqa: E402

TORCH = torch.__version__.split("+")[0]
MINOR = TORCH.rpartition(".")[0]
FIXTURE = programs.ROOT / "tests" / "fixtures" / "engine" / f"{MINOR}.json"
EVENTS_FIXTURE = FIXTURE.with_name(f"events_{MINOR}.json")


def _tracked_bytes(options):
    """Returns the tracker's peak on the device over two steps: the first makes the state."""
    fsdp2_null.join_world(options.rank, options.world)
    trainer = fsdp2_null.Trainer(options)
    tracker = FSDPMemTracker(trainer.model, trainer.optimizer)
    tracker.track_inputs((trainer.inputs, trainer.targets))
    with tracker:
        trainer.step()
        tracker.reset_mod_stats()
        trainer.step()
    snapshot = tracker.get_tracker_snapshot("peak")
    peaks = [of["Total"] for device, of in snapshot.items() if torch.device(device).type == "cuda"]
    return max(peaks, default=None)


def _tracker(options):
    """Returns the tracker's peak, or why there is none: the tracker itself fails for some cases."""
    try:
        with contextlib.redirect_stderr(open(os.devnull, "w")):
            return {"tracker": _tracked_bytes(options)}
    except Exception as error:  # pylint: disable=broad-except
        return {"tracker": None, "tracker_error": type(error).__name__}


def measure(case, tracks=True):
    """Returns a row of the fixture; with the tracker, which takes as long again, if asked for."""
    options = fsdp2_null.parse_options([*case.arguments(), "--steps", str(null_runs.PEAK_STEPS)])
    result = fsdp2_null.in_child(fsdp2_null.measure_or_say_why, options)
    row = {"torch": TORCH, "segments": "falling"} | dataclasses.asdict(case)
    if "peak" not in result:
        return row | {"out_of_memory": True}
    row |= {"peak": result["peak"]}
    return row | fsdp2_null.in_child(_tracker, options) if tracks else row


def events(case):
    """Returns the allocator's requests in the third step: a positive number is bytes taken; a
    negative one is the block freed, -1 for the run's first."""
    options = fsdp2_null.parse_options(case.arguments())
    fsdp2_null.join_world(options.rank, options.world)
    torch.cuda.memory._record_memory_history(context=None)
    trainer = fsdp2_null.Trainer(options)
    starts = []
    for _ in range(null_runs.WARM_UP_STEPS + 1):
        starts.append(len(torch.cuda.memory._snapshot()["device_traces"][0]))
        trainer.step()
    blocks, asked = {}, []
    for i, event in enumerate(torch.cuda.memory._snapshot()["device_traces"][0]):
        if event["action"] == "alloc":
            blocks[event["addr"]] = blocks[None] = blocks.get(None, 0) + 1
        elif event["action"] != "free_requested":
            continue
        taken = event["action"] == "alloc"
        if i >= starts[-1]:
            asked.append(event["size"] if taken else -blocks[event["addr"]])
    return asked


def _measured_events():
    """Returns the fields of the fixture of events."""
    runs = []
    for case in engine_cases.BY_EVENT:
        row = {"torch": TORCH, "segments": "falling"} | dataclasses.asdict(case)
        row |= {"drawn": False}
        asked = fsdp2_null.in_child(lambda _, case=case: events(case), None)
        runs.append({"case": row, "third_step": asked})
    return {"script": _head()["script"] + " --events", "runs": runs}


def _record_events():
    fields = _measured_events()
    lines = ",\n".join(f"  {json.dumps(run)}" for run in fields["runs"])
    script = json.dumps(fields["script"])
    EVENTS_FIXTURE.write_text(f'{{"script": {script},\n "runs": [\n{lines}\n ]}}\n')
    print(f"{EVENTS_FIXTURE}: events of {len(fields['runs'])} cases")


def _print_live(options):
    if options.events:
        print(json.dumps(_measured_events()), flush=True)
        return
    for case, is_drawn in _all_cases():
        if is_drawn and options.chosen:
            break
        print(json.dumps(measure(case, not options.untracked) | {"drawn": is_drawn}), flush=True)


def _case(row):
    names = [field.name for field in dataclasses.fields(engine_cases.Case)]
    return engine_cases.Case(**{name: row[name] for name in names})


def _write(head, rows):
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    fields = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    partial = FIXTURE.with_suffix(".partial")
    partial.write_text("{\n" + ",\n".join(fields) + ',\n "rows": [\n' + lines + "\n ]\n}\n")
    partial.replace(FIXTURE)


def _all_cases():
    """Yields each case, and whether it was drawn."""
    yield from ((case, False) for case in engine_cases.CHOSEN)
    drawn = engine_cases.drawn(engine_cases.SEED, engine_cases.DRAWN)
    yield from ((case, True) for case in drawn)


def _head():
    return {
        "script": "tests/reference/engine_null.py",
        "gpu": null_runs.GPU,
        "seed": engine_cases.SEED,
        "peak": "[allocated, reserved] bytes of steps 3 to 5; tracker: FSDPMemTracker's peak",
    }


def _record(only_chosen):
    recorded = json.loads(FIXTURE.read_text()) if FIXTURE.exists() else {"rows": []}
    rows = {_case(row): row for row in recorded["rows"]}
    kept = []
    for case, is_drawn in _all_cases():
        if is_drawn and only_chosen:
            break
        if case not in rows:
            rows[case] = measure(case) | {"drawn": is_drawn}
            print(json.dumps(rows[case]), flush=True)
        kept.append(rows[case])
        _write(_head(), kept)
    print(f"{FIXTURE}: {len(kept)} cases")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--live", action="store_true", help="measure again, leave the fixture")
    parser.add_argument("--chosen", action="store_true", help="no drawn cases")
    parser.add_argument("--seed", type=int, help="draw and print others")
    parser.add_argument("--count", type=int, default=engine_cases.DRAWN, help="with --seed")
    parser.add_argument("--events", action="store_true", help="record the allocator's events")
    parser.add_argument("--untracked", action="store_true", help="with --live: no tracker")
    options = parser.parse_args()
    if options.live:
        _print_live(options)
    elif options.events:
        _record_events()
    elif options.seed is not None:
        for case in engine_cases.drawn(options.seed, options.count):
            print(json.dumps(measure(case) | {"drawn": True}), flush=True)
    else:
        _record(options.chosen)


if __name__ == "__main__":
    main()
