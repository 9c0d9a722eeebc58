"""What a Prometheus sends back of the credentials that it was sent is in no file, no report and no line of progress."""

import asyncio
from pathlib import Path

import pytest

from auditor import monitored, run
from auditor.loading import load_profile
from auditor.report.renderers import RENDERERS
from auditor.testing import make_evidence
from tests.unit.fake_endpoint import Answer, Asked, serving
from tests.unit.web_answers import ByPath, prometheus_reply

PASSWORD, BASIC, TOKEN, TENANT = "pass-word-1", "Ym9iOnBhc3Mtd29yZC0x", "prom-token-123456", "tenant-secret-7"


def echoing(request: Asked) -> str:
    return f"I was sent {request.headers.get('authorization')} {request.headers.get('x-api-key')} by bob:{PASSWORD}"


def target(request: Asked) -> bytes:
    said = echoing(request)
    labels = {"job": "vllm", "instance": "10.0.0.5:8000", "note": said}
    one = {"labels": labels, "scrapeUrl": f"http://10.0.0.5:8000/metrics?token={TOKEN}", "health": "down"}
    return prometheus_reply({"activeTargets": [{**one, "lastError": said, "scrapeInterval": "15s"}]})


def rules(request: Asked) -> bytes:
    said = echoing(request)
    alert = {"type": "alerting", "name": "A", "query": f'vllm:x{{a="{said}"}} > 1', "lastError": said, "state": said}
    record = {"type": "recording", "name": "a:b", "query": f'vllm:x{{a="{said}"}}'}
    return prometheus_reply({"groups": [{"name": "g", "rules": [alert, record]}]})


ANSWERS: dict[str, Answer] = {
    "GET /api/v1/query": prometheus_reply({"resultType": "scalar", "result": [1000, "1000"]}),
    "GET /api/v1/query_range": prometheus_reply({"resultType": "matrix", "result": []}),
    "GET /api/v1/label/__name__/values": prometheus_reply([]),
    "GET /api/v1/label/model_name/values": prometheus_reply([]),
    "GET /api/v1/targets": target,
    "GET /api/v1/rules": rules,
}


@pytest.mark.parametrize("key", [True, False])
def test_no_credential_comes_back(key: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROM_TOKEN", TOKEN)
    told: list[str] = []

    async def audit() -> str:
        async with serving(ByPath(ANSWERS)) as fake:
            url = fake.origin.replace("//", f"//bob:{PASSWORD}@")
            named = ", prometheus_key_env: PROM_TOKEN" if key else ""
            (tmp_path / "p.yaml").write_text(
                "version: 1\nname: t\nendpoint: {url: 'http://127.0.0.1:9/v1', engine: vllm}\n"
                f"monitoring: {{prometheus: '{url}', headers: {{X-Api-Key: {TENANT}}}{named}}}\n"
            )
            options = run.Options(passive=3600.0, save=tmp_path / "saved")
            report = await run.audit(
                load_profile(tmp_path / "p.yaml"), options, lambda event: told.append(event.text or "")
            )
            assert fake.asked[0].headers["authorization"] == (f"Bearer {TOKEN}" if key else f"Basic {BASIC}")
            return "\n".join(render(report) for render in RENDERERS.values())

    shown = asyncio.run(audit())
    saved = "\n".join(file.read_text() for file in sorted((tmp_path / "saved").iterdir()))
    assert "10.0.0.5:8000" in saved
    for secret in (PASSWORD, BASIC, TENANT, *([TOKEN] if key else [])):
        assert secret not in shown + saved + "\n".join(told)


def test_a_server_that_does_not_answer_is_told_without_user_and_query(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "version: 1\nname: t\nendpoint: {url: 'http://127.0.0.1:9/v1', engine: vllm}\n"
        f"monitoring: {{prometheus: 'http://bob:{PASSWORD}@127.0.0.1:9/prom?tenant={TENANT}'}}\n"
    )
    loaded = load_profile(tmp_path / "p.yaml")
    evidence = make_evidence(profile=loaded.profile, measurements=())
    watch = asyncio.run(monitored.before(evidence, loaded, lambda _: None)).watch
    assert watch is not None
    assert watch.url == "http://127.0.0.1:9/prom"
    assert PASSWORD not in repr(watch.problems)
    assert TENANT not in repr(watch.problems)
