"""YAML as people mean it, with the line and column of every key and value.

Scalars follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema), not PyYAML's 1.1: `no`, `on`
and `off` stay strings, `12:30` is no sexagesimal number, `2027-01-31` no date, `1e3` is a float and `0o17` octal.
Mapping keys are always the text that was written. Duplicate keys, a second document, tags that build objects, aliases
that would grow without bound and oversized texts are problems with a place, never a surprise.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

__all__ = ["Mark", "Marked", "YamlError", "load", "scalar"]

Path = tuple[str | int, ...]

MAX_CHARACTERS = 1 << 20
MAX_NODES = 100_000
MAX_DEPTH = 64
MAX_DIGITS = 300

_NULL = {"", "~", "null", "Null", "NULL"}
_TRUE = {"true", "True", "TRUE"}
_FALSE = {"false", "False", "FALSE"}
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
_NAN = {".nan", ".NaN", ".NAN"}

_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = {"str": str, "int": int, "float": float, "bool": bool, "null": type(None)}


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a text, 1-based."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Marked:
    """Plain values (dict, list, str, int, float, bool, None) and where each stands.

    Paths are tuples of mapping keys and list indexes. `keys` holds the place of a mapping entry's key, `values` the
    place where a value starts. What an alias brings in is marked where it was written.
    """

    value: Any
    keys: Mapping[Path, Mark] = field(default_factory=dict)
    values: Mapping[Path, Mark] = field(default_factory=dict)

    def place(self, path: Path) -> Mark:
        """Where a reader looks for `path`: a scalar itself, a collection's key, or the nearest written parent."""
        while path and path not in self.values:
            path = path[:-1]
        target = self.value
        for step in path:
            target = target[step]
        if isinstance(target, dict | list) and path in self.keys:
            return self.keys[path]
        return self.values.get(path, Mark(1, 1))


class YamlError(ValueError):
    """The text is no acceptable YAML; `problems` lists (place, one-line message) in the order of the text."""

    def __init__(self, problems: list[tuple[Mark, str]]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p[0].line, p[0].column)))
        super().__init__("; ".join(f"{mark.line}:{mark.column}: {message}" for mark, message in self.problems))


class _Stop(Exception):
    """The text cannot be read any further."""

    def __init__(self, mark: Mark, message: str) -> None:
        self.problem = (mark, message)


