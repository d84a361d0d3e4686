"""Phase 1: what this GPU, its driver and NVIDIA's libraries take, and what they tell."""

import base64
import json
import lzma
import os
import platform
import shutil
import tempfile

import machine as machines
from results import Failed, NotChecked
from steps import SHARDLENS, Step, measured, mib, only, report, train

NOT_OUTSIDE = "takes no memory outside PyTorch's allocator"


class Facts:
    """Holds what facts_of_gpu.py tells. It is asked once, since loading PyTorch takes seconds."""

    def __init__(self, machine):
        self.machine = machine
        self.rows = self.null_rows = None

    def of(self, fact):
        """Returns every row of a fact."""
        if self.rows is None:
            self.rows = self._ask()
        return self._found(self.rows, fact)

    def of_null(self, fact):
        """Returns the one row that the null device of this GPU's name gives for a fact."""
        if self.null_rows is None:
            script = machines.PROGRAMS / "facts_of_gpu.py"
            env = self.machine.stubbed_environment()
            command = [self.machine.python, script, "device", "workspaces"]
            self.null_rows = machines.rows_of(machines.output_of(command, env=env))
        return only(self._found(self.null_rows, fact))

    @staticmethod
    def _found(rows, fact):
        found = [
            {key: value for key, value in row.items() if key != "fact"}
            for row in rows
            if row["fact"] == fact
        ]
        if not found:
            raise Failed(f"facts_of_gpu.py {fact} failed; run it by itself to see why")
        return found

    def _ask(self):
        machine = self.machine
        with tempfile.TemporaryDirectory() as folder:
            words = [
                "device",
                f"context={1 if machine.few else 3}",
                "modules",
                "workspaces",
                "nccl",
                f"callbacks={machines.BIN / 'libcount_calls.so'}",
                f"clocks={0.1 if machine.is_rehearsal else 3}",
            ]
            return machine.python_rows(
                "facts_of_gpu.py", *words, env={"SHARDLENS_CALLS": f"{folder}/calls"}
            )


def about_machine(machine):
    """Returns what is known of the machine without asking the GPU."""
    said = machine.about
    tools = {
        name: shutil.which(name) is not None for name in ("objdump", "nm", "nvcc", "nvidia-smi")
    }
    facts = {
        "system": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "cores": os.cpu_count(),
        "tools": tools,
        "python": said["python"],
        "torch": said["torch"],
        "torch_folder": said["folder"],
        "wheels": said["wheels"],
    }
    text = f"{os.cpu_count()} cores, Python {said['python']}, PyTorch {said['torch']}"
    if not (tools["objdump"] and tools["nm"]):
        raise Failed(
            f"{text}; objdump or nm is missing, by which `record --device null:` checks a "
            "PyTorch: install binutils"
        )
    return measured(text, facts=facts)


def doctor(machine):
    env = machine.gpu_environment()
    code, out, error = machines.run([SHARDLENS, "doctor", "--json", "--seconds", "2"], env=env)
    try:
        found = json.loads(out)
    except json.JSONDecodeError:
        raise Failed(f"exit code {code}: {machines.last_line(out, error)}") from None
    wrong = [
        f"{one['about']}: {one['text']}" for one in found["findings"] if one["health"] == "wrong"
    ]
    if wrong and not machine.is_rehearsal:
        return {"verdict": "failed", "said": "; ".join(wrong), "findings": found["findings"]}
    return measured("; ".join(wrong) or "nothing is wrong", findings=found["findings"])


def beside_null(facts, fact, keys, said):
    """Compares a fact of the GPU with the null device's of its name, by these keys."""
    on_gpu, on_null = only(facts.of(fact)), facts.of_null(fact)
    other = [
        f"{key} {on_gpu[key]}, not {on_null[key]}" for key in keys if on_gpu[key] != on_null[key]
    ]
    told = said.format(**on_gpu)
    return {
        "verdict": "differs" if other else "same",
        "said": f"{told}; the null device has other: {'; '.join(other)}" if other else told,
        "on_gpu": on_gpu,
        "on_null": on_null,
    }


def device(facts):
    keys = ("total_bytes", "multiprocessors", "l2_bytes", "capability")
    return beside_null(
        facts,
        "device",
        keys,
        "{name}, {total_bytes} bytes, {multiprocessors} multiprocessors, L2 {l2_bytes} bytes, "
        "driver's CUDA {driver_cuda}, cuDNN {cudnn}",
    )


