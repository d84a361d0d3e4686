"""The stages of new_version: each compares one part of Shardlens with another version of PyTorch.

A stage returns a line that says what was compared and the findings; it raises NotRun with a reason
if it cannot compare.
"""

import collections
import dataclasses
import glob
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable

import pins
from recorded_cases import Failure, differing, name_of, run_cases

sys.path.insert(0, str(pins.ROOT / "null_device"))
import make_stubs  # noqa: E402

RULES = "models/torch_rules.cpp"
STUBS = "profiler/null_device/make_stubs.py"
STUB_LIBRARIES = "profiler/null_device/CMakeLists.txt"
TRIED = "profiler/record/python_program.cpp"
ALLOCATOR = "planner/simulate/allocator/model.cpp"
BUILD = pins.ROOT / "build"
MOST_LETTERS = 400  # shown of a reason
MOST_EXAMPLES = 3  # shown of one kind

# A recording says this about a version that is not in kTried.
NOT_TRIED = re.compile(r"'PyTorch [^']* was not tried: [^']*'(, )?")
NO_OTHER_DOUBT = "doubts: [],"

# The calls of NVIDIA's libraries have such names.
NVIDIA_CALL = re.compile(r"(__cuda|cu|nccl|nv)[A-Za-z0-9_]+")


class NotRun(Exception):
    """Says why a stage could not compare anything, and what to do."""


@dataclasses.dataclass(frozen=True)
class Finding:
    what: str
    file: str  # the file to change
    is_fault: bool = True  # else it is only worth a look


@dataclasses.dataclass(frozen=True)
class Version:
    """Holds the input of a stage."""

    python: pathlib.Path
    vision: pathlib.Path | None
    torch: pathlib.Path  # the folder of the package
    full: str  # "2.14.1+cu130"
    cuda: str  # "13.0"
    rules: str  # the version whose row is nearest: "2.13"
    base: pathlib.Path  # the torch package that the build has
    say: Callable[[str], None]  # prints what is being done

    def number(self):
        return self.full.partition("+")[0]

    def minor(self):
        return pins.minor_of(self.full)

    def has_rules(self):
        return self.rules == self.minor()


def program(name):
    path = BUILD / "bin" / name
    if not path.exists():
        raise NotRun(f"{path} is not built; run make build")
    return path


def run(command, environment=None, text=None):
    return subprocess.run(command, env=environment, input=text, capture_output=True, text=True,
                          check=False)


def some_of(things):
    more = len(things) - MOST_EXAMPLES
    return ", ".join(things[:MOST_EXAMPLES]) + (f" and {more} more" if more > 0 else "")


def rules_of(version):
    """Returns the version whose rules are used for this one: the nearest."""
    rows = map(int, re.findall(r'constexpr TorchRules kTorch2_(\d+)', (pins.ROOT / RULES).read_text()))
    minor = int(version.split(".")[1])
    return f"2.{min(rows, key=lambda row: abs(row - minor))}"


# --- calls of NVIDIA's libraries -----------------------------------------------------------------


def _null_libraries():
    """Returns the names of the libraries that the null device can have: {"libcuda", ...}."""
    text = (pins.ROOT / STUB_LIBRARIES).read_text()
    return {f"lib{name}" for name in re.findall(r"^null_library\((\w+)", text, re.MULTILINE)}


def _calls_of_nobody(torch, symbols):
    """Returns names like those of NVIDIA's calls that are in no known library."""
    libraries = map(make_stubs.Library, sorted((torch / "lib").glob("*.so*")))
    own = set().union(*(library.defined() for library in libraries), *symbols.values())
    wanted = {symbol for library in make_stubs.libraries_of(torch)
              for symbol, version, _ in library.imports()
              if not version and NVIDIA_CALL.fullmatch(symbol)}
    return sorted(wanted - own)


