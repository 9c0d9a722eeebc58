"""Reading what a server answered: small helpers shared by the flavours."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from auditor.engines.flavour import Reply

__all__ = ["Facts", "field", "info_labels", "models", "owned_by", "says_metric"]


class Facts:
    """Collects fields of `Served` with the place that told each; what is not there is left out."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}

    def add(self, name: str, value: Any, source: str) -> None:
        """Keep a value unless it is unknown; the first place that tells a field wins."""
        if value is not None and name not in self.values:
            self.values[name] = value
            self.sources[name] = source

    def off(self, name: str, source: str) -> None:
        """Note that the server shows this to be off: there is no value, but a place that says so."""
        if name not in self.values:
            self.sources[name] = source

    def result(self) -> tuple[dict[str, Any], dict[str, str]]:
        """What a flavour's `read_served` returns."""
        return self.values, self.sources


def field(replies: Mapping[str, Reply], path: str, *keys: str | int) -> Any:
    """A value inside the JSON answer of a path, or None."""
    reply = replies.get(path)
    value = reply.json if reply is not None and reply.status == 200 else None
    for key in keys:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int):
            value = value[key] if len(value) > key else None
        else:
            return None
    return value


def models(replies: Mapping[str, Reply]) -> list[dict[str, Any]]:
    """The entries of /v1/models."""
    data = field(replies, "/v1/models", "data")
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []


def owned_by(replies: Mapping[str, Reply], owner: str) -> bool:
    """Whether /v1/models names this engine as the owner of a model."""
    return any(entry.get("owned_by") == owner for entry in models(replies))


def says_metric(replies: Mapping[str, Reply], prefixes: Iterable[str]) -> bool:
    """Whether a metrics page holds samples of one of these prefixes."""
    pattern = re.compile(rf"(?m)^({'|'.join(map(re.escape, prefixes))})\w")
    return any(
        reply.status == 200 and pattern.search(reply.text) is not None
        for path, reply in replies.items()
        if "metrics" in path
    )


def info_labels(replies: Mapping[str, Reply], metric: str) -> list[dict[str, str]]:
    """The labels of every series of an info metric on the metrics pages."""
    series = re.compile(rf"(?m)^{re.escape(metric)}\{{(.*)\}}\s+\S+")
    label = re.compile(r'\b(\w+)="((?:[^"\\]|\\.)*)"')
    return [
        dict(label.findall(match[1]))
        for path, reply in replies.items()
        if "metrics" in path and reply.status == 200
        for match in series.finditer(reply.text)
    ]
