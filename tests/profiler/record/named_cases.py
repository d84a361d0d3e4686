"""Records programs (scripts/explained/named.py) and looks for the names and categories of their blocks,
for the parts of their steps (parts.py there), and for the module of the peak (modules.py).

    named_cases.py quick|long [CASE...]

`long` also records those that need compilers or other libraries than PyTorch, if the Python has them.
recorded.py says which Python runs them.
"""

import json
import subprocess
import sys

from recorded import HERE, PYTHON, OnNullDevice, report_of, run_cases, shardlens

MOST_OTHER = 0.02
MOST_WITHOUT_LINE = 0.01
EIGHT = ["--world", "8", "--rank", "0"]


def recorded(folder, *arguments, flags=()):
    """Records a program; its own peak must be what PyTorch counted."""
    done = OnNullDevice(folder, PYTHON, HERE / "scripts" / "explained" / "named.py", *arguments, flags=flags)
    done.expect(0, "as PyTorch counted: equal")
    return done


def places_of(done, *, most_other=MOST_OTHER):
    """Returns the places at the peak, after checking that the most part has a category and a line."""
    peak = report_of(done.out)["at_peak"]
    places = peak["places"]
    whole = sum(place["bytes"] for place in places)
    nameless = sum(place["bytes"] for place in places if not place["label"])
    if peak["other_share"] > most_other:
        raise AssertionError(f"{peak['other_share']:.1%} of the peak is other: {places[:5]}")
    if nameless > MOST_WITHOUT_LINE * whole:
        raise AssertionError(f"{nameless} of {whole} bytes have no line")
    return places


def expect_place(places, category, *parts):
    """Returns the largest place of the category; its label or one of its names has each part."""
    found = next((place for place in places if place["category"] == category), None)
    if found is None:
        raise AssertionError(f"no {category} in {places[:8]}")
    text = "; ".join([found["label"], *found["names"]])
    missing = [part for part in parts if part not in text]
    if missing:
        raise AssertionError(f"{category} lacks {missing}: {text}")
    return found


def line_of(text):
    """Returns the number of the line of named.py that has this text."""
    lines = (HERE / "scripts" / "explained" / "named.py").read_text().split("\n")
    return next(i for i, line in enumerate(lines, 1) if text in line)


def check_deferred(folder):
    places = places_of(recorded(folder, "deferred", "--defer", flags=EIGHT))
    expect_place(places, "gradient", f"named.py:{line_of('torch.relu(self.up')} forward, backward from "
                 f"named.py:{line_of('.pow(2).mean().backward()')} deferred",
                 "0-2.down.weight (whole, not reduced)", "0-2.up.weight (whole, not reduced)")
    expect_place(places, "reduce_buffer", "(2 parameters)", "backward from named.py")
    expect_place(places, "optimizer_state", "exp_avg of 0-3.down.weight")
    expect_place(places, "parameter_shard", "0-3.up.weight")


def check_reduced_at_once(folder):
    done = recorded(folder, "deferred", flags=EIGHT)
    if "not reduced" in json.dumps(places_of(done)):
        raise AssertionError("gradients that are reduced at once are called not reduced")


def check_reduced_last(folder):
    """All that FSDP2 takes after the last node of backward has a line of the program."""
    places = places_of(recorded(folder, "reduced_last", flags=EIGHT))
    reduced = f"named.py:{line_of('loss.backward()  # and reduces')} reduced_last"
    of_step = [place for place in places if place["youngest_steps"] == 0 and place["bytes"] > 1 << 20]
    if not of_step or any(not place["label"].startswith("named.py:") for place in of_step):
        raise AssertionError(of_step)
    if not any(place["label"] == reduced for place in of_step):
        raise AssertionError(of_step)


def check_autocast(folder):
    places = places_of(recorded(folder, "autocast", flags=EIGHT))
    expect_place(places, "parameter_copy", "up.weight")


def check_mixed_precision(folder):
    places = places_of(recorded(folder, "autocast", "--policy", flags=EIGHT))
    if any(place["category"] == "parameter_copy" for place in places):
        raise AssertionError("FSDP2's own casts are called copies of parameters")


