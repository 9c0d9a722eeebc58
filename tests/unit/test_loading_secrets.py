"""Keys and private authorities: from files beside the profile, with a line for every fault."""

from pathlib import Path

import pytest

from auditor.errors import ProfileError
from auditor.loading import load_profile
from auditor.redact import Redactor

KEY = "Qx7-very-secret-key"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def write(folder: Path, endpoint: str, rest: str = "") -> Path:
    path = folder / "p.yaml"
    path.write_text(f"version: 1\nname: t\nendpoint: {{url: 'https://h/v1', {endpoint}}}\n{rest}")
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(ProfileError) as failure:
        load_profile(path, {})
    return [f"{p.line}:{p.column} {p.message}" for p in failure.value.problems]


def test_a_key_comes_from_a_file_beside_the_profile(tmp_path, monkeypatch):
    (tmp_path / "key").write_text(f"{KEY}\n")
    path = write(tmp_path, "api_key_file: key")
    monkeypatch.chdir("/")
    loaded = load_profile(path, {})
    assert (loaded.key, loaded.warnings) == (KEY, ())
    assert KEY in loaded.secrets
    assert Redactor(loaded.secrets).text(f"the key {KEY}") == "the key ***"
    assert KEY not in repr(loaded.profile)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "the key file cannot be used"),
        (" \n", "the key file is empty"),
        ("ä-secret-key", "no HTTP header can carry"),
    ],
)
def test_a_key_file_that_holds_no_key_is_told_at_its_line_and_stops_nothing(tmp_path, text, why):
    if text is not None:
        (tmp_path / "key").write_text(text)
    loaded = load_profile(write(tmp_path, "api_key_file: key"), {})
    assert loaded.key is None
    (warning,) = loaded.warnings
    assert "3:47: endpoint.api_key_file: " in warning
    assert why in warning


def test_a_key_has_one_place(tmp_path):
    (tmp_path / "key").write_text(KEY)
    path = write(tmp_path, "api_key_env: K, api_key_file: key")
    assert problems(path) == ["3:63 endpoint.api_key_file: give either api_key_env or api_key_file"]


def test_an_authority_is_found_from_anywhere(tmp_path, monkeypatch):
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    path = write(tmp_path, "ca_file: ca.pem")
    monkeypatch.chdir("/")
    assert load_profile(path, {}).profile.endpoint.ca_file == str(tmp_path / "ca.pem")


def test_an_authority_that_is_none_stops_before_anything_is_sent(tmp_path):
    path = write(tmp_path, "ca_file: ca.pem")
    (missing,) = problems(path)
    assert missing.startswith("3:42 endpoint.ca_file: ")
    (tmp_path / "ca.pem").write_text("no certificate")
    assert problems(path) == ["3:42 endpoint.ca_file: holds no PEM certificate"]


def test_secrets_in_a_launch_line_and_in_addresses_are_known_and_shown_nowhere(tmp_path):
    rest = (
        f"deployment: {{launch: 'HF_TOKEN=hf_{KEY} vllm serve m --api-key {KEY}1'}}\n"
        f"monitoring: {{prometheus: 'http://reader:{KEY}2@prom:9090'}}\n"
    )
    loaded = load_profile(write(tmp_path, f"headers: {{X-Api-Key: {KEY}3}}", rest), {})
    shown = Redactor(loaded.secrets).text(loaded.text + repr(loaded.profile))
    assert "very-secret" not in shown
