"""Records asked.py with `--time`, and compares the trace of work with what the program asks for: its
own sizes, closed forms, and torch.profiler's counts of operators, which need no GPU.

    work_cases.py quick|long [CASE...]
"""

import collections
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from recorded import PYTHON, OnNullDevice, run_cases, shardlens  # pylint: disable=wrong-import-position

PROGRAM = pathlib.Path(__file__).with_name("asked.py")
PIPELINED = pathlib.Path(__file__).with_name("pipelined.py")
LAYERS, WIDTH, ROWS = 3, 512, 32  # of asked.py


def expect(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found}\nis not\n{wanted}")


class Trace:
    def __init__(self, folder, *arguments, flags=()):
        run = OnNullDevice(folder, PYTHON, PROGRAM, *arguments, flags=["--time", *flags])
        run.expect(0)
        self.out = run.out
        shown = shardlens("profile", "work", run.out, "--json")
        if shown.returncode != 0:
            raise AssertionError(shown.stderr)
        trace = json.loads(shown.stdout)
        expect(trace["faults"], [])
        self.trace, self.steps = trace, trace["steps"]
        self.items = [item | {"asked": trace["work"][item["work"]]} for item in trace["items"]]
        times = [item["time_ns"] for item in self.items]
        expect(times, sorted(times))

    def of(self, *kinds):
        return [item for item in self.items if item["asked"]["kind"] in kinds]

    def products(self):
        names = ("m", "n", "k", "batch")
        return [(*(item["asked"]["numbers"][name] for name in names),
                 item["asked"]["numbers"]["compute"]) for item in self.of("product")]


def check_products(folder):
    trace = Trace(folder, "products")
    # cuBLAS counts columns first: rows and columns of PyTorch's result are swapped.
    expect(trace.products(), [(32, 64, 128, 1, "fp32"), (256, 64, 128, 1, "fp32"),
                              (13, 7, 11, 5, "fp32"), (8, 16, 24, 1, "tf32")])
    types = [item["asked"]["numbers"]["a"] for item in trace.of("product")]
    expect(types, ["bf16", "bf16", "fp32", "fp32"])
    operators = [item["asked"]["operator"] for item in trace.of("product")]
    expect(operators, ["aten::mm", "aten::addmm", "aten::bmm", "aten::mm"])
    expect([i["sizes"] for i in trace.of("product")[0]["asked"]["inputs"]], [[64, 128], [128, 32]])
    copies = [(i["asked"]["numbers"]["bytes"], i["asked"]["numbers"]["kind"],
               i["asked"]["numbers"]["blocks"]) for i in trace.of("copy")]
    expect(copies, [(4000, "host_to_device", False), (2000, "device_to_host", True)])


def check_streams(folder):
    trace = Trace(folder, "streams")
    begin = next(i for i, item in enumerate(trace.items) if "mul" in item["asked"]["operator"])
    seen = [(item["asked"]["kind"], item["stream"],
             item["about"] - begin if item["about"] >= 0 else None)
            for item in trace.items[begin:]]
    side = seen[2][1]
    if side == 0:
        raise AssertionError("the side stream is the main one")
    expect(seen[:12], [("kernel", 0, None), ("event_record", 0, None), ("event_wait", side, 1),
                       ("kernel", side, None), ("event_record", side, None), ("event_wait", 0, 4),
                       ("kernel", 0, None), ("event_record", 0, None), ("event_query", 0, 7),
                       ("event_synchronize", 0, 7), ("stream_synchronize", side, None),
                       ("device_synchronize", 0, None)])


def check_graph(folder):
    trace = Trace(folder, "graph")
    launched = trace.of("graph_launch")
    expect(len(launched), 3)
    number = launched[0]["about"]
    expect([item["about"] for item in launched], [number] * 3)
    captured = [item["asked"]["operator"] for item in trace.of("kernel") if item["graph"] == number]
    expect(captured, ["aten::add_", "aten::mul_"])


