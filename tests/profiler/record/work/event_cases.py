"""Records programs that time themselves with events, and compares the times that they read with what
the recording says of the same events, and with closed forms.

    event_cases.py quick|long [CASE...]
"""

import functools
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from calibrate_cases import calibration  # pylint: disable=wrong-import-position
from recorded import PYTHON, OnNullDevice, run_cases, shardlens  # pylint: disable=wrong-import-position

TIMED = pathlib.Path(__file__).with_name("timed.py")
SHORTEST_MS = 5e-4  # between two events
UNTRACED = "no trace of work is made: record with --time"


def expect(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found}\nis not\n{wanted}")


def expect_near(found, wanted, part):
    if abs(found - wanted) > part * abs(wanted):
        raise AssertionError(f"{found} is not {wanted}, within {100 * part:g} %")


class Timed(OnNullDevice):
    """A program of timed.py that was recorded, and what it has printed."""

    def __init__(self, folder, name, flags=("--time",)):
        super().__init__(folder, PYTHON, TIMED, name, flags=flags)
        self.expect(0)
        self.said = json.loads(next(line for line in self.text.splitlines() if line.startswith("{")))
        self.ms = {(first, last): ms for first, last, ms in self.said["read"]}
        self.facts = json.loads(next((self.out / "profiles").glob("rank*.json")).read_text())

    def predicted(self, *flags):
        shown = shardlens("profile", "time", self.out, "--json", *flags)
        expect([shown.returncode, shown.stderr], [0, ""])
        return json.loads(shown.stdout)

    @functools.cached_property
    def kinds(self):
        """The kinds of the items of the trace of work."""
        trace = json.loads(shardlens("profile", "work", self.out, "--json").stdout)
        return [trace["work"][item["work"]]["kind"] for item in trace["items"]]

    def is_of_collective(self, item):
        """PyTorch records an event before and after an asynchronous collective."""
        kinds = self.kinds
        return kinds[item + 1:item + 3] == ["event_wait", "collective"] or kinds[item - 1] == "collective"

    def expect_as_recorded(self, *flags):
        """All that the program has read is what the recording says of these events."""
        events = [event for event in self.predicted("--events", *flags)["events"]
                  if not self.is_of_collective(event["item"])]
        expect(len(events), len(self.said["order"]))
        seconds = {name: event["seconds"] for name, event in zip(self.said["order"], events)}
        for first, last, ms in self.said["read"]:
            wanted = 1e3 * (seconds[last] - seconds[first])
            wanted = max(wanted, SHORTEST_MS) if wanted >= 0 else wanted
            if abs(ms - wanted) > 1e-6 * abs(wanted) + 1e-9:
                raise AssertionError(f"{first} to {last}: the program read {ms}, recorded is {wanted}")
        reads = self.facts["event_reads"]
        expect([reads["predicted"], reads["constant"]], [len(self.said["read"]), 0])
        return self


def check_products(folder):
    """A chain takes as long as its products, and times add up."""
    run = Timed(folder, "products").expect_as_recorded()
    expect(run.said["read"][:4], run.said["read"][4:])
    short, long = run.ms["begin", "middle"], run.ms["middle", "end"]
    expect_near(long, 2 * short, 1e-5)
    expect_near(run.ms["begin", "end"], short + long, 1e-6)
    expect(run.ms["end", "begin"], -run.ms["begin", "end"])
    whole = run.predicted()
    expect_near(short / 10, 1e3 * whole["work_seconds"]["products"] / 230, 1e-5)
    if "timed.py:31" not in run.lines or "predicted, not measured" not in run.lines:
        raise AssertionError(run.lines)


def check_training(folder):
    """The steps take what `profile time` says of a step."""
    run = Timed(folder, "training").expect_as_recorded()
    step = run.predicted()["seconds"]
    for _, _, ms in run.said["read"][2:]:
        expect_near(ms, 1e3 * step, 0.03)


