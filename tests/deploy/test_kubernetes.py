"""Kubernetes manifests: valid by the published schemas, and consistent among themselves."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.validators import DOCKER, REQUIRED

FOLDER = DOCKER / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
VERSION = "1.31"


class UniqueKeys(yaml.SafeLoader):
    """YAML takes the last of two equal keys without a word; nobody means that."""


def _no_duplicates(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]  # type: ignore[no-untyped-call]
    assert len(set(keys)) == len(keys), f"twice: {keys} at {node.start_mark}"
    return loader.construct_mapping(node, deep=True)


UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _no_duplicates)


def _documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.load_all(file.read_text(), Loader=UniqueKeys))


def _resources() -> Iterator[dict[str, Any]]:
    for file in FILES:
        if file.name != "kustomization.yaml":
            yield from _documents(file)


def _pods() -> Iterator[dict[str, Any]]:
    for resource in _resources():
        template = resource.get("spec", {}).get("template")
        if template is not None:
            yield {"kind": resource["kind"], "name": resource["metadata"]["name"], **template}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_manifest_is_valid_by_its_schema(file: Path) -> None:
    for document in _documents(file):
        if document["kind"] != "Kustomization":
            kubernetes_validate.validate(document, VERSION, strict=True)


def test_the_kustomization_lists_every_file() -> None:
    [kustomization] = _documents(FOLDER / "kustomization.yaml")
    others = {file.name for file in FILES} - {"kustomization.yaml"}
    expected = {name.replace("secret.example", "secret") for name in others}
    assert set(kustomization["resources"]) == expected


def test_selectors_find_their_pods() -> None:
    labels = [set(pod["metadata"]["labels"].items()) for pod in _pods()]
    for resource in _resources():
        selector = resource.get("spec", {}).get("selector", {})
        wanted = set(selector.get("matchLabels", selector).items())
        if wanted:
            assert any(wanted <= have for have in labels), resource["metadata"]["name"]


def test_everything_a_pod_names_exists() -> None:
    named = {(one["kind"], one["metadata"]["name"]) for one in _resources()}
    for pod in _pods():
        spec = pod["spec"]
        volumes = {volume["name"] for volume in spec.get("volumes", ())}
        for volume in spec.get("volumes", ()):
            if "secret" in volume:
                assert ("Secret", volume["secret"]["secretName"]) in named
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            for source in container.get("envFrom", ()):
                kind, ref = next(iter(source.items()))
                wanted = {"configMapRef": "ConfigMap", "secretRef": "Secret"}[kind]
                assert (wanted, ref["name"]) in named


def test_coordinators_get_every_variable_they_need() -> None:
    given: set[str] = set()
    for resource in _resources():
        if resource["metadata"]["name"] == "coordinator":
            given |= set(resource.get("data", {})) | set(resource.get("stringData", {}))
    assert set(REQUIRED) <= given


def test_only_the_agent_of_a_whole_node_has_privileges() -> None:
    for pod in _pods():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        if pod["kind"] == "DaemonSet":
            continue
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_beat_is_alone_and_images_are_pinned() -> None:
    for resource in _resources():
        if resource["metadata"]["name"] == "beat":
            assert resource["spec"]["replicas"] == 1
            assert resource["spec"]["strategy"] == {"type": "Recreate"}
    images = [container["image"] for pod in _pods() for container in pod["spec"]["containers"]]
    assert images
    assert all(re.fullmatch(r"mitosis-\w+:\d+\.\d+\.\d+", image) for image in images)