def _known_calls(version):
    """Returns the calls of every other installed PyTorch."""
    torches = [version.base]
    for python in pins.recorded_pythons(pins.read_pins()).values():
        torches += python.parent.parent.glob("lib/python3*/site-packages/torch")
    known = set()
    for torch in torches:
        if torch.resolve() != version.torch.resolve():
            known |= set().union(*make_stubs.collect(torch)[0].values())
    return known


def _written_calls():
    """Returns the calls that the null device implements itself: the others are weak."""
    written = set()
    for library in (BUILD / "null_device").glob("lib*.so.*"):
        lines = run(["nm", "-D", "--defined-only", library]).stdout.splitlines()
        written |= {line.split()[-1].partition("@")[0] for line in lines if " T " in line}
    return written


def check_imports(version):
    symbols, _, sonames = make_stubs.collect(version.torch)
    known = _null_libraries()
    findings = []
    for soname in sorted(sonames):
        if soname.partition(".so")[0] not in known:
            called = some_of(sorted(symbols[soname])) or "nothing"
            findings.append(Finding(f"it needs {soname}, for which the null device has no library; "
                                    f"PyTorch calls {called} in that library", STUB_LIBRARIES))
    if nobodys := _calls_of_nobody(version.torch, symbols):
        findings.append(Finding(f"no library that is known has {some_of(nobodys)}", STUBS))
    calls = set().union(*symbols.values())
    if new := sorted(calls - _known_calls(version) - _written_calls()):
        findings.append(Finding(
            f"{len(new)} calls are new to all versions that are there, and are answered with "
            f"success alone: {', '.join(new)}", "null_device", is_fault=False))
    return f"{len(calls)} calls in {len(sonames)} libraries", findings


# --- the recorder --------------------------------------------------------------------------------


def _compiler_errors(log):
    """Returns the first error of each source file."""
    errors = {}
    for line in log.read_text(errors="replace").splitlines():
        match = re.match(r"(\S+?):(\d+):\d+: (?:fatal )?error: (.*)", line)
        if not match:
            continue
        path = os.path.normpath(match[1])
        path = path.partition(f"{pins.ROOT}/")[2] or path
        errors.setdefault(path, Finding(f"line {match[2]} does not compile: {match[3]}", path))
    return list(errors.values())


def _build_findings(log, otherwise):
    """Returns the compiler's errors, or else the first other error in the log."""
    if found := _compiler_errors(log):
        return found
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = [i for i, line in enumerate(lines) if re.search(r"\berror\b|device lacks", line, re.I)]
    first = telling[0] if telling else len(lines) - 1
    # CMake names the place of an error in one line, and the reason in the next.
    said = " ".join(lines[first:first + 2 if lines[first].endswith(":") else first + 1])
    return [Finding(f"{said} (see {log})", otherwise)]


def stubs_of(version):
    """Returns the folder of the null device's libraries made for this wheel."""
    sources = (BUILD / "record" / "sources.sha256").read_text()[:12]
    pattern = f"{glob.escape(version.full)}-*-{sources}/null_device"
    made = sorted((BUILD / "record" / "pytorch").glob(pattern), key=os.path.getmtime)
    if made:
        return made[-1]
    if version.torch.resolve() == version.base.resolve():
        return BUILD / "null_device"
    raise NotRun("there is no recorder, so neither are there stubs; fix its build first")


def check_recorder(version):
    shardlens = program("shardlens")
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "one_block.py"
        script.write_text("import torch\nblock = torch.empty(1, device='cuda')\n")
        command = ["record", "--device", "null:h100", "--out", f"{folder}/run", "--"]
        done = run([shardlens, *command, version.python, script])
    if done.returncode == 0:
        return "it is built, and records", []
    said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
    log = re.search(r"\(see (\S+)\)", said)
    if log and pathlib.Path(log[1]).exists():
        return "its build failed", _build_findings(pathlib.Path(log[1]), STUB_LIBRARIES)
    return "it fails", [Finding(f"recording one block ends with exit code {done.returncode}: "
                                f"{said}", "profiler/recorder/python/python.cpp")]


