"""The emulated deployment behind one address."""

import asyncio
import json
from random import Random
from urllib.parse import parse_qs

from auditor.emulator.blocks import unit_keys
from auditor.emulator.clock import Clock, clock_of
from auditor.emulator.dialect import Ask, Deployment, Dialect
from auditor.emulator.engine import Engine
from auditor.emulator.gateway import Gateway
from auditor.emulator.http import LAST_CHUNK, Connection, Exchange, HttpRequest, Response, json_response
from auditor.emulator.memory import pool_size
from auditor.emulator.record import Record, RequestRecord
from auditor.emulator.reply import Manner, Reply
from auditor.emulator.scheduler import Job
from auditor.emulator.sglang import SglangDialect
from auditor.emulator.spec import Spec, served
from auditor.emulator.vllm import VllmDialect
from auditor.emulator.wire import Wire

__all__ = ["Emulator"]

BACKLOG = 4096
GENERATE = {"/v1/completions": False, "/v1/chat/completions": True}
HEALTH = ("/health", "/health_generate")


class Emulator:
    """Serves a Spec over HTTP. `record` tells what it really did.

    UsageError where the real engine would refuse to start.
    """

    def __init__(self, spec: Spec, clock: Clock | None = None) -> None:
        self.spec = served(spec)
        self.size = pool_size(self.spec)
        self.record = Record(kv_capacity=self.size.slots)
        self.port = 0
        self._clock = clock
        self._dialect: Dialect = VllmDialect() if self.spec.flavour == "vllm" else SglangDialect()
        self._connections: set[Connection] = set()
        self._random = Random(f"server {self.spec.seed}")
        self._count = 0
        self._server: asyncio.Server | None = None
        self._foreign: asyncio.TimerHandle | None = None

    @property
    def url(self) -> str:
        """The address of the API, as a client's base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; the port that was taken."""
        self._loop = asyncio.get_running_loop()
        self._time = self._clock or clock_of(self._loop)
        count = self.spec.replicas * self.spec.data_parallel
        engines = [Engine(self.spec, self.size, self.record, self._time, index) for index in range(count)]
        self._deployment = Deployment(self.spec, self.size, tuple(engines), self._time.unix(self._time.now()))
        self._gateway = Gateway(self.spec.faults, self._time.now)
        self._server = await self._loop.create_server(self._connection, host, port, backlog=BACKLOG, reuse_address=True)
        self.port = self._server.sockets[0].getsockname()[1]
        if self.spec.faults.foreign_rate:
            self._next_foreign()
        return self.port

    async def stop(self) -> None:
        """Stop listening and computing, cut what is open."""
        self._close()
        await asyncio.sleep(0)

    def _close(self) -> None:
        if self._foreign:
            self._foreign.cancel()
        if self._server:
            self._server.close()
            self._server = None
        for connection in tuple(self._connections):
            connection.transport.abort()
        for engine in self._deployment.engines:
            engine.stop()

    # ---------------------------------------------------------------------------------------------------------- HTTP

    def _connection(self) -> Connection:
        extra = (("server", "uvicorn"),)
        return Connection(self._handle, self._time, extra, self._connections)

    def _handle(self, request: HttpRequest, exchange: Exchange) -> None:
        if request.path == "/emulator/record":
            asked = parse_qs(request.query, keep_blank_values=True)
            exchange.respond(json_response(self.record.data(times="times" in asked, steps="steps" in asked)))
            return
        key = self.spec.api_key
        if key and self._dialect.guarded(request.path) and request.headers.get("authorization") != f"Bearer {key}":
            self._answer(exchange, json_response({"error": "Unauthorized"}, 401))
        elif request.path in GENERATE and request.method == "POST":
            self._generate(request, exchange)
        elif request.path in HEALTH and self.spec.flavour == "sglang" and request.method == "GET":
            self._health(exchange)
        elif request.path in ("/tokenize", "/v1/tokenize") and request.method == "POST":
            body = _json(request.body)
            response = self._dialect.bad_json() if body is None else self._dialect.tokenize(body, self._deployment)
            self._answer(exchange, response)
        else:
            self._answer(exchange, self._information(request))

    def _information(self, request: HttpRequest) -> Response:
        now = self._time.unix(self._time.now())
        response = self._dialect.get(request.path, self._deployment, now)
        allowed = "POST" if request.path in (*GENERATE, "/tokenize") else "GET" if response else None
        if allowed is None:
            return json_response({"detail": "Not Found"}, 404)
        if request.method != allowed or response is None:
            return json_response({"detail": "Method Not Allowed"}, 405, (("allow", allowed),))
        return response

    def _answer(self, exchange: Exchange, response: Response) -> None:
        exchange.respond(self._gateway.dress(response))

    # ------------------------------------------------------------------------------------------------------ generate

    def _generate(self, request: HttpRequest, exchange: Exchange) -> None:
        faults = self.spec.faults
        self._count += 1
        record = RequestRecord(index=self._count - 1, name="", path=request.path, arrival=exchange.arrival)
        self.record.requests.append(record)
        if faults.dies_after and self._count > faults.dies_after:
            record.fault = "died"
            self._close()
            return
        response = self._gateway.limit() or self._gateway.broken()
        body = _json(request.body)
        if response is None and body is None:
            response = self._dialect.bad_json()
        if response is None:
            assert body is not None
            ask = self._dialect.check(body, GENERATE[request.path], self.spec, self.size)
            if isinstance(ask, Ask):
                self._accept(ask, exchange, record)
                return
            response = ask.response
        record.status = response.status
        record.finished = exchange.arrival
        self._answer(exchange, response)

    def _accept(self, ask: Ask, exchange: Exchange, record: RequestRecord) -> None:
        engine = self._deployment.engines[(self._count - 1) % len(self._deployment.engines)]
        record.replica = engine.index
        record.name = f"{self._random.getrandbits(128):032x}"
        created = int(self._time.unix(exchange.arrival))
        faults = self.spec.faults
        if faults.queue_limit and engine.queued >= faults.queue_limit:
            self._refuse(ask, exchange, record, engine, created)
            return
        job = self._job(ask, record)
        prefix = "" if self.spec.flavour == "sglang" else "chatcmpl-" if ask.chat else "cmpl-"
        name = record.name if self.spec.flavour == "sglang" else prefix + record.name[:16]
        wire = Wire(self.spec.flavour == "sglang", ask.chat, name, created, ask.model, f"vllm-{self.spec.version}-tp1")
        reply = Reply(exchange, wire, job, self._manner(ask, record.index), record)
        job.emit = reply.emit
        exchange.gone = lambda: self._gone(engine, job, record)
        engine.submit(job)
        if self.spec.flavour == "vllm":
            self._loop.call_later(engine.law.frontend, reply.open)

    def _refuse(self, ask: Ask, exchange: Exchange, record: RequestRecord, engine: Engine, created: int) -> None:
        self.record.refused += 1
        engine.counters.refusals += 1
        record.fault, record.finished = "refused", exchange.arrival
        answer = self._dialect.busy(ask, record.name, created)
        if isinstance(answer, Response):
            record.status = answer.status
            self._answer(exchange, answer)
        else:
            exchange.write(exchange.stream_head() + answer + LAST_CHUNK)
            exchange.end()

    def _job(self, ask: Ask, record: RequestRecord) -> Job:
        faults = self.spec.faults
        record.prompt_tokens = len(ask.prompt)
        unit = self._deployment.engines[0].scheduler.pool.unit
        return Job(
            name=record.name,
            prompt=len(ask.prompt),
            keys=unit_keys(ask.prompt, unit) if self.spec.prefix_caching and not faults.prefix_cached else [],
            limit=ask.limit,
            target=self._target(ask, record.index),
            ignore_eos=ask.ignore_eos,
            streamed=ask.stream,
            arrival=record.arrival,
        )

    def _target(self, ask: Ask, index: int) -> int:
        """How long the reply gets: to its end-of-text, not before min_tokens, not beyond the limit."""
        faults = self.spec.faults
        ends = int(Random(f"eos {self.spec.seed} {index}").expovariate(1 / self.spec.eos_tokens)) + 1
        least = 0 if faults.ignore_min_tokens else ask.least
        target = ask.limit if ask.ignore_eos else min(max(ends, least), ask.limit)
        return min(target, faults.short_replies) if faults.short_replies else target

    def _manner(self, ask: Ask, index: int) -> Manner:
        faults = self.spec.faults
        cuts = (("drop", faults.drop_every), ("stall", faults.stall_every), ("error", faults.error_in_stream_every))
        return Manner(
            stream=ask.stream and not faults.not_streamed,
            buffered=faults.buffered,
            usage=ask.usage and not faults.no_usage,
            continuous=ask.continuous and not faults.no_usage,
            details=self.spec.prompt_tokens_details,
            inflate=2 if faults.lies_usage else 1,
            cut=next((cut for cut, every in cuts if every and (index + 1) % every == 0), None),
        )

    def _gone(self, engine: Engine, job: Job, record: RequestRecord) -> None:
        if not job.done:
            engine.abort(job)
            record.note(job, self._time.now())
            record.fault = record.fault or "client left"

    def _health(self, exchange: Exchange) -> None:
        job = Job(name="HEALTH_CHECK", prompt=1, limit=1, target=1, internal=True, arrival=exchange.arrival)

        def emit(_count: int, _at: float, _done: bool) -> None:
            if exchange.open:
                exchange.respond(Response(200))

        job.emit = emit
        self._deployment.engines[0].submit(job)

    # ------------------------------------------------------------------------------------------------------- foreign

    def _next_foreign(self) -> None:
        wait = self._random.expovariate(self.spec.faults.foreign_rate)
        self._foreign = self._loop.call_later(wait, self._run_foreign)

    def _run_foreign(self) -> None:
        mean_prompt, mean_output = self.spec.faults.foreign_tokens
        room = self.spec.max_model_len // 2
        prompt = max(1, min(room, int(self._random.gauss(mean_prompt, mean_prompt / 4))))
        output = max(1, min(room - 1, int(self._random.gauss(mean_output, mean_output / 4))))
        engine = min(self._deployment.engines, key=lambda each: each.unfinished)
        now = self._time.now()
        record = RequestRecord(index=-1, name="foreign", path="", arrival=now, replica=engine.index, foreign=True,
                               prompt_tokens=prompt)  # fmt: skip
        self.record.requests.append(record)
        job = Job(name="foreign", prompt=prompt, limit=output, target=output, arrival=now)

        def emit(count: int, at: float, done: bool) -> None:
            record.times.append(at)
            record.counts.append(count)
            if done:
                record.note(job, at)

        job.emit = emit
        engine.submit(job)
        self._next_foreign()


def _json(body: bytes) -> dict[str, object] | None:
    try:
        data = json.loads(body)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None