def scalar(text: str) -> Any:
    """The value of a plain (unquoted) scalar by the core schema of YAML 1.2; raises ValueError beyond 300 digits."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text in _NAN or _INFINITY.fullmatch(text):
        return float(text.replace(".", "", 1))
    for pattern, base in ((_INT, 10), (_OCTAL, 8), (_HEX, 16)):
        if pattern.fullmatch(text):
            if len(text) > MAX_DIGITS:
                raise ValueError(f"this number has more than {MAX_DIGITS} digits")
            return int(text, base)
    return float(text) if _FLOAT.fullmatch(text) else text


def load(text: str) -> Marked:
    """Read one YAML document. An empty text gives None. Raises YamlError with every problem found."""
    if len(text) > MAX_CHARACTERS:
        raise YamlError([(Mark(1, 1), f"the file is larger than {MAX_CHARACTERS // 1024} KiB")])
    text = text.removeprefix("\ufeff")
    composer = _Composer()
    try:
        node = composer.document(yaml.parse(text, Loader=yaml.SafeLoader))
    except _Stop as stop:
        raise YamlError([*composer.problems, stop.problem]) from None
    except yaml.YAMLError as error:
        raise YamlError([*composer.problems, _syntax(error, text, composer.open_brackets)]) from None
    if composer.problems:
        raise YamlError(composer.problems)
    return _plain(node)


# -------------------------------------------------------------------------------------------------------------- nodes


@dataclass(slots=True)
class _Node:
    """A composed node; `size` counts its nodes and `height` its levels, with aliases written out."""

    value: Any
    mark: Mark
    size: int = 1
    height: int = 0


@dataclass(slots=True)
class _Entry:
    """A mapping entry: where its key stands, and its value."""

    key: Mark
    node: _Node


def _collection(value: Any, mark: Mark, children: list[_Node]) -> _Node:
    size = 1 + sum(child.size for child in children)
    return _Node(value, mark, size, 1 + max((child.height for child in children), default=0))


class _Composer:
    """Builds nodes from PyYAML's events, which know the places but neither limits nor duplicates."""

    def __init__(self) -> None:
        self.problems: list[tuple[Mark, str]] = []
        self.anchors: dict[str, _Node | None] = {}
        self.open_brackets: list[Mark] = []

    def document(self, events: Iterator[Any]) -> _Node | None:
        """The only document of the stream; None for an empty one."""
        root: _Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _Stop(_mark(event), "a second document starts here; one file holds one document")
                root = self.node(next(events), events, 0)
        return root

    def node(self, event: Any, events: Iterator[Any], depth: int) -> _Node:
        """The node that starts with `event`."""
        mark = _mark(event)
        if isinstance(event, yaml.AliasEvent):
            node = self.alias(str(event.anchor), mark)
        else:
            if event.anchor is not None:
                self.anchors[event.anchor] = None
            node = self.written(event, mark, events, depth)
            if event.anchor is not None:
                self.anchors[event.anchor] = node
        if depth + node.height > MAX_DEPTH:
            raise _Stop(mark, f"nested deeper than {MAX_DEPTH} levels")
        if node.size > MAX_NODES:
            raise _Stop(mark, f"holds more than {MAX_NODES} values once its aliases are written out")
        return node

    def written(self, event: Any, mark: Mark, events: Iterator[Any], depth: int) -> _Node:
        """A node that is written here, not an alias."""
        if isinstance(event, yaml.ScalarEvent):
            return _Node(self.scalar_value(event, mark), mark)
        if depth >= MAX_DEPTH:
            raise _Stop(mark, f"nested deeper than {MAX_DEPTH} levels")
        if event.flow_style:
            self.open_brackets.append(mark)
        if isinstance(event, yaml.SequenceStartEvent):
            self.check_tag(event, mark, "seq")
            node = self.sequence(mark, events, depth)
        else:
            self.check_tag(event, mark, "map")
            node = self.mapping(mark, events, depth)
        if event.flow_style:
            self.open_brackets.pop()
        return node

    def alias(self, anchor: str, mark: Mark) -> _Node:
        """What an earlier `&anchor` named."""
        if anchor not in self.anchors:
            raise _Stop(mark, f"no anchor &{anchor} before this alias")
        target = self.anchors[anchor]
        if target is None:
            raise _Stop(mark, f"the alias *{anchor} stands inside its own anchor")
        return _Node(target.value, mark, target.size, target.height)

    def sequence(self, mark: Mark, events: Iterator[Any], depth: int) -> _Node:
        """A list of nodes."""
        items: list[_Node] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self.node(event, events, depth + 1))
        return _collection(items, mark, items)

    def mapping(self, mark: Mark, events: Iterator[Any], depth: int) -> _Node:
        """A dict of entries, merge keys (`<<`) applied: what is written out wins over what is merged."""
        entries: dict[str, _Entry] = {}
        merged: list[tuple[Mark, _Node]] = []
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key, place = self.key(event), _mark(event)
            node = self.node(next(events), events, depth + 1)
            if key == "<<" and event.style is None:
                merged.append((place, node))
            elif key in entries:
                first = entries[key].key
                self.problems.append((place, f"duplicate key '{key}', first at {first.line}:{first.column}"))
            else:
                entries[key] = _Entry(place, node)
        for place, node in merged:
            for name, entry in self.merge(place, node).items():
                entries.setdefault(name, entry)
        return _collection(entries, mark, [entry.node for entry in entries.values()])

    def key(self, event: Any) -> str:
        """A mapping key as it was written; only scalars can be keys."""
        if isinstance(event, yaml.ScalarEvent):
            return str(event.value)
        raise _Stop(_mark(event), "a key must be plain text")

    def merge(self, place: Mark, node: _Node) -> dict[str, _Entry]:
        """The entries that `<<` brings in: from one mapping or from a list of them, earlier ones win."""
        sources = node.value if isinstance(node.value, list) else [node]
        entries: dict[str, _Entry] = {}
        for source in sources:
            if not isinstance(source.value, dict):
                self.problems.append((place, "'<<' merges mappings; use an alias of a mapping or a list of them"))
                return {}
            for name, entry in source.value.items():
                entries.setdefault(name, entry)
        return entries

    def check_tag(self, event: Any, mark: Mark, kind: str) -> None:
        if event.tag not in (None, "!", _TAG + kind):
            self.problems.append((mark, f"the tag {_tag_name(event.tag)} is not supported"))

    def scalar_value(self, event: Any, mark: Mark) -> Any:
        """The value of a scalar event: by its tag, else plain ones by the core schema, quoted ones as text."""
        try:
            event.value.encode()
            if event.tag == "!":
                return event.value
            if event.tag is None:
                return scalar(event.value) if event.implicit[0] else event.value
            return _tagged(event.tag, event.value)
        except UnicodeEncodeError:
            self.problems.append((mark, "holds half of a surrogate pair, which is no character"))
        except ValueError as error:
            self.problems.append((mark, str(error)))
        return None


