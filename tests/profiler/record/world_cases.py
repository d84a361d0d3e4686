"""Records programs that talk to simulated ranks: they get what real ranks would give them,
according to PyTorch's own processes or to the program's own arithmetic.

    world_cases.py quick|long

recorded.py says which Python runs them.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

from recorded import HERE, PROGRAM, PYTHON, OnNullDevice, run_cases

SCRIPTS = HERE / "scripts"
NULL_DEVICE = PROGRAM.parent.parent / "null_device"

# Each schedule has the number of stages of each of two ranks.
SCHEDULES = {"ScheduleGPipe": 1, "Schedule1F1B": 1, "ScheduleInterleaved1F1B": 2,
             "ScheduleLoopedBFS": 2, "ScheduleInterleavedZeroBubble": 2, "ScheduleZBVZeroBubble": 2}


def as_rank(rank, world):
    return ["--world", str(world), "--rank", str(rank)]


# --- pipelines ------------------------------------------------------------------------------------


def given_to(stage):
    """Returns what the stages of scripts/pipeline.py make of a microbatch: one position less, 32
    features more, and the other type each."""
    kind = "float32" if stage % 2 == 0 else "float64"
    return f"stage {stage} was given {{((4, {64 - stage}, {128 + 32 * stage}), torch.{kind}"


def record_pipeline(folder, schedule, rank, world, stages):
    command = [PYTHON, SCRIPTS / "pipeline.py", schedule, str(SCHEDULES[schedule])]
    run = OnNullDevice(folder, *command, flags=as_rank(rank, world)).expect(0, "equal")
    found = re.findall(r"^stage .*", run.text, re.MULTILINE)
    wanted = [given_to(stage) for stage in stages]
    if len(found) != len(wanted) or not all(map(str.startswith, found, wanted)):
        raise AssertionError(f"{schedule}, rank {rank}: {found}, not {wanted}")
    return run.expect_steps(2)


def check_second_stage(folder):
    run = record_pipeline(folder, "Schedule1F1B", 1, 2, [1])
    run.expect(0, "rank 0 is absent: the program is run again as that rank")


def check_last_of_four_stages(folder):
    record_pipeline(folder, "Schedule1F1B", 3, 4, [3])


def check_schedules(folder):
    for schedule, of_rank in SCHEDULES.items():
        for rank in range(2):
            own = [rank, 3 - rank] if "V" in schedule else [rank, rank + 2]
            os.mkdir(f"{folder}/{schedule}-{rank}")
            record_pipeline(f"{folder}/{schedule}-{rank}", schedule, rank, 2, own[:of_rank])


def check_sender_that_fails(folder):
    """Checks that its failure is in the error of the rank that waits for it."""
    script = pathlib.Path(folder) / "waiting.py"
    script.write_text("import torch, torch.distributed as dist\n"
                      "dist.init_process_group('nccl')\n"
                      "torch.ones(1, device='cuda')\n"
                      "assert dist.get_rank() == 1, 'only rank 1 works'\n"
                      "dist.recv_object_list([None], 0)\n")
    run = OnNullDevice(folder, PYTHON, script, flags=as_rank(1, 2))
    run.expect(1, "run again as that rank ended with exit code 1", "only rank 1 works")


# --- collectives ----------------------------------------------------------------------------------


def real_ranks(folder):
    """Returns what two processes print that PyTorch's gloo connects, on CPUs."""
    preload = ":".join(str(path) for path in sorted(NULL_DEVICE.glob("*.so.*")))
    store = pathlib.Path(folder) / "meeting"
    common = os.environ | {"LD_PRELOAD": preload, "WORLD_SIZE": "2"}
    command = [PYTHON, SCRIPTS / "collectives.py", "cpu", f"file://{store}"]
    ranks = [subprocess.Popen(command, env=common | {"RANK": str(rank)}, text=True,
                              stdout=subprocess.PIPE) for rank in range(2)]
    texts = [rank.communicate(timeout=300)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise AssertionError(f"a real rank failed: {texts}")
    return texts


def answers(text):
    return re.findall(r"^[\w ,']+: .*\]$", text, re.MULTILINE)


def check_collectives(folder):
    """Each call returns the same as between real ranks, and fills tensors of the same shapes."""
    wanted = answers(real_ranks(folder)[1])
    script = [PYTHON, SCRIPTS / "collectives.py"]
    run = OnNullDevice(folder, *script, "cpu", flags=as_rank(1, 2)).expect(5)
    if len(wanted) < 40 or answers(run.text) != wanted:
        raise AssertionError(f"{answers(run.text)}\nbut real ranks say\n{wanted}")


def check_collectives_of_gpus(folder):
    """Runs on four ranks, two of which are in the second group. The names of backends are those
    asked for."""
    for rank in (1, 2):
        os.mkdir(f"{folder}/{rank}")
        run = OnNullDevice(f"{folder}/{rank}", PYTHON, SCRIPTS / "collectives.py",
                           flags=as_rank(rank, 4))
        run.expect(0, "get_backend: cpu:gloo,cuda:nccl", "get_backend of gloo: gloo",
                   "all_gather of uneven",
                   "all_gather_into_tensor of a row: None ['torch.float32[1, 12]']",
                   "reduce_scatter_tensor of a row: None ['torch.float32[3]']", "equal")
        # The objects that its absent ranks sent are gone with the run.
        left = sorted(path.name for path in run.out.iterdir())
        if left != ["profiles"]:
            raise AssertionError(f"the run's folder has {left}")


def check_optimizer_states(folder):
    """FSDP1 gathers the state of all 6 parameters, four matrices and two biases, on each rank."""
    for rank in (0, 3):
        os.mkdir(f"{folder}/{rank}")
        run = OnNullDevice(f"{folder}/{rank}", PYTHON, SCRIPTS / "optimizer_state.py",
                           flags=as_rank(rank, 4))
        run.expect(0, f"gathered 6 {4 * 64 * 64 + 2 * 64}\n", "equal")


# --- experts --------------------------------------------------------------------------------------


def shares(total, number):
    return [total // number + (i < total % number) for i in range(number)]


def counts_of(routing, rank, ranks, tokens, k, experts):
    """Returns how many of one rank's tokens each expert gets, as docs/record_values.md says."""
    own = experts // ranks
    if routing == "worst":
        to_own = tokens * min(k, own)
        others = shares(tokens * k - to_own, experts - own)
        return others[:rank * own] + shares(to_own, own) + others[rank * own:]
    if routing == "balanced":
        return shares(tokens * k, experts)
    busy = min(tokens, round(float(routing.removeprefix("skewed:")) * tokens * k / experts))
    return [busy, *shares(tokens * k - busy, experts - 1)]


def check_one_routing(folder, routing, rank, tokens, k, experts):
    ranks = 4
    os.mkdir(folder)
    flags = [*as_rank(rank, ranks), "--routing", routing]
    sizes = [str(size) for size in (tokens, k, experts)]
    run = OnNullDevice(folder, PYTHON, SCRIPTS / "experts.py", *sizes, flags=flags)
    run.expect(0, "equal", "in doubt: experts: ", "(--routing)")
    found = json.loads(re.search("^found (.*)$", run.text, re.MULTILINE).group(1))
    counts = counts_of(routing, rank, ranks, tokens, k, experts)
    own = counts[rank * experts // ranks:(rank + 1) * experts // ranks]
    busiest = max(expert for expert, count in enumerate(counts) if count)
    wanted = {"counts": counts, "map": counts, "masks": counts, "sorted": busiest,
              "received": [ranks * count for count in own], "rows": ranks * sum(own),
              "gathered": ranks * sum(own)}
    if {name: [int(one) for one in value] if isinstance(value, list) else int(value)
            for name, value in found.items()} != wanted:
        raise AssertionError(f"{routing}, rank {rank}: {found}, not {wanted}")


def check_routings(folder):
    """Four ranks share the experts: counts, splits and buffers are those of closed formulas."""
    for number, routing in enumerate(("balanced", "skewed:4", "worst")):
        check_one_routing(f"{folder}/{number}", routing, 1, 512, 2, 16)


def check_more_routings(folder):
    """Routes by sizes that divide nothing evenly, whose maps and masks are larger than other known
    values."""
    for number, routing in enumerate(("balanced", "skewed:1.5", "worst")):
        check_one_routing(f"{folder}/{number}", routing, number, 4099, 6, 128)


# --- several ranks --------------------------------------------------------------------------------


def peaks_in(out):
    """Returns the peak that each rank's process counted, by rank."""
    facts = {path: json.loads(path.read_text()) for path in (out / "profiles").glob("*.json")}
    return {int(path.stem.removeprefix("rank")): one["peak_allocated_bytes"]
            for path, one in facts.items()}


def fullest_in(run):
    """Returns the first rank of the table, and which ranks each stands for."""
    rows = re.findall(r"^  rank (\d+) .* reserved(?:, stands for (.*))?$", run.text, re.MULTILINE)
    return int(rows[0][0]), dict(rows)


def record_ranks(folder, name, which, *command, world):
    os.mkdir(f"{folder}/{name}")
    flags = ["--world", str(world), "--ranks", which]
    return OnNullDevice(f"{folder}/{name}", *command, flags=flags).expect(0, f"of {world} ranks were run")


def check_roles_of_pipeline(folder):
    """Checks that the fullest of all four stages is the fullest role; each role is a stage."""
    command = [PYTHON, SCRIPTS / "pipeline.py", "Schedule1F1B"]
    all_ranks = record_ranks(folder, "all", "all", *command, world=4)
    roles = record_ranks(folder, "roles", "roles", *command, world=4)
    if fullest_in(all_ranks) != fullest_in(roles) or peaks_in(all_ranks.out) != peaks_in(roles.out):
        raise AssertionError(f"{all_ranks.text}\nbut the roles are\n{roles.text}")
    if len(peaks_in(roles.out)) != 4 or "in doubt: a rank" in roles.text:
        raise AssertionError(roles.text)


def check_roles_of_uneven_shards(folder):
    """Shards 10 rows over 8 ranks: by torch.chunk five have two, and the others zero."""
    script = pathlib.Path(folder) / "uneven.py"
    script.write_text("import torch, torch.distributed as dist\n"
                      "from torch.distributed.fsdp import fully_shard\n"
                      "dist.init_process_group('nccl')\n"
                      "model = fully_shard(torch.nn.Linear(2**16, 10, bias=False, device='cuda'))\n"
                      "optimizer = torch.optim.AdamW(model.parameters())\n"
                      "for _ in range(2):\n"
                      "    model(torch.ones(1, 2**16, device='cuda')).sum().backward()\n"
                      "    optimizer.step()\n")
    all_ranks = record_ranks(folder, "all", "all", PYTHON, script, world=8)
    roles = record_ranks(folder, "roles", "roles", PYTHON, script, world=8)
    peaks = peaks_in(all_ranks.out)
    if len(set(peaks.values())) != 2 or len({peaks[rank] for rank in range(5)}) != 1:
        raise AssertionError(f"not two kinds of ranks: {peaks}")
    fullest, stands_for = fullest_in(roles)
    if fullest not in range(5) or set(filter(None, stands_for.values())) != {"0-4", "5-7"}:
        raise AssertionError(roles.text)
    roles.expect(0, "in doubt: a rank that was not run is assumed to match")


def check_copied_ddp(folder):
    """A model in DDP is copied and pickled, as averages of weights and checkpoints do."""
    script = pathlib.Path(folder) / "copied.py"
    script.write_text("import copy, pickle, torch, torch.distributed as dist\n"
                      "dist.init_process_group('nccl')\n"
                      "ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())\n"
                      "copies = [copy.deepcopy(ddp), pickle.loads(pickle.dumps(ddp))]\n"
                      "for model in (ddp, *copies):\n"
                      "    assert model.module.weight.is_cuda\n"
                      "ddp(torch.ones(1, 8, device='cuda')).sum().backward()\n"
                      "assert ddp.module.weight.grad is not None\n")
    OnNullDevice(folder, PYTHON, script, flags=as_rank(0, 4)).expect(0)


def check_ranks_that_fail(folder):
    """The worst exit code counts, the others are recorded, and the failure is in the verdict."""
    script = pathlib.Path(folder) / "failing.py"
    script.write_text("import os, sys, torch\n"
                      "torch.ones(2**20, device='cuda')\n"
                      "print('I am rank', os.environ['RANK'])\n"
                      "sys.exit(7 if os.environ['RANK'] == '1' else 0)\n")
    flags = ["--world", "3", "--ranks", "2,1"]
    run = OnNullDevice(folder, PYTHON, script, flags=flags)
    run.expect(7, "2 of 3 ranks were run", "rank1.slp: no verdict: the program ended with exit code 7")
    logs = [(run.out / "logs" / f"rank{rank}.log").read_text() for rank in (1, 2)]
    if "I am rank 1" not in logs[0] or "I am rank 2" not in logs[1] or "I am" in run.text:
        raise AssertionError(f"{logs}\n{run.text}")


QUICK = [check_second_stage, check_copied_ddp, check_collectives, check_roles_of_pipeline, check_routings]
LONG = [check_more_routings, check_roles_of_uneven_shards, check_ranks_that_fail,
        check_last_of_four_stages, check_schedules, check_sender_that_fails,
        check_collectives_of_gpus, check_optimizer_states]


if __name__ == "__main__":
    sys.exit(run_cases({"quick": QUICK, "long": LONG}[sys.argv[1]]))
