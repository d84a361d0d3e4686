"""Tests that the change which advice names, made by hand, gives what was promised, and that there is
no such advice afterwards; and that pinned memory is recorded as PyTorch counts it.

    advice_cases.py quick|long

recorded.py says which Python runs them.
"""

import ast
import json
import re
import sys

from recorded import HERE, PYTHON, OnNullDevice, report_of, run_cases

EXPLAINED = HERE / "scripts" / "explained"
WASTEFUL, PINNED = EXPLAINED / "wasteful.py", EXPLAINED / "pinned.py"
WORLD = ("--world", 8)


def facts_of(run):
    with open(run.out / "profiles" / "rank0.json", encoding="utf-8") as file:
        return json.load(file)


def rules_of(run):
    return {advice["rule"]: advice for advice in facts_of(run)["advice"]}


def taken(run):
    return facts_of(run)["peak_reserved_bytes"]


def pinned(run):
    return report_of(run.out)["host"]["pinned"]


def run(folder, name, *arguments, flags=(), more=None, code=0):
    return OnNullDevice(folder, PYTHON, WASTEFUL, name, *arguments, flags=flags, more=more).expect(code)


def check_change(folder, name, flags=(), share=0.5, is_mistake=False, **changed):
    """Checks that the change takes at least this share of the bytes less that the advice is about.
    A rule that trades time for memory is silent while there is room."""
    roomy = run(folder, name, flags=flags)
    before = taken(roomy)
    if not is_mistake:
        assert name not in rules_of(roomy), "there is room"
        outside = facts_of(roomy)["beside_pytorch"]["bytes"]
        flags = (*flags, "--capacity", f"{int(1.05 * (before + outside))}")
        roomy = run(folder, name, flags=flags)
    assert name in rules_of(roomy), (name, rules_of(roomy), roomy.text)
    advice = rules_of(roomy)[name]
    assert re.search(r"\w+\.py:\d+", advice["text"]), advice
    after = run(folder, name, "--changed", flags=flags, **changed)
    assert name not in rules_of(after), rules_of(after)
    assert before - taken(after) >= share * advice["bytes"], (before, taken(after), advice)


def check_growth(folder):
    check_change(folder, "growth", is_mistake=True, share=0.9)


def check_kept_from_last_step(folder):
    check_change(folder, "kept_from_last_step", is_mistake=True, share=0.9)


def check_deferred_reduction(folder):
    check_change(folder, "deferred_reduction", WORLD, is_mistake=True, share=0.4)


def check_autocast_in_fsdp(folder):
    check_change(folder, "autocast_in_fsdp", WORLD, is_mistake=True)


def check_shared_graph_pool(folder):
    check_change(folder, "shared_graph_pool", is_mistake=True)


def check_fewer_graphed_callables(folder):
    check_change(folder, "fewer_graphed_callables", is_mistake=True)


def check_meta_init(folder):
    check_change(folder, "meta_init", WORLD)


def check_fsdp_units(folder):
    check_change(folder, "fsdp_units", WORLD)


def check_reshard_after_forward(folder):
    check_change(folder, "reshard_after_forward", WORLD)


def check_shard_over_ranks(folder):
    check_change(folder, "shard_over_ranks", WORLD)


def check_bucket_view(folder):
    check_change(folder, "bucket_view", WORLD)


def check_offload_state(folder):
    check_change(folder, "offload_state", ("--world", 2))


def check_step_in_backward(folder):
    check_change(folder, "step_in_backward")


def check_recompute(folder):
    check_change(folder, "recompute")


def check_chunked_loss(folder):
    check_change(folder, "chunked_loss")


def check_pinned_rounding(folder):
    rounded = run(folder, "pinned_rounding")
    advice = rules_of(rounded)["pinned_rounding"]
    setting = re.search(r"PYTORCH_CUDA_ALLOC_CONF=(\S+)", advice["text"])
    if setting is None:  # an older PyTorch
        return
    before = pinned(rounded)["held_bytes"]
    plain = run(folder, "pinned_rounding", more={"PYTORCH_CUDA_ALLOC_CONF": setting[1]})
    assert "pinned_rounding" not in rules_of(plain)
    assert before - pinned(plain)["held_bytes"] == advice["bytes"], (before, pinned(plain), advice)


# --- pinned memory -----------------------------------------------------------------------------------

KEPT = ("empty", "zeros", "pin_memory", "non_blocking")  # these free nothing
NAMES = (*KEPT, "freed", "loader", "save_on_cpu")


def check_pinned_as_counted(folder):
    """Compares with what the program prints of torch.cuda.host_memory_stats()."""
    for name in NAMES:
        done = OnNullDevice(folder, PYTHON, PINNED, name).expect(0)
        stats = ast.literal_eval(re.search(r"HOST (.*)", done.text + done.lines)[1])
        found = pinned(done)
        assert stats["held"] > 0, name
        assert found["held_bytes"] == found["driver_bytes"] == stats["held"], (name, found, stats)
        # PyTorch adds the peaks of all sizes, which may have been at different times.
        assert found["used_bytes"] <= stats["used"], (name, found, stats)
        assert found["used_bytes"] == stats["used"] or name not in KEPT, (name, found, stats)
        assert found["asked_bytes"] <= found["used_bytes"], (name, found)
        assert sum(row["bytes"] for row in found["places"]) == stats["held"], (name, found)


def check_pinned_is_not_touched(folder):
    """Saving activations to pinned memory takes about as much time and memory as not doing so."""
    plain, saved = (OnNullDevice(folder, PYTHON, PINNED, name).expect(0)
                    for name in ("not_saved", "saved"))
    resident = [int(re.search(r"RESIDENT (\d+)", done.text + done.lines)[1]) for done in (plain, saved)]
    assert pinned(saved)["held_bytes"] > 8 << 30, pinned(saved)
    assert resident[1] - resident[0] < 300 << 20, resident


if __name__ == "__main__":
    quick = (check_growth, check_autocast_in_fsdp, check_pinned_rounding, check_pinned_as_counted)
    long = (check_kept_from_last_step, check_deferred_reduction, check_shared_graph_pool,
            check_fewer_graphed_callables, check_meta_init, check_fsdp_units,
            check_reshard_after_forward, check_shard_over_ranks, check_bucket_view,
            check_offload_state, check_step_in_backward, check_recompute, check_chunked_loss,
            check_pinned_is_not_touched)
    sys.exit(run_cases({"quick": quick, "long": long}.get(sys.argv[1], quick)))
