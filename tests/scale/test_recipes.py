"""The recipes for clusters: they can be read, their commands exist, and they set what processes of several machines look for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

from ..test_docs import commands, parsed

RECIPES = Path(__file__).parents[2] / "examples" / "cluster"
WANTED = {"MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK"}


def test_slurm() -> None:
    path = RECIPES / "slurm.sbatch"
    subprocess.run(["bash", "-n", str(path)], check=True)
    text = path.read_text("utf-8")
    [said] = re.findall(r"exec (clawback [^']+)'", text)
    for words in commands(said):
        parsed(words)
    assert set(re.findall(r"\b([A-Z_]+)=", text)) >= WANTED


def test_skypilot() -> None:
    task = yaml.safe_load((RECIPES / "skypilot.yaml").read_text("utf-8"))
    for part in ("setup", "run"):
        subprocess.run(["bash", "-n"], input=task[part], text=True, check=True)
        found = commands(task[part].replace("then ", "; ").replace("; fi", ""))
        assert found
        for words in found:
            parsed(words)
    assert set(re.findall(r"\b([A-Z_]+)=", task["run"])) >= WANTED
    assert "export ratings.jsonl" in (RECIPES / "skypilot.yaml").read_text("utf-8")
    assert list(task["file_mounts"]) == ["~/ratings.jsonl"]


def test_kubernetes() -> None:
    service, policy, job = yaml.safe_load_all((RECIPES / "kubernetes.yaml").read_text("utf-8"))
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    program, *words = container["command"]
    assert program == "clawback"
    parsed(words)
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env.keys() >= WANTED
    assert env["NNODES"] == str(job["spec"]["completions"]) == str(job["spec"]["parallelism"])
    # The first pod is found by the service that selects the job's pods, under the name that an indexed job gives it.
    assert env["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert pod["subdomain"] == service["metadata"]["name"]
    labels = {"job-name": job["metadata"]["name"]}
    assert service["spec"]["selector"] == labels
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    assert env["MASTER_PORT"] == str(service["spec"]["ports"][0]["port"])
