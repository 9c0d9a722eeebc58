"""Metrics pages of real engines, recorded, and of emulated ones: read whole, and their engine and version told."""

import json
import lzma
from pathlib import Path

import pytest
from raw_client import ask, completion, emulated

from auditor.catalog import metrics as catalogue
from auditor.catalog.pages import recognise
from auditor.emulator.clock import run_virtual
from auditor.emulator.spec import Spec
from auditor.probe.exposition import Page, parse_page

RECORDINGS = Path(__file__).parents[1] / "wire" / "recordings"


def recorded(name: str) -> Page:
    """The last metrics page in a recording."""
    text = ""
    with lzma.open(RECORDINGS / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            exchange = json.loads(line)
            if exchange["request"].startswith("GET /metrics"):
                text = exchange["reply"].partition("\r\n\r\n")[2]
    page = parse_page(text, "text/plain", "u")
    assert page is not None
    return page


@pytest.mark.parametrize(
    ("name", "said", "prefix"),
    [
        ("vllm", "vLLM 0.32.0 or later", "vllm:"),
        ("sglang", "SGLang 0.5.23 or later", "sglang:"),
        ("llamacpp", "llama.cpp", "llamacpp:"),
    ],
)
def test_a_real_page_is_recognised_and_every_name_on_it_is_known(name: str, said: str, prefix: str) -> None:
    page = recorded(name)
    assert [str(one) for one in recognise(page.names, page.page.buckets)] == [said]
    own = {sample for sample in page.names if sample.startswith(prefix) and not sample.endswith("_created")}
    assert len(own) > 10
    assert {sample for sample in own if not catalogue.lookup(sample)} == set()


@pytest.mark.parametrize(
    ("flavour", "version"),
    [("vllm", "0.10.0"), ("vllm", "0.12.0"), ("vllm", "0.18.0"), ("sglang", "0.5.9"), ("sglang", "0.5.18")],
)
def test_an_emulated_page_is_of_the_version_emulated(flavour: str, version: str) -> None:
    async def page() -> str:
        async with emulated(Spec(flavour=flavour, version=version, block_size=16)) as emulator:
            await ask(emulator.port, "/v1/completions", completion("a " * 99, 30))
            return (await ask(emulator.port, "/metrics")).body.decode()

    found = parse_page(run_virtual(page()), "text/plain", "u")
    assert found is not None
    (seen,) = recognise(found.names)
    key = catalogue.version_key(version)
    assert seen.name == flavour
    assert seen.since is not None
    assert catalogue.version_key(seen.since) <= key
    assert seen.before is None or key < catalogue.version_key(seen.before)
