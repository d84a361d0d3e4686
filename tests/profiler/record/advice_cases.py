"""Tests that the change which advice names, made by hand, gives what was promised, and that nothing
of what was said before is said afterwards; and that pinned memory is recorded as PyTorch counts it.

    advice_cases.py quick|long [NAME ...]

recorded.py says which Python runs them.
"""

import ast
import json
import re
import sys

from recorded import HERE, PYTHON, OnNullDevice, report_of, run_cases, shardlens

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


def run(folder, name, *arguments, flags=(), more=None):
    return OnNullDevice(folder, PYTHON, WASTEFUL, name, *arguments, flags=flags, more=more).expect(0)


def text_of(run):
    """Returns all that people read of a run: the verdict, the report, the advice."""
    return run.text + shardlens("profile", "report", run.out).stdout


def check_change(folder, name, flags=(), share=0.5, is_mistake=False, says=(), shows=None):
    """Checks that the change takes at least this share of the bytes less that the advice is about,
    and that the texts and what JSON shows are gone with it. A rule that trades time for memory is
    silent while there is room."""
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
    text = text_of(roomy)
    missing = [words for words in says if not re.search(words, text)]
    assert not missing, f"{missing} not in {text}"
    assert shows is None or shows(report_of(roomy.out)), report_of(roomy.out)["at_peak"]
    after = run(folder, name, "--changed", flags=flags)
    assert name not in rules_of(after), rules_of(after)
    freed = before - taken(after)
    print(f"        {name}: it names {advice['bytes']:,} bytes; made by hand, the change frees {freed:,}")
    assert freed >= share * advice["bytes"], (before, taken(after), advice)
    text = text_of(after)
    left = [words for words in says if re.search(words, text)]
    assert not left, f"{left} in {text}"
    assert shows is None or not shows(report_of(after.out)), report_of(after.out)["at_peak"]


def places_of(report, category):
    return [place for place in report["at_peak"]["places"] if place["category"] == category]


def check_growth(folder):
    check_change(folder, "growth", is_mistake=True, share=0.9,
                 says=(r"fits: .*, but grows by \S+ MiB a step from step \d+ on: wasteful.py:\d+ forward, "
                       r"called by wasteful.py:\d+ growth", "full after about", "kept from earlier steps"),
                 shows=lambda report: report["growth"])


def check_kept_from_last_step(folder):
    check_change(folder, "kept_from_last_step", is_mistake=True, share=0.9,
                 says=("kept from earlier steps: 256.00 MiB", "256.00 MiB .* wasteful.py:.*1 step old"),
                 shows=lambda report: report["at_peak"]["kept_from_earlier_steps"])


def check_loaded_checkpoint(folder):
    check_change(folder, "loaded_checkpoint", is_mistake=True, share=0.9,
                 says=(r"MiB of a checkpoint that is loaded at wasteful.py:\d+",))


def check_unused_gradients(folder):
    check_change(folder, "unused_gradients", is_mistake=True, share=0.9,
                 says=(r"MiB are gradients of \d+ parameters that no optimizer has, such as \S+: .* around their "
                       r"forward at wasteful.py:\d+",))


def check_evaluation_without_no_grad(folder):
    check_change(folder, "evaluation_without_no_grad", is_mistake=True, share=0.5,
                 says=(r"after \.eval\(\) at wasteful.py:\d+: with torch\.no_grad\(\)",))


def check_deferred_reduction(folder):
    check_change(folder, "deferred_reduction", WORLD, is_mistake=True, share=0.4,
                 says=(r"\(whole, not reduced\)",
                       r"backward from wasteful.py:\d+ deferred_reduction.*not reduced"),
                 shows=lambda report: any("not reduced" in name for place in places_of(report, "gradient")
                                          for name in place["names"]))


def check_autocast_in_fsdp(folder):
    check_change(folder, "autocast_in_fsdp", WORLD, is_mistake=True,
                 says=(r"copies of weights: torch.autocast at wasteful.py:\d+", "MixedPrecisionPolicy"),
                 shows=lambda report: report["at_peak"]["categories"]["parameter_copy"])


