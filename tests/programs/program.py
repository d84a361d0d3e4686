"""Defines what a program of the catalogue is.

All of this folder except inputs/ only needs the standard library.
"""

import dataclasses
import os
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEPS = pathlib.Path(os.environ.get("SHARDLENS_DEPS", ROOT / ".deps")).resolve()
FOLDER = DEPS / "programs"


class Failure(Exception):
    """Says in a line why a program could not be tried."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A public repository at one commit."""

    url: str
    commit: str
    is_one_of_several: bool = False  # other programs use other commits

    @property
    def name(self):
        name = self.url.removesuffix(".git").rsplit("/", 1)[-1]
        return f"{name}-{self.commit[:12]}" if self.is_one_of_several else name


@dataclasses.dataclass(frozen=True)
class Program:
    """One third-party program, as it is started.

    In `command` and in the values of `variables` and `links` these words are replaced:
      {python}, {bin}   the environment's Python, and the folder of its programs
      {site}            the folder of the environment's packages
      {source}          the folder of the source
      {work}            an empty folder, in which the program runs
      {NAME}            what inputs/NAME.py has made, for each name in `inputs`
    """

    name: str
    library: str  # the distribution whose version is printed
    environment: str  # environments/ENVIRONMENT.txt names its packages
    command: tuple
    source: Source | None = None
    inputs: tuple = ()
    flags: tuple = ()  # of shardlens record, such as ("--world", "8", "--rank", "3")
    variables: dict = dataclasses.field(default_factory=dict)
    links: dict = dataclasses.field(default_factory=dict)  # names in {work}, and what they lead to
    timeout_s: int = 300
    explained: str = ""  # why its peaks are not PyTorch's, or why it does not end with 0
    unnamed: str = ""  # why much of its peak has no category or no line
