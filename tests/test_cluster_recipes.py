"""The files of recipes/cluster and recipes/serving: their schemas, and the options that they give Regard."""

from __future__ import annotations

import ast
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from documented import commands, parse
from qa.serving.client import started
from qa.survive.common import write_model
from qa.survive.parallel import free_port

RECIPES = Path(__file__).parent.parent / "recipes"
CLUSTER, SERVING = RECIPES / "cluster", RECIPES / "serving"


def table(required: str = "", optional: str = "", **types: Any) -> dict[str, Any]:
    """A schema of an object: its fields, and no others."""
    properties = {name: types.get(name, {}) for name in f"{required} {optional}".split()}
    return {
        "type": "object",
        "required": required.split(),
        "properties": properties,
        "additionalProperties": False,
    }


def each(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": schema}


def group(required: str = "") -> dict[str, Any]:
    return table(f"template rayStartParams {required}", rayStartParams=each(TEXT))


# The fields of the custom resources (kubeflow.org/v1 of training-operator 1.9, ray.io/v1 of KubeRay 1.4), of
# SkyPilot 0.14 and of the Compose specification that the files use, or could well use.
COUNT, TEXT, FLAG = {"type": "integer", "minimum": 0}, {"type": "string"}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}
META = table("name", "namespace labels annotations")
REPLICAS = table(
    "template",
    "replicas restartPolicy",
    replicas=COUNT,
    restartPolicy={"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
)
PYTORCH_JOB = table(
    "pytorchReplicaSpecs",
    "elasticPolicy runPolicy nprocPerNode",
    elasticPolicy=table(
        "",
        "rdzvBackend minReplicas maxReplicas maxRestarts nProcPerNode rdzvId rdzvPort",
        minReplicas=COUNT,
        maxReplicas=COUNT,
        maxRestarts=COUNT,
        nProcPerNode=COUNT,
    ),
    runPolicy=table("", "cleanPodPolicy backoffLimit ttlSecondsAfterFinished"),
    pytorchReplicaSpecs=table("Worker", "Master", Worker=REPLICAS, Master=REPLICAS),
)
RAY_JOB = table(
    "entrypoint rayClusterSpec",
    "shutdownAfterJobFinishes backoffLimit runtimeEnvYAML",
    entrypoint=TEXT,
    shutdownAfterJobFinishes=FLAG,
    backoffLimit=COUNT,
    rayClusterSpec=table(
        "headGroupSpec workerGroupSpecs",
        "rayVersion",
        headGroupSpec=group(),
        workerGroupSpecs={"type": "array", "items": group("groupName replicas minReplicas maxReplicas")},
    ),
)
SKY = table(
    "run",
    "name num_nodes resources workdir envs file_mounts setup",
    num_nodes=COUNT,
    run=TEXT,
    resources=table("", "accelerators use_spot cpus memory cloud region", use_spot=FLAG),
    envs=each(TEXT),
    setup=TEXT,
    workdir=TEXT,
    file_mounts=each(table("name mode", "store", mode={"enum": ["MOUNT", "COPY", "MOUNT_CACHED"]})),
)
SERVICE = table(
    "image",
    "command ports volumes depends_on restart stop_grace_period environment",
    ports=TEXTS,
    volumes=TEXTS,
    restart={"enum": ["no", "always", "on-failure", "unless-stopped"]},
)
COMPOSE = table("services", "name", name=TEXT, services=each(SERVICE)) | {"patternProperties": {"^x-": {}}}


def resource(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    named = {"apiVersion": {"const": version}, "kind": {"const": kind}, "metadata": META, "spec": spec}
    return table("apiVersion kind metadata spec", **named)


SPECS = {
    "kubeflow": resource("kubeflow.org/v1", "PyTorchJob", PYTORCH_JOB),
    "kuberay": resource("ray.io/v1", "RayJob", RAY_JOB),
    "skypilot": SKY,
}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["kubeflow", "kuberay", "skypilot"])
def test_the_file_of_each_cluster_fits_its_schema(name: str) -> None:
    jsonschema.validate(read(CLUSTER / f"{name}.yaml"), SPECS[name])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(read(CLUSTER / f"{name}.yaml") | {"replica": 1}, SPECS[name])


def templates(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        inner = [found for value in tree.values() for found in templates(value)]
        return [*([tree["template"]] if "template" in tree else []), *inner]
    return [found for value in tree for found in templates(value)] if isinstance(tree, list) else []


@pytest.mark.parametrize("name", ["kubeflow", "kuberay"])
def test_the_pods_fit_the_schema_of_kubernetes(name: str) -> None:
    tool = pytest.importorskip("kubernetes_validate")
    found = templates(read(CLUSTER / f"{name}.yaml"))
    assert found
    for template in found:
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}
        tool.validate(pod, "1.31", strict=True)
    found[0]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(tool.ValidationError):
        tool.validate(pod | {"template": found[0]}, "1.31", strict=True)


def trainings() -> dict[str, str]:
    """The command that starts each rank, with an example for what the shell fills in."""
    sky = read(CLUSTER / "skypilot.yaml")["run"]
    worker = read(CLUSTER / "kubeflow.yaml")["spec"]["pytorchReplicaSpecs"]["Worker"]
    container = worker["template"]["spec"]["containers"][0]
    sbatch = (CLUSTER / "slurm.sbatch").read_text(encoding="utf-8")
    return {
        "slurm": sbatch[sbatch.index("torchrun") :],
        "kubeflow": " ".join(container["command"]),
        "skypilot": sky,
    }


@pytest.mark.parametrize("name", ["slurm", "kubeflow", "skypilot"])
def test_each_starts_a_command_that_exists(name: str) -> None:
    """Options of torchrun and of regard train; all continue a run that exists."""
    text = trainings()[name]
    words = [word for command in commands(text) for word in command.words]
    at = words.index("regard")
    assert words[at - 1] == "-m" and "--resume" in words[at:]
    parse(words[at + 1 :])
    from torch.distributed.run import get_args_parser

    numbers = {"$SLURM_NNODES": "4", "$SKYPILOT_NUM_NODES": "2", "$SKYPILOT_NODE_RANK": "0"}
    options = [numbers.get(word, word) for word in words[words.index("torchrun") + 1 :]]
    flags = [word for word in options[: options.index("-m")] if word.startswith("--")]
    known = {option for action in get_args_parser()._actions for option in action.option_strings}
    assert {flag.replace("-", "_") for flag in flags} <= {option.replace("-", "_") for option in known}


def test_the_batch_script_is_one_of_bash() -> None:
    if not shutil.which("bash"):
        pytest.skip("no bash")
    path = CLUSTER / "slurm.sbatch"
    subprocess.run(["bash", "-n", path], check=True)
    lines = [line for line in path.read_text().splitlines() if line.startswith("#SBATCH")]
    assert lines and all(line.startswith("#SBATCH --") for line in lines)


def test_the_job_of_ray_calls_its_script_as_that_reads_its_arguments() -> None:
    entry = read(CLUSTER / "kuberay.yaml")["spec"]["entrypoint"].split()
    assert entry[:2] == ["python", "/config/ray_train.py"]
    tree = ast.parse((CLUSTER / "ray_train.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    options = {
        call.args[0].value for call in calls if ast.unparse(call.func) == "parser.add_argument"
    }  # fmt: skip
    assert {word for word in entry if word.startswith("--")} <= options


# --- serving


def test_the_copies_of_the_compose_file_are_those_of_the_balancer() -> None:
    tree = read(SERVING / "compose.yaml")
    jsonschema.validate(tree, COMPOSE)
    copies = {name for name, service in tree["services"].items() if service["image"] == "regard"}
    balancer = (SERVING / "nginx.conf").read_text(encoding="utf-8")
    scraped = read(SERVING / "prometheus.yaml")["scrape_configs"][0]["static_configs"][0]["targets"]
    assert copies == {"copy1", "copy2"}
    assert set(scraped) == {f"{name}:8000" for name in copies}
    for name in copies:
        command = tree["services"][name]["command"]
        parse(["serve", "run", *command])
        assert f"server {name}:8000" in balancer
        assert command[command.index("--allow-host") :].count(name) == 1  # Prometheus names it


@pytest.mark.slow  # two servers
def test_two_copies_behind_nginx(tmp_path: Path) -> None:
    """Requests go to both; their metrics add up; one is killed and no request fails."""
    nginx = shutil.which("nginx")
    if nginx is None:
        pytest.skip("nginx is not installed")
    model = tmp_path / "model"
    write_model(model, seed=1)
    with ExitStack() as stack:
        copies = [stack.enter_context(started([str(model)])) for _ in range(2)]
        port = free_port()
        text = (
            (SERVING / "nginx.conf")
            .read_text(encoding="utf-8")
            .replace("listen 8080", f"listen 127.0.0.1:{port}")
        )
        for number, copy in enumerate(copies, start=1):
            text = text.replace(f"copy{number}:8000", f"127.0.0.1:{copy.port}")
        paths = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in
                        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))  # fmt: skip
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/log; events {{}} "
            f"http {{ access_log off; {paths} {text} }}"
        )
        process = subprocess.Popen([nginx, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")])
        stack.callback(process.wait)
        stack.callback(process.terminate)
        wait_until(lambda: status(port, "/health/live") == 200)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: translate(port), range(40)))
        assert len(answers) == 40 and len(set(answers)) == 1
        counts = [requests_of(copy.port) for copy in copies]
        assert sum(counts) == 40 and min(counts) > 0
        assert status(port, "/metrics") == 404  # of whichever copy: never by way of the balancer
        os.kill(copies[0].pid, signal.SIGKILL)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert set(pool.map(lambda _: translate(port), range(20))) == set(answers)
        assert requests_of(copies[1].port) == counts[1] + 20


def wait_until(ready: Any) -> None:
    deadline = time.monotonic() + 30
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def translate(port: int) -> str:
    body = json.dumps({"text": ["a small house stands here"]}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1/translate", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.dumps(json.load(response)["results"][0]["text"])


def requests_of(port: int) -> int:
    """Of translations, as Prometheus would read it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as response:
        lines = response.read().decode().splitlines()
    found = [line for line in lines if line.startswith("regard_requests_total") and "translate" in line]
    return round(sum(float(line.rpartition(" ")[2]) for line in found))
