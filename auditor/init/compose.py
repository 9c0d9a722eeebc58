"""Compose files: every service of them as a container."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auditor.engines.flavours import tokens
from auditor.init.containers import Container
from auditor.init.kubernetes import whole
from auditor.init.launching import filled
from auditor.loading.files import FileError, read_text
from auditor.monitoring.documents import listing, mapping, text_of

__all__ = ["containers"]

Doc = Mapping[str, Any]


def containers(document: Doc, path: Path) -> list[Container]:
    """Every service of a compose file. Variables come from the `.env` beside it, as Compose takes them."""
    variables = _env_file(path.parent / ".env")
    services = mapping(_filled(_merged(document.get("services")), variables))
    return [_container(str(name), mapping(service), path) for name, service in services.items()]


def _merged(node: Any) -> Any:
    """The tree with merge keys (`<<`) applied: what is written out wins."""
    if isinstance(node, list):
        return [_merged(child) for child in node]
    if not isinstance(node, Mapping):
        return node
    below = node.get("<<")
    found: dict[Any, Any] = {}
    for part in listing(below) or [below]:
        found = {**mapping(_merged(part)), **found}
    return {**found, **{key: _merged(value) for key, value in node.items() if key != "<<"}}


def _filled(node: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(node, Mapping):
        return {key: _filled(value, variables) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled(child, variables) for child in node]
    return "$".join(filled(part, variables) for part in node.split("$$")) if isinstance(node, str) else node


def _env_file(path: Path) -> dict[str, str]:
    try:
        text = read_text(path)
    except FileError:
        return {}
    pairs = (re.fullmatch(r"\s*(?:export\s+)?(\w+)\s*=\s*(.*?)\s*", line) for line in text.splitlines())
    return {match[1]: match[2].strip("\"'") for match in pairs if match}


def _container(name: str, service: Doc, path: Path) -> Container:
    deploy = mapping(service.get("deploy"))
    address, hint = _address(service)
    return Container(
        name=name,
        where=f"{path.name}, service {name}",
        words=(*_words(service.get("entrypoint")), *_words(service.get("command"))),
        image=text_of(service.get("image")) or None,
        variables=_environment(service, path.parent),
        devices=_devices(service, deploy),
        replicas=whole(deploy.get("replicas")) or whole(service.get("scale")),
        address=address,
        hint=hint,
    )


def _words(value: Any) -> list[str]:
    return tokens(value) if isinstance(value, str) else [str(word) for word in listing(value)]


def _environment(service: Doc, folder: Path) -> dict[str, str]:
    files = service.get("env_file")
    found: dict[str, str] = {}
    for file in listing(files) or ([files] if files else []):
        name = text_of(mapping(file).get("path")) or text_of(file)
        found |= _env_file(folder / name) if name else {}
    given = service.get("environment")
    if isinstance(given, Mapping):
        return found | {str(key): str(value) for key, value in given.items()}
    pairs = (str(entry).partition("=") for entry in listing(given))
    return found | {key: value for key, equals, value in pairs if equals}


def _devices(service: Doc, deploy: Doc) -> int | None:
    """Accelerators of a service, where the file says how many."""
    reserved = listing(mapping(mapping(deploy.get("resources")).get("reservations")).get("devices"))
    gpus = service.get("gpus")
    for device in map(mapping, [*reserved, *(listing(gpus) or [{"count": gpus}])]):
        if (count := whole(device.get("count")) or len(listing(device.get("device_ids")))) > 0:
            return count
    return None


def _address(service: Doc) -> tuple[str | None, str]:
    """Where the service is reached from this machine: its first port that is published."""
    for port in listing(service.get("ports")):
        published = text_of(mapping(port).get("published")) or text_of(port).rpartition(":")[0].rpartition(":")[2]
        if number := whole(published):
            return f"http://127.0.0.1:{number}/v1", "the port that the file publishes"
    hint = "on the host's own network" if service.get("network_mode") == "host" else "publish its port to reach it here"
    return None, hint
