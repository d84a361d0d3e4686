"""Writes summary.md from what run.sh has found: every difference and every failure by name, then
what was not checked, then the phases' figures."""

from results import VERDICTS

BAD = ("differs", "failed")
LONG = 2000  # characters of what one step says


def line_of(text):
    """Makes one line of a text, for a table or a list, and escapes what Markdown would
    interpret."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")[:LONG]


def count(phase, *verdicts):
    return sum(step["verdict"] in verdicts for step in phase["steps"])


def not_reached(phase):
    """Lists the steps that a phase did not reach; one that was killed could not say so itself."""
    done = {step["name"] for step in phase["steps"]}
    return [name for name in phase["planned"] if name not in done]


def state_of(name, phases, endings):
    if name in endings:
        return endings[name]
    return phases[name]["state"] if name in phases else "not run"


def table(phases, endings, names):
    rows = [
        "| phase | state | seconds | " + " | ".join(VERDICTS) + " | not reached |",
        "|---" * (4 + len(VERDICTS)) + "|",
    ]
    for name in names:
        if name not in phases:
            rows.append(
                f"| {name} | {line_of(state_of(name, phases, endings))} |"
                + "  |" * (2 + len(VERDICTS))
            )
            continue
        phase = phases[name]
        counts = [count(phase, word) for word in VERDICTS]
        cells = [
            name,
            line_of(state_of(name, phases, endings)),
            phase.get("seconds", ""),
            *counts,
            len(not_reached(phase)),
        ]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return rows


def listed(title, phases, choose):
    """Returns the list with its title, or nothing if it is empty."""
    lines = [
        f"- {name}, {step['name']}: {line_of(step['said'])}"
        for name, phase in phases.items()
        for step in phase["steps"]
        if choose(step)
    ]
    return [f"## {title} ({len(lines)})", "", *lines, ""] if lines else []


def of(about, phases, endings, names):
    where = f"{about['gpu']}, PyTorch {about['torch']}, Python {about['python']}"
    lines = [f"# What run.sh has found on {where}", ""]
    if about["stands_for_gpu"] is not None:
        lines += [
            "**A null device stood for the GPU: this is a rehearsal, and says nothing of a GPU.**",
            "",
        ]
    if about["few"]:
        lines += ["A few cases of each phase were run (`--few`).", ""]
    lines += [*table(phases, endings, names), ""]
    bad = listed("Differences and failures", phases, lambda step: step["verdict"] in BAD)
    lines += bad or ["No step that was run differs or failed.", ""]
    missing = [f"- {name}, {step}" for name, phase in phases.items() for step in not_reached(phase)]
    if missing:
        lines += [f"## Not reached ({len(missing)})", "", *missing, ""]
    lines += listed(
        "Not checked", phases, lambda step: "not checked" in (step["verdict"] + step["said"])
    )
    lines += listed("Measured", phases, lambda step: step["verdict"] == "measured")
    lines += listed("As it should be", phases, lambda step: step["verdict"] in ("same", "passed"))
    return "\n".join(lines).rstrip() + "\n"
