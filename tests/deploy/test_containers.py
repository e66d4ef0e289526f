"""Images and the compose file: linted, valid by the specification, and true to the code."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from mitosis_stack.coordinator import SERVERS
from tests.deploy.validators import DOCKER, REQUIRED, ROOT, check, ours, systems

DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
COMPOSE = DOCKER / "compose.yml"
# Provisioned by the folders of the monitoring itself.
MONITORING = ("./prometheus", "./grafana/provisioning", "./grafana/dashboards")
SECRETS = ("POSTGRES_PASSWORD", "VALKEY_PASSWORD", "S3_SECRET_ACCESS_KEY", "GRAFANA_PASSWORD")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return loaded


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.stem)
def test_a_dockerfile_passes_hadolint(file: Path) -> None:
    # DL3042: pip's cache is off for the whole stage. DL3059, DL4006: no pipes, few layers.
    check(ours("hadolint"), "--ignore", "DL3042", str(file))


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.stem)
def test_an_image_is_built_in_stages_and_runs_as_nobody_special(file: Path) -> None:
    text = file.read_text()
    last = text.rpartition("\nFROM ")[2]
    assert text.count("\nFROM ") == 2
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert "--require-hashes" in text
    assert ":latest" not in text


def test_the_image_serves_with_the_flags_of_the_embedded_stack() -> None:
    text = (DOCKER / "coordinator.Dockerfile").read_text()
    words = json.loads(text.rpartition("\nCMD ")[2].replace("\\\n", ""))
    expected = list(SERVERS["uvicorn"](8000))[1:]  # without -m
    place = expected.index("--host") + 1
    expected[place] = "0.0.0.0"
    assert words == expected


def test_the_build_context_has_every_package_and_nothing_private() -> None:
    kept = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert {entry for entry in kept if not (ROOT / entry).exists()} == set()
    pyproject = (ROOT / "pyproject.toml").read_text()
    found = re.search(r"packages\.find\]\ninclude = \[(.*?)\]", pyproject, re.DOTALL)
    assert found is not None
    assert set(re.findall(r'"(\w+)\*"', found[1])) <= kept


def test_the_compose_file_is_valid_by_its_specification() -> None:
    check(ours("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(COMPOSE))


def test_docker_itself_reads_the_compose_file() -> None:
    docker = systems("docker")
    plugin = subprocess.run([docker, "compose", "version"], capture_output=True, check=False)
    if plugin.returncode:
        pytest.skip("the docker client has no compose plugin")
    secrets = dict.fromkeys(SECRETS, "for-this-test-only")
    check(
        docker,
        "compose",
        "-f",
        str(COMPOSE),
        "config",
        "--quiet",
        env={"PATH": "/usr/bin", **secrets},
    )


def test_the_compose_file_has_all_parts_and_pins_them(services: dict[str, Any]) -> None:
    assert set(services) == {
        *("postgres", "valkey", "seaweedfs", "bootstrap", "web1", "web2", "worker", "beat"),
        *("nginx", "prometheus", "grafana", "agent1", "agent2"),
    }
    images = [service["image"] for service in services.values()]
    assert all(re.search(r":v?\d", image) for image in images)
    for service in services.values():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), "nothing is offered to the network by default"


def test_what_is_mounted_and_waited_for_is_there(services: dict[str, Any]) -> None:
    named = set(yaml.safe_load(COMPOSE.read_text())["volumes"])
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        for volume in service.get("volumes", ()):
            origin = volume.split(":")[0]
            if origin.startswith("."):
                assert origin in MONITORING or (DOCKER / origin).exists(), origin
            else:
                assert origin in named


def test_a_coordinator_of_the_compose_file_gets_every_variable_it_needs(
    services: dict[str, Any],
) -> None:
    image = (DOCKER / "coordinator.Dockerfile").read_text()
    given = set(services["web1"]["environment"]) | set(re.findall(r"(\w+)=", image))
    assert set(REQUIRED) <= given


def test_no_secret_has_a_default(services: dict[str, Any]) -> None:
    text = COMPOSE.read_text()
    for name in SECRETS:
        assert set(re.findall(rf"\$\{{{name}(.)", text)) == {":"}
        assert f"${{{name}:-" not in text
        assert f"\n{name}=\n" in (DOCKER / "env.example").read_text()


def test_the_docker_folder_shadows_no_package() -> None:
    """`import docker` has to find the SDK where somebody installed it."""
    assert not list(DOCKER.rglob("*.py"))
