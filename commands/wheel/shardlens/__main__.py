"""Runs `shardlens` and `python -m shardlens`: the process becomes the program of that name, except
for `shardlens mcp`, which is Python."""

import os
import sys

from ._program import PROGRAM, cannot_start, environment


def main() -> int:
    if sys.argv[1:] == ["mcp"]:
        from . import mcp

        mcp.main()
        return 0
    try:
        os.execve(PROGRAM, [str(PROGRAM), *sys.argv[1:]], environment())
    except OSError as error:
        print(cannot_start(error), file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