# --- what needs programs that are built with this LibTorch ---------------------------------------


def _folder_of(version):
    """Returns the build folder. A link puts the wheel where the build looks for LibTorch."""
    folder = BUILD / "pytorch" / version.number()
    link = folder / "deps" / f"libtorch-{version.number()}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(version.torch.parent)
    return folder


def build(version, *targets):
    """Returns the folder, and the findings of a build that failed."""
    if int(version.cuda.partition(".")[0]) < 13:
        raise NotRun(f"CUDA {version.cuda} keeps its headers elsewhere than the build looks for "
                     "them; only PyTorch for CUDA 13 or newer is built with")
    folder = _folder_of(version)
    jobs = run([pins.ROOT / ".setup" / "jobs", "3"]).stdout.strip()
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("CUDA_HOME", "CUDA_PATH", "LIBRARY_PATH")}
    environment |= {"CCACHE_BASEDIR": str(pins.ROOT), "CCACHE_NOHASHDIR": "1",
                    "CCACHE_SLOPPINESS": "pch_defines,time_macros"}
    configure = ["cmake", "--preset", "full", "-B", folder, "-D",
                 f"SHARDLENS_DEPS={folder / 'deps'}", "-D",
                 f"SHARDLENS_TORCH_VERSION={version.number()}"]
    compile_all = ["cmake", "--build", folder, "--parallel", jobs, "--target", *targets]
    log = folder / "build.log"
    version.say(f"building {' and '.join(targets)} with this LibTorch; {log} grows")
    with open(log, "w", encoding="utf-8") as file:
        for command in (configure, compile_all):
            done = subprocess.run(command, cwd=pins.ROOT, env=environment, stdout=file,
                                  stderr=subprocess.STDOUT, check=False)
            if done.returncode != 0:
                return folder, _build_findings(log, "CMakeLists.txt")
    return folder, []


def _on_null_device(folder):
    stubs = sorted(str(path) for path in (folder / "null_device").glob("lib*.so.*"))
    return os.environ | {"LD_PRELOAD": ":".join(stubs)}


def _first_difference(difference):
    """Returns where "LibTorch +0:4 -0; the planner +0:8 -0" differs first: +N:B takes block N of B
    bytes, -N frees it."""
    libtorch, planner = (side.split() for side in difference.split("; the planner"))
    for index, (real, planned) in enumerate(zip(libtorch[1:], planner)):
        if real != planned:
            return f"event {index} is {real}, the plan says {planned}"
    return f"LibTorch has {len(libtorch) - 1} events, the plan {len(planner)}"


def _operator_findings(output):
    """Returns a finding for each operator, named by the words before its first size."""
    by_operator = collections.defaultdict(list)
    for match in re.finditer(r"^(\S+): (.+?): (LibTorch.*)$", output, re.MULTILINE):
        gpu, name, difference = match.groups()
        by_operator[re.split(r" (?=[A-Z] |of )", name)[0]].append((gpu, name, difference))
    findings = []
    for operator, cases in by_operator.items():
        gpu, name, difference = cases[0]
        gpus = len({case[0] for case in cases})
        findings.append(Finding(
            f"{operator} differs {len(cases)} times, on {gpus} GPUs; first {name} on {gpu}: "
            f"{_first_difference(difference)}", f"{RULES} and planner/simulate/meta"))
    return findings


