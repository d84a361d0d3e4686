"""Fills the GPU with blocks of random sizes on three streams until memory runs out, drops half of
them, and goes on: retries, and out-of-memory errors that are caught.

    crowded.py SEED [OPERATIONS]
"""

import random
import sys

import torch

SEED = int(sys.argv[1])
OPERATIONS = int(sys.argv[2]) if len(sys.argv) > 2 else 4000
LARGEST = 32  # 2^32 bytes
CHANCE_OF_A_FREE, CHANCE_OF_ANOTHER_STREAM, CHANCE_OF_AN_EMPTY_CACHE = 0.35, 0.2, 0.002


def main():
    draw = random.Random(SEED)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    held, failures = [], 0
    for _ in range(OPERATIONS):
        if held and draw.random() < CHANCE_OF_A_FREE:
            held.pop(draw.randrange(len(held)))
        if draw.random() < CHANCE_OF_AN_EMPTY_CACHE:
            torch.cuda.empty_cache()
        size = int(2 ** draw.uniform(6, LARGEST))
        stream = draw.choice(streams)
        other = draw.choice(streams) if draw.random() < CHANCE_OF_ANOTHER_STREAM else None
        half = [draw.random() < 0.5 for _ in held]
        try:
            with torch.cuda.stream(stream):
                block = torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            failures += 1
            held = [one for one, is_kept in zip(held, half) if is_kept]
            continue
        if other is not None:
            block.record_stream(other)
            torch.cuda.synchronize()  # so that a free is completed at the next allocation, always
        held.append(block)
    print(f"{failures} failures, {len(held)} blocks held", flush=True)


main()
