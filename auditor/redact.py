"""Keep secrets out of everything that is written: by value, in every form in which they travel.

A `Redactor` knows the secrets themselves, so it also finds them in a server's reply, an error text or a saved command
line, whether plain, URL-encoded, escaped for JSON or HTML, or within base64. `find_secrets` collects them from where
they are spelled out: `api_key` fields of a server's own settings, launch flags, environment assignments, URLs, headers.
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus, unquote

__all__ = ["MARK", "Redactor", "find_secrets", "is_secret_name", "without_userinfo"]

T = TypeVar("T")

MARK = "***"

MIN_LENGTH = 6
"""Shorter values ("EMPTY", "none") are no secrets worth the words that replacing them everywhere would destroy."""

_NAMES = (
    r"(?:[a-z0-9]+[-_])*(?:api[-_]?key|auth[-_]?token|access[-_]?token|hf[-_]?token|hub[-_]token|private[-_]key"
    r"|secret(?:[-_](?:access[-_])?key)?|client[-_]secret|passw(?:or)?d|passphrase|bearer)"
)
_SECRET_NAME = re.compile(rf"{_NAMES}|token|(?:proxy[-_])?authorization|(?:set[-_])?cookie", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)([^\s/?#\"'<>\\]+)@")
_SCHEME = r"(?:(?:bearer|basic|token)\s+)?"
_HEADER = re.compile(
    rf"(\b(?:proxy-)?(?:authorization|api-key|x-api-key|cookie)[\"']?\s*[:=]\s*[\"']?{_SCHEME})([^\s\"',;]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(\bbearer\s+)((?=[^\s\"',;]*\d)[^\s\"',;]{6,})", re.IGNORECASE)
_FLAG = re.compile(rf"((?<![\w-])--{_NAMES}(?:=|\s+)[\"']?)([^\s\"'-][^\s\"']*)", re.IGNORECASE)
_ENVIRONMENT = re.compile(
    r"(\b[A-Z][A-Z0-9_]*(?:TOKEN|API_KEY|SECRET|SECRET_KEY|ACCESS_KEY|PASSWORD)=[\"']?)([^\s\"']+)"
)
_QUERY = re.compile(rf"([?&](?:{_NAMES}|key|token|sig|signature)=)([^&#\s\"'<>]+)", re.IGNORECASE)
_FLAG_NAME = re.compile(r"--?[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")  # of a list of flags, no value of one
_SPELLED_OUT = (_HEADER, _BEARER, _FLAG, _ENVIRONMENT, _QUERY)


def is_secret_name(name: str) -> bool:
    """Whether a key, header, flag or field of this name holds a secret ("api_key", "X-Api-Key", "hf_token")."""
    return _SECRET_NAME.fullmatch(name.lstrip("-")) is not None


def without_userinfo(text: str) -> str:
    """`text` without what URLs in it say before an @: a user, a password, a token."""
    return _USERINFO.sub(MARK + "@", text)


class Redactor:
    """Replaces every known secret, and whatever is spelled out as one, by `***`."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {part for secret in secrets for part in _parts(secret)}
        forms = {form for secret in known for form in _forms(secret)}
        self._forms = _alternation(forms)
        self._base64 = _alternation({core for secret in known for core in _base64_cores(secret)}, edges=True)

    def text(self, text: str) -> str:
        """`text` without secrets."""
        for pattern in (self._base64, self._forms):
            if pattern is not None:
                text = pattern.sub(MARK, text)
        text = without_userinfo(text)
        for pattern in _SPELLED_OUT:
            text = pattern.sub(rf"\g<1>{MARK}", text)
        return text

    def data(self, value: T) -> T:
        """A copy of plain data (dataclasses, mappings, sequences, texts) without secrets, in the same types.

        A text under a secret's name (`api_key: ...`) goes even where its value was not known.
        """
        return self._walk(value)  # type: ignore[no-any-return]

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if is_dataclass(value) and not isinstance(value, type):
            names = [f.name for f in fields(value) if f.init]
            return replace(value, **{name: self._entry(name, getattr(value, name)) for name in names})
        if isinstance(value, Mapping):
            return {self._walk(key): self._entry(key, item) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            if set(map(type, value)) <= {float, int}:
                return value
            return type(value)(self._walk(item) for item in value)
        return value

    def _entry(self, name: object, value: Any) -> Any:
        if isinstance(name, str) and is_secret_name(name):
            if isinstance(value, str) and value:
                return MARK
            if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
                return type(value)(MARK for _ in value)
        return self._walk(value)


def find_secrets(value: Any) -> tuple[str, ...]:
    """The secrets spelled out in plain data: under secret names, in URLs, headers, launch flags, assignments.

    Sorted, without those too short to be told from ordinary words.
    """
    found = {part for secret in _spelled_out(value) for part in _parts(secret) if not _FLAG_NAME.fullmatch(part)}
    return tuple(sorted(found))


def _spelled_out(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _spelled_out_in_text(value)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _spelled_out({f.name: getattr(value, f.name) for f in fields(value)})
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if isinstance(name, str) and is_secret_name(name):
                yield from (text for text in _texts(item) if " " not in _without_scheme(text).strip())
            yield from _spelled_out(item)
    elif isinstance(value, list | tuple | set | frozenset):
        flag = False
        for item in value:
            if flag and isinstance(item, str):
                yield item
            flag = isinstance(item, str) and item.startswith("--") and is_secret_name(item)
            yield from _spelled_out(item)


def _texts(value: Any) -> Iterator[str]:
    items = value if isinstance(value, list | tuple) else (value,)
    return (item for item in items if isinstance(item, str))


def _spelled_out_in_text(text: str) -> Iterator[str]:
    for match in _USERINFO.finditer(text):
        yield match[1]
        user, colon, password = match[1].partition(":")
        yield password if colon else user
        yield unquote(password if colon else user)
    for pattern in _SPELLED_OUT:
        for match in pattern.finditer(text):
            yield match[2]


# -------------------------------------------------------------------------------------------------------------- forms


def _without_scheme(secret: str) -> str:
    return re.sub(r"^(?:bearer|basic|token)\s+", "", secret, flags=re.IGNORECASE)


def _parts(secret: str) -> set[str]:
    """A secret itself and, for `Bearer x`, what follows the scheme; nothing that is too short."""
    whole = secret.strip()
    return {part for part in (whole, _without_scheme(whole)) if len(part) >= MIN_LENGTH and part != MARK}


def _forms(secret: str) -> set[str]:
    """The secret as it stands in plain text, URLs, JSON and HTML."""
    encoded = {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    encoded |= {re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), form) for form in encoded}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    escaped |= {form.replace("/", "\\/") for form in escaped}
    return {secret, html.escape(secret), html.escape(secret, quote=False), *encoded, *escaped}


def _base64_cores(secret: str) -> set[str]:
    """What base64 of any text that contains the secret must contain, for each of the three alignments (RFC 4648)."""
    raw, cores = secret.encode(), set[str]()
    for before in range(3):
        whole = (8 * before + 5) // 6, (8 * (before + len(raw))) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            cores.add(encode(b"\0" * before + raw).decode()[whole[0] : whole[1]])
    return {core for core in cores if len(core) >= MIN_LENGTH}


def _alternation(texts: set[str], *, edges: bool = False) -> re.Pattern[str] | None:
    """One pattern for all texts, longest first; with `edges` also the neighbours that share bits with the secret."""
    if not texts:
        return None
    pattern = "|".join(re.escape(text) for text in sorted(texts, key=lambda text: (-len(text), text)))
    return re.compile(rf"[A-Za-z0-9+/_-]?(?:{pattern})[A-Za-z0-9+/_-]?={{0,2}}" if edges else pattern)
