"""One exchange against scripted bytes, on the virtual clock: what a stall of ten minutes costs is nothing."""

import asyncio
import errno
import json
import shutil
import socket
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from auditor.emulator.clock import run_virtual
from auditor.errors import UsageError
from auditor.loads import Load, Shape
from auditor.measurement import Measurement, Sample
from auditor.probe.connection import Places
from auditor.probe.framing import Limits
from auditor.probe.load import LocalSource, ask
from auditor.probe.pool import Pool
from auditor.probe.prompts import Prompts
from auditor.probe.target import Deadlines, Target, address_of, request_body, request_bytes
from auditor.probe.transport import Exchange, exchange
from tests.wire.byteserver import HOLD, RESET, ByteServer, Script, chunked, head, sse, tokens

TOKEN = sse('{"id":"r","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}')
FINISH = sse('{"id":"r","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}')
DONE = sse("[DONE]")
WAITS = Deadlines(connect=5, first_token=100, gap=20, total=500)


async def _exchange(
    url: str, body: bytes, *, places: Places | None = None, limits: Limits | None = None, record: Exchange | None = None
) -> Exchange:
    address = address_of(Target(url=url, model="m"))
    pool = Pool(address, WAITS, places)
    record = record or Exchange(begun=pool.receiver.now())
    try:
        await exchange(pool, request_bytes(address, {}, body), record, limits=limits)
    finally:
        pool.close()
    return record


async def _ask(server: ByteServer, output: int = 4, deadlines: Deadlines = WAITS, **target: object) -> Sample:
    made = Target(url=server.url, model="m", **target)  # type: ignore[arg-type]
    return await ask(made, "say hi", output, deadlines)


def sample(script: Script, *, one_byte: bool = False, output: int = 4, deadlines: Deadlines = WAITS) -> Sample:
    async def run() -> Sample:
        async with ByteServer(script, one_byte=one_byte) as server:
            return await _ask(server, output, deadlines)

    return run_virtual(run())


def raw(script: Script, *, limits: Limits | None = None, read_request: bool = True) -> Exchange:
    async def run() -> Exchange:
        async with ByteServer(script, read_request=read_request) as server:
            return await _exchange(server.url, b"{}", limits=limits)

    return run_virtual(run())


# --------------------------------------------------------------------------------------------------------- good replies


@pytest.mark.parametrize("one_byte", [False, True])
def test_a_good_stream_is_timed_from_the_last_byte_of_the_request(one_byte: bool) -> None:
    got = sample(tokens(4, first=0.3, gap=0.05), one_byte=one_byte)
    assert (got.error, got.status, got.finish_reason, got.server_id) == (None, 200, "length", "r")
    assert got.ttft == pytest.approx(0.3)
    assert got.arrivals == pytest.approx((0.3, 0.35, 0.40, 0.45))
    assert got.e2e == pytest.approx(0.45)
    assert (got.prompt_tokens, got.output_tokens, got.estimated) == (7, 4, False)
    assert got.tpot == pytest.approx(0.05)


def test_the_end_of_the_stream_is_kept_apart_from_the_last_token() -> None:
    script = [(0.0, head()), (0.1, TOKEN), (0.5, FINISH + DONE + chunked(b""))]
    got = sample(script, output=1)
    assert got.e2e == pytest.approx(0.1)
    assert got.closed == pytest.approx(0.6)


def test_done_ends_a_request_whose_connection_stays_open() -> None:
    got = sample([(0.0, head()), (0.1, TOKEN + FINISH + DONE), HOLD])
    assert (got.error, got.closed) == (None, None)


def test_done_inside_a_text_ends_nothing() -> None:
    text = sse('{"choices":[{"index":0,"delta":{"content":"data: [DONE]"},"finish_reason":null}]}')
    got = sample([(0.0, head()), (0.1, text), (0.1, TOKEN + FINISH), (0.2, DONE + chunked(b""))])
    assert len(got.arrivals) == 2
    assert got.closed == pytest.approx(0.4)