def check_steps(folder):
    trace = Trace(folder, "steps")
    # After the last step nothing is asked for, so the trace has as many steps as the program.
    expect([step["step"] for step in trace.steps], [None, 0, 1, 2, 3])
    counts = [step["counts"] for step in trace.steps[2:]]
    expect(counts, counts[:1] * 3)
    # A linear layer needs one product forward and two backward, the first layer no input's gradient.
    expect(counts[0]["product"], 3 * LAYERS - 1)
    wanted = {(WIDTH, ROWS, WIDTH): 2 * LAYERS - 1, (WIDTH, WIDTH, ROWS): LAYERS}
    expect(collections.Counter(p[:3] for p in trace.products()),
           {sizes: 4 * count for sizes, count in wanted.items()})
    fused = [i["asked"] for i in trace.of("kernel") if "FusedAdam" in i["asked"]["name"]]
    expect(len(fused), 4)
    expect(fused[0]["operator"], "aten::_fused_adamw_")
    expect(fused[0]["inputs"][0], {"type": "fp32", "tensors": LAYERS,
                                   "sizes": [LAYERS * WIDTH * WIDTH]})
    backward = [item for item in trace.of("product") if item["asked"]["in_backward"]]
    expect(len(backward), 4 * (2 * LAYERS - 1))
    names = [item["asked"]["name"] for item in trace.of("kernel")]
    if not all(name.startswith(("void ", "at::")) for name in names):
        raise AssertionError(f"not demangled: {set(names)}")


def check_compiled(folder):
    found = subprocess.run([PYTHON, "-c", "import triton, filelock"], capture_output=True, check=False)
    if found.returncode != 0:
        return print("  skipped: this Python has no Triton")
    trace = Trace(folder, "compiled")
    triton = {item["asked"]["name"] for item in trace.of("kernel")
              if item["asked"]["name"].startswith("triton_")}
    if not any("layer_norm" in name for name in triton):
        raise AssertionError(f"no compiled layer norm among {triton}")


