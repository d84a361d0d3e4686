"""Runs `shardlens` and `python -m shardlens`: the process becomes the program of that name."""

import os
import sys

from ._program import PROGRAM, cannot_start, environment


def main() -> int:
    try:
        os.execve(PROGRAM, [str(PROGRAM), *sys.argv[1:]], environment())
    except OSError as error:
        print(cannot_start(error), file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
