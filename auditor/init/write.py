"""A draft as the text of a profile: every value with its reason, what is assumed marked as such."""

import json
import math
import re
import shlex
from collections.abc import Iterator
from typing import Any

from auditor.init.draft import Draft, Said
from auditor.plan.presets import PRESETS
from auditor.profile import Lengths, Probe, is_loopback
from auditor.redact import Redactor
from auditor.yamlmarks import scalar

__all__ = ["profile_text"]

_WIDTH = 100
_LONGEST = 300
_PROMPT, _OUTPUT = Lengths(p50=500, p95=2000, max=4000), Lengths(p50=200, p95=500, max=1000)
_TARGET = 16
_PLAIN = re.compile(r"[A-Za-z0-9_./][\w./@+:=,~ -]*")
_DEPLOYMENT = (
    *("model", "accelerator", "count", "replicas", "tensor_parallel", "pipeline_parallel", "data_parallel"),
    *("quantization", "kv_cache_dtype", "engine_version", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
    *("gpu_memory_utilization", "mem_fraction_static", "block_size", "enforce_eager"),
)


def profile_text(draft: Draft, file: str, preset: str | None = None) -> str:
    """The profile that a draft gives, to be saved as `file`. No secret of the draft is in it.

    They are hidden before values are written, which may need quotes then, and in what was written.
    """
    hide = Redactor(draft.secrets)
    draft = hide.data(draft)
    parts = [
        *_head(draft, file),
        *_section("endpoint", _endpoint(draft)),
        *_section("deployment", _deployment(draft)),
        *_traffic(draft),
        *_goals(draft),
        *_probe(draft, preset),
        *_monitoring(draft),
    ]
    return hide.text("\n".join(parts) + "\n")


# --------------------------------------------------------------------------------------------------------------- pieces


def _plain(text: str) -> str:
    """A comment's text: on one line that people still read, without control codes."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 4] + " ..."


def _value(value: Any) -> str:
    """A value as YAML: text plain where that reads back as the same text, else in quotes."""
    if not isinstance(value, str):
        return json.dumps(value)
    fits = _PLAIN.fullmatch(value) and ": " not in value and value[-1] not in ": " and scalar(value) == value
    return value if fits else json.dumps(value)


def _line(name: str, value: str, note: str = "", indent: int = 2) -> Iterator[str]:
    """A key with its value; the comment behind it, or above where the line would get too long."""
    text, note = f"{' ' * indent}{name}: {value}", _plain(note)
    if note and len(text) + len(note) + 4 > _WIDTH:
        yield f"{' ' * indent}# {note}"
        note = ""
    yield f"{text:<36}  # {note}" if note else text


def _hint(name: str, value: str, note: str = "", indent: int = 2) -> str:
    """A key that is not set, for whoever wants to set it."""
    text = f"{' ' * indent}# {name}: {value}"
    return f"{text:<36}  # {_plain(note)}" if note else text


def _section(name: str, lines: Iterator[str]) -> list[str]:
    return ["", f"{name}:", *lines]


def _head(draft: Draft, file: str) -> Iterator[str]:
    yield "# yaml-language-server: $schema=profile.schema.json"
    yield f"# Written by audit init from {_plain('; '.join(draft.sources)) or 'nothing but assumptions'}."
    yield "# What says 'assumed' is a guess: put your own numbers there before you trust a verdict."
    for command, what in (
        ("schema > profile.schema.json", "gives your editor completion and help for every key"),
        (f"lint {file}", "checks this file without sending anything"),
        (f"plan {file}", "shows what an audit would send"),
        (f"run {file}", "audits"),
    ):
        yield f"#   audit {_plain(command):<36} {what}"
    if draft.notes:
        yield "# To look after:"
    for note in draft.notes:
        yield f"#   - {_plain(note)}"
    yield "version: 1"
    name = " ".join((draft.name or "").split())  # a file may spread one over lines
    yield f"name: {_value(name or 'service')}"


def _endpoint(draft: Draft) -> Iterator[str]:
    found = draft.endpoint
    url = found.get("url", Said("http://127.0.0.1:8000/v1", "assumed: the root of the API"))
    yield from _line("url", _value(url.value), url.note)
    for name, default, why in (
        ("engine", "auto", "vllm, sglang, llamacpp, trtllm, lmdeploy or generic; auto recognises it"),
        ("model", "auto", "the name that the endpoint gives; needed where it serves several"),
    ):
        said = found.get(name, Said(default, why))
        yield from _line(name, _value(said.value), said.note)
    if key := found.get("api_key_env"):
        yield from _line("api_key_env", _value(key.value), key.note)
    else:
        yield _hint("api_key_env", "LLM_API_KEY", "the variable that holds the key, if one is needed; or file:PATH")
    metrics = found.get("metrics", Said("auto", "the server's own page; a list, one a replica, behind a gateway"))
    yield from _line("metrics", _value(metrics.value), metrics.note)


def _deployment(draft: Draft) -> Iterator[str]:
    found = draft.deployment
    for name in _DEPLOYMENT:
        if (said := found.get(name)) is not None:
            yield from _line(name, _version(said.value) if name == "engine_version" else _value(said.value), said.note)
        elif name == "model":
            yield _hint("model", "org/name", "catalogue name, model folder, config.json or GGUF file")
        elif name == "accelerator":
            yield _hint("accelerator", "h100-sxm", "audit catalog accelerators; this-cpu: this machine's own")
    yield _hint("price_per_hour", "2.50", "of one replica; the report then has costs")
    if (launch := found.get("launch")) is not None:
        yield from _launch(launch.value)


def _version(value: Any) -> str:
    """Always in quotes: 0.18 would be a number."""
    return json.dumps(str(value))


def _launch(line: str) -> Iterator[str]:
    """The launch line folded, a flag never apart from its value where both fit."""
    words = [shlex.quote(word) for word in shlex.split(line)]
    if any(not word.isprintable() or "  " in word for word in words):
        yield f"  launch: {json.dumps(line)}"
        return
    yield from _line("launch", ">-", "the engine's own flags; a field that is written above as well wins")
    row = ""
    for index, word in enumerate(words):
        ahead = 1 + len(words[index + 1]) if word.startswith("-") and index + 1 < len(words) else 0
        if row and len(row) + 1 + len(word) + min(ahead, 30) > _WIDTH - 4:
            yield f"    {row}"
            row = ""
        row = f"{row} {word}".strip()
    yield f"    {row}"


# -------------------------------------------------------------------------------------------------------------- traffic


def _assumed(draft: Draft) -> tuple[Lengths, Lengths]:
    """Usual lengths, shortened where the context would not hold the longest of both."""
    room = (draft.context or math.inf) * 0.9
    longest = (_PROMPT.max or 0) + (_OUTPUT.max or 0)
    share = min(1.0, room / longest)
    return _scaled(_PROMPT, share), _scaled(_OUTPUT, share)


def _scaled(given: Lengths, share: float) -> Lengths:
    return Lengths(**{n: max(1, int(v * share)) for n in ("p50", "p95", "max") if (v := getattr(given, n)) is not None})


def _percentiles(given: Lengths) -> str:
    known = ((name, getattr(given, name)) for name in ("p50", "p95", "p99", "max"))
    return "{" + ", ".join(f"{name}: {value}" for name, value in known if value is not None) + "}"


def _lengths(draft: Draft) -> tuple[Said, Said]:
    if draft.prompt is not None and draft.output is not None:
        return draft.prompt, draft.output
    prompt, output = _assumed(draft)
    return Said(prompt, "assumed, in tokens"), Said(output, "assumed")


def _target(draft: Draft) -> Said:
    most = draft.deployment.get("max_num_seqs")
    limit = most.value if most is not None and isinstance(most.value, int) else _TARGET
    return draft.traffic.get(
        "target_concurrency",
        Said(min(_TARGET, max(1, limit)), "assumed: requests in flight to be carried; or request_rate: 5/s"),
    )


def _traffic(draft: Draft) -> Iterator[str]:
    target, (prompt, output) = _target(draft), _lengths(draft)
    yield from ("", "traffic:")
    yield from _line("target_concurrency", _value(target.value), target.note)
    yield _hint("optimize_for", "ttft", "what users feel most: ttft, tps or cost")
    yield "  classes:"
    yield f"    - name: {'observed' if draft.lengths else 'typical'}"
    yield from _line("prompt_tokens", _percentiles(prompt.value), prompt.note, 6)
    yield from _line("output_tokens", _percentiles(output.value), output.note, 6)
    yield _hint("shared_prefix", "{tokens: 800, share: 0.9}", "a system prompt that requests share", 6)
    yield _hint("log", "traffic.jsonl", "observed requests instead of classes; or prompts: of your own")


def _goals(draft: Draft) -> Iterator[str]:
    yield from ("", "slo:")
    for name, goal, why in (
        ("ttft", "{p95: 2s}", "95 % of the requests see their first token within it"),
        ("tps", "{p05: 10/s}", "95 % of the streams decode at least this fast"),
        ("error_rate", "1%", "failed, refused and timed-out requests"),
    ):
        seen = draft.goals.get(name)
        yield from _line(name, goal, f"assumed: {seen}" if seen else f"assumed: {why}")
    seen = f"; {draft.goals['e2e']}" if "e2e" in draft.goals else ""
    yield _hint("e2e", "{p95: 20s}", f"the whole reply{seen}")


def _probe(draft: Draft, preset: str | None) -> Iterator[str]:
    spends = PRESETS[preset] if preset else Probe()
    budget = spends.budget
    prompt, output = (said.value for said in _lengths(draft))
    wanted = math.ceil(budget.requests * (prompt.p50 + prompt.p95 + output.p50 + output.p95) / 2 / 1e6)
    tokens = f"{max(budget.tokens // 1_000_000, wanted)}M"
    minutes = round(budget.duration / 60)
    yield from ("", "probe:")
    values = f"{{duration: {minutes}m, requests: {budget.requests}, tokens: {tokens}}}"
    yield from _line("budget", values, "whichever ends first")
    yield from _line("confidence", f"{spends.confidence:g}", "of every pass and fail; what stays open is INCONCLUSIVE")
    url = draft.endpoint.get("url")
    if url is not None and not is_loopback(str(url.value)):
        yield _hint("allow_load", "true", "needed: this endpoint is not on this machine, and load is load")


def _monitoring(draft: Draft) -> Iterator[str]:
    yield from ("", "monitoring:")
    yield from _line("required", "true", "false leaves question 4 out, and the verdict line says so")
    for name, said in draft.monitoring.items():
        yield from _line(name, _value(said.value), said.note)
    yield _hint("dashboards", "[grafana/*.json]", "without any, question 4 fails: audit coverage --fix prints one")
    yield _hint("rules", "[alerts/*.yaml]", "globs, relative to this file")
    if "prometheus" not in draft.monitoring:
        yield _hint("prometheus", "http://127.0.0.1:9090", "asked what panels return; audit run --passive needs it")