def check_operators(version):
    folder, findings = build(version, "null_operator_tests", "operator_tests")
    if findings:
        return "the tests do not build", findings
    version.say("comparing operators on each GPU")
    on_gpus = run([folder / "bin" / "null_operator_tests"], _on_null_device(folder))
    on_cpu = run([folder / "bin" / "operator_tests"])
    findings = _operator_findings(on_gpus.stdout)
    if on_gpus.returncode != 0 and not findings:
        findings = [Finding(f"the comparison ended: {_last_line(on_gpus)}", "planner/simulate/meta")]
    if on_cpu.returncode != 0:
        said = re.search(r"^  (\w.*, threads \d+)$", on_cpu.stdout, re.MULTILINE)
        findings.append(Finding(f"on the CPU: {said[1] if said else _last_line(on_cpu)}",
                                "planner/simulate/meta"))
    compared = re.findall(r"^(\d+) cases on ", on_gpus.stdout, re.MULTILINE)
    cases = compared[0] if compared else 0
    return f"{cases} cases on {len(compared)} GPUs, and the CPU's", findings


def _last_line(done):
    return ((done.stdout + done.stderr).strip().splitlines() or ["it says nothing"])[-1]


def _storm_findings(output):
    """Returns the first difference of each scenario."""
    findings = {}
    pattern = r"(\S+), seed (\d+), operation (\d+): ([^\n]*)"
    differences = re.findall(r"explicitly with message:\n((?:.*\n){1,6})", output)
    places = re.findall(pattern, output)
    for (scenario, seed, operation, words), difference in zip(places, differences):
        text = " ".join(difference.split())
        findings.setdefault(scenario, Finding(
            f"{scenario}, seed {seed}: operation {operation} ({words}): {text}", ALLOCATOR))
    return list(findings.values())


def check_allocator(version):
    folder, findings = build(version, "null_allocator_tests")
    if findings:
        return "the test does not build", findings
    version.say("following the allocator")
    done = run([folder / "bin" / "null_allocator_tests", "~[long]"], _on_null_device(folder))
    followed = re.findall(r": (\d+) operations, .*: equal,", done.stdout)
    text = f"{sum(map(int, followed))} operations in {len(followed)} scenarios"
    if done.returncode == 0:
        return text, []
    findings = _storm_findings(done.stdout)
    return text, findings or [Finding(f"the test failed: {_last_line(done)}", ALLOCATOR)]


# --- the rules of plans --------------------------------------------------------------------------


def check_rules(version):
    if version.has_rules():
        return f"PyTorch {version.minor()} has a row", []
    return "PyTorch's version has no row", [Finding(
        f"PyTorch {version.minor()} has no row; that of {version.rules} stands for it", RULES)]


# --- shardlens record ----------------------------------------------------------------------------


def _reason_of(facts, fault):
    """Returns the last error that a failed program printed, or else what was compared."""
    text = facts[fault]
    errors = re.findall(r"\w+(?:Error|Exception|Failure): .*", text)
    return errors[-1] if fault == "failed" and errors else " ".join(text.split())[:MOST_LETTERS]


def check_record(version):
    stubs_of(version)  # without them each case would only try to build them again
    findings, cases, is_tried = [], 0, True
    try:
        for facts in run_cases(version.python):
            cases += 1
            faults = differing(facts)
            version.say(f"{name_of(facts)}: {', '.join(faults) or 'equal'}")
            if "doubts" in faults and NOT_TRIED.search(facts["doubts"]):
                is_tried = False
                if NO_OTHER_DOUBT in NOT_TRIED.sub("", facts["doubts"]):
                    faults.remove("doubts")
            findings += [Finding(f"{name_of(facts)}: {fault}: {_reason_of(facts, fault)}",
                                 "profiler/record/python") for fault in faults]
    except Failure as failure:
        raise NotRun(str(failure)) from failure
    if not is_tried:
        findings.insert(0, Finding(f"kTried lacks {version.minor()}, so each recording is in "
                                   "doubt", TRIED))
    return f"{cases} cases", findings


# The most basic first: if an early one fails, the later ones cannot be right.
STAGES = {
    "calls of NVIDIA's libraries": check_imports,
    "the recorder's build": check_recorder,
    "operators against the plan": check_operators,
    "the allocator's model": check_allocator,
    "a row of rules": check_rules,
    "cases of record": check_record,
}
