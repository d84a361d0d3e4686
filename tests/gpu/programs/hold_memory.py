"""Takes all of this GPU's memory except BYTES, prints how many are left, and waits to be ended:

hold_memory.py BYTES
"""

import sys
import time

import torch

PIECE_BYTES = 2 << 20  # a page of the driver, which frees nothing smaller


def main():
    wanted = int(sys.argv[1])
    torch.cuda.init()
    free, _ = torch.cuda.mem_get_info()
    pieces = (free - wanted) // PIECE_BYTES
    if pieces <= 0:
        print(f"{free} bytes are free, not {wanted}", flush=True)
        return
    held = torch.empty(pieces * PIECE_BYTES, dtype=torch.uint8, device="cuda")
    print(torch.cuda.mem_get_info()[0], flush=True)
    time.sleep(3600)
    del held


if __name__ == "__main__":
    main()
