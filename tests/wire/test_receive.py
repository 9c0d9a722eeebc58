"""Who times a read: the kernel where it can, the loop's clock elsewhere, and never a clock that was set meanwhile."""

import asyncio
import itertools
import select
import socket
import sys
import time
from collections.abc import Callable

import pytest

from auditor.emulator.clock import VIRTUAL_START, run_virtual
from auditor.loads import Load, Shape
from auditor.measurement import Measurement
from auditor.probe.load import LocalSource
from auditor.probe.prompts import Prompts
from auditor.probe.receive import ASIDE, SHORT, Counting, Receiver
from auditor.probe.target import Target
from tests.wire.byteserver import ByteServer, tokens

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's stamps are Linux's")
Read = tuple[float, bytes | OSError]


class Listener:
    """Keeps what a receiver hands out."""

    def __init__(self, quiet: tuple[bytes, ...] = ()) -> None:
        self.reads: list[Read] = []
        self.quiet, self.waiting = quiet, 0
        self.counter: Counting | None = None
        self.aside: list[tuple[float, bytes]] = []

    def received(self, at: float, data: bytes) -> None:
        self.reads.append((at, data))

    def lost(self, problem: OSError) -> None:
        self.reads.append((0.0, problem))


def told(act: Callable[[socket.socket, Receiver], None], *, busy: float = 0.0) -> tuple[list[Read], Receiver, float]:
    """What a receiver tells of one TCP connection after `act` on its other end and a loop that is busy for a while."""

    async def run() -> tuple[list[Read], Receiver, float]:
        receiver, listener = Receiver(), Listener()
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as ours:
            receiver.prepare(ours)
            ours.connect(server.getsockname())
            ours.setblocking(False)
            theirs, _ = server.accept()
            receiver.add(ours, listener)
            await asyncio.sleep(0.05)  # the first stamps of a machine may take a moment to be switched on
            act(theirs, receiver)
            time.sleep(busy)
            read_from = time.monotonic()
            for _ in range(200):
                if listener.reads:
                    break
                await asyncio.sleep(0.01)
            receiver.remove(ours)
            receiver.close()
            theirs.close()
        return listener.reads, receiver, read_from

    return asyncio.run(run())


@linux
def test_a_read_has_the_time_at_which_its_bytes_came_however_late_it_is() -> None:
    sent: list[float] = []

    def send(theirs: socket.socket, _receiver: Receiver) -> None:
        sent.append(time.monotonic())
        theirs.send(b"x")
        sent.append(time.monotonic())

    reads, receiver, read_from = told(send, busy=0.3)
    assert receiver.clock == "kernel"
    at, data = reads[0]
    assert data == b"x"
    assert sent[0] - 0.001 <= at <= sent[1] + 0.1
    assert read_from - at > 0.15
    assert receiver.late_reads == 1.0  # what came with it would bear its time


@linux
def test_reads_that_come_in_time_are_not_late() -> None:
    """A machine that is busy with other things may be late with one, not with each of several."""
    tries = [told(lambda theirs, _receiver: theirs.send(b"x") and None) for _ in range(5)]
    assert all(len(reads) == 1 for reads, _, _ in tries)
    assert 0.0 in [receiver.late_reads for _, receiver, _ in tries]


