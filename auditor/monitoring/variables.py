"""Grafana's template variables in a query -> PromQL that parses and computes the same thing.

What a variable becomes depends on where it stands: a duration in [..] and after `offset`, anything that a label may be
inside quotes, a matcher in {..}, a label in by (..), its default where it is (part of) a name, else a number.
"""

import re
from collections.abc import Collection, Mapping

__all__ = ["substitute"]

_VARIABLE = re.compile(
    r"\$\$?\{(?P<braced>\w+)(?:[.:][^{}]*)?\}|\[\[(?P<old>\w+)(?::\w+)?\]\]|\$(?P<plain>[A-Za-z_]\w*)"
)
_GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(\s*$", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_:][\w:]*")
_LABEL = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_UNITS = ("ms", "s", "m", "h", "d", "w", "y")
_NAMING = re.compile(r"""__name__\s*(=~|=)\s*["'`][^"'`]*$""")
_AGGREGATES = ("sum", "avg", "min", "max", "count", "rate", "increase", "irate", "quantile", "stddev", "group")
_ANY = "\ue000"  # stands for any value inside quotes until the matcher around it is rewritten; in no real query
_MATCHER = re.compile(r"""(?P<operator>=~|!~|!=|=)\s*(?P<quote>["'])(?P<value>[^"']*)(?P=quote)""")


def substitute(query: str, defaults: Mapping[str, str], unknown: Collection[str] = ()) -> str:
    """The query with every variable replaced, as a Prometheus that has the series would be asked it.

    `defaults` maps variables to the values they have by default. `unknown` are those whose values the data itself gives
    (the pods, models and jobs of whoever saved the file): as the value of a label they match anything.
    """
    if "$" not in query and "[[" not in query:
        return query
    return _MATCHER.sub(_any_value, _scanned(query, defaults, unknown)).replace(_ANY, "x")


def _any_value(matcher: re.Match[str]) -> str:
    """A matcher with an unknown in its value: every value fits it; none is excluded by a negative one."""
    value, operator = matcher["value"], matcher["operator"]
    if _ANY not in value:
        return matcher[0]
    if operator in ("!=", "!~"):
        return f'!="{value.replace(_ANY, "x")}"'
    known = value if operator == "=~" else re.sub(r"([.+*?()|{}^$\[\]])", r"\\\\\1", value)
    return f'=~"{known.replace(_ANY, ".*")}"'


def _scanned(query: str, defaults: Mapping[str, str], unknown: Collection[str]) -> str:
    out: list[str] = []
    state = _State()
    position = 0
    while position < len(query):
        match = _VARIABLE.match(query, position)
        if match and not (state.quote and (match["plain"] or match["braced"] or "a").isdigit()):
            name = match["braced"] or match["old"] or match["plain"]
            before = "".join(out[-80:])
            open_value = name in unknown and state.quote and not _NAMING.search(before)
            default = "" if open_value else defaults.get(name, "")
            out.append(_value(name, default, state, before, query[match.end() :]))
            position = match.end()
            continue
        character = query[position]
        if state.quote and character == "\\" and state.quote != "`":
            out.append(query[position : position + 2])
            position += 2
            continue
        state.see(character, out)
        out.append(character)
        position += 1
    return "".join(out)


class _State:
    """Where the scanner stands: in which quotes, how deep in [] and {}, inside a label list or not."""

    def __init__(self) -> None:
        self.quote = ""
        self.square = self.curly = 0
        self.labels = False

    def see(self, character: str, before: list[str]) -> None:
        if self.quote:
            if character == self.quote:
                self.quote = ""
        elif character in "\"'`":
            self.quote = character
        elif character in "[]":
            self.square = max(0, self.square + (1 if character == "[" else -1))
        elif character in "{}":
            self.curly = max(0, self.curly + (1 if character == "{" else -1))
        elif character == "(":
            self.labels = bool(_GROUPING.search("".join(before[-20:]) + "("))
        elif character == ")":
            self.labels = False


def _value(name: str, default: str, state: _State, before: str, after: str) -> str:
    last = before.rstrip()[-1:]
    following = after.lstrip()[:1]
    if state.quote:
        return default if re.fullmatch(r"[\w:.*|+-]+", default) else _ANY
    if state.square or re.search(r"\boffset\s+-?$", before):
        return "1h" if name == "__range" and not before[-1:].isdigit() else _duration(before, after)
    if state.curly:
        return _matcher(default, last, following)
    if state.labels:
        return default if _LABEL.fullmatch(default) else "x"
    if re.search(r"[\w:]$", before) or re.match(r"[\w:$]", after) or after.startswith("[["):
        return default if re.fullmatch(r"[\w:]+", default) else ""
    if following == "(":
        return default if default in _AGGREGATES else "sum"
    if following in ("{", "["):
        return default if _NAME.fullmatch(default) else "x"
    if name.startswith("__"):
        return "1"
    return default if _NUMBER.fullmatch(default) or (_NAME.fullmatch(default) and len(default) > 3) else "1"


def _duration(before: str, after: str) -> str:
    if re.match(rf"({'|'.join(_UNITS)})\b", after):
        return "5"
    return "m" if before[-1:].isdigit() else "5m"


def _matcher(default: str, last: str, following: str) -> str:
    if last in ("=", "~"):
        return f'"{_ANY}"'
    if following in ("=", "!"):
        return default if _LABEL.fullmatch(default) else "x"
    return 'x=~".*"' if last in ("{", ",") else ',x=~".*"'
