"""The manifests agree with each other, with the image, and with the schema of the Dask operator."""

from __future__ import annotations

import copy
import importlib.util
import json
import tomllib
from pathlib import Path

import click
import pytest
import yaml
from distributed.cli.dask_scheduler import main as dask_scheduler
from distributed.cli.dask_worker import main as dask_worker

from figrl.engine.cluster_file import read_cluster_config
from figrl.nightly.config import read_reindex_config
from figrl_jobs.reindex import command as reindex
from tests.deploy.dockerfile import read_dockerfile
from tests.deploy.fields import problems
from tests.deploy.test_schedulers import STARTS
from tests.documents import ROOT

FOLDER = ROOT / "docs" / "deploy" / "kubernetes"
MANIFESTS = {path.stem: yaml.safe_load(path.read_text()) for path in FOLDER.iterdir()}
CLUSTER, NIGHT = MANIFESTS["cluster"], MANIFESTS["nightly"]
JOB = NIGHT["spec"]["jobTemplate"]["spec"]
PODS = {
    "worker": CLUSTER["spec"]["worker"]["spec"],
    "scheduler": CLUSTER["spec"]["scheduler"]["spec"],
    "figrl": JOB["template"]["spec"],
}
COMMANDS = {"dask worker": dask_worker, "dask scheduler": dask_scheduler, "figrl reindex": reindex}


def schemas():
    """Schemas of what is in a DaskCluster: the fields used here, and all of them where installed.

    The first is an excerpt of the resource definition in dask-kubernetes 2026.3.0.
    """
    found = [json.loads(Path(__file__).with_name("daskcluster.json").read_text())]
    if package := importlib.util.find_spec("dask_kubernetes"):
        inside = "operator/deployment/helm/dask-kubernetes-operator/crds/daskcluster.yaml"
        text = (Path(str(package.origin)).parent / inside).read_text()
        [version] = yaml.load(text, yaml.CSafeLoader)["spec"]["versions"]
        found.append(version["schema"]["openAPIV3Schema"])
    return found


@pytest.mark.parametrize("schema", schemas())
def test_the_manifests_have_the_fields_of_the_schema(schema):
    assert CLUSTER["apiVersion"] == "kubernetes.dask.org/v1"
    assert CLUSTER["kind"] == "DaskCluster"
    assert list(problems({"spec": CLUSTER["spec"]}, schema)) == []
    worker = schema["properties"]["spec"]["properties"]["worker"]["properties"]
    assert list(problems(PODS["figrl"], worker["spec"])) == []


@pytest.mark.parametrize("schema", schemas())
def test_a_field_that_is_unknown_missing_or_of_another_type_is_found(schema):
    wrong = {"spec": copy.deepcopy(CLUSTER["spec"])}
    wrong["spec"]["worker"]["replicas"] = "4"
    wrong["spec"]["worker"]["spec"]["containers"][0]["arg"] = []
    del wrong["spec"]["scheduler"]["service"]
    assert sorted(problems(wrong, schema)) == [
        ".spec.scheduler.service is missing",
        ".spec.worker.replicas is no integer",
        ".spec.worker.spec.containers[0].arg is unknown",
    ]


def test_the_night_is_a_cron_job_that_is_not_repeated_where_that_is_no_use():
    assert (NIGHT["apiVersion"], NIGHT["kind"]) == ("batch/v1", "CronJob")
    assert set(NIGHT["spec"]) == {"schedule", "concurrencyPolicy", "jobTemplate"}
    assert set(JOB) == {"backoffLimit", "podFailurePolicy", "template"}
    # A policy for failures is allowed with this one only.
    assert JOB["template"]["spec"]["restartPolicy"] == "Never"
    fail, ignore = JOB["podFailurePolicy"]["rules"]
    assert (fail["action"], ignore["action"]) == ("FailJob", "Ignore")
    codes = fail["onExitCodes"]
    [container] = PODS["figrl"]["containers"]
    assert (codes["containerName"], codes["operator"]) == (container["name"], "In")
    assert codes["values"] == [code for code, starts in STARTS.items() if code and starts == 1]


@pytest.mark.parametrize("name", PODS)
def test_pods_agree_with_the_image(name):
    pod = PODS[name]
    [container] = pod["containers"]
    image = read_dockerfile(ROOT / "Dockerfile")[-1]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert container["image"] == f"registry.example/figrl:{version}"
    assert f"docker build --tag {container['image']} ." in (ROOT / "Dockerfile").read_text()
    user, group = map(int, image.last("USER").split(":"))
    context = pod["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (user, group)
    assert context["runAsNonRoot"]
    # The image has no entry point, so that the arguments are the command.
    program, job, *arguments = container["args"]
    command = COMMANDS[f"{program} {job}"]
    command.make_parser(click.Context(command)).parse_args(list(arguments))
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounted) == {volume["name"] for volume in pod["volumes"]}
    if name != "scheduler":
        assert mounted["store"] == image.last("WORKDIR")


def test_names_and_paths_are_those_of_the_other_manifests(tmp_path, monkeypatch):
    for volume in (volume for pod in PODS.values() for volume in pod["volumes"]):
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            assert claim == MANIFESTS["storage"]["metadata"]["name"]
        if "configMap" in volume:
            assert volume["configMap"]["name"] == MANIFESTS["config"]["metadata"]["name"]
    for name, text in MANIFESTS["config"]["data"].items():
        (tmp_path / name).write_text(text)
    named = [arg for arg in PODS["figrl"]["containers"][0]["args"] if arg.startswith("/config/")]
    assert {Path(path).name for path in named} == set(MANIFESTS["config"]["data"])
    assert read_reindex_config(tmp_path / "nightly.yaml").store.startswith("/data/")
    cluster = read_cluster_config(tmp_path / "cluster.yaml")
    # The operator names the service after the cluster.
    [port] = [
        p["port"] for p in CLUSTER["spec"]["scheduler"]["service"]["ports"] if p["name"] == "comm"
    ]
    assert cluster.scheduler == f"tls://{CLUSTER['metadata']['name']}-scheduler:{port}"
    [worker] = PODS["worker"]["containers"]
    assert worker["env"] == [{"name": "DASK_SCHEDULER_ADDRESS", "value": cluster.scheduler}]
    assert cluster.security is not None
    for option, path in {"ca-file": cluster.security.ca_file, "key": cluster.security.key}.items():
        for name in ("worker", "scheduler"):
            assert f"--tls-{option}={path}" in PODS[name]["containers"][0]["args"]
    selector = CLUSTER["spec"]["scheduler"]["service"]["selector"]
    assert selector["dask.org/cluster-name"] == CLUSTER["metadata"]["name"]