@linux
@pytest.mark.parametrize("step", [3600.0, -3600.0, 0.5])
def test_a_clock_that_was_set_moves_no_read_out_of_the_time_in_which_it_can_have_come(
    step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, began = time.time_ns, time.monotonic()
    monkeypatch.setattr(time, "time_ns", lambda: real() + int(step * 1e9))
    reads, _, _ = told(lambda theirs, _receiver: theirs.send(b"x") and None)
    assert began <= reads[0][0] <= time.monotonic()


def test_without_stamps_the_loops_clock_counts_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auditor.probe.receive._STAMP", 10_000)  # an option that no system knows
    began = time.monotonic()
    reads, receiver, read_from = told(lambda theirs, _receiver: theirs.send(b"x") and None, busy=0.05)
    assert receiver.clock == "loop"
    assert began < read_from <= reads[0][0] <= time.monotonic()


def test_systems_without_epoll_read_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def loop() -> Measurement:
        monkeypatch.delattr(select, "epoll", raising=False)
        return await _load()

    assert _healthy(asyncio.run(loop())) == "loop"


@linux
def test_whoever_works_for_long_looks_for_what_comes_meanwhile() -> None:
    """Bytes that come apart are not read together, so each has its time."""

    def send(theirs: socket.socket, receiver: Receiver) -> None:
        for byte in (b"a", b"b", b"c"):
            theirs.send(byte)
            time.sleep(0.02)
            receiver.keep_up()

    reads, _, _ = told(send)
    assert [data for _, data in reads] == [b"a", b"b", b"c"]
    times = [at for at, _ in reads]
    assert all(later - earlier > 0.015 for earlier, later in itertools.pairwise(times))


def test_what_a_connection_says_at_its_end_is_told_before_its_end() -> None:
    def send(theirs: socket.socket, _receiver: Receiver) -> None:
        theirs.send(b"last words")
        theirs.shutdown(socket.SHUT_WR)

    reads, _, _ = told(send)
    assert reads[0][1] == b"last words"


def test_virtual_time_is_not_the_kernels() -> None:
    async def run() -> tuple[str, float]:
        receiver = Receiver()
        clock, now = receiver.clock, receiver.now()
        receiver.close()
        return clock, now

    clock, now = run_virtual(run())
    assert (clock, now) == ("virtual", pytest.approx(VIRTUAL_START))


async def _load() -> Measurement:
    shape = Shape(cls="c", prompt_tokens=8, output_tokens=3)
    asking = Receiver()
    await asyncio.sleep(0.1)  # stamps take a moment to begin
    async with ByteServer(tokens(3, first=0.05, gap=0.01), keep=True) as server:
        source = LocalSource(Target(url=server.url, model="m"), Prompts(1, 1.0, 0, nonce=""))
        measured = await source.run(Load(id="l", purpose="slo", concurrency=4, shapes=(shape,) * 12))
    asking.close()
    return measured


def _healthy(measured: Measurement) -> str:
    assert [sample.error for sample in measured.samples] == [None] * 12
    assert {len(sample.arrivals) for sample in measured.samples} == {3}
    assert all((sample.ttft or 0) > 0.04 for sample in measured.samples)
    return measured.client.clock


def test_other_event_loops_give_the_same_times() -> None:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        clock = _healthy(runner.run(_load()))
    assert clock == ("kernel" if sys.platform == "linux" else "loop")


# ----------------------------------------------------------------------------------------------- quiet and long streams


async def _heard(listener: Listener, sent: list[bytes], *, close: bool = False, enough: int = 1) -> Receiver:
    """Send each of `sent` on a connection that `listener` hears, a moment apart, until it was told `enough` times."""
    receiver = Receiver()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as ours:
        ours.connect(server.getsockname())
        ours.setblocking(False)
        theirs, _ = server.accept()
        receiver.add(ours, listener)
        for data in sent:
            await asyncio.to_thread(theirs.sendall, data)
            await asyncio.sleep(0.01)
        if close:
            theirs.close()
        for _ in range(200):
            if len(listener.reads) >= enough:
                break
            await asyncio.sleep(0.01)
        receiver.remove(ours)
        receiver.close()
        theirs.close()
    return receiver


def test_short_quiet_reads_are_put_aside_in_order() -> None:
    listener = Listener(quiet=(b"}\n", b"]\n"))
    asyncio.run(_heard(listener, [b"a}\n", b"b]\n", b"c"]))
    assert [data for _, data in listener.aside] == [b"a}\n", b"b]\n"]
    assert [data for _, data in listener.reads] == [b"c"]
    times = [at for at, _ in (*listener.aside, *listener.reads)]
    assert times == sorted(times)


def test_a_stream_is_told_of_a_long_quiet_read_and_when_many_were_put_aside() -> None:
    listener = Listener(quiet=(b"}\n",))
    asyncio.run(_heard(listener, [b"x" * (SHORT - 1) + b"}\n"]))
    assert (listener.aside, len(listener.reads)) == ([], 1)
    listener = Listener(quiet=(b"}\n",))
    listener.aside = [(0.0, b"}\n")] * ASIDE
    asyncio.run(_heard(listener, [b"}\n"]))
    assert len(listener.reads) == 1


def test_a_quiet_read_behind_one_that_is_still_to_be_handed_out_waits_for_it() -> None:
    listener = Listener(quiet=(b"}\n",))
    listener.waiting = 1
    asyncio.run(_heard(listener, [b"}\n"]))
    assert (listener.aside, len(listener.reads)) == ([], 1)


class Taker:
    """Takes reads of one letter."""

    def __init__(self) -> None:
        self.took: list[bytes] = []

    def take(self, at: float, data: bytes) -> bool:
        if len(data) == 1:
            self.took.append(data)
        return len(data) == 1


def test_a_counter_takes_what_it_knows_and_the_stream_is_told_of_the_rest() -> None:
    listener, taker = Listener(), Taker()
    listener.counter = taker
    asyncio.run(_heard(listener, [b"a", b"b", b"more"]))
    assert (taker.took, [data for _, data in listener.reads]) == ([b"a", b"b"], [b"more"])


def test_a_counter_takes_nothing_before_what_came_earlier_is_handed_out() -> None:
    listener, taker = Listener(), Taker()
    listener.counter, listener.waiting = taker, 1
    asyncio.run(_heard(listener, [b"a"]))
    assert (taker.took, [data for _, data in listener.reads]) == ([], [b"a"])


def test_what_came_before_the_end_and_the_end_are_both_told() -> None:
    listener = Listener()
    asyncio.run(_heard(listener, [b"last words"], close=True, enough=2))
    assert [data for _, data in listener.reads] == [b"last words", b""]


def test_more_bytes_than_one_read_takes_come_whole() -> None:
    listener, long = Listener(), bytes(range(256)) * 2000
    asyncio.run(_heard(listener, [long], enough=10**6))
    assert b"".join(data for _, data in listener.reads if isinstance(data, bytes)) == long
