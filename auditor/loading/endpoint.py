"""What an endpoint must satisfy beyond types, whether a profile or a command line says so.

Each function gives the reason why a value will not do, or None. Reasons never repeat the value: it may hold a secret.
"""

import re
from urllib.parse import urlsplit

__all__ = ["OWN_BODY_KEYS", "address_fault", "header_fault", "key_fault", "key_name_fault"]

OWN_BODY_KEYS = frozenset(
    [
        "model",
        "messages",
        "prompt",
        "stream",
        "stream_options",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "min_tokens",
        "ignore_eos",
    ]
)
_OWN_HEADERS = ("host", "content-length", "transfer-encoding", "connection", "content-type")
_LITERAL_KEY = re.compile(r"(?:sk|hf|pk|rk|gsk|xai|nvapi|ghp|key|bearer)[-_ ].{4,}", re.IGNORECASE)
_LONG_RANDOM = re.compile(r"(?=.*\d)(?=.*[a-z])[A-Za-z0-9_]{20,}")
_IN_CAPITALS = re.compile(r"[A-Z]+(_[A-Z]+)+")  # HF_TOKEN: no provider's keys are words in capitals
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def address_fault(url: str, *, query: bool) -> str | None:
    """Of an http:// or https:// address, with what follows a '?' only where `query` allows it."""
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        return "this is no valid address; check its host, port and brackets"
    if re.search(r"[\s\x00-\x1f\\]", url):
        return "an address holds no blanks, control characters or backslashes"
    if parts.scheme not in ("http", "https"):
        return "needs an address with its scheme, such as http://127.0.0.1:8000/v1"
    if not parts.hostname or not port_is_fine or not _can_be_host(parts.hostname):
        return "needs a host, such as http://127.0.0.1:8000/v1"
    if parts.fragment or (parts.query and not query):
        return "needs an address without '?' or '#'"
    return None


def _can_be_host(name: str) -> bool:
    """Whether a resolver takes this name: labels of up to 63 characters (RFC 1035, 2.3.4), once encoded."""
    try:
        return len(name.encode("idna")) <= 253
    except UnicodeError:
        return False


def key_name_fault(name: str) -> str | None:
    """Of the name of the environment variable that holds a key."""
    literal = _LITERAL_KEY.fullmatch(name) and not _IN_CAPITALS.fullmatch(name)
    if literal or _LONG_RANDOM.fullmatch(name):
        return "this looks like a key itself; put it into an environment variable and give the variable's name"
    if not _ENVIRONMENT_NAME.fullmatch(name):
        return "needs the name of an environment variable (such as LLM_API_KEY), or file:PATH"
    return None


def key_fault(key: str) -> str | None:
    """Of a key itself."""
    if not key.isascii() or not key.isprintable():
        return "holds characters that no HTTP header can carry"
    return None


def header_fault(name: str, value: str) -> str | None:
    """Of a header that is to be sent along."""
    if not _HEADER_NAME.fullmatch(name) or re.search(r"[^\t\x20-\x7e]", value):
        return "HTTP cannot carry this header; use plain letters, digits and punctuation"
    if name.lower() in _OWN_HEADERS:
        return "the audit sets this header itself"
    return None