def driver(machine):
    if shutil.which("nvidia-smi") is None:
        raise NotChecked("nvidia-smi is missing: of the driver only its CUDA version is known")
    machine.needs_gpu("is not what nvidia-smi would tell of")
    fields = (
        "name,driver_version,memory.total,memory.used,clocks.max.sm,clocks.max.mem,ecc.mode.current"
    )
    out = machine.on_null(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"])
    return measured(out.strip(), fields=fields.split(","))


def contexts(facts):
    row = only(facts.of("context"))
    facts.machine.needs_gpu(NOT_OUTSIDE)
    return measured(
        f"a context takes {mib(row['context_bytes'])}, of processes in turn "
        f"{', '.join(mib(each) for each in row['each'])}",
        **row,
    )


def modules(facts):
    rows = facts.of("modules")
    facts.machine.needs_gpu(NOT_OUTSIDE)
    return measured(
        "outside the allocator after: "
        + ", ".join(f"{row['after']} {mib(row['outside_bytes'])}" for row in rows),
        rows=rows,
    )


def workspaces(facts):
    """cuBLAS's workspaces, by PyTorch's counters: they are in its allocator, so a null device has
    them, too."""
    keys = ("gemm_bytes", "lt_bytes", "on_another_stream_bytes")
    said = "{gemm_bytes} bytes, cuBLASLt {lt_bytes}, on another stream {on_another_stream_bytes}"
    return beside_null(facts, "workspaces", keys, said)


def nccl(facts):
    """Makes a communicator of one rank: what it takes, and whether our calls to it are right."""
    row = only(facts.of("nccl"))
    if facts.machine.is_rehearsal:
        row = {"version": row["version"]}
        return measured(
            f"NCCL {row['version']}; not checked: its bytes, which a null device does " "not have",
            **row,
        )
    return measured(
        f"NCCL {row['version']} takes {mib(row['init_bytes'])} at its start, "
        f"{mib(row['first_bytes'])} at its first collective",
        **row,
    )


def nccl_calls(machine):
    machine.on_null([machines.BIN / "gpu_tests", "--list-tests"])
    machine.needs_gpu("reduces nothing, so what NCCL's calls give is not known")
    machine.on_gpu([machines.BIN / "gpu_tests", "NCCL takes our calls*"])
    return {"verdict": "passed", "said": "init, gather, reduce and abort do what we expect"}


def counted_calls(facts):
    """CUPTI's callbacks, by our own counter beside the number of operators that were called."""
    row = only(facts.of("callbacks"))
    if row["attached"] != 1 or row["memory"] < 1:
        raise Failed(f"CUPTI does not call back: {row}")
    if facts.machine.is_rehearsal:
        return measured(
            f"{row['memory']} calls for memory; not checked: launches, which a null "
            "device does not tell",
            **row,
        )
    launches = max(row["kernels"], row["runtime_kernels"])
    if launches < row["operators"]:
        raise Failed(f"{row['operators']} operators, but {launches} launches were told")
    return measured(
        f"{row['operators']} operators: {row['kernels']} launches by the driver's calls, "
        f"{row['runtime_kernels']} by the runtime's; {row['memory']} calls "
        "for memory",
        **row,
    )


def clocks(facts):
    row = only(facts.of("clocks"))
    facts.machine.needs_gpu("times every device interval as 1 ms")
    return measured(
        f"CUPTI's clock less the host's real time: {row['offset_ns']} ns, drift "
        f"{row['drift_ppm']:.2f} ppm over {row['seconds']:.1f} s; events against the "
        f"host: {row['event_error_ppm']:.0f} ppm",
        **row,
    )


def calibration(machine, folder):
    """Records what `shardlens plan --calibration` reads. It is kept for phase 4 and as a
    fixture."""
    flags = ["--model", "vit-tutorial", "--strategy", "single", "--steps", "3", "--profile", "on"]
    train(machine, folder, "cuda", *flags)
    ledger = report(machine, folder / "cuda")[0]["ledger"]
    recording = (folder / "cuda" / "profiles" / "rank0.slp").read_bytes()
    packed = base64.b64encode(lzma.compress(recording)).decode()
    return measured(
        f"context {mib(ledger['context_bytes'])}, the driver gave "
        f"{mib(ledger['driver_bytes'])}, unexplained {mib(ledger['residual_bytes'])}",
        ledger=ledger,
        slp_xz=packed,
    )


def steps(machine):
    facts = Facts(machine)
    of_machine = {"machine": about_machine, "driver": driver, "doctor": doctor}
    of_gpu = {
        "device": device,
        "context": contexts,
        "modules": modules,
        "cuBLAS's workspaces": workspaces,
        "NCCL of one rank": nccl,
        "CUPTI's callbacks": counted_calls,
        "clocks": clocks,
    }
    return [
        *(Step(name, lambda _, find=find: find(machine)) for name, find in of_machine.items()),
        *(Step(name, lambda _, find=find: find(facts)) for name, find in of_gpu.items()),
        Step("NCCL's calls", lambda _: nccl_calls(machine)),
        Step("calibration", lambda folder: calibration(machine, folder)),
    ]