def test_the_request_says_what_it_must() -> None:
    async def run() -> tuple[str, dict[str, object]]:
        async with ByteServer(tokens(2)) as server:
            target = Target(
                url=server.url + "/",
                model="m",
                headers={"Authorization": "Bearer k", "accept-encoding": "gzip", "X-Team": "a"},
                force="min_tokens",
                extra_body={"temperature": 0.7, "top_k": 1},
            )
            await ask(target, "say hi", 12)
            return server.requests[0].head, json.loads(server.requests[0].body)

    top, body = run_virtual(run())
    lines = top.lower().split("\r\n")
    assert lines[0] == "post /v1/chat/completions http/1.1"
    assert {"authorization: bearer k", "accept-encoding: identity", "x-team: a"} <= set(lines)
    assert not {"accept-encoding: gzip", "connection: close"} & set(lines)
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "say hi"}],
        "max_tokens": 12,
        "min_tokens": 12,
        "temperature": 0.7,
        "top_k": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_completions_and_the_other_fields() -> None:
    target = Target(
        url="http://h", model="m", api="completions", force="ignore_eos", max_tokens_field="max_new", usage=False
    )
    assert json.loads(request_body(target, "p", 3)) == {
        "model": "m", "prompt": "p", "max_new": 3, "temperature": 0, "stream": True, "ignore_eos": True,
    }  # fmt: skip


def test_interim_replies_are_skipped() -> None:
    hints = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    got = sample([(0.1, hints), (5.0, head()), (0.1, TOKEN + FINISH + chunked(b""))])
    assert (got.error, got.status) == (None, 200)
    assert got.ttft == pytest.approx(5.2)


def test_headers_sent_early_are_not_the_first_token() -> None:
    assert sample([(0.01, head()), (3.0, TOKEN + FINISH + chunked(b""))]).ttft == pytest.approx(3.01)


@pytest.mark.parametrize("framing", ["", "content-length: {n}"])
def test_close_delimited_and_counted_bodies(framing: str) -> None:
    body = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
    got = sample([(0.1, head(framing=framing.format(n=len(body))) + body)])
    assert (got.error, got.finish_reason, len(got.arrivals)) == (None, "stop", 1)


# ------------------------------------------------------------------------------------------------------------ deadlines


def test_no_first_token_in_time_is_a_timeout_even_with_keep_alive_comments() -> None:
    comments = [(1.0, chunked(b": ping\n\n"))] * 150
    got = sample([(0.0, head()), *comments, (0.0, TOKEN)])
    assert (got.error, got.ttft, got.status) == ("timeout", None, 200)
    assert got.closed == pytest.approx(100)
    assert "100 s" in (got.detail or "")


def test_comments_keep_a_stream_alive_after_the_first_token() -> None:
    comments = [(15.0, chunked(b":\n\n"))] * 3
    got = sample([(0.0, head()), (1.0, TOKEN), *comments, (0.0, TOKEN + FINISH + chunked(b""))])
    assert got.error is None
    assert got.largest_gap == pytest.approx(45)


def test_a_stream_that_stands_still_is_stalled_and_keeps_its_tokens() -> None:
    got = sample([(0.0, head()), (1.0, TOKEN), (1.0, TOKEN), HOLD])
    assert (got.error, got.ttft, got.e2e) == ("stalled", pytest.approx(1), pytest.approx(2))
    assert got.closed == pytest.approx(22)
    assert (got.output_tokens, got.estimated) == (2, True)


def test_an_endless_stream_ends_at_the_total_deadline() -> None:
    got = sample([(0.0, head()), *[(1.0, TOKEN)] * 1000])
    assert (got.error, len(got.arrivals)) == ("timeout", pytest.approx(500, abs=1))
    assert got.closed == pytest.approx(500)


def test_a_slow_drip_of_headers_is_a_timeout() -> None:
    got = sample([(1.0, bytes([byte])) for byte in b"HTTP/1.1 200 OK\r\n" + b"x: yyyyyyyyy\r\n" * 50])
    assert (got.error, got.status) == ("timeout", None)


def test_a_server_that_takes_no_request_is_a_timeout() -> None:
    async def run() -> Exchange:
        server = socket.create_server(("127.0.0.1", 0))
        with server:
            return await _exchange(f"http://127.0.0.1:{server.getsockname()[1]}/v1", b"x" * 20_000_000)

    got = run_virtual(run())
    assert (got.error, got.t0, got.closed is not None) == ("timeout", None, True)
    assert "not taken" in (got.detail or "")


