"""Phase 6: what the clock says: steps of ours and of PyTorch in four ways, launches a step, what
the recorder costs, and kernels and copies over sizes, for a later model of time. All are medians,
with the 5th and the 95th percentile beside them."""

import struct

import machine as machines
from results import Failed
from steps import Step, measured, only, train

MODELS = {
    "vit-tutorial": "64",
    "vit-b16": "32",
    "vit-l16": "16",
    "llama-1b": "1",
    "transformer": "8",
}
FEW = ("vit-tutorial",)
WAYS = ("eager", "fsdp2", "graphs", "compile")  # compiling takes the longest
FEW_WAYS = ("fsdp2",)
DTYPES = ("bf16", "fp32")
NO_TIME = "a null device's clock says nothing of a GPU's"
COUNTER = machines.BIN / "libcount_calls.so"
COUNTED_DTYPE = "bf16"  # for our launches; each model's count costs two more runs
COUNTED = ("kernels", "graphs", "memory", "runtime_kernels")


def step_count(machine):
    return 5 if machine.is_rehearsal else 60


def flags_of(machine, model, dtype):
    return [
        "--model",
        model,
        "--batch",
        MODELS[model],
        "--param-dtype",
        dtype,
        "--steps",
        str(step_count(machine)),
        "--epochs",
        "1000",
        "--strategy",
        "single",
    ]


def told(machine, said, **data):
    """Returns a measured result. On a null device the same runs are made, and their times are
    dropped."""
    if machine.is_rehearsal:
        return {"verdict": "not checked", "said": NO_TIME}
    return measured(said, **data)


def counters_of(folder):
    """Returns the sums over all processes that left a file."""
    sums = [0, 0, 0, 0]
    for path in folder.glob("calls.*"):
        values = struct.unpack("<4Q", path.read_bytes().ljust(32, b"\0")[:32])
        sums = [one + other for one, other in zip(sums, values)]
    return dict(zip(COUNTED, sums))


def launches(folder, start, few, many):
    """Returns kernels and graphs a step: what a longer run launches beyond a shorter one."""
    found = []
    for count in (few, many):
        place = folder / str(count)
        place.mkdir()
        start(
            count,
            place,
            {"CUDA_INJECTION64_PATH": str(COUNTER), "SHARDLENS_CALLS": str(place / "calls")},
        )
        found.append(counters_of(place))
    return {
        name: (found[1][name] - found[0][name]) / (many - few)
        for name in ("kernels", "graphs", "runtime_kernels")
    }


def ours(machine, folder, model, dtype):
    result = train(machine, folder, "cuda", *flags_of(machine, model, dtype))
    step = result["step_ms"]

    def start(count, place, env):
        flags = flags_of(machine, model, dtype)
        flags[flags.index("--steps") + 1] = str(count)
        train(machine, place, "cuda", *flags, env=env)

    said = f"{step['median']:.3f} ms a step (95 %: {step['p95']:.3f})"
    if dtype != COUNTED_DTYPE:
        return told(machine, said, step_ms=step)
    calls = launches(folder, start, 4, 12)
    count = max(calls["kernels"], calls["runtime_kernels"])
    if not machine.is_rehearsal and count <= 0:
        raise Failed(f"no launch was counted; {said}")
    return told(machine, f"{said}, {count:.0f} launches", step_ms=step, calls=calls)


def pytorch(machine, folder, model, dtype, way):
    words = [model, MODELS[model], dtype, way]
    env = {"SHARDLENS_CALLS": str(folder / "calls")}
    row = only(
        machine.python_rows(
            "step_times.py", *words, str(step_count(machine)), COUNTER, env=env, limit_s=200
        )
    )
    return told(
        machine,
        f"{row['median_ms']:.3f} ms a step ({row['p5_ms']:.3f} to {row['p95_ms']:.3f}), "
        f"{row['kernels']} launches by the driver's calls, "
        f"{row['runtime_kernels']} by the runtime's, {row['graphs']} graphs",
        **row,
    )


def recorder_cost(machine, folder):
    """Runs three ways in turns, three times each: the recorder off, on, and on while another
    subscriber has CUPTI's place."""
    seat = {"CUDA_INJECTION64_PATH": str(COUNTER)}
    model = "vit-tutorial" if machine.few else "vit-l16"
    kinds = {"off": ("off", {}), "on": ("on", {}), "on_without_cupti": ("on", seat)}
    rounds = 1 if machine.few else 3
    found = {name: [] for name in kinds}
    for number in range(rounds):
        for name, (profile, env) in kinds.items():
            place = folder / f"{name}{number}"
            place.mkdir()
            result = train(
                machine,
                place,
                "cuda",
                *flags_of(machine, model, "bf16"),
                "--profile",
                profile,
                env=env,
            )
            found[name].append(result["step_ms"]["median"])
    said = ", ".join(
        f"{name} {min(times):.3f} to {max(times):.3f} ms" for name, times in found.items()
    )
    return told(machine, said, medians_ms=found)


def kernels(machine):
    rows = machine.python_rows("kernel_times.py", *(["--few"] if machine.few else []), limit_s=300)
    if not rows:
        raise Failed("no kernel was timed")
    return told(machine, f"{len(rows)} cases", rows=rows)


def steps(machine):
    models = FEW if machine.few else MODELS
    ways = FEW_WAYS if machine.few else WAYS
    dtypes = DTYPES[:1] if machine.few else DTYPES
    found = [Step("kernels and copies", lambda _: kernels(machine))]
    found += [
        Step(
            f"ours {model} {dtype}",
            lambda folder, model=model, dtype=dtype: ours(machine, folder, model, dtype),
        )
        for dtype in dtypes
        for model in models
    ]
    found.append(Step("the recorder's cost", lambda folder: recorder_cost(machine, folder)))
    return found + [
        Step(
            f"PyTorch {way} {model} {dtype}",
            lambda folder, model=model, dtype=dtype, way=way: pytorch(
                machine, folder, model, dtype, way
            ),
        )
        for way in ways
        for dtype in dtypes
        for model in models
        if way != "compile" or dtype == COUNTED_DTYPE
    ]
