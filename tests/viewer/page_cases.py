#!/usr/bin/env python3
"""Tests the exported page in a headless Chromium: what it draws and says is compared with sums that
are made here, one allocation after the other, and with what `shardlens profile` says about the same
recording.

    tests/viewer/page_cases.py BIN [quick|long] [PICTURES]

BIN is the folder of the programs. Exits with 77 without a Chromium. Pictures are kept in the folder
PICTURES, for inspection.
"""

import json
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile

from browser import Browser, find_browser

NO_BROWSER = 77
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
PAGE = 512  # the allocator's rounding; sizes here are multiples


def frames(*calls):
    """Returns a stack as PyTorch writes it, the innermost call first."""
    return [{"filename": f"/home/me/{file}", "line": line, "name": name} for name, file, line in calls]


def training(seed, steps=4, layers=5, keeps=0):
    """Returns entries of a synthetic training run; `keeps` blocks a step are never freed."""
    draw = random.Random(seed)
    entries, now, address = [], 1_000_000, 1 << 40

    def alloc(size, stack):
        nonlocal now, address
        now += draw.randrange(1, 60)
        address += 1 << 30
        entries.append({"action": "alloc", "addr": address, "size": size, "stream": 0,
                        "time_us": now, "frames": stack})
        return address, size

    def free(block):
        nonlocal now
        now += draw.randrange(1, 60)
        entries.append({"action": "free_completed", "addr": block[0], "size": block[1], "stream": 0,
                        "time_us": now, "frames": []})

    outer = ("<module>", "train.py", 90)
    for layer in range(layers):
        alloc((layer + 8) * 1024 * PAGE, frames(("__init__", "model.py", 12), outer))
    for _ in range(steps):
        live = []
        for layer in range(layers):
            inner = ("forward", "model.py", 30 + layer)
            live.append(alloc((layer + 1) * 512 * PAGE, frames((HOSTILE, "ops.py", 7), inner, outer)))
            free(alloc(2048 * PAGE, frames(("matmul", "ops.py", 9), inner, outer)))
        for _ in range(keeps):
            alloc(300 * PAGE, frames(("append", "train.py", 97), outer))
        while live:
            free(live.pop(draw.randrange(len(live))))
    return entries


def write_snapshot(path, entries):
    with open(path, "wb") as file:
        pickle.dump({"segments": [], "device_traces": [entries]}, file)


def states(entries):
    """Returns the time and the total after each entry, to compare a page with."""
    now, total = [], 0
    for entry in entries:
        total += entry["size"] if entry["action"] == "alloc" else -entry["size"]
        now.append((entry["time_us"] - entries[0]["time_us"], total))
    return now