def check_fsdp2(folder):
    world = 8
    trace = Trace(folder, "fsdp2", flags=["--world", world, "--rank", 3])
    collectives = trace.of("collective")
    totals = collections.Counter()
    for item in collectives:
        numbers = item["asked"]["numbers"]
        ranks = trace.trace["communicators"][numbers["communicator"]]
        if ranks["size"] == world:
            expect(ranks["world_ranks"], list(range(world)))
            totals[numbers["kind"]] += numbers["bytes"]
    parameters = LAYERS * WIDTH * WIDTH * 2  # bytes of bf16
    steps = 4
    # Forward and backward gather each layer, and a gradient is reduced once.
    expect(totals["all_gather"], steps * 2 * parameters)
    expect(totals["reduce_scatter"], steps * parameters)
    last = collectives[-1]["asked"]["numbers"]
    expect((last["kind"], last["bytes"]), ("all_reduce", 4000))
    expect(trace.trace["communicators"][last["communicator"]],
           {"size": world // 2, "rank": 1, "world_ranks": [1, 3, 5, 7]})
    if collectives[0]["stream"] == 0:
        raise AssertionError("FSDP2 gathers on a stream of its own")


def check_ddp(folder):
    """DDP reduces each gradient once, on a stream of its own, for which the step then waits."""
    trace = Trace(folder, "ddp", flags=["--world", 4])
    reduced = [item for item in trace.of("collective")
               if item["asked"]["numbers"]["kind"] == "all_reduce"]
    expect(sum(item["asked"]["numbers"]["bytes"] for item in reduced),
           4 * LAYERS * WIDTH * WIDTH * 4)
    if 0 in {item["stream"] for item in reduced}:
        raise AssertionError("DDP reduces on the main stream")
    own = {item["stream"] for item in reduced}
    # Each backward ends with a wait for the last of these.
    last = [i for i, item in enumerate(trace.items) if item in reduced]
    for item in trace.of("event_wait"):
        if item["stream"] == 0 and trace.items[item["about"]]["stream"] in own:
            last = [i for i in last if i > item["about"]]
    expect(last, [])


def check_bytes(folder):
    """A launch takes at most 12 bytes of disk."""
    trace = Trace(folder, "fsdp2", flags=["--world", 8])
    checked = shardlens("profile", "check", trace.out / "profiles" / "rank0.slp").stdout
    rows = [line.split() for line in checked.splitlines() if line.split()[1:2] == ["work"]]
    share = sum(int(row[3]) for row in rows) / len(trace.items)
    print(f"  {share:.2f} bytes an item of {len(trace.items)}")
    if share > 12:
        raise AssertionError(f"{share:.1f} bytes an item")


def check_none(folder):
    """Without --time there is no trace, and the command says how to get one."""
    run = OnNullDevice(folder, PYTHON, PROGRAM, "products").expect(0)
    shown = shardlens("profile", "work", run.out)
    expect(shown.returncode, 2)
    if "record --time" not in shown.stderr:
        raise AssertionError(shown.stderr)
    refused = shardlens("record", "--time", "--", PYTHON, PROGRAM, "products")
    expect(refused.returncode, 2)


def check_exported(folder):
    """Perfetto's slices of the simulated step are as long as its work, one after another on a stream."""
    trace = Trace(folder, "fsdp2", flags=["--world", 8])
    time = json.loads(shardlens("profile", "time", trace.out, "--json").stdout)
    out = pathlib.Path(folder, "trace.json")
    done = shardlens("profile", "export", trace.out, "--format", "perfetto", "--out", out)
    expect(done.returncode, 0)
    events = json.loads(out.read_text())["traceEvents"]
    [process] = [event["pid"] for event in events
                 if event["name"] == "process_name" and "as predicted on" in event["args"]["name"]]
    of_process = [event for event in events if event["pid"] == process]
    tracks = {event["tid"]: event["args"]["name"] for event in of_process
              if event["name"] == "thread_name"}
    slices = collections.defaultdict(list)
    for event in of_process:
        if event["ph"] == "X":
            slices[tracks[event["tid"]]].append(event)
    on_gpu = [event for name, all_of in slices.items() if name != "host" for event in all_of]
    expect(len(on_gpu), time["launches"])
    length, work = sum(event["dur"] for event in on_gpu) / 1e6, sum(time["work_seconds"].values())
    if len(slices) < 3 or abs(length / work - 1) > 1e-3:
        raise AssertionError(f"{list(slices)}: {length} s, not {work} s")
    for name, all_of in slices.items():
        for before, after in zip(all_of, all_of[1:]):
            if after["ts"] < before["ts"] + before["dur"] - 0.01:
                raise AssertionError(f"{name}: {before} overlaps {after}")


def check_pipelined(folder):
    """A step of a pipeline takes as long as its stages' work and the bubble of GPipe and 1F1B:
    (microbatches + stages - 1) / microbatches times the work of a stage."""
    stages, microbatches = 4, 8
    for schedule in ("ScheduleGPipe", "Schedule1F1B"):
        run = OnNullDevice(folder, PYTHON, PIPELINED, schedule, microbatches,
                           flags=["--time", "--world", stages, "--ranks", "all"])
        run.expect(0, f"the slowest of {stages} that were simulated together", "waiting for other ranks")
        world = json.loads(shardlens("profile", "time", run.out, "--json").stdout)
        expect(world["doubts"], [])
        alone = [json.loads(shardlens("profile", "time", run.out, "--rank", rank, "--json").stdout)
                 for rank in range(stages)]
        expect([rank["waiting_for_ranks_seconds"] for rank in alone], [0] * stages)
        wanted = max(rank["seconds"] for rank in alone) * (microbatches + stages - 1) / microbatches
        for rank in world["ranks"]:
            if not 0.9 < rank["seconds"] / wanted < 1.15:
                raise AssertionError(f"{schedule}: {rank['seconds']} s, not {wanted} s")
            bubble = rank["waiting_for_ranks_seconds"] / rank["seconds"]
            if not 0.2 < bubble < 0.4:
                raise AssertionError(f"{schedule}: rank {rank['rank']} waits {bubble:.0%}")


if __name__ == "__main__":
    sys.exit(run_cases([check_products, check_streams, check_graph, check_steps, check_compiled,
                        check_fsdp2, check_ddp, check_bytes, check_none, check_exported,
                        check_pipelined]))