# ------------------------------------------------------------------------------------------------------- broken replies


def test_a_reset_in_the_middle_is_cut_off() -> None:
    got = sample([(0.0, head()), (0.1, TOKEN), (0.1, TOKEN), (0.1, b""), RESET])
    assert (got.error, len(got.arrivals)) == ("cut_off", 2)
    assert "in the middle of the reply" in (got.detail or "")


def test_an_early_close_is_cut_off() -> None:
    got = sample([(0.0, head()), (0.1, TOKEN)])
    assert (got.error, len(got.arrivals)) == ("cut_off", 1)


def test_a_close_before_any_answer_is_cut_off() -> None:
    got = sample([])
    assert (got.error, got.status) == ("cut_off", None)
    assert "before it answered" in (got.detail or "")


def test_a_stream_without_finish_or_done_is_cut_off() -> None:
    got = sample([(0.0, head()), (0.1, TOKEN + chunked(b""))])
    assert (got.error, got.detail) == (
        "cut_off",
        "the stream ended without finish_reason or [DONE], after 1 events with tokens",
    )


def test_an_event_cut_in_its_middle_is_cut_off_and_not_broken_json() -> None:
    got = sample([(0.0, head()), (0.1, TOKEN), (0.1, b'20\r\ndata: {"choices":[{"de'), (0.1, b""), RESET])
    assert (got.error, len(got.arrivals)) == ("cut_off", 1)


def test_an_error_inside_a_good_status() -> None:
    busy = sse('{"error": {"message": "The engine is busy", "type": "Unavailable", "code": 503}}')
    got = sample([(0.0, head()), (0.1, TOKEN + busy + DONE + chunked(b""))])
    assert (got.error, got.detail, got.status) == ("in_stream", "503: The engine is busy", 200)


def test_a_gzip_reply_is_a_protocol_error_that_names_it() -> None:
    got = sample([(0.0, head(framing="content-encoding: gzip\r\ncontent-length: 5") + b"\x1f\x8b\x08\x00\x00")])
    assert got.error == "protocol"
    assert "gzip" in (got.detail or "")


def test_an_html_page_is_a_protocol_error() -> None:
    page = b"<html><title>Login</title></html>"
    got = sample([(0.0, head(kind="text/html", framing=f"content-length: {len(page)}") + page)])
    assert (got.error, got.status) == ("protocol", 200)
    assert "text/html, not an event stream" in (got.detail or "")