class Work:
    """Holds a folder with recordings, the programs and the browser."""

    def __init__(self, programs, browser, folder, pictures):
        self.programs = programs
        self.browser = browser
        self.folder = pathlib.Path(folder)
        self.pictures = pictures

    def shardlens(self, *arguments):
        command = [self.programs / "shardlens", *map(str, arguments)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{command}: {ended.stderr}"
        return ended.stdout

    def open(self, *names):
        page = self.folder / "page.html"
        paths = (name if name.startswith("--") else self.folder / name for name in names)
        self.shardlens("view", "--no-cache", *paths, "--export", page)
        self.browser.open(page)
        self.browser.wait_for("window.page && page.isReady")
        self.browser.frame()
        return page

    def picture(self, name):
        if self.pictures:
            self.browser.picture(self.pictures / f"{name}.png")


def same(found, wanted, what):
    assert found == wanted, f"{what}: {found} is not {wanted}"


# --- cases ---------------------------------------------------------------------------------------


def all_states_are_in_the_page(work):
    entries = training(1)
    write_snapshot(work.folder / "a.pickle", entries)
    work.open("a.pickle")
    wanted = states(entries)
    ask = work.browser.ask
    same(ask("[...page.lanes[0].time]"), [time for time, _ in wanted], "times")
    same(ask("[...page.lanes[0].totals]"), [total for _, total in wanted], "totals")
    totals = [total for _, total in wanted]
    same(ask("page.lanes[0].peak"),
         {"bytes": max(totals), "change": totals.index(max(totals))}, "the peak")
    draw = random.Random(2)
    for _ in range(50):
        begin = draw.randrange(len(totals))
        end = draw.randrange(begin, len(totals)) + 1
        found = ask(f"page.lanes[0].highest({begin}, {end})")
        part = totals[begin:end]
        same(found, {"bytes": max(part), "change": begin + part.index(max(part))}, (begin, end))


def long_lanes_have_a_true_pyramid(work):
    entries = training(3, steps=400)
    write_snapshot(work.folder / "long.pickle", entries)
    work.open("long.pickle")
    totals = [total for _, total in states(entries)]
    assert len(totals) > 64 * 8 * 8, "three levels are wanted"
    draw = random.Random(4)
    for _ in range(200):
        begin, end = sorted(draw.sample(range(len(totals) + 1), 2))
        part = totals[begin:end]
        same(work.browser.ask(f"page.lanes[0].highest({begin}, {end})"),
             {"bytes": max(part), "change": begin + part.index(max(part))}, (begin, end))


def every_column_keeps_its_highest_moment(work):
    entries = training(5, steps=60)
    write_snapshot(work.folder / "zoomed.pickle", entries)
    work.open("zoomed.pickle")
    wanted = states(entries)
    browser = work.browser
    browser.ask("(() => { const s = document.querySelector('#controls select'); s.value = 'time';"
                " s.dispatchEvent(new Event('change')); })()")
    x, y, width, height = browser.box("canvas.plot")
    for _ in range(6):
        browser.frame()
        view = browser.ask("page.state.view")
        columns = browser.ask("page.plots[0].columns.map(c => c && c.bytes)")
        wide = (view["end"] - view["begin"]) * 1e6 / len(columns)
        for i in random.Random(6).sample(range(len(columns)), 60):
            begin = view["begin"] * 1e6 + i * wide
            before = [total for time, total in wanted if time < begin]
            inside = [total for time, total in wanted if begin <= time < begin + wide]
            if min(abs(time - edge) for time, _ in wanted for edge in (begin, begin + wide)) < 1e-6:
                continue  # on the edge of a column, to which arithmetic may add a bit
            same(columns[i], max((before[-1:] or [0]) + inside), f"column {i} of {view}")
        browser.wheel(x + width * 0.6, y + height / 2, -300)
    work.picture("zoomed")


def a_click_says_what_a_block_is(work):
    write_snapshot(work.folder / "hostile.pickle", training(7))
    page = work.open("hostile.pickle")
    browser = work.browser
    x, y, width, height = browser.box("canvas.plot")
    peak = browser.ask("page.plots[0].pixelOf(page.plots[0].warp.xOf(page.lanes[0],"
                       " page.lanes[0].peak.change))")
    top = browser.ask("page.plots[0].yOf(page.lanes[0].peak.bytes)")
    browser.click(x + peak, y + top + 4)
    text = browser.ask("document.getElementById('block').innerText")
    lane = "page.lanes[0]"
    found = browser.ask(f"({{ size: {lane}.size(page.state.selected.block), name:"
                        f" {lane}.nameOf(page.state.selected.block) }})")
    for word in (found["name"], f"({found['size']} bytes", "born", "train.py:90"):
        assert word in text, f"{word!r} is not in {text!r}"
    assert HOSTILE in browser.ask("document.body.innerText"), "a name is cut"
    assert browser.ask("window.hacked === undefined"), "a name of the recording was run"
    assert browser.ask("document.querySelectorAll('img').length") == 0, "a name became an element"
    same(browser.requests(), [], "requests")
    assert HOSTILE not in page.read_text(), "a name stands in the page as it was"
    work.picture("block")


def tree_of(work, options):
    question = (f"(() => {{ const t = new AliveTree(false); const lane = page.lanes[0];"
                f" t.add(lane, lane.peak.change, {json.dumps(options)}, false);"
                " const nest = (n) => ({ name: n.place[0], file: n.place[1], line: n.place[2],"
                " bytes: n.bytes, count: n.count, children: childrenOf(n).map(nest) });"
                " return nest(t.root); })()")
    return work.browser.ask(question)


def by_place(node):
    """Returns the bytes and blocks of every path, which has no order."""
    paths = {}

    def walk(at, path):
        for child in at["children"]:
            place = path + ((child["name"], child.get("file", ""), child.get("line", 0)),)
            paths[place] = (child["bytes"], child["count"])
            walk(child, place)

    walk(node, ())
    return paths


def the_tree_is_that_of_profile_alive(work):
    write_snapshot(work.folder / "tree.pickle", training(8))
    recording = work.folder / "tree.slp"
    work.shardlens("profile", "import", work.folder / "tree.pickle", "--out", recording)
    work.open("tree.slp")
    for by in ("stack", "module", "category"):
        for end in ("top", "bottom"):
            said = work.shardlens("profile", "alive", recording, "--by", by, "--from", end, "--json")
            wanted = json.loads(said)
            found = tree_of(work, {"by": by, "from": end})
            paths = by_place(wanted.get("tree", wanted))
            named = {tuple((name.replace(" ", "_") if by == "category" and i == 0 else name, file, line)
                           for i, (name, file, line) in enumerate(path)): value
                     for path, value in by_place(found).items()}
            assert paths, "the tree is empty"
            same(named, paths, f"the tree by {by} from the {end}")
    work.browser.key("g")
    work.picture("flame")


def two_versions_show_what_was_added(work):
    write_snapshot(work.folder / "before.pickle", training(9))
    write_snapshot(work.folder / "after.pickle", training(9, keeps=3))
    work.open("before.pickle", "after.pickle")
    browser = work.browser
    text = browser.ask("document.querySelector('.panel').innerText")
    first = browser.ask("document.querySelector('.panel tbody tr').innerText")
    assert "train.py:97" in first, f"the first row is {first!r}"
    assert browser.ask("document.querySelectorAll('.panel tbody tr').length") == 1, text
    grown = browser.ask("page.lanes[1].peak.bytes - page.lanes[0].peak.bytes")
    same(grown % (300 * PAGE), 0, "what was added")
    browser.key("g")
    root = browser.ask("[flame.tree.root.bytes, flame.tree.root.base]")
    same(root, browser.ask("[page.lanes[1].peak.bytes, page.lanes[0].peak.bytes]"), "the flame graph")
    work.picture("difference")


def keys_and_pointer_do_what_the_page_says(work):
    write_snapshot(work.folder / "keys.pickle", training(10, steps=12))
    write_snapshot(work.folder / "keys2.pickle", training(11, steps=12))
    work.open("keys.pickle", "keys2.pickle")
    browser = work.browser
    whole = browser.ask("page.state.view")
    x, y, width, height = browser.box("canvas.plot")
    browser.wheel(x + width / 2, y + 40, -300)
    near = browser.ask("page.state.view")
    assert near["end"] - near["begin"] < 0.6 * (whole["end"] - whole["begin"]), near
    browser.drag(x + width / 2, y + 40, x + width / 2 - 100, y + 40)
    assert browser.ask("page.state.view")["begin"] > near["begin"], "a drag does not move"
    browser.key("f")
    same(browser.ask("page.state.view"), whole, "what F shows")
    browser.wheel(x + width / 2, y + 40, -300, shift=True)
    assert browser.ask("page.state.magnified") > 1.5, "Shift and the wheel do not magnify"
    focus = browser.ask("page.state.focus")
    browser.key("Tab")
    assert browser.ask("page.state.focus") != focus, "Tab does not go on"
    for key, panel in (("t", "table"), ("g", "flame graph"), ("c", "what changed")):
        browser.key(key)
        same(browser.ask("page.state.panel"), panel, key)
    browser.key("d")
    same(browser.ask("document.documentElement.dataset.theme"), "dark", "the theme")
    work.picture("dark")
    browser.key("/", "")
    browser.key("t")  # typed into the field, and no command
    same(browser.ask("[document.activeElement.id, page.state.panel]"), ["search", "what changed"],
         "the search")
    browser.key("Escape", "")
    category = browser.ask("document.querySelector('#legend button').textContent")
    browser.click_text(category)
    shown = browser.ask("document.querySelector('.peak').textContent")
    assert f"peak of {category}" in shown, shown
    browser.key("Escape", "")
    same(browser.ask("page.state.shown"), None, "Escape")
    browser.click_text("fold")
    same(browser.ask("[...document.querySelectorAll('canvas.plot')].map(c => c.clientHeight > 0)"),
         [i == browser.ask("page.state.focus") for i in range(2)], "folding")
    browser.click_text("fold")


def many_lanes_are_sorted_by_their_peaks(work):
    names = [f"many{i}.pickle" for i in range(12)]
    for i, name in enumerate(names):
        write_snapshot(work.folder / name, training(20 + i, keeps=(5 * i) % 12))
    work.open(*names)
    browser = work.browser
    browser.ask("(() => { const s = [...document.querySelectorAll('#controls select')]"
                ".find(s => s.title.startsWith('order')); s.value = 'peak';"
                " s.dispatchEvent(new Event('change')); })()")
    browser.frame()
    shown = browser.ask("[...document.querySelectorAll('.lane .peak')]"
                        ".map(p => Number(p.textContent.match(/\\((\\d+) bytes/)[1]))")
    same(shown, sorted(shown, reverse=True), "the order")
    assert len(set(shown)) > 6, shown
    work.picture("many")


def panels_of_many_lanes_are_in_the_window(work):
    names = [f"tall{i}.pickle" for i in range(24)]
    for i, name in enumerate(names):
        write_snapshot(work.folder / name, training(80 + i))
    work.open(*names)
    browser = work.browser
    assert browser.ask("document.querySelector('.below').getBoundingClientRect().top + 100"
                       " < window.innerHeight"), "the panels lie below the window"
    browser.ask("document.querySelector('main').scrollTo(0, 1e6)")
    browser.frame()
    same(browser.ask("page.plots[23].columns.length > 0 && isVisible(page.plots[23].canvas)"), True,
         "the last lane, where the lanes are scrolled to it")
    browser.ask("page.state.focus = 23")
    browser.key("Tab")
    same(browser.ask("page.state.focus === 0 && isVisible(page.plots[0].canvas)"), True,
         "Tab shows the lane to which it goes")
    work.picture("tall")


def no_number_of_an_axis_is_cut(work):
    write_snapshot(work.folder / "axis.pickle", training(90, steps=40))
    work.open("axis.pickle")
    browser = work.browser
    browser.ask("(() => { const own = CanvasRenderingContext2D.prototype.fillText; window.ends = [];"
                " CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {"
                " if (this.textAlign === 'center') window.ends.push("
                "x + this.measureText(text).width / 2 - this.canvas.clientWidth);"
                " own.call(this, text, x, y); }; })()")
    for alignment in browser.ask("Object.keys(page.lanes[0].warps)"):
        browser.ask(f"align({json.dumps(alignment)})")
        browser.frame()
    ends = browser.ask("window.ends")
    assert ends and max(ends) <= 0, f"{max(ends)} pixels over the edge"


def lanes_are_as_the_session_has_them(work):
    names = [f"kept{i}.pickle" for i in range(4)]
    for i, name in enumerate(names):
        write_snapshot(work.folder / name, training(50 + i, keeps=3 * i))
    session = {"schema": "shardlens.session/1", "files": names,
               "lanes": {"sort": "peak", "closed": [names[3]], "folded": [names[0]],
                         "names": [{"run": names[1], "name": "renamed"}]}}
    (work.folder / "page.session.json").write_text(json.dumps(session))
    work.open("--session=" + str(work.folder / "page.session.json"))
    browser = work.browser
    titles = browser.ask("[...document.querySelectorAll('.lane h2')].map(h => h.firstChild.data)")
    same([title.split(".")[0] for title in titles], ["kept2", "renamed", "kept0"],
         "the highest first, one renamed and one closed")
    same(browser.ask("[...document.querySelectorAll('canvas.plot')].map(c => c.clientHeight > 0)"),
         [True, True, False], "the folded lane")
    browser.ask("document.querySelectorAll('.lane h2')[2].click()")
    browser.frame()
    same(browser.ask("document.querySelectorAll('canvas.plot')[2].clientHeight > 0"), True,
         "a click unfolds it")


def four_million_events_are_swift_and_small(work):
    lanes = [f"lane{i}.slp" for i in range(4)]
    for lane in lanes:
        subprocess.run([work.programs / "write_large_recording", work.folder / lane, "1000000"],
                       check=True, capture_output=True)
    page = work.open(*lanes)
    size = page.stat().st_size
    browser = work.browser
    x, y, width, height = browser.box("canvas.plot")
    browser.ask("page.frames.length = 0")
    for i in range(60):
        browser.wheel(x + width * 0.6, y + height / 2, -60 if i < 40 else 60)
    frames_ms = sorted(browser.ask("page.frames"))
    median, p95 = frames_ms[len(frames_ms) // 2], frames_ms[len(frames_ms) * 95 // 100]
    print(f"  {size / 1e6:.1f} MB; a picture while zooming {median:.1f} ms, p95 {p95:.1f} ms")
    assert size <= 10e6, f"{size} bytes"
    work.picture("large")


QUICK = [
    all_states_are_in_the_page,
    long_lanes_have_a_true_pyramid,
    every_column_keeps_its_highest_moment,
    a_click_says_what_a_block_is,
    the_tree_is_that_of_profile_alive,
    two_versions_show_what_was_added,
    keys_and_pointer_do_what_the_page_says,
    many_lanes_are_sorted_by_their_peaks,
    panels_of_many_lanes_are_in_the_window,
    no_number_of_an_axis_is_cut,
    lanes_are_as_the_session_has_them,
]
LONG = [four_million_events_are_swift_and_small]


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    cases = LONG if sys.argv[2:3] == ["long"] else QUICK
    pictures = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
    program = find_browser()
    if program is None:
        print("skipped: no Chromium here; install one, or name it in SHARDLENS_BROWSER")
        return NO_BROWSER
    if pictures:
        pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Browser(program) as browser:
        work = Work(programs, browser, folder, pictures)
        for case in cases:
            print(case.__name__.replace("_", " "), flush=True)
            case(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
