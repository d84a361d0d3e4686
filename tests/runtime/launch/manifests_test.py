"""Holds the manifests of docs/cluster against the schemas of what reads them, and runs the ranks of
jobset.yaml with the variables that it sets.

    manifests_test.py BUILD_FOLDER

Runs with the first Python that exists in SHARDLENS_PYTHONS, a list separated by colons, or else with the
one that starts this. Exit code 77: it lacks PyYAML or jsonschema, or the gzipped resource definitions of
JobSet, TrainJob and RayJob are not in the folder SHARDLENS_CRDS, or beside the repository.
"""

import copy
import gzip
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
for python in os.environ.pop("SHARDLENS_PYTHONS", "").split(":"):
    if os.access(python, os.X_OK):
        os.execv(python, [python, *sys.argv])
try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(SKIPPED)

ROOT = pathlib.Path(__file__).resolve().parents[3]
MANIFESTS = ROOT / "docs/cluster"
CRDS = pathlib.Path(
    os.environ.get("SHARDLENS_CRDS", ROOT.parent / "shared/spikes/engines/k8s/crds"))


def is_closed(schema):
    return schema.get("type") == "object" and "properties" in schema and not schema.get(
        "x-kubernetes-preserve-unknown-fields")


def strict(schema):
    """Returns a schema that refuses fields it does not name, as an API server's strict check does."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if is_closed(schema):
        made.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    return made


def schemas_in(folder):
    """Returns the schema of each version and kind."""
    found = {}
    for file in sorted(folder.glob("*.yaml.gz")):
        definition = yaml.safe_load(gzip.open(file).read())["spec"]
        for version in definition["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            found[f"{definition['group']}/{version['name']}", definition["names"]["kind"]] = schema
    return found


def problems_of(manifest, schemas):
    schema = schemas[manifest["apiVersion"], manifest["kind"]]
    return [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
        for error in jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    ]


def values_in(manifest, path=()):
    """Yields each path to a value, for changes that must be refused."""
    if isinstance(manifest, dict):
        for key, value in manifest.items():
            yield from values_in(value, (*path, key))
    elif isinstance(manifest, list):
        for i, value in enumerate(manifest):
            yield from values_in(value, (*path, i))
    else:
        yield path


def misspelled(manifest, path):
    """Returns the manifest with one more letter in the last name of a path."""
    changed = copy.deepcopy(manifest)
    parent = changed
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1] + "z"] = parent.pop(path[-1])
    return changed


FREE_NAMES = ("metadata", "labels", "limits", "rayStartParams", "claimName")


def check_schemas(schemas):
    for name in ("jobset", "trainjob", "rayjob"):
        manifest = yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text())
        problems = problems_of(manifest, schemas)
        assert not problems, [name, problems]
        spelled = 0
        for path in values_in(manifest):
            if isinstance(path[-1], int) or any(part in FREE_NAMES for part in path):
                continue
            if path[0] in ("apiVersion", "kind"):
                continue
            assert problems_of(misspelled(manifest, path), schemas), [name, path]
            spelled += 1
        print(f"{name}.yaml is valid; each of {spelled} misspelled fields is refused")


def environment_of(container, rank):
    """Returns what Kubernetes sets in the pod of a rank; rank 0 is on this host."""
    variables = {}
    for entry in container["env"]:
        if "valueFrom" in entry:
            path = entry["valueFrom"]["fieldRef"]["fieldPath"]
            assert path == "metadata.annotations['batch.kubernetes.io/job-completion-index']", path
        variables[entry["name"]] = entry.get("value", str(rank))
    assert variables["MASTER_ADDR"] == "shardlens-rank-0-0.shardlens", variables
    return {**os.environ, **variables, "MASTER_ADDR": "127.0.0.1"}


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def check_ranks_train(build):
    """The command and the variables of jobset.yaml train, as two small ranks on the CPU. If one is killed,
    the other ends, and both go on when they are started again. Wrong use ends with the exit code for which the manifest does not try again."""
    manifest = yaml.safe_load((MANIFESTS / "jobset.yaml").read_text())
    job = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]
    container = job["template"]["spec"]["containers"][0]
    assert job["completions"] == job["parallelism"] == int(
        next(entry["value"] for entry in container["env"] if entry["name"] == "WORLD_SIZE"))
    with tempfile.TemporaryDirectory() as storage:
        small = {"--model": "vit-tutorial", "--batch": "4", "--storage": storage}
        words = list(container["args"])
        for flag, value in small.items():
            words[words.index(flag) + 1] = value

        def start(*more):
            port = free_port()
            program = [build / "bin" / container["command"][0], *container["command"][1:]]
            return [
                subprocess.Popen(
                    [*program, *words, "--data", "synthetic", "--device", "cpu", *more],
                    env={**environment_of(container, rank), "WORLD_SIZE": "2", "MASTER_PORT": port},
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                for rank in range(2)
            ]  # fmt: skip

        def end_of(ranks):
            output = [rank.communicate(timeout=300)[0] for rank in ranks]
            return [rank.returncode for rank in ranks], "".join(output)

        flags = ("--steps", "60", "--checkpoint-every", "2")
        ranks = start(*flags)
        run = pathlib.Path(storage) / "big"
        while not any(run.glob("checkpoints/step-*/manifest.json")):
            assert ranks[0].poll() is None, end_of(ranks)
            time.sleep(0.05)
        ranks[1].kill()
        codes, output = end_of(ranks)
        assert codes == [1, -9], [codes, output]
        codes, output = end_of(start(*flags))
        assert codes == [0, 0] and "resumes from step" in output, [codes, output]
        result = json.loads((run / "result.json").read_text())
        assert result["status"] == "ok", result
        codes, output = end_of(start("--lr", "minus"))
        refused = job["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"]
        assert set(codes) <= set(refused), [codes, output]
    print("two ranks of jobset.yaml train, and go on after one was killed")


def main():
    check_ranks_train(pathlib.Path(sys.argv[1]).resolve())
    if not CRDS.is_dir():
        print(f"the schemas are skipped: {CRDS} is missing")
        return SKIPPED
    check_schemas(schemas_in(CRDS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