def _tagged(tag: str, text: str) -> Any:
    """The value of a scalar with an explicit core-schema tag (`!!str 5`); ValueError for any other tag."""
    kind = _SCALAR_TAGS.get(tag.removeprefix(_TAG)) if tag.startswith(_TAG) else None
    if kind is None:
        raise ValueError(f"the tag {_tag_name(tag)} is not supported")
    if kind is str:
        return text
    value = scalar(text)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"the tag {_tag_name(tag)} does not fit this value")
    return value


def _tag_name(tag: str) -> str:
    return "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag


def _mark(event: Any) -> Mark:
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1)


def _plain(root: _Node | None) -> Marked:
    """Plain values and their places, aliases written out (each alias gets its own copy, so nothing is shared)."""
    keys: dict[Path, Mark] = {}
    values: dict[Path, Mark] = {}

    def walk(node: _Node, path: Path) -> Any:
        values[path] = node.mark
        if isinstance(node.value, dict):
            for key, entry in node.value.items():
                keys[(*path, key)] = entry.key
            return {key: walk(entry.node, (*path, key)) for key, entry in node.value.items()}
        if isinstance(node.value, list):
            return [walk(item, (*path, index)) for index, item in enumerate(node.value)]
        return node.value

    return Marked(None if root is None else walk(root, ()), keys, values)


# ------------------------------------------------------------------------------------------------------------- syntax


def _syntax(error: yaml.YAMLError, text: str, open_brackets: list[Mark]) -> tuple[Mark, str]:
    """PyYAML's error as a place and one line that says what to do where the cause is a usual one."""
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        mark = Mark(before.count("\n") + 1, len(before) - before.rfind("\n"))
        return mark, f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Mark(1, 1), " ".join(str(error).split())
    problem = error.problem or "not valid YAML"
    end, start = error.problem_mark, error.context_mark
    if start is not None and "end of stream" in problem:
        return Mark(start.line + 1, start.column + 1), "this quote is never closed"
    if open_brackets and "'<stream end>'" in problem:
        return open_brackets[-1], "this bracket is never closed"
    message = _explain(problem)
    if start is not None and start.line != end.line and error.context:
        message += f" ({error.context}, which starts at {start.line + 1}:{start.column + 1})"
    return Mark(end.line + 1, end.column + 1), message


def _explain(problem: str) -> str:
    """A plainer wording for PyYAML's usual problems."""
    if "'\\t'" in problem:
        return "a tab cannot indent YAML; use spaces"
    if match := re.search(r"found character '(.)' that cannot start any token", problem):
        return f"a value cannot start with {match[1]}; put it in quotes"
    if problem == "mapping values are not allowed here":
        return "a ':' does not fit here; put the value in quotes, or check the indentation"
    if problem.startswith("expected '<document start>'"):
        return "the document has already ended before this; check brackets and indentation"
    if "expected <block end>" in problem:
        return f"the indentation does not fit ({problem})"
    return problem
