"""What people copy into a cluster or build an image from is valid, closed up, and says what the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from jsonschema import Draft7Validator

from servecheck import cli, endpoints, expectations, features
from servecheck.errors import ScenarioError
from servecheck.yamlfile import read

ROOT = Path(__file__).parent.parent
SCHEMAS = json.loads((ROOT / "tests" / "kubernetes" / "schemas.json").read_text("utf-8"))
EXAMPLE = (ROOT / "examples" / "kubernetes" / "cronjob.yaml").read_text("utf-8")
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(EXAMPLE))
NAMES = {
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
    "CronJob": "io.k8s.api.batch.v1.CronJob",
}
CONTAINERFILE = (ROOT / "Containerfile").read_text("utf-8")


def problems(thing: dict[str, Any]) -> list[str]:
    schema = {"$ref": f"#/definitions/{NAMES[thing['kind']]}", "definitions": SCHEMAS["definitions"]}
    return [f"{error.json_path}: {error.message}" for error in Draft7Validator(schema).iter_errors(thing)]


def cronjob() -> dict[str, Any]:
    return next(each for each in OBJECTS if each["kind"] == "CronJob")


def pod(job: dict[str, Any]) -> dict[str, Any]:
    found = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("thing", OBJECTS, ids=lambda each: each["kind"])
def test_an_object_of_the_example_fits_the_schema_of_kubernetes(thing):
    assert problems(thing) == []


def test_a_misspelled_or_wrong_field_is_noticed():
    job = json.loads(json.dumps(cronjob()))
    job["spec"]["concurencyPolicy"] = "Forbid"
    pod(job)["containers"][0]["args"] = "run"
    pod(job)["restartPolicy"] = 1
    assert len(problems(job)) == 3


def test_nothing_in_the_pod_may_more_than_it_must():
    spec = pod(cronjob())
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"]
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert cronjob()["spec"]["concurrencyPolicy"] == "Forbid"
    assert cronjob()["spec"]["jobTemplate"]["spec"]["backoffLimit"] == 0


def test_what_the_job_runs_is_a_command_with_options_that_exist():
    name, *options = pod(cronjob())["containers"][0]["args"]
    command = typer.main.get_command(cli.app).commands[name]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert [each for each in options if each.partition("=")[0] not in known] == []


def test_the_files_that_the_job_mounts_are_there_and_valid(tmp_path):
    data = next(each for each in OBJECTS if each["kind"] == "ConfigMap")["data"]
    mounted = {
        word.rpartition("/")[2] for word in pod(cronjob())["containers"][0]["args"] if "/etc/servecheck/" in word
    }
    assert mounted == set(data)
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    assert [each.name for each in endpoints.load_file(tmp_path / "endpoints.yaml")] == ["gpu", "tpu"]
    assert expectations.problems_of(read(tmp_path / "expectations.yaml"), features.BY_ID) == []
    (tmp_path / "endpoints.yaml").write_text(data["endpoints.yaml"].replace("base_url", "base_uri"))
    with pytest.raises(ScenarioError, match="base_uri"):
        endpoints.load_file(tmp_path / "endpoints.yaml")


def test_the_image_and_the_pod_agree_on_the_user():
    user = re.search(r"^USER (\d+):(\d+)$", CONTAINERFILE, re.MULTILINE)
    assert user is not None
    context = pod(cronjob())["securityContext"]
    assert [int(each) for each in user.groups()] == [context["runAsUser"], context["runAsGroup"]]
    assert int(user[1]) > 0


def test_the_image_holds_what_the_wheel_is_made_of_and_no_cache():
    copied = set(re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINERFILE, re.MULTILINE))
    sources = {word for line in copied for word in line.split()}
    assert sources == {"pyproject.toml", "README.md", "LICENSE", "servecheck", "scenarios", "templates"}
    assert [name for name in sources if not (ROOT / name).exists()] == []
    allowed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.MULTILINE)
    assert set(allowed) == sources
    assert "--no-cache-dir" in CONTAINERFILE