def check_assigned(folder):
    places = places_of(recorded(folder, "assigned"))
    whole = sum(p["requested_bytes"] for p in places if p["category"] == "parameter_shard")
    shapes = [(1024, 1024), (768, 1024), (1024, 768), (512, 1024), (10, 512)]
    wanted = sum(4 * (rows * columns + rows) for rows, columns in shapes)
    if whole != wanted:
        raise AssertionError(f"{whole} bytes of parameters, not {wanted}")


def check_without_optimizer(folder):
    places = places_of(recorded(folder, "plain"))
    expect_place(places, "gradient", "backward from named.py")
    expect_place(places, "parameter_shard", "0-2.up.weight")


def check_inference(folder):
    places = places_of(recorded(folder, "generate"))
    expect_place(places, "activation", "forward")
    expect_place(places, "input", f"named.py:{line_of('torch.randn(2048')}")


def check_kinds(folder, name, flags=()):
    done = recorded(folder, name, flags=flags)
    kinds = json.loads(next(line for line in done.text.split("\n") if line.startswith("{")))
    places = report_of(done.out)["at_peak"]["places"]
    wrong = []
    for size, (category, part) in kinds.items():
        if not any(place["category"] == category and holds(place, int(size), part) for place in places):
            wrong.append((size, category, part))
    if wrong:
        raise AssertionError(f"{len(wrong)} of {len(kinds)} kinds: {wrong} not in {places}")


def holds(place, size, part):
    """True if a block of the place has the size, as far as its largest and its smallest tell."""
    given = (size + 511) // 512 * 512
    fits = place["smallest_bytes"] <= given + (1 << 20) and given <= place["largest_bytes"]
    return fits and (not part or any(part in name for name in place["names"]))


def check_kinds_of_torch(folder):
    check_kinds(folder, "torch")


def check_kinds_of_fsdp2(folder):
    check_kinds(folder, "fsdp2", EIGHT)


def check_kinds_of_transformers(folder):
    check_kinds(folder, "transformers")


def check_kinds_of_accelerate(folder):
    check_kinds(folder, "accelerate")


def check_compiled(folder):
    places = places_of(recorded(folder, "compiled"))
    if len(places) > 20:
        raise AssertionError(f"{len(places)} places")
    line = line_of("torch.relu(self.up")
    expect_place(places, "activation", f"named.py:{line} forward, compiled graph 0", "up")
    if any("call" in place["label"].split() for place in places):
        raise AssertionError("a line of generated code")


def check_two_walks(folder):
    """Compiled, a recomputed block has the program's line and its graph; eager, no graph."""
    line = f"named.py:{line_of('torch.relu(self.up')} forward"
    done = recorded(folder, "walked")
    places = places_of(done)
    expect_place(places, "activation", f"{line}, compiled graph 0", "blocks.0")
    text = shardlens("profile", "report", done.out).stdout
    generated = [place["label"] for place in places
                 if ".py:" in place["label"] and not place["label"].startswith("named.py:")]
    if f"{line}, compiled graph 0" not in text or generated or len(places) > 20:
        raise AssertionError(f"{len(places)} places, {generated}: {text}")
    if "compiled graph" in json.dumps(places_of(recorded(f"{folder}/eager", "walked", "--eager"))):
        raise AssertionError("graphs of a program that is not compiled")


def check_kinds_of_lightning(folder):
    check_kinds(folder, "lightning")


