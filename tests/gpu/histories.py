"""Writes the allocator's histories in 8-histories.json and 9-peaks.json as tests/evidence reads
them, into FOLDER/allocator, and takes them out of those files:

    histories.py FOLDER

PyTorch's history does not say why segments were given back: it was torch.cuda.empty_cache() if the
device had room for what was taken next, and else a retry."""

import argparse
import base64
import gzip
import json
import lzma
import pathlib
import sys

import results

FILES = ("8-histories.json", "9-peaks.json")
TAKEN, GIVEN_BACK = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


def unpacked(step):
    return json.loads(lzma.decompress(base64.b64decode(step["history_xz"])))


def capacity_of(events):
    """Returns the bytes that the allocator could have of the device, or None if it never ran out:
    those that were free then and those reserved."""
    reserved = 0
    for action, address, size, *_ in events:
        if action in TAKEN:
            reserved += size
        elif action in GIVEN_BACK:
            reserved -= size
        elif action == "oom":
            return address + reserved
    return None


def is_retry(events, index, free_bytes):
    """Decides why the run of segments that begins at `index` was given back, where the device had
    `free_bytes` left before it."""
    if index > 0 and events[index - 1][0] in TAKEN:
        return True  # a range was growing
    needed = 0
    for action, _, size, *_ in events[index:]:
        if action in TAKEN:
            needed += size
        elif action == "oom":
            return True
        elif action == "alloc":
            break
    return needed > free_bytes


def with_reasons(events, capacity):
    """Yields the events; what torch.cuda.empty_cache() gave back has names of its own."""
    reserved, is_cache, before = 0, False, None
    for index, (action, address, size, stream, *_) in enumerate(events):
        if action in GIVEN_BACK and before not in GIVEN_BACK:
            free_bytes = float("inf") if capacity is None else capacity - reserved
            is_cache = not is_retry(events, index, free_bytes)
        before = action
        reserved += size if action in TAKEN else -size if action in GIVEN_BACK else 0
        name = f"{action}_cache" if action in GIVEN_BACK and is_cache else action
        yield name, address, size, stream


def text_of(history, capacity):
    events = list(with_reasons(history["events"], capacity))
    streams = {stream: index for index, stream in enumerate(sorted({0, *(e[3] for e in events)}))}
    lines = [f"streams {len(streams)}", "trace"]
    lines += [f"{name} {address} {size} {streams[stream]}" for name, address, size, stream in events]
    lines.append("final")
    lines += [f"{one['address']} {one['bytes']}" for one in history["segments"]]
    return "\n".join(lines) + "\n"


def has_private_pools(history):
    return any(tuple(one["pool"]) != (0, 0) for one in history["segments"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    (folder / "allocator").mkdir(exist_ok=True)
    index = []
    for path in (folder / name for name in FILES if (folder / name).exists()):
        phase = results.read(path)
        for step in phase["steps"]:
            if "history_xz" not in step:
                continue
            history = unpacked(step)
            del step["history_xz"]
            step.pop("null_xz", None)
            step["counters"] = history["counters"]
            step["process_bytes"] = history["process_bytes"]
            capacity = capacity_of(history["events"])
            name = step["name"].replace(",", "").replace(" ", "_") + ".txt.gz"
            text = text_of(history, capacity).encode()
            (folder / "allocator" / name).write_bytes(gzip.compress(text, 9, mtime=0))
            index.append({
                "file": name,
                "gpu": history["gpu"],
                "torch": history["torch"],
                "settings": step["settings"],
                "capacity_bytes": capacity,
                "has_private_pools": has_private_pools(history),
                "alloc_retries": history["counters"]["num_alloc_retries"],
            })
        results.write(path, json.dumps(phase, indent=1) + "\n")
    lines = "".join(json.dumps(row) + "\n" for row in index)
    (folder / "allocator" / "index.jsonl").write_text(lines)
    print(f"{len(index)} histories in {folder / 'allocator'}")
    return 0 if index else 1


if __name__ == "__main__":
    sys.exit(main())
