"""Takes this machine's GPU but for so many bytes, says how many are left, and waits to be ended:

hold_memory.py BYTES
"""

import sys
import time

import torch

PIECE_BYTES = 2 << 20  # the driver's pages: it gives nothing smaller back


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