def slices_of(run):
    """Returns the actions of a run, as Perfetto gets them, in the order in which they begin."""
    file = run.parent / "trace.json"
    shardlens("profile", "export", run, "--format", "perfetto", "--out", file)
    events = json.loads(file.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found = [e for e in events if e["ph"] == "X" and names[e["tid"]] == "actions"]
    return sorted(found, key=lambda event: event["ts"])


def _too_long(found, own):
    """Returns the recorded parts that took longer than the program measured, in milliseconds."""
    failed = own.index(next(part for i, part in enumerate(own) if part[0] == "optimizer" == own[i + 1][0]))
    # A forward ends when backward is called; a step that failed, when it is tried again.
    return [(name, ms, own_ms) for i, ((name, ms), (_, own_ms)) in enumerate(zip(found, own))
            if ms > own_ms + (20 if name == "forward" else 0.2) and i != failed]


def check_parts(folder):
    """Each part that the program measured is recorded, in the same order and within the same time. A busy
    machine may stop the program between its clock and ours, but not in each of three runs."""
    for _ in range(3):
        done = OnNullDevice(folder, PYTHON, HERE / "scripts" / "explained" / "parts.py")
        done.expect(0, "as PyTorch counted: equal")
        own = json.loads(next(line for line in done.text.split("\n") if line.startswith("[[")))
        found = [(event["name"], event["dur"] / 1000) for event in slices_of(done.out)]
        if [name for name, _ in found] != [name for name, _ in own]:
            raise AssertionError(f"{found} are not {own}")
        too_long = _too_long(found, own)
        if not too_long:
            break
    else:
        raise AssertionError(f"longer than the program measured: {too_long}")
    inputs = [ms for name, ms in found if name == "input"]
    if min(inputs) < 20:
        raise AssertionError(f"a batch takes 20 ms, but {inputs} were recorded")
    part = report_of(done.out)["at_peak"]["part"]
    if part not in ("forward", "backward", "optimizer"):
        raise AssertionError(f"the peak is in {part}")


def check_collectives(folder):
    """FSDP2 communicates within forward and backward, and the recording knows each time."""
    slices = slices_of(recorded(folder, "deferred", flags=EIGHT).out)
    names = [event["name"] for event in slices]
    if names.count("forward") != 9 or names.count("backward") != 9 or names.count("optimizer") != 3:
        raise AssertionError(names)
    for backward in (event for event in slices if event["name"] == "backward"):
        end = backward["ts"] + backward["dur"]
        inside = [e for e in slices if backward["ts"] <= e["ts"] < end and e["name"] == "communication"]
        if len(inside) < 4:
            raise AssertionError(f"{len(inside)} collectives in a backward of 4 blocks: {names}")


def check_module_of_peak(folder, kind, seed):
    """The recording names the module in which PyTorch's own counter was highest."""
    flags = EIGHT if kind in ("fsdp2", "ddp") else []
    script = HERE / "scripts" / "explained" / "modules.py"
    done = OnNullDevice(f"{folder}/{kind}{seed}", PYTHON, script, str(seed), kind, flags=flags)
    done.expect(0, "as PyTorch counted: equal")
    own = json.loads(next(line for line in done.text.split("\n") if line.startswith("{")))["module"]
    peak = report_of(done.out)["at_peak"]
    if own is None or peak["module"] != own:
        raise AssertionError(f"{kind}, seed {seed}: the hooks say {own}, the report {peak['module']}")
    text = shardlens("profile", "report", done.out).stdout
    if f", {peak['part']} of {own}, after " not in text:
        raise AssertionError(f"{kind}, seed {seed}: {own} is not in {text}")


def check_modules(folder):
    for kind in ("plain", "fsdp2"):
        check_module_of_peak(folder, kind, 1)


def check_drawn_modules(folder):
    for seed in range(2, 6):
        for kind in ("plain", "checkpoint", "inference", "fsdp2", "ddp"):
            check_module_of_peak(folder, kind, seed)


QUICK = [check_deferred, check_autocast, check_assigned, check_kinds_of_torch,
         check_parts, check_modules]
MORE = [check_reduced_at_once, check_reduced_last, check_mixed_precision, check_without_optimizer,
        check_inference, check_kinds_of_fsdp2, check_collectives,
        check_drawn_modules]
WITH = {"transformers": [check_kinds_of_transformers], "accelerate": [check_kinds_of_accelerate],
        "lightning": [check_kinds_of_lightning], "filelock": [check_compiled, check_two_walks]}


def has(module):
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([PYTHON, "-c", code], check=False).returncode == 0


def main():
    if sys.argv[1] == "quick":
        return run_cases(QUICK)
    return run_cases(QUICK + MORE + [case for name in WITH if has(name) for case in WITH[name]])


if __name__ == "__main__":
    sys.exit(main())