def check_streams(folder):
    run = Timed(folder, "streams").expect_as_recorded()
    expect_near(run.ms["ready", "waited"], SHORTEST_MS, 1e-6)
    ten = run.ms["begin", "ready"]
    expect_near(run.ms["waited", "done"], ten / 2, 0.05)  # and one launch
    expect_near(run.ms["ready", "end"], ten, 1e-5)


def check_overlap(folder):
    """An all-reduce takes its time, but for the products beside it."""
    run = Timed(folder, "overlap", ("--time", "--world", "8")).expect_as_recorded()
    alone = run.ms["alone begin", "alone end"]
    expect_near(run.ms["exposed begin", "exposed end"], alone, 0.01)
    hidden = run.ms["hidden begin", "hidden end"]
    expect(hidden, run.ms["hidden begin", "hidden products"])
    if not hidden > 2 * alone > 4 * run.ms["exposed begin", "exposed products"]:
        raise AssertionError(run.ms)


def check_graph(folder):
    run = Timed(folder, "graph").expect_as_recorded()
    expect_near(run.ms["begin", "middle"], run.ms["middle", "end"], 1e-5)


def check_attention(folder):
    """Equal calls one after the other do not share the time of one."""
    run = Timed(folder, "attention").expect_as_recorded()
    expect_near(run.ms["five", "end"], 5 * run.ms["one", "five"], 1e-5)


def check_calibrated(folder):
    """Times of a calibration replace the model's."""
    file = pathlib.Path(folder, "calibration.json")
    file.write_text(json.dumps(calibration()))
    run = Timed(folder, "products", flags=("--calibration", file))
    run.expect_as_recorded("--calibration", file)
    cold = run.predicted("--events")["events"]
    if abs(1e3 * (cold[1]["seconds"] - cold[0]["seconds"]) / run.ms["begin", "middle"] - 1) < 0.01:
        raise AssertionError(f"{run.ms} is the time without a calibration")


def check_many(folder):
    """A read costs the same however much was recorded before."""
    run = Timed(folder, "many").expect_as_recorded()
    expect(len(run.said["read"]), 1000)
    if min(ms for _, _, ms in run.said["read"]) <= 0:
        raise AssertionError("a part takes no time")
    if run.said["late_s"] > 3 * run.said["early_s"] or run.said["late_s"] > 5e-3:
        raise AssertionError({name: run.said[name] for name in ("first_s", "early_s", "late_s")})


def check_threads(folder):
    """Threads may read at once; a forked process is not recorded, and gets 1 ms."""
    run = Timed(folder, "unread").expect_as_recorded()
    expect(run.said["forked"], 1.0)


def check_tuners(folder):
    """A tuner and a logger get 1 ms, which leaves no doubt about the program."""
    for flags in ((), ("--time",)):
        run = Timed(folder, "tuners", flags=("--world", "2", *flags))
        expect(run.said["tuned"], 1.0)
        expect(run.facts["event_reads"], {"predicted": 0, "constant": 0, "places": []})
        if "times between events" in run.text + run.lines:
            raise AssertionError(run.text + run.lines)


def check_untraced(folder):
    """Without a trace of work each time is 1 ms, and the verdict says where it was read."""
    run = Timed(folder, "streams", flags=())
    expect(set(run.ms.values()), {1.0})
    expect(run.facts["event_reads"], {"predicted": 0, "constant": 4, "places": ["timed.py:31"]})
    run.expect(0, "in doubt: 4 times between events that the program has read (timed.py:31) are 1 ms "
                  f"each, not real: {UNTRACED}")


QUICK = [check_products, check_streams, check_overlap, check_untraced, check_tuners]
LONG = [*QUICK, check_training, check_graph, check_attention, check_calibrated, check_many, check_threads]


def main():
    return run_cases({"quick": QUICK, "long": LONG}[sys.argv[1]])


if __name__ == "__main__":
    sys.exit(main())
