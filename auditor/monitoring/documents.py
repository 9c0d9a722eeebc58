"""Text of a monitoring file -> plain documents: JSON, YAML (several to a file), ConfigMaps and other wrappers opened.

Trusts nothing: depth and size are bounded, and whatever cannot be read is said, never guessed.
"""

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Unreadable", "children", "documents", "listing", "mapping", "text_of", "walk"]

MAX_CHARACTERS = 20_000_000
_MAX_DEPTH = 100
_MAX_NODES = 500_000
_NESTED = (".json", ".yaml", ".yml", ".rules", ".libsonnet", ".json.gz")
_OUTSIDE = ("url", "configMapRef", "grafanaCom", "gzipConfigMapRef", "jsonnet", "jsonnetLib")


class Unreadable(Exception):
    """A file that cannot be read as JSON or YAML; the message says why in one line."""


def documents(text: str, depth: int = 0) -> Iterator[Mapping[str, Any] | Unreadable]:
    """Every document in the text, with the documents that wrappers hold inside, and why one of those cannot be read.

    Raises Unreadable where the text itself cannot.
    """
    for document in _parse(text):
        if _nesting(document) > _MAX_DEPTH:
            raise Unreadable("nested too deeply to be a dashboard")
        for item in _opened(document):
            yield from _unwrapped(item, depth)


def _parse(text: str) -> list[Any]:
    if len(text) > MAX_CHARACTERS:
        raise Unreadable("larger than 20 MB")
    stripped = text.lstrip("\ufeff \t\r\n")
    if not stripped:
        raise Unreadable("empty")
    try:
        if stripped[0] in "{[":
            try:
                return [json.loads(stripped)]
            except ValueError as error:
                return _yaml(stripped, f"not JSON: {error}")
        return _yaml(text)
    except RecursionError:
        raise Unreadable("nested too deeply to be a dashboard") from None


def _yaml(text: str, before: str | None = None) -> list[Any]:
    import yaml

    if _indentation_bomb(text):
        raise Unreadable("nested too deeply to be a dashboard")
    try:
        found = [d for d in yaml.load_all(text, getattr(yaml, "CBaseLoader", yaml.BaseLoader)) if d is not None]
    except (yaml.YAMLError, ValueError) as error:
        raise Unreadable(before or _one_line(error)) from None
    if before and not any(isinstance(d, dict | list) for d in found):
        raise Unreadable(before)
    return found


def _one_line(error: Exception) -> str:
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    where = f" at line {mark.line + 1}" if mark else ""
    return f"not YAML: {problem or str(error).splitlines()[0]}{where}"


def _indentation_bomb(text: str) -> bool:
    """True for nesting (flow, compact or by indentation) that would exhaust the YAML parser's stack."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}" and depth:
            depth -= 1
    return deepest > 10 * _MAX_DEPTH or any(bomb in text for bomb in ("- " * 200, "? " * 200, "\n" + " " * 1000))


def _opened(document: Any) -> Iterator[Mapping[str, Any]]:
    items = document if isinstance(document, list) else [document]
    for item in items:
        if isinstance(item, Mapping):
            if str(item.get("kind", "")).endswith("List") and isinstance(item.get("items"), list):
                yield from (inner for inner in item["items"] if isinstance(inner, Mapping))
            else:
                yield item


def _unwrapped(item: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any] | Unreadable]:
    """The document itself, or the documents that it carries as text or only points to (ConfigMap, GrafanaDashboard)."""
    try:
        texts = _carried(item)
        if texts and depth >= 2:
            raise Unreadable("documents inside documents inside documents")
    except Unreadable as error:
        yield error
        return
    if not texts:
        yield item
    for name, held in texts.items():
        try:
            yield from documents(_unpacked(held) if isinstance(held, _Packed) else held, depth + 1)
        except Unreadable as error:
            yield Unreadable(f"{name}: {error}")


class _Packed(str):
    """Text in base64, gzipped or plain."""

    __slots__ = ()


def _carried(item: Mapping[str, Any]) -> dict[str, str]:
    """The texts inside a wrapper, by the name of what holds each; raises Unreadable for what it only points to."""
    spec = mapping(item.get("spec"))
    if item.get("kind") == "ConfigMap":
        binary = {str(k): _Packed(v) for k, v in mapping(item.get("binaryData")).items() if _is_file(k)}
        return {str(k): v for k, v in mapping(item.get("data")).items() if isinstance(v, str) and _is_file(k)} | binary
    if isinstance(spec.get("json"), str):
        return {"spec.json": spec["json"]}
    if item.get("kind") == "GrafanaDashboard":
        if spec.get("gzipJson"):
            return {"spec.gzipJson": _Packed(spec["gzipJson"])}
        outside = [key for key in _OUTSIDE if spec.get(key)]
        if outside:
            raise Unreadable(f"its dashboard is kept outside the file (spec.{outside[0]})")
    return {}


def _is_file(key: Any) -> bool:
    return str(key).endswith(_NESTED)


def _unpacked(text: _Packed) -> str:
    """What was packed; raises Unreadable."""
    try:
        data = base64.b64decode(text, validate=False)
        if data[:2] == b"\x1f\x8b":
            reader = zlib.decompressobj(wbits=31)
            data = reader.decompress(data, MAX_CHARACTERS + 1)
        return data.decode("utf-8")
    except (ValueError, zlib.error):
        raise Unreadable("packed in a way that cannot be read") from None


def _nesting(document: Any) -> int:
    return max((level for level, _ in walk(document)), default=0)


def walk(document: Any) -> Iterator[tuple[int, Any]]:
    """Every node with its depth, breadth first; raises Unreadable past the bounds (YAML aliases can multiply)."""
    level, nodes, seen = 0, [document], 0
    while nodes and level <= _MAX_DEPTH + 1:
        seen += len(nodes)
        if seen > _MAX_NODES:
            raise Unreadable("more than 500,000 values")
        yield from ((level, node) for node in nodes)
        nodes, level = [child for node in nodes for child in children(node)], level + 1


def children(node: Any) -> list[Any]:
    """The values directly inside a mapping or a list."""
    if isinstance(node, Mapping):
        return list(node.values())
    return node if isinstance(node, list) else []


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one: hostile input is data of the wrong type, not an error."""
    return value if isinstance(value, Mapping) else {}


def listing(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """The value if it is text, else an empty string."""
    return value if isinstance(value, str) else ""