def test_a_json_body_is_not_streamed_but_its_usage_is_read() -> None:
    body = json.dumps(
        {"choices": [{"message": {"content": "a b"}, "finish_reason": "length"}],
         "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
    ).encode()  # fmt: skip
    got = sample([(2.0, head(kind="application/json", framing=f"content-length: {len(body)}") + body)])
    assert (got.error, got.ttft, got.prompt_tokens, got.output_tokens) == ("not_streamed", None, 9, 4)


def _status(line: str, extra: str = "", body: bytes = b"") -> Sample:
    framing = f"content-length: {len(body)}" + extra
    return sample([(0.0, head(line, kind="application/json", framing=framing) + body)])


def test_statuses_become_words_with_the_servers_own_message() -> None:
    gone = _status("404 Not Found", body=b'{"error":{"message":"no model m","code":404}}')
    assert (gone.error, gone.detail) == ("http_4xx", "HTTP 404: no model m")
    flat = _status("400 Bad Request", body=b'{"object":"error","message":"too long","code":400}')
    assert flat.detail == "HTTP 400: too long"
    key = _status("401 Unauthorized", body=b'{"error":"Unauthorized"}')
    assert (key.error, key.detail) == ("http_4xx", "HTTP 401: Unauthorized")
    page = _status("502 Bad Gateway", body=b"<html><head><title>502 Bad\n Gateway</title></head></html>")
    assert (page.error, page.detail) == ("http_5xx", "HTTP 502: 502 Bad Gateway")
    moved = _status("307 Temporary Redirect", "\r\nlocation: https://other/v1")
    assert (moved.error, "https://other/v1" in (moved.detail or "")) == ("protocol", True)


def test_a_gateways_quota_is_told_from_an_engines_own_refusal() -> None:
    quota = _status("429 Too Many Requests", "\r\nretry-after: 7\r\nx-ratelimit-remaining-requests: 0")
    assert (quota.error, quota.rate_limited, quota.retry_after) == ("http_429", True, 7.0)
    engine = _status("429 Too Many Requests", body=b'{"error":"queue full"}')
    assert (engine.error, engine.rate_limited, engine.retry_after) == ("http_429", False, None)


def test_an_errors_body_that_never_ends_does_not_hide_the_status() -> None:
    got = sample([(0.0, head("503 Service Unavailable", framing="content-length: 900") + b"busy"), HOLD])
    assert (got.error, got.detail) == ("http_5xx", "HTTP 503: busy")
    assert got.closed == pytest.approx(5)


@pytest.mark.parametrize(
    ("bytes_sent", "said"),
    [
        (b"220 smtp ready\r\n", "not an HTTP/1.1 reply"),
        (b"HTTP/2 200\r\n\r\n", "not an HTTP/1.1 reply"),
        (b"HTTP/1.1 abc\r\n\r\n", "broken status line"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "broken header line"),
        (head(framing="content-length: -1"), "broken Content-Length"),
        (head(framing="content-length: 5\r\ncontent-length: 6"), "broken Content-Length"),
        (head(framing="transfer-encoding: gzip, chunked"), "transfer encoding"),
        (head() + b"zz\r\n", "broken chunk size"),
        (head() + b"3\r\nabcdef\r\n", "longer than its size line"),
        (head("101 Switching Protocols"), "another protocol"),
    ],
)
def test_garbage_is_a_protocol_error_at_once(bytes_sent: bytes, said: str) -> None:
    got = sample([(0.1, bytes_sent), HOLD])
    assert (got.error, got.closed) == ("protocol", pytest.approx(0.1))
    assert said in (got.detail or "")


def test_sizes_are_bounded() -> None:
    limits = Limits(headers=1000, size_line=50, body=2000, error_body=500)
    huge = raw([(0.0, b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 1000), HOLD], limits=limits)
    assert (huge.error, "headers are larger" in (huge.detail or "")) == ("protocol", True)
    interim = raw([(0.0, b"HTTP/1.1 100 Continue\r\n\r\n" * 100), HOLD], limits=limits)
    assert (interim.error, "headers are larger" in (interim.detail or "")) == ("protocol", True)
    line = raw([(0.0, head() + b"5;" + b"x" * 100), HOLD], limits=limits)
    assert (line.error, "framing is longer" in (line.detail or "")) == ("protocol", True)
    endless = raw([(0.0, head()), *[(0.1, TOKEN)] * 100, HOLD], limits=limits)
    assert (endless.error, "larger than 2000 bytes" in (endless.detail or "")) == ("protocol", True)
    page = raw([(0.0, head("500 Oops", framing="") + b"y" * 10_000), HOLD], limits=limits)
    assert (page.error, page.status, page.complete) == (None, 500, True)
    trailers = raw([(0.0, head() + b"0\r\n" + b"a: b\r\n" * 500), HOLD], limits=limits)
    assert (trailers.error, "trailers are larger" in (trailers.detail or "")) == ("protocol", True)


# ------------------------------------------------------------------------------------------------------ connecting, TLS


def test_a_refused_connection_names_host_and_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async def run() -> Sample:
        return await ask(Target(url=f"http://localhost:{port}/v1", model="m"), "x", 1)

    got = run_virtual(run())
    assert (got.error, got.connect, got.ttft) == ("connect", None, None)
    assert got.detail == f"localhost:{port}: connection refused"


def test_an_unknown_host_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_args: object, **_more: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", unknown)
    target = Target(url="http://llm.invalid/v1", model="m")
    got = run_virtual(ask(target, "x", 1))
    assert (got.error, got.detail) == ("connect", "llm.invalid:80: the host name cannot be resolved")
    load = Load(id="l", purpose="slo", concurrency=1, shapes=(Shape(cls="c", prompt_tokens=8, output_tokens=1),))
    measured = run_virtual(LocalSource(target, Prompts(0, 1.0, 0)).run(load))
    assert [sample.error for sample in measured.samples] == ["connect"]


def test_a_host_that_never_answers_is_a_connect_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silence(*_args: object) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", silence)
    got = run_virtual(ask(Target(url="http://192.0.2.1/v1", model="m"), "x", 1, WAITS))
    assert (got.error, got.detail, got.closed) == ("connect", "no connection within 5 s", pytest.approx(5))


def test_every_address_of_a_host_is_tried() -> None:
    async def run() -> Exchange:
        async with ByteServer(tokens(1)) as server:
            places = [(socket.AF_INET6, ("::1", 1, 0, 0)), (socket.AF_INET, ("127.0.0.1", server.port))]
            return await _exchange(server.url, b"{}", places=places)

    assert run_virtual(run()).status == 200


def test_no_free_local_port_is_this_machines_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none_left(*_args: object) -> None:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", none_left)
    with pytest.raises(UsageError, match="local ports"):
        run_virtual(ask(Target(url="http://127.0.0.1:9/v1", model="m"), "x", 1))


def test_t0_is_when_the_kernel_took_the_last_byte_of_a_large_request() -> None:
    async def run() -> tuple[Exchange, float]:
        loop = asyncio.get_running_loop()
        begun = loop.time()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(7)  # the request does not fit into the socket buffers until this server reads
            while not (await reader.read(65536)).endswith(b"END"):
                pass
            await asyncio.sleep(1)
            writer.write(head() + TOKEN + FINISH + chunked(b""))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**16)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            return await _exchange(url, b"x" * 20_000_000 + b"END"), begun

    got, begun = run_virtual(run())
    assert got.error is None
    assert (got.t0 or 0) - begun == pytest.approx(7)
    assert got.body.reply(complete=True).arrivals[0] - (got.t0 or 0) == pytest.approx(1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return folder


def _server_context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def test_tls_with_its_own_authority_without_checking_and_untrusted(certificate: Path) -> None:
    async def run() -> list[Sample]:
        async with ByteServer(tokens(3), tls=_server_context(certificate)) as server:
            return [
                await _ask(server, ca=str(certificate / "cert.pem")),
                await _ask(server, verify_tls=False),
                await _ask(server),
            ]

    trusted, unchecked, refused = run_virtual(run())
    assert (trusted.error, trusted.output_tokens, trusted.ttft) == (None, 3, pytest.approx(0.1))
    assert unchecked.error is None
    assert refused.error == "tls"
    assert "verify_tls: false" in (refused.detail or "")


def test_a_tls_connection_is_kept_carries_large_requests_and_can_be_cut(certificate: Path) -> None:
    scripts: list[Script] = [tokens(3), tokens(2), [(0.0, head()), (0.1, TOKEN), (0.1, b""), RESET]]
    shape = Shape(cls="c", prompt_tokens=200_000, output_tokens=3)

    async def run() -> tuple[Measurement, int]:
        async with ByteServer(
            lambda _request, number: scripts[number], tls=_server_context(certificate), keep=True
        ) as server:
            target = Target(url=server.url, model="m", ca=str(certificate / "cert.pem"))
            load = Load(id="l", purpose="slo", concurrency=1, shapes=(shape,) * 3)
            return await LocalSource(target, Prompts(1, 1.0, 0), WAITS).run(load), server.accepted

    got, connections = run_virtual(run())
    assert [sample.error for sample in got.samples] == [None, None, "cut_off"]
    assert [sample.ttft for sample in got.samples] == pytest.approx([0.1] * 3)
    assert connections == 1


def test_the_wrong_scheme_is_named_both_ways() -> None:
    async def run() -> tuple[Sample, Sample]:
        async with ByteServer([(0.0, head("400 Bad Request", framing=""))], read_request=False) as plain:
            url = plain.url.replace("http:", "https:")
            on_plain = await ask(Target(url=url, model="m", verify_tls=False), "x", 1, WAITS)
        alert = b"\x15\x03\x01\x00\x02\x02\x46"  # what OpenSSL answers to plain HTTP: protocol_version
        async with ByteServer([(0.0, alert)]) as secure:
            return on_plain, await _ask(secure)

    on_plain, on_tls = run_virtual(run())
    assert (on_plain.error, on_plain.detail) == ("tls", "the port does not speak TLS; use http:// in endpoint.url")
    assert (on_tls.error, on_tls.detail) == ("tls", "the port speaks TLS; use https:// in endpoint.url")


def test_a_silent_port_gives_no_tls_handshake() -> None:
    async def run() -> Sample:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"https://127.0.0.1:{silent.getsockname()[1]}/v1"
            return await ask(Target(url=url, model="m"), "x", 1, WAITS)

    got = run_virtual(run())
    assert (got.error, got.detail) == ("tls", "no TLS handshake within 5 s")


def test_addresses() -> None:
    def shown(url: str, **more: object) -> tuple[str, int, str, str]:
        address = address_of(Target(url=url, model="m", **more))  # type: ignore[arg-type]
        return address.host, address.port, address.path, address.host_header

    assert shown("http://h/v1/") == ("h", 80, "/v1/chat/completions", "h")
    assert shown("https://h:8443", api="completions") == ("h", 8443, "/v1/completions", "h:8443")
    for written in ("http://h", "http://h/", "http://h/v1", "http://h/v1/", "http://h/v1/chat/completions"):
        assert shown(written)[2] == "/v1/chat/completions"
    assert shown("http://h/gateway/chat/completions", api="completions")[2] == "/gateway/completions"
    assert shown("http://h/chat/completions")[2] == "/chat/completions"
    assert shown("http://[::1]:80/v1?api-version=2") == ("::1", 80, "/v1/chat/completions?api-version=2", "[::1]:80")
    made = address_of(Target(url="http://user:p%40ss@h/v1", model="m"))
    assert b"Authorization: Basic dXNlcjpwQHNz\r\n" in request_bytes(made, {}, b"")


@pytest.mark.parametrize("url", ["h:8000/v1", "ftp://h/v1", "http://h:port/v1", "http:///v1", ""])
def test_an_address_that_is_none_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match=r"endpoint\.url"):
        address_of(Target(url=url, model="m"))


