"""256 streams of 50 tokens/s on one core. The structure is asserted; lateness, which is the machine's, is printed."""

import asyncio
import json
import time
from bisect import bisect_right
from dataclasses import replace

import httpx
import pytest

from auditor.emulator.process import start_process
from auditor.emulator.spec import DEFAULT_DEVICE, Spec

STREAMS, TOKENS = 256, 150
# An accelerator half as fast as the default one: about 20 ms a step with 256 sequences.
SLOW = replace(DEFAULT_DEVICE, bandwidth=1.75e12, flops={"bf16": 550e12})


class Stream(asyncio.Protocol):
    """Stores when bytes came; counts events afterwards."""

    def __init__(self, request, ended):
        self.request, self.ended, self.reads = request, ended, []

    def connection_made(self, transport):
        self.transport = transport

    def go(self):
        self.transport.write(self.request)

    def data_received(self, data):
        self.reads.append((time.monotonic(), data))
        if data.endswith(b"0\r\n\r\n"):
            self.transport.close()
            self.ended()


async def stream_all(url):
    port = int(url.split(":")[2].split("/")[0])
    body = json.dumps({"prompt": "a b c", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    loop = asyncio.get_running_loop()
    left, over = STREAMS, loop.create_future()

    def ended():
        nonlocal left
        left -= 1
        if not left:
            over.set_result(None)

    streams = [
        (await loop.create_connection(lambda: Stream(request, ended), "127.0.0.1", port))[1] for _ in range(STREAMS)
    ]
    for stream in streams:
        stream.go()
    await asyncio.wait_for(over, 60)
    return streams


@pytest.mark.slow
def test_256_streams_of_50_tokens_a_second():
    async def main():
        url, stop = await start_process(Spec(device=SLOW, jitter=0.0))
        try:
            streams = await stream_all(url)
            with httpx.Client(trust_env=False, timeout=60) as client:
                return streams, client.get(url.replace("/v1", "/emulator/record?times&steps")).json()
        finally:
            stop()

    streams, record = asyncio.run(main())
    assert [sum(data.count(b"data: {") for _, data in stream.reads) for stream in streams] == [TOKENS] * STREAMS
    assert all(request["output_tokens"] == TOKENS for request in record["requests"])
    full = [step for step in record["steps"] if step["decodes"] == STREAMS]
    assert len(full) > TOKENS - 30
    assert all(0.015 < step["due"] - step["start"] < 0.025 for step in full)
    dues = [step["due"] for step in record["steps"]]
    late = sorted(
        at - dues[bisect_right(dues, at + 0.001) - 1]
        for stream in streams
        for at, _ in stream.reads
        if at > full[0]["due"]
    )
    p50, p99 = late[len(late) // 2], late[int(0.99 * len(late))]
    print(f"client saw tokens {p50 * 1e3:.1f} ms (p50), {p99 * 1e3:.1f} ms (p99) after their step was due")
    assert p50 < 0.02  # a server that cannot keep up drifts by seconds
