"""Secrets go by value, in every form in which they travel, and by name where their value was not known."""

import base64
import html
import json
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

import pytest

from auditor.redact import Redactor, find_secrets, is_secret_name

KEY = "sk-a/b+c=d&e f\"g'é"


@dataclass(frozen=True)
class Inner:
    api_key: str | None
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    facts: dict[str, object] = field(default_factory=dict)


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        quote(KEY),
        quote(KEY, safe=""),
        quote(KEY, safe="").lower().replace("sk-a", "sk-a"),
        quote_plus(KEY),
        json.dumps(KEY)[1:-1],
        json.dumps(KEY, ensure_ascii=False)[1:-1],
        json.dumps(KEY)[1:-1].replace("/", "\\/"),
        html.escape(KEY),
    ],
)
def test_every_form_of_a_secret_goes(form: str) -> None:
    assert Redactor([KEY]).text(f"before {form} after") == "before *** after"


@pytest.mark.parametrize("before", ["", "u", "us", "user:", "user1:", "a longer name:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_inside_base64_goes_at_every_alignment(before, encode) -> None:
    secret = "hunter2-hunter2"
    text = encode(f"{before}{secret}".encode()).decode()
    result = Redactor([secret]).text(f"[{text}]")
    rest = result.strip("[]").replace("***", "")
    assert "***" in result
    assert len(rest) <= len(base64.b64encode(before.encode()))


def test_the_longest_secret_goes_first() -> None:
    assert Redactor(["secret-one", "secret-one-and-two"]).text("x secret-one-and-two y secret-one z") == "x *** y *** z"


def test_short_secrets_do_not_destroy_the_text() -> None:
    assert Redactor(["EMPTY", "", " ", "a"]).text("an EMPTY page") == "an EMPTY page"


def test_a_bearer_header_given_whole_also_hides_the_bare_key() -> None:
    assert Redactor(["Bearer abcdef123"]).text("abcdef123 / Bearer abcdef123") == "*** / ***"


def test_no_secrets_leave_ordinary_text_alone() -> None:
    text = "The basic throughput of tokens: 4; see https://example.org/a?b=c and key facts, max_tokens=5 --port 8000"
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("http://user:pw@host:8/v1", "http://***@host:8/v1"),
        ("postgres://u:p@ss@host/x", "postgres://***@host/x"),
        ("Authorization: Bearer abc", "Authorization: Bearer ***"),
        ("authorization='Basic dTpw'", "authorization='Basic ***'"),
        ('{"x-api-key": "k1"}', '{"x-api-key": "***"}'),
        ("got Bearer abc123def from it", "got Bearer *** from it"),
        ("Bearer authentication is missing", "Bearer authentication is missing"),
        ("vllm serve m --api-key k1 --port 8000", "vllm serve m --api-key *** --port 8000"),
        ("vllm serve m --api-key=k1", "vllm serve m --api-key=***"),
        ("vllm serve m --api-key 'k1' --port 1", "vllm serve m --api-key '***' --port 1"),
        ("--hf-token abc --ssl-keyfile k.pem", "--hf-token *** --ssl-keyfile k.pem"),
        ("HF_TOKEN=x VLLM_API_KEY=y vllm serve m", "HF_TOKEN=*** VLLM_API_KEY=*** vllm serve m"),
        ("http://h/v1?api_key=x&a=b", "http://h/v1?api_key=***&a=b"),
        ("http://h/v1?a=b&token=x#top", "http://h/v1?a=b&token=***#top"),
        ("--api-key --port 8000", "--api-key --port 8000"),
    ],
)
def test_what_is_spelled_out_as_a_secret_goes_unknown_and_short_as_it_may_be(text: str, clean: str) -> None:
    assert Redactor().text(text) == clean


def test_data_keeps_its_types_and_loses_its_secrets() -> None:
    value = Outer(
        name="the key is top-secret-1",
        inner=Inner(api_key="unknown", args=("--x", "top-secret-1")),
        facts={"top-secret-1": [1, 2.5, None, True], "password": ["a", "b"], "token": 7, "s": {"top-secret-1"}},
    )
    assert Redactor(["top-secret-1"]).data(value) == Outer(
        name="the key is ***",
        inner=Inner(api_key="***", args=("--x", "***")),
        facts={"***": [1, 2.5, None, True], "password": ["***", "***"], "token": 7, "s": {"***"}},
    )


def test_absent_secrets_stay_absent() -> None:
    assert Redactor().data(Inner(api_key=None)) == Inner(api_key=None)
    assert Redactor().data({"api_key": "", "cookie": []}) == {"api_key": "", "cookie": []}


@pytest.mark.parametrize(
    "name",
    ["api_key", "API-KEY", "x-api-key", "apikey", "hf_token", "admin_api_key", "Authorization", "--api-key", "token"],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["api_key_env", "tokens", "max_tokens", "tokenizer", "bos_token", "key", "keyspace", "ssl-keyfile"]
)
def test_names_that_hold_no_secret(name: str) -> None:
    assert not is_secret_name(name)


def test_secrets_are_found_where_they_are_spelled_out() -> None:
    reply = {
        "server_args": {"api_key": "served-key-1", "port": 8000, "admin_api_key": None},
        "argv": ["python", "--api-key", "argv-key-22", "--port", "1"],
        "launch": "HF_TOKEN=hf_env333 vllm serve m --api-key=flag-key-4",
        "url": "http://bob:pass%40word@host/v1?api_key=query-key-5",
        "headers": {"Authorization": "Bearer header-key-6", "Cookie": "a sentence with spaces"},
        "inner": Inner(api_key="inner-key-7"),
        "short": {"api_key": "x"},
    }
    assert find_secrets(reply) == (
        "Bearer header-key-6",
        "argv-key-22",
        "bob:pass%40word",
        "flag-key-4",
        "header-key-6",
        "hf_env333",
        "inner-key-7",
        "pass%40word",
        "pass@word",
        "query-key-5",
        "served-key-1",
    )


def test_a_user_without_password_is_a_token() -> None:
    assert find_secrets("https://ghp_abcdef@host/x") == ("ghp_abcdef",)


def test_what_was_found_is_then_hidden_everywhere() -> None:
    reply = {"server_args": {"api_key": "served-key-1"}, "log": "started with served-key-1"}
    assert Redactor(find_secrets(reply)).data(reply) == {"server_args": {"api_key": "***"}, "log": "started with ***"}


def test_names_of_flags_are_no_secrets() -> None:
    """Of the flags that an engine has one is for a key: reports name it."""
    assert find_secrets({"flags": ("--api-key", "--ssl-keyfile-password"), "api_key": "--api-key"}) == ()
    assert find_secrets({"flags": ("--api-key", "Qx7-very-secret")}) == ("Qx7-very-secret",)
    assert find_secrets({"api_key": "--Qx7"}) == ()
    assert find_secrets({"api_key": "--Qx7-very-secret"}) == ("--Qx7-very-secret",)
