"""Nothing that an audit writes, in any format, holds a secret; what it saves is its owner's alone."""

import stat
from pathlib import Path

import pytest

from auditor.report.renderers import RENDERERS
from tests.e2e.scenario import Outcome, Scenario

pytestmark = pytest.mark.slow

KEY = "Zq9-key-of-the-api"  # the server tells it in its own settings, as SGLang does
SECRETS = {
    "the API's key": KEY,
    "a key of the launch line": "Lk4-key-on-the-line",
    "a token before the launch line": "hf_Tk2tokenofthehub",
    "a password in an address": "Pw7-word-in-a-url",
    "a header": "Hd5-value-of-a-header",
}

SGLANG = {
    "endpoint.engine": "sglang",
    "endpoint.api_key_file": "key",
    "endpoint.headers": {"X-Api-Key": SECRETS["a header"]},
    "deployment.engine_version": "0.5.10",
    "deployment.gpu_memory_utilization": None,
    "deployment.launch": (
        f"HF_TOKEN={SECRETS['a token before the launch line']} python -m sglang.launch_server "
        f"--model-path meta-llama/Llama-3.1-8B-Instruct --api-key {SECRETS['a key of the launch line']}"
    ),
    "monitoring.exporters": [f"http://reader:{SECRETS['a password in an address']}@127.0.0.1:9/metrics"],
}


@pytest.fixture(name="kept", scope="module")
def _kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "key").write_text(KEY)
    scenario = Scenario(profile=SGLANG, served={"api_key": KEY})
    return folder / "run", scenario.run(folder, save=folder / "run")


def shown(text: str) -> list[str]:
    return [name for name, secret in SECRETS.items() if secret in text]


def test_the_server_knew_the_key(kept: tuple[Path, Outcome]) -> None:
    """Else what follows would prove nothing."""
    served = kept[1].report.evidence.served
    assert served is not None
    assert (served.engine, kept[1].report.evidence.requests() != ()) == ("sglang", True)
    assert all(s.good for s in kept[1].report.evidence.requests())


@pytest.mark.parametrize("name", sorted(RENDERERS))
def test_no_format_shows_a_secret(kept: tuple[Path, Outcome], name: str) -> None:
    text = RENDERERS[name](kept[1].report)
    assert text
    assert shown(text) == []


def test_no_saved_file_holds_a_secret_and_all_are_their_owner_s(kept: tuple[Path, Outcome]) -> None:
    folder = kept[0]
    files = sorted(folder.iterdir())
    assert len(files) > 5
    assert {path.name: shown(path.read_text()) for path in files} == {path.name: [] for path in files}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "--api-key ***" in (folder / "profile.yaml").read_text()
