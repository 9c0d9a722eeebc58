"""Pitfalls of connections, proxies and clocks: what stands between client and engine, and the client itself."""

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

import pytest

from auditor.emulator.clock import run_virtual
from auditor.loads import Load, Shape
from auditor.measurement import Measurement
from auditor.probe.load import LocalSource
from auditor.probe.prompts import Prompts
from auditor.probe.target import Target, address_of
from tests.wire import naive
from tests.wire.benches import audited, gate
from tests.wire.byteserver import ByteServer, head
from tests.wire.habits import PEM, QUICK, Keeping, Serial, SlowShake, certified, clumps, only
from tests.wire.pitfalls import WAITS, Row, check, delta, ended, plain

X = delta(content="x")
See = Callable[[Measurement, ByteServer], Mapping[str, Any]]
Theirs = Callable[[list[naive.Answer], ByteServer], Mapping[str, Any]]


def load_of(requests: int, concurrency: int, output: int = 4, **more: Any) -> Load:
    shape = Shape(cls="chat", prompt_tokens=7, output_tokens=output)
    return Load(id="slo", purpose="slo", concurrency=concurrency, shapes=(shape,) * requests, **more)


def _audited(got: Measurement, server: ByteServer) -> Mapping[str, Any]:
    return audited(got) | {"peak": server.peak}


def _gate(answers: list[naive.Answer], server: ByteServer) -> Mapping[str, Any]:
    return gate(answers) | {"peak": server.peak}


def row(
    name: str,
    source: str,
    make: Callable[[], ByteServer],
    load: Load,
    *,
    url: Callable[[str], str] = str,
    see: See = _audited,
    theirs: Theirs = _gate,
    target: Mapping[str, Any] | None = None,
    verify: bool = False,
    run: Callable[[Coroutine[Any, Any, Any]], Any] = run_virtual,
    environ: Mapping[str, str] | None = None,
    stays: str = "",
    **want: Any,
) -> Row:
    """A load on a server of the row's own; `url` is what the user writes, `environ` is around both readers, `verify`
    lets the naive one trust the tests' certificate.
    """

    async def product() -> Mapping[str, Any]:
        async with make() as server:
            where = Target(url=url(server.url), model="m", **(target or {}))
            return see(await LocalSource(where, Prompts(0, 1.0, 0), WAITS).run(load), server)

    async def reader() -> Mapping[str, Any]:
        async with make() as server:
            answers, _ = await naive.bench(
                url(server.url),
                requests=len(load.shapes),
                concurrency=load.concurrency,
                output_tokens=load.shapes[0].output_tokens,
                verify=ssl.create_default_context(cafile=PEM) if verify else None,
            )
            return theirs(answers, server)

    def sight(work: Callable[[], Coroutine[Any, Any, Any]]) -> Callable[[], Mapping[str, Any]]:
        def look() -> Mapping[str, Any]:
            with pytest.MonkeyPatch.context() as patched:
                for key, value in (environ or {}).items():
                    patched.setenv(key, value)
                return dict(run(work()))

        return look

    return Row(name=name, source=source, want=want, ours=sight(product), naive=sight(reader), stays=stays)


# ---------------------------------------------------------------------------------------------------------------- rows


def _open(requests: int, rate: float, output: int = 1) -> Load:
    return load_of(requests, 1, output, arrivals=tuple(float(i) for i in range(requests)), rate=rate)


def _from_schedule(got: Measurement, _server: ByteServer) -> Mapping[str, Any]:
    waited = [(s.e2e or 0.0) + (s.late or 0.0) for s in got.samples]
    return {"worst": max(waited), "soon": sum(x <= 0.2 for x in waited) <= 0.7 * len(waited)}


def _from_sending(answers: list[naive.Answer], _server: ByteServer) -> Mapping[str, Any]:
    waited = [a.e2e for a in answers]
    return {"worst": max(waited), "soon": sum(x <= 0.2 for x in waited) <= 0.7 * len(waited)}


def _held_back(got: Measurement, _server: ByteServer) -> Mapping[str, Any]:
    (sample,) = got.samples
    told = audited(got)
    return {"clump": sample.clump, "detail": sample.via, "ttft": sample.ttft, "T507": told["T507"]}


