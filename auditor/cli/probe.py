"""`audit probe`: one load on one endpoint, measured."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from auditor.cli.deployment import AsJson, option
from auditor.cli.exits import INTERRUPTED, NOT_READY
from auditor.cli.keys import key_of
from auditor.cli.options import Wait, amount, positive
from auditor.cli.output import check_writable, write
from auditor.cli.watched import watched
from auditor.errors import UsageError, unread

if TYPE_CHECKING:
    from auditor.instruments.probe import Probed
    from auditor.probe.events import Listener

__all__ = ["command"]

MOST_REQUESTS = 1_000_000
MOST_TOKENS = 20_000_000


class Api(StrEnum):
    """Which method of the API is asked."""

    auto = "auto"
    chat = "chat"
    completions = "completions"


class Arrivals(StrEnum):
    """How the requests of an open loop follow each other."""

    poisson = "poisson"
    constant = "constant"


Url = Annotated[str, option("--url", metavar="URL", text="The API root, such as http://127.0.0.1:8000/v1.")]
Model = Annotated[str, typer.Option("--model", metavar="NAME", help="The model to ask; auto is the only one served.")]
ApiName = Annotated[Api, typer.Option("--api", help="Chat where it works, or which of both.")]
Concurrency = Annotated[int, typer.Option("--concurrency", metavar="N", min=1, help="Requests in flight.")]
Requests = Annotated[int, option("--requests", metavar="M", text="Generations to measure.")]
Prompt = Annotated[str, option("--prompt-tokens", metavar="P|LO:HI", text="Length of the prompts, or its range.")]
Output = Annotated[str, option("--output-tokens", metavar="O|LO:HI", text="Length of the replies, or its range.")]
Rate = Annotated[
    str | None, option("--rate", metavar="RATE", text="Open loop: send so many, such as 5/s, whatever comes back.")
]
ArrivalsName = Annotated[Arrivals, typer.Option("--arrivals", help="How the requests of --rate follow each other.")]
Warmup = Annotated[int, typer.Option("--warmup", metavar="N", min=0, help="Requests sent before, not counted.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Decides lengths and arrivals.")]
ErrorRate = Annotated[str, typer.Option("--error-rate", metavar="SHARE", help="More failures than this exit with 1.")]
Stall = Annotated[
    str, typer.Option("--stall", metavar="DURATION", help="A reply that stands still for so long has failed.")
]
KeyName = Annotated[str | None, option("--api-key-env", metavar="NAME", text="The variable that holds the API key.")]
Header = Annotated[list[str] | None, option("--header", metavar="NAME:VALUE", text="Sent along; repeatable.")]
ExtraBody = Annotated[str | None, option("--extra-body", metavar="JSON", text="Merged into every request's body.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Take any certificate of the server.", show_default=False)]
Rows = Annotated[Path | None, option("--requests-out", metavar="FILE", text="A JSON line for each measured request.")]


def command(
    *,
    url: Url,
    requests: Requests,
    prompt_tokens: Prompt,
    output_tokens: Output,
    concurrency: Concurrency = 1,
    rate: Rate = None,
    arrivals: ArrivalsName = Arrivals.poisson,
    warmup: Warmup = 0,
    model: Model = "auto",
    api: ApiName = Api.auto,
    api_key_env: KeyName = None,
    header: Header = None,
    extra_body: ExtraBody = None,
    insecure: Insecure = False,
    error_rate: ErrorRate = "1%",
    stall: Stall = "60s",
    wait: Wait = "0s",
    seed: Seed = 0,
    as_json: AsJson = False,
    requests_out: Rows = None,
) -> None:
    """Send one load to an endpoint and measure it.

    \b
    audit probe --url http://127.0.0.1:8000/v1 --concurrency 32 --requests 200 \\
                --prompt-tokens 16:256 --output-tokens 64
    audit probe --url ... --rate 5/s --requests 300 --prompt-tokens 1000 --output-tokens 200 --json

    Exits 0, with 1 where more requests failed than --error-rate allows, with 3 where nothing could be measured.
    """
    from auditor.instruments.probe import Question
    from auditor.probe.instrument import measure
    from auditor.probe.target import Deadlines
    from auditor.probe.waiting import until_there
    from auditor.profile import Endpoint, Profile
    from auditor.units import DURATION, RATE, SHARE

    question = Question(
        concurrency=concurrency,
        requests=_requests("--requests", requests, 1),
        prompt=_range("--prompt-tokens", prompt_tokens),
        output=_range("--output-tokens", output_tokens),
        rate=None if rate is None else positive("--rate", rate, RATE),
        arrivals=arrivals.value,
        warmup=_requests("--warmup", warmup, 0),
        seed=seed,
    )
    endpoint = Endpoint(
        url=_address(url),
        model=model,
        api=api.value,
        api_key_env=api_key_env,
        metrics=None,
        headers=_headers(header or []),
        extra_body=_body(extra_body),
        verify_tls=not insecure,
    )
    allowed, patience = amount("--error-rate", error_rate, SHARE), amount("--wait-ready", wait, DURATION)
    deadlines = Deadlines(gap=positive("--stall", stall, DURATION))
    if requests_out is not None:
        check_writable(requests_out, "--requests-out")
    key = key_of(api_key_env)

    async def work(show: "Listener") -> "Probed":
        await until_there(Profile(version=1, name="probe", endpoint=endpoint), key, patience, show)
        return await measure(question, endpoint, key, show, deadlines)

    probed = watched(work)
    _deliver(probed, requests_out, as_json=as_json)
    raise typer.Exit(_exit_code(probed, allowed))


# --------------------------------------------------------------------------------------------------------------- flags


def _requests(flag: str, value: int, least: int) -> int:
    if not least <= value <= MOST_REQUESTS:
        raise UsageError(f"{flag} {value}: {least} to {MOST_REQUESTS:,} requests can be held in memory")
    return value


def _range(flag: str, text: str) -> tuple[int, int]:
    """Lowest and highest of P or LO:HI."""
    from auditor.units import TOKENS

    first, colon, last = text.partition(":")
    low = int(amount(flag, first, TOKENS))
    high = int(amount(flag, last, TOKENS)) if colon else low
    if not 1 <= low <= high:
        raise UsageError(f"{flag} {text[:60]}: needs a length of at least one token, or LO:HI with LO no more than HI")
    if high > MOST_TOKENS:
        raise UsageError(f"{flag} {text[:60]}: no more than {MOST_TOKENS:,} tokens, which is beyond every model")
    return low, high


def _address(url: str) -> str:
    from auditor.loading.endpoint import address_fault

    if (fault := address_fault(url, query=False)) is not None:
        raise UsageError(f"--url: {fault}")
    return url


def _headers(lines: list[str]) -> dict[str, str]:
    from auditor.loading.endpoint import header_fault

    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise UsageError("--header: write it as 'Name: value'")
        if (fault := header_fault(name.strip(), value.strip())) is not None:
            raise UsageError(f"--header: {fault}")
        headers[name.strip()] = value.strip()
    return headers


def _body(text: str | None) -> dict[str, Any]:
    from auditor.loading.endpoint import OWN_BODY_KEYS

    try:
        body = json.loads(text, parse_constant=_no_number) if text else {}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--extra-body: no JSON ({error})") from None
    if not isinstance(body, dict):
        raise UsageError("--extra-body: needs a JSON object, such as '{\"top_p\": 0.9}'")
    if own := sorted(OWN_BODY_KEYS & body.keys()):
        raise UsageError(f"--extra-body: {own[0]} is set by other flags, or by the load itself")
    return body


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


# -------------------------------------------------------------------------------------------------------------- answer


def _deliver(probed: "Probed", rows: Path | None, *, as_json: bool) -> None:
    from auditor.instruments.probe import document, row
    from auditor.report.probe import render

    write(json.dumps(document(probed), indent=2) + "\n" if as_json else render(probed))
    if rows is None:
        return
    lines = (json.dumps(row(sample)) for sample in probed.measurement.samples)
    try:
        rows.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--requests-out {rows}: cannot be written ({unread(error)})") from None


def _exit_code(probed: "Probed", allowed: float) -> int:
    from auditor.instruments.probe import failed_share

    if probed.measurement.stopped == "interrupted":
        return INTERRUPTED
    share = failed_share(probed.measurement)
    return NOT_READY if share is not None and share > allowed else 0