def test_a_ca_file_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    target = Target(url="https://h/v1", model="m", ca=str(tmp_path / "missing.pem"))
    with pytest.raises(UsageError, match=r"missing\.pem"):
        address_of(target)
    (tmp_path / "bad.pem").write_text("no certificate")
    with pytest.raises(UsageError, match=r"bad\.pem"):
        address_of(replace(target, ca=str(tmp_path / "bad.pem")))


@pytest.mark.parametrize("headers", [{"X-A": "a\r\nX-B: b"}, {"bad name": "x"}, {"X": "\N{SNOWMAN}"}])
def test_headers_that_would_break_the_request_are_usage_errors(headers: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        request_bytes(address_of(Target(url="http://h", model="m")), headers, b"")


def test_an_error_page_that_is_compressed_is_named_and_an_answer_of_plain_text_is_kept() -> None:
    packed = _status("502 Bad Gateway", "\r\ncontent-encoding: gzip", b"\x1f\x8b")
    assert packed.detail == "HTTP 502: a gzip body"
    assert _status("500 Oops", body=b'"just text"').detail == 'HTTP 500: "just text"'
    assert _status("404 Not Found").detail == "HTTP 404"


def test_a_cancelled_exchange_keeps_what_was_read() -> None:
    async def run() -> Exchange:
        async with ByteServer([(0.0, head()), (1.0, TOKEN), HOLD]) as server:
            loop = asyncio.get_running_loop()
            record = Exchange(begun=loop.time())
            task = loop.create_task(_exchange(server.url, b"{}", record=record))
            await asyncio.sleep(3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return record

    got = run_virtual(run())
    assert (got.error, len(got.body.reply(complete=False).arrivals)) == ("cancelled", 1)
    assert got.closed is not None
    assert got.t0 is not None
    assert got.closed - got.t0 == pytest.approx(3)