ROWS: list[Row] = [
    row(
        "110 at once are 110 at the server",
        "https://github.com/vllm-project/guidellm/issues/487",
        lambda: ByteServer(plain(1.0, 0.01, 2)),
        load_of(110, 110, 2),
        peak=110,
        p95=1.0,
    ),
    row(
        "105 at once, and none waits inside the client",
        "https://github.com/gpustack/gpustack/pull/2324",
        lambda: ByteServer(plain(0.1, 0.01, 2)),
        load_of(105, 105, 2),
        peak=105,
        p95=0.1,
    ),
    row(
        "warm-up keeps to the concurrency too",
        "https://github.com/sgl-project/sglang/pull/39398",
        lambda: ByteServer(QUICK),
        load_of(8, 4, warmup=(Shape(cls="chat", prompt_tokens=7, output_tokens=4),) * 20),
        peak=4,
        stays="it has no warm-up, and times a cold engine instead",
    ),
    row(
        "a kept connection that closes upon the next request is no failure",
        "https://github.com/vllm-project/vllm-omni/issues/1374",
        lambda: Keeping(QUICK, replies=1),
        load_of(10, 1),
        sent=10,
        failed=0,
        stays="it leaves each reply before its last byte, so that its library keeps no connection",
    ),
    row(
        "a kept connection that closes when idle is no failure",
        "https://github.com/llm-d/llm-d/pull/1564",
        lambda: Keeping(QUICK, idle=2.0),
        load_of(5, 1, arrivals=(0.0, 2.13, 4.26, 6.39, 8.52), rate=1.0),
        sent=5,
        failed=0,
        p95=0.1,
        stays="its next request follows at once, so nothing is idle",
    ),
    row(
        "connecting is no part of TTFT",
        "https://github.com/vllm-project/vllm/issues/22161",
        lambda: SlowShake(QUICK),
        load_of(12, 4),
        target={"verify_tls": False},
        verify=True,
        failed=0,
        p50=0.1,
        p95=0.1,
    ),
    row(
        "a certificate of one's own",
        "https://github.com/vllm-project/vllm/issues/29042",
        lambda: ByteServer(QUICK, tls=certified()),
        load_of(4, 1),
        target={"ca": str(PEM)},
        sent=4,
        failed=0,
    ),
    row(
        "an untrusted certificate fails by its name",
        "https://github.com/gpustack/gpustack/issues/6102",
        lambda: ByteServer(QUICK, tls=certified()),
        load_of(2, 1),
        see=lambda got, _server: {"sent": 2, "detail": got.samples[0].detail},
        sent=2,
        detail="certificate is not trusted .*verify_tls: false",
    ),
    row(
        "a proxy in the environment is not asked",
        "https://github.com/AgentFlocks/flocks/pull/158",
        lambda: ByteServer(QUICK),
        load_of(4, 1),
        environ={"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"},
        sent=4,
        failed=0,
    ),
    *(
        row(
            f"the address as people write it: {shown or 'the host alone'}",
            source,
            lambda: ByteServer(only("/v1/chat/completions")),
            load_of(2, 1),
            url=lambda url, shown=shown: url.removesuffix("/v1") + shown,  # type: ignore[misc]
            sent=2,
            failed=0,
            stays="the one way of writing it that it expects" if shown == "/v1" else "",
        )
        for shown, source in (
            ("", "https://github.com/sigoden/aichat/issues/767"),
            ("/", "https://github.com/sigoden/aichat/issues/767"),
            ("/v1", "https://github.com/vllm-project/vllm/issues/10373"),
            ("/v1/", "https://github.com/vllm-project/vllm/issues/10373"),
            ("/v1/chat/completions", "https://github.com/vllm-project/vllm/issues/10373"),
        )
    ),
    row(
        "waiting for a free slot is waiting",
        "https://github.com/vllm-project/vllm/issues/54101",
        lambda: ByteServer(Serial(0.5)),
        _open(8, 10.0),
        see=_from_schedule,
        theirs=_from_sending,
        worst=3.3,
    ),
    row(
        "a service that freezes for a second keeps all waiting who come then",
        "https://github.com/wg/wrk/issues/99",
        lambda: ByteServer(Serial(0.01, frozen=(0.5, 1.5))),
        _open(100, 50.0),
        see=_from_schedule,
        theirs=_from_sending,
        soon=True,
    ),
    row(
        "a proxy that passes on 16 KiB at a time",
        "https://github.com/confidential-dot-ai/c8s/issues/140",
        lambda: ByteServer(clumps(65, 195, 0.05)),
        load_of(1, 1, 195),
        see=_held_back,
        theirs=lambda answers, _server: {"clump": None, "ttft": answers[0].ttft},
        clump=65.0,
        ttft=3.25,
        detail="nginx",
        T507="inconclusive",
    ),
    row(
        "50 streams of large events: all counted",
        "https://github.com/vllm-project/vllm/issues/39963",
        lambda: ByteServer([(0.01, head() + delta(content="x" * 200_000)), (0.01, X), (0.0, ended(1001))]),
        load_of(50, 50, 1001),
        run=asyncio.run,
        see=lambda got, _server: {"sent": 50, "tokens": sum(s.output_tokens or 0 for s in got.samples)},
        theirs=lambda answers, _server: {"sent": len(answers), "tokens": sum(a.tokens for a in answers)},
        sent=50,
        tokens=50 * 1001,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_stands_between_is_no_part_of_the_service(row: Row) -> None:
    check(row)


# ---------------------------------------------------------------------------------------------------- the client itself


def test_a_client_that_is_busy_says_so() -> None:
    """Tokenising in the loop held 320 users at 15: https://github.com/kubernetes-sigs/inference-perf/issues/648."""

    async def run() -> Measurement:
        async def busy() -> None:
            while True:
                time.sleep(0.02)
                await asyncio.sleep(0)

        async with ByteServer(plain(0.05, 0.02, 4)) as server:
            hog = asyncio.create_task(busy())
            try:
                return await LocalSource(Target(url=server.url, model="m"), Prompts(0, 1.0, 0), WAITS).run(
                    load_of(4, 4)
                )
            finally:
                hog.cancel()

    got = asyncio.run(run())
    assert (got.client.loop_lag_max or 0) > 0.01
    unstamped = replace(got, client=replace(got.client, clock="loop"))  # where no kernel tells when bytes came
    assert audited(unstamped, 0.001)["T504"] == "inconclusive"


def test_a_wall_clock_that_steps_back_moves_no_latency() -> None:
    """NTP made latencies negative: https://github.com/openvinotoolkit/model_server/pull/1260."""
    real, steps = time.time, iter(range(10_000))

    async def run() -> Measurement:
        async with ByteServer(plain(0.02, 0.005, 4)) as server:
            return await LocalSource(Target(url=server.url, model="m"), Prompts(0, 1.0, 0), WAITS).run(load_of(6, 2))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "time", lambda: real() - 3600.0 * (next(steps) % 2))
        patched.setattr(time, "time_ns", lambda: int(1e9 * (real() - 3600.0 * (next(steps) % 2))))
        got = asyncio.run(run())
    assert all(s.good and 0 < (s.ttft or 0) <= (s.e2e or 0) < 60 for s in got.samples)


def test_requests_leave_at_their_times_and_not_one_after_the_other() -> None:
    """Sleeps between sends add up: 183 of 200 requests/s left. https://github.com/vllm-project/vllm/issues/21104."""

    async def run() -> Measurement:
        async with ByteServer(QUICK) as server:
            return await LocalSource(Target(url=server.url, model="m"), Prompts(0, 1.0, 0), WAITS).run(_open(50, 20.0))

    got = run_virtual(run())
    assert [sample.start for sample in got.samples] == pytest.approx([i / 20 for i in range(50)], abs=0.001)
    assert max(sample.late or 0 for sample in got.samples) < 0.001


def test_http_1_1_and_nothing_else_is_offered() -> None:
    """Streams that share a connection wait for each other: https://github.com/llm-d/llm-d-inference-sim/issues/106."""
    offered: list[str] = []

    async def run() -> tuple[Measurement, list[str]]:
        context = certified()
        context.set_alpn_protocols(["h2", "http/1.1"])
        context.sni_callback = lambda sock, _name, _context: offered.append(sock.version() or "")
        async with ByteServer(QUICK, tls=context) as server:
            where = Target(url=server.url, model="m", verify_tls=False)
            assert address_of(where).tls is not None
            got = await LocalSource(where, Prompts(0, 1.0, 0), WAITS).run(load_of(2, 1))
            return got, [request.head.splitlines()[0] for request in server.requests]

    got, lines = run_virtual(run())
    assert all(sample.good for sample in got.samples)
    assert set(lines) == {"POST /v1/chat/completions HTTP/1.1"}