def check_shared_graph_pool(folder):
    check_change(folder, "shared_graph_pool", is_mistake=True,
                 says=(r"private pools .* free in 4 private pools \(CUDA graphs",),
                 shows=lambda report: len(report["at_reserved_peak"]["private_pools"]) > 1)


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


def check_fused_attention(folder):
    check_change(folder, "fused_attention", says=(r"of results of softmax, most made at wasteful.py:\d+",))


def check_recompute(folder):
    check_change(folder, "recompute")


def check_chunked_loss(folder):
    check_change(folder, "chunked_loss")


def check_other_streams(folder):
    """The main stream gets nothing that a side stream has freed: the run needs retries without the change."""
    unbounded = run(folder, "other_streams")
    assert "other_streams" not in rules_of(unbounded), "there is room"
    before = taken(unbounded)
    flags = ("--capacity", before + facts_of(unbounded)["beside_pytorch"]["bytes"] - (64 << 20))
    tight = OnNullDevice(folder, PYTHON, WASTEFUL, "other_streams", flags=flags).expect(4)
    advice = rules_of(tight)["other_streams"]
    assert report_of(tight.out)["at_retry"]["free"]["other_streams"]["bytes"] >= 1 << 30
    assert advice["bytes"] >= 1 << 30 and "before a retry" in text_of(tight), text_of(tight)
    changed = run(folder, "other_streams", "--changed", flags=flags)  # it fits, without retries
    assert "other_streams" not in rules_of(changed) and report_of(changed.out)["at_retry"] is None
    freed = before - taken(changed)
    print(f"        other_streams: it names {advice['bytes']:,} bytes; made by hand, the change frees {freed:,}")
    assert freed >= 1 << 30, (before, taken(changed))


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
    says = ["2.00 GiB in use for 1.17 GiB asked: it rounds up", "on the host: .* 2.00 GiB of these pinned"]
    assert all(re.search(words, text_of(rounded)) for words in says), text_of(rounded)
    assert not any(re.search(words, text_of(plain)) for words in says), text_of(plain)


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


def check_offloaded(folder):
    """FSDP2 pins the memory that it offloads to, unless the program says not to."""
    kept = 2 * 4 * 2048 * 2112 * 4 // 2  # bytes of the parameters of one of two ranks, and gradients
    for name, is_pinned in (("offloaded", True), ("offloaded_pageable", False)):
        done = OnNullDevice(folder, PYTHON, PINNED, name, flags=("--world", 2)).expect(0)
        assert (pinned(done)["held_bytes"] >= kept) == is_pinned, (name, pinned(done))
        found = re.search(r"on the host: .*pinned", text_of(done))
        assert bool(found) == is_pinned, (name, text_of(done))


def check_pinned_is_not_touched(folder):
    """Saving activations to pinned memory takes about as much time and memory as not doing so."""
    plain, saved = (OnNullDevice(folder, PYTHON, PINNED, name).expect(0)
                    for name in ("not_saved", "saved"))
    resident = [int(re.search(r"RESIDENT (\d+)", done.text + done.lines)[1]) for done in (plain, saved)]
    assert pinned(saved)["held_bytes"] > 8 << 30, pinned(saved)
    assert resident[1] - resident[0] < 300 << 20, resident


if __name__ == "__main__":
    quick = (check_growth, check_autocast_in_fsdp, check_pinned_rounding, check_pinned_as_counted)
    long = (check_kept_from_last_step, check_loaded_checkpoint, check_unused_gradients, check_evaluation_without_no_grad,
            check_deferred_reduction, check_shared_graph_pool, check_fewer_graphed_callables,
            check_meta_init, check_fsdp_units, check_reshard_after_forward, check_shard_over_ranks,
            check_bucket_view, check_offload_state, check_step_in_backward, check_fused_attention,
            check_recompute, check_chunked_loss, check_other_streams, check_offloaded, check_pinned_is_not_touched)
    sys.exit(run_cases({"quick": quick, "long": long}.get(sys.argv[1], quick)))
