"""The programs: one file for each family, with a list PROGRAMS."""

import importlib
import pathlib


def families():
    """Returns the programs of each family, by its name."""
    files = sorted(pathlib.Path(__file__).parent.glob("[a-z]*.py"))
    return {path.stem: importlib.import_module(f"{__name__}.{path.stem}").PROGRAMS for path in files}
