"""Workload shape: do long prompts or long replies dominate, and does the service meet its SLO there?

A long prompt costs its user the wait for the first token (TTFT), a long reply costs tokens one by one (TPS). Which of
the two a user waits for says which SLO matters; which of the two the device works on says which resource matters.

| rule | looks at | decides |
|---|---|---|
| W101 | is the traffic's shape declared? | yes |
| W102 | what a request waits for: first token or reply | no |
| W103 | does the device spend its time on the same phase? | no |
| W104 | is the goal declared, and does it fit the traffic? | no |
| W105 | is there an SLO on what dominates? | yes |
| W106 | do the longest requests fit in the context? | yes |
| W107 | are declared lengths those that users send? | no |
| W110 W111 W112 W114 | TTFT, TPS, E2E and first-answer SLOs, overall and per class | yes |
| W113 | error rate | yes |
| W120 | does the queue grow at the target load? | yes |
| W130 | where it fails under load: what lighter load passes? | no |
| W140 | where a baseline is named: is it slower than that? | yes |
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from auditor import slo, spending
from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.profile import Objective, TrafficClass
from auditor.theory import dominance, judging, shape
from auditor.theory.alternatives import what_ifs
from auditor.theory.deciding import Judged
from auditor.theory.dominance import AT_ODDS, MATTERS, PHASE, Wait, leans
from auditor.units import count, percent, quantity
from checks import baseline, nearest, observed, overload, passive

__all__ = ["CHECK"]

BLIND_ERROR_RATE = 0.01  # judged where the profile declares none
EXAMPLES = {"ttft": "slo: {ttft: {p95: 1500ms}}", "tps": "slo: {tps: {p05: 25/s}}"}
LEVERS: dict[str, tuple[str, ...]] = {
    "ttft": (
        "let prompts through faster: larger steps ({max_num_batched_tokens})",
        "let prompts through faster: more devices ({tensor_parallel})",
        "less prompt to read: shared text first and the prefix cache on ({prefix_caching})",
        "warm, captured kernels: H204 and H205 say whether they are",
    ),
    "tps": (
        "fewer bytes a token: an 8-bit KV cache ({kv_cache_dtype})",
        "fewer bytes a token: quantised weights ({quantization})",
        "fewer streams a step ({max_num_seqs}), with more replicas",
        "more bandwidth: more devices ({tensor_parallel})",
        "several tokens a step: speculative decoding ({speculative})",
    ),
}
LEVERS |= {"e2e": (*LEVERS["ttft"][:2], *LEVERS["tps"]), "first_answer": ("bound the reasoning", *LEVERS["tps"])}
NAMES = {"ttft": "TTFT", "first_answer": "first answer", "tps": "TPS", "e2e": "E2E"}
TRUST = {"measured": "high", "computed": "medium"}
Metric = Literal["ttft", "first_answer", "tps", "e2e"]


# ----------------------------------------------------------------------------------------------------------- dominance


def _wait(evidence: Evidence, cls: TrafficClass) -> Wait | None:
    """Measured at the target load, at the declared reply length; where nothing was measured, predicted."""
    output, prompt = shape.mean(cls.output_tokens.curve), shape.mean(cls.prompt_tokens.curve)
    ttfts = [s.ttft for s in evidence.requests(cls=cls.name) if s.good and s.ttft is not None]
    tpots = [s.tpot for s in evidence.requests(cls=cls.name) if s.good and s.tpot is not None]
    if ttfts and (tpots or output <= 1):
        return Wait(math.fsum(ttfts) / len(ttfts), math.fsum(tpots) / max(1, len(tpots)), output, len(ttfts))
    if (told := passive.wait(evidence, output)) is not None:
        return told
    if evidence.theory is None or evidence.batch is None:
        return None
    return dominance.predicted_wait(*evidence.theory, evidence.batch, prompt, output)


def _waits(evidence: Evidence) -> list[tuple[TrafficClass, Wait]]:
    """What each class waits for; empty unless every class is known."""
    waits = [(c, _wait(evidence, c)) for c in evidence.profile.traffic.classes]
    return [(c, w) for c, w in waits if w is not None] if all(w for _, w in waits) else []


def _user_share(evidence: Evidence) -> float | None:
    return dominance.overall((c.share, wait) for c, wait in _waits(evidence))


def w101_declared(evidence: Evidence) -> Iterable[Finding]:
    traffic = evidence.profile.traffic
    rest: dict[str, Any] = {"deciding": True, "where": evidence.where("traffic")}
    if traffic.classes:
        names = ", ".join(c.name for c in traffic.classes)
        yield CHECK.finding("W101", "pass", f"The traffic is declared as {names}.", **rest)
        return
    why = "Nothing says how long prompts and replies are, so nothing says whether TTFT or TPS matters."
    if traffic.log:
        why = "traffic.log is named, but no classes came of it: the probe has no lengths to imitate."
    rest |= {
        "missing": "traffic.classes with prompt_tokens and output_tokens (p50, p95, max)",
        "remedies": ("take lengths from the gateway's usage log or the engine's prompt and output length histograms",),
    }
    yield CHECK.finding("W101", "inconclusive", why, severity="high", **rest)


def w102_user_time(evidence: Evidence) -> Iterable[Finding]:
    waits, share = _waits(evidence), _user_share(evidence)
    if share is None:
        known = evidence.profile.traffic.classes
        yield CHECK.skip("W102", "a measured load, or what it takes to predict one" if known else "traffic.classes")
        return
    source = dominance.source(w for _, w in waits)
    number = Number(name="first token, share of user time", value=share, unit="share", provenance=source)
    why = f"Users spend {percent(share)} of their time on the first token, the rest on the reply: "
    why += f"{MATTERS[leans(share)]}."
    where = evidence.where("traffic.classes")
    yield CHECK.finding("W102", "pass", why, measured=number, where=where, confidence=TRUST[source])
    for cls, wait in waits if len(waits) > 1 else ():
        source = dominance.source([wait])
        numbers = (
            Number(name="TTFT, mean", value=wait.ttft, unit="s", provenance=source, n=wait.n),
            Number(name="time per output token, mean", value=wait.tpot, unit="s", provenance=source, n=wait.n),
            Number(name="reply, mean", value=wait.output_tokens, unit="tokens", provenance="declared"),
        )
        of = f"{quantity(wait.ttft, 's')} of {quantity(wait.seconds, 's')}"
        why = f"A {cls.name} request waits {of} for its first token: "
        why += f"{MATTERS[leans(wait.share)]}."
        yield CHECK.finding("W102", "pass", why, subject=cls.name, numbers=numbers, confidence=TRUST[source])


def w103_device_time(evidence: Evidence) -> Iterable[Finding]:
    waits, user, found = _waits(evidence), _user_share(evidence), spending.prefill_share(evidence)
    if user is None or isinstance(found, str):
        yield CHECK.skip("W103", found if isinstance(found, str) else "what users wait for (W102)")
        return
    (device, source), users = found, dominance.source(w for _, w in waits)
    rest: dict[str, Any] = {
        "where": evidence.where("traffic.target_concurrency"),
        "severity": "low",
        "confidence": TRUST[source],
        "numbers": (
            Number(name="first token, share of user time", value=user, unit="share", provenance=users),
            Number(name="prefill, share of device time", value=device, unit="share", provenance=source),
        ),
    }
    if leans(user) == leans(device) or "both" in (leans(user), leans(device)):
        why = f"Users wait for {PHASE[leans(user)]}; the device spends {percent(device)} of its time on prompts: "
        why += "no conflict."
        yield CHECK.finding("W103", "pass", why, **rest)
        return
    part, work = (1 - user, device) if leans(device) == "ttft" else (user, 1 - device)
    works_on, hint, levers = AT_ODDS[leans(device)]
    why = f"Users spend {percent(part)} of their time on {PHASE[leans(user)]}, the device {percent(work)} of its own "
    why += f"on {works_on}: {hint}."
    yield CHECK.finding("W103", "warn", why, remedies=evidence.levers(*levers), **rest)


# -------------------------------------------------------------------------------------------------- goal, SLO, context


def w104_goal(evidence: Evidence) -> Iterable[Finding]:
    share, goal = _user_share(evidence), evidence.profile.traffic.optimize_for
    rest: dict[str, Any] = {"where": evidence.where("traffic.optimize_for"), "severity": "low"}
    if goal is None:
        hint = f" In this traffic {MATTERS[leans(share)]}." if share is not None else ""
        why = f"No goal is declared, so remedies cannot weigh TTFT, TPS and cost.{hint}"
        yield CHECK.finding("W104", "warn", why, remedies=("set traffic.optimize_for to ttft, tps or cost",), **rest)
    elif share is None:
        yield CHECK.skip("W104", "what users wait for (W102)", **rest)
    elif goal == "cost" or leans(share) in (goal, "both"):
        yield CHECK.finding("W104", "pass", f"The goal {goal} fits the traffic.", **rest)
    else:
        part = share if leans(share) == "ttft" else 1 - share
        rest["remedies"] = (f"set traffic.optimize_for: {leans(share)}, or keep {goal} knowing what it costs",)
        why = f"The goal is {goal}, but {percent(part)} of users' time is the wait for {PHASE[leans(share)]}."
        yield CHECK.finding("W104", "warn", why, **rest)


def w105_slo(evidence: Evidence) -> Iterable[Finding]:
    share, declared = _user_share(evidence), evidence.profile.objectives
    has = {"ttft": bool(declared("ttft")), "tps": bool(declared("tps")), "e2e": bool(declared("e2e"))}
    rest: dict[str, Any] = {"where": evidence.where("slo"), "deciding": True}
    if share is None and any(has.values()):
        yield CHECK.skip("W105", "what users wait for (W102)", **(rest | {"deciding": False}))
        return
    leaning = leans(share) if share is not None else "both"
    lacks = [m for m in ("ttft", "tps") if leaning in (m, "both") and not has[m]]
    names = " and ".join(f"slo.{m}" for m in lacks)
    rest["remedies"] = tuple(f"declare it, such as {EXAMPLES[m]}" for m in lacks)
    if not lacks:
        yield CHECK.finding("W105", "pass", f"There is an SLO on {PHASE[leaning]}.", **rest)
    elif has["e2e"] or (leaning == "both" and len(lacks) == 1):
        why = f"Users wait for {PHASE[leaning]}; {names} would say what they feel, the other SLOs bound it loosely."
        yield CHECK.finding("W105", "warn", why, **rest)
    else:
        why = f"Users wait for {PHASE[leaning]}, and no SLO says how long they may."
        yield CHECK.finding("W105", "inconclusive", why, missing=names, **rest)


def w106_tail(evidence: Evidence) -> Iterable[Finding]:
    served, context = evidence.served.max_model_len if evidence.served else None, evidence.context
    if context is None or not evidence.profile.traffic.classes:
        yield CHECK.skip("W106", "the context length (served, or deployment.max_model_len) and traffic.classes")
        return
    source = "served" if served else evidence.origin("max_model_len")
    limit = Number.of("context", context, "tokens", source)
    allowed = evidence.profile.slo.error_rate or BLIND_ERROR_RATE
    for index, cls in enumerate(evidence.profile.traffic.classes):
        prompt, output = cls.prompt_tokens.curve, cls.output_tokens.curve
        longest, share = shape.at(prompt, 1) + shape.at(output, 1), judging.share_beyond(prompt, output, context)
        rest: dict[str, Any] = {
            "subject": cls.name,
            "deciding": True,
            "measured": Number(name="longest request", value=longest, unit="tokens", provenance="declared"),
            "required": limit,
            "where": evidence.where(f"traffic.classes.{index}"),
        }
        if longest <= context:
            yield CHECK.finding("W106", "pass", f"The longest {cls.name} request fits in the context.", **rest)
            continue
        rest["remedies"] = (
            evidence.spell(f"raise {{max_model_len}} to {longest} (the KV pool must carry it: K302)"),
            "cap prompts and max_tokens in front of the engine, with an error that users understand",
        )
        why = f"{percent(share)} of {cls.name} requests are longer than the context and get refused or cut short."
        yield CHECK.finding("W106", "fail" if share > allowed else "warn", why, severity="high", **rest)


# ----------------------------------------------------------------------------------------------------------------- SLO


def w110_ttft(evidence: Evidence) -> Iterable[Finding]:
    return _latency(evidence, "W110", "ttft")


def w111_tps(evidence: Evidence) -> Iterable[Finding]:
    """Judged on the time per token, whose ceiling is 1 / the floor; failed requests are infinitely slow."""
    return _latency(evidence, "W111", "tps")


def w112_e2e(evidence: Evidence) -> Iterable[Finding]:
    return _latency(evidence, "W112", "e2e")


def w114_first_answer(evidence: Evidence) -> Iterable[Finding]:
    return _latency(evidence, "W114", "first_answer")


def _latency(evidence: Evidence, rule: str, metric: Metric) -> Iterator[Finding]:
    objectives = evidence.profile.objectives(metric)
    if not objectives:
        yield CHECK.skip(rule, f"slo.{metric}, which the profile does not declare")
    for objective in objectives:
        yield _judge(evidence, rule, objective)


def _judge(evidence: Evidence, rule: str, objective: Objective) -> Finding:
    metric, where = objective.metric, evidence.where(objective.path)
    if (window := passive.seen(evidence)) is not None:
        name = f"{NAMES[metric]} {objective.percentile}"
        status, why, rest = passive.latency(evidence, window, objective, name)
        return CHECK.finding(rule, status, why, **rest)
    samples, judged = evidence.requests(cls=objective.cls), slo.judged(evidence, objective)
    rest = {"subject": objective.subject, "deciding": True, "where": where, "severity": "high"}
    buffered = [s.buffered for s in samples if s.buffered is not None]
    if metric in ("ttft", "tps") and sum(buffered) > len(buffered) / 2:
        why = f"{sum(buffered)} of {len(buffered)} replies arrive all at once: their users see nothing before the end."
        fix = ("let the stream through every proxy: no buffering, no compression of text/event-stream",)
        return CHECK.finding(rule, "fail", why, remedies=fix, **rest)
    if judged is None:
        return CHECK.skip(rule, f"requests that show {metric}" if samples else "a measured load at the target", **rest)
    floor = metric == "tps"
    name, unit = f"{NAMES[metric]} {objective.percentile}", "tok/s" if floor else "s"
    note = f"worth {judged.effective:.0f} independent ones" if judged.effective < judged.n else ""
    value = judging.inverse(judged.value) if floor else judged.value
    rest["measured"] = Number.measured(name, value, unit, judged.n, note)
    rest["required"] = Number(name=name, value=objective.limit, unit=unit, provenance="declared")
    known, limit = math.isfinite(judged.value.point), quantity(objective.limit, unit)
    seen = f"{quantity(value.point, unit)} against {limit}" if known else f"falls on failed requests (limit {limit})"
    why = f"{NAMES[metric]} {objective.percentile} {seen}: {judged.bad} of "
    why += f"{count(judged.n, 'request')} miss it or fail{_apart(judged)}, {percent(1 - objective.share)} may: "
    why += f"{judged.verdict}.{slo.unseen(slo.readings(evidence, objective))}"
    if (worst := slo.worst_class(evidence, objective)) and math.inf > worst[1] > objective.seconds:
        alone = quantity(1 / worst[1] if floor else worst[1], unit)
        why += f" Class {worst[0]} alone: {objective.percentile} {alone}."
    if judged.on_course:
        rest["remedies"] = judged.how_to_decide(objective.cls, [m.stopped for m in evidence.loads("slo")])
    elif judged.status != "pass":
        rest["remedies"] = tuple(_remedies(evidence, metric))
    return CHECK.finding(rule, judged.status, why, missing=judged.more, **rest)


def _apart(judged: Judged) -> str:
    return f" ({judged.apart})" if judged.apart else ""


def _remedies(evidence: Evidence, metric: str) -> Iterator[str]:
    """Where the time goes, the levers, and what each would bring: for a p95 prompt, or a decode step at the target."""
    theory, batch, classes = evidence.theory, evidence.batch, evidence.profile.traffic.classes
    prompt = max((shape.at(c.prompt_tokens.curve, 0.95) for c in classes), default=0)
    if metric == "ttft" and prompt and (idle := evidence.idle_ttft(prompt)) is not None:
        alone = quantity(idle, "s")
        yield f"a {prompt}-token prompt alone takes {alone} here: the rest is waiting, see K302 and K305"
    yield from evidence.levers(*LEVERS[metric])
    if theory is None or batch is None or not prompt:
        return
    for lever, gain in what_ifs(*theory, batch, prompt, prefill=metric == "ttft"):
        if evidence.has(lever.field):
            yield f"{evidence.flag(lever.field)} {lever.value}: {gain}"


def w113_errors(evidence: Evidence) -> Iterable[Finding]:
    declared = evidence.profile.objectives("error_rate")
    blind = Objective(metric="error_rate", share=1 - BLIND_ERROR_RATE, limit=BLIND_ERROR_RATE, path="slo")
    for objective in declared or (blind,):
        if (window := passive.seen(evidence)) is not None:
            status, why, rest = passive.errors(evidence, window, objective, declared=bool(declared))
            yield CHECK.finding("W113", status, why, **rest)
            continue
        samples = evidence.requests(cls=objective.cls)
        rest = {"subject": objective.cls, "where": evidence.where(objective.path), "severity": "high"}
        judged = slo.judged(evidence, objective)
        if judged is None:
            yield CHECK.skip("W113", "a measured load at the target", deciding=bool(declared), **rest)
            continue
        words = ", ".join(sorted({s.error for s in samples if s.error}))
        why = f"{judged.bad} of {count(judged.n, 'request')} failed" + (f" ({words})" if words else "")
        allowed = f"{percent(objective.limit)} may{'' if declared else ' (slo.error_rate is missing)'}"
        why += f"{_apart(judged)}, {allowed}: {judged.verdict}."
        rest["measured"] = Number.measured("error rate", judged.value, "share", judged.n)
        rest["required"] = Number(name="error rate", value=objective.limit, unit="share", provenance="declared")
        if judged.status == "fail":
            rest["remedies"] = ("read the engine's log for these requests; refusals mean a queue limit or K302",)
        elif judged.on_course:
            rest["remedies"] = judged.how_to_decide(objective.cls, [m.stopped for m in evidence.loads("slo")])
        decides = bool(declared) or judged.status == "fail"
        yield CHECK.finding("W113", judged.status, why, deciding=decides, missing=judged.more, **rest)


# ------------------------------------------------------------------------------------------------------------- beyond


def w130_nearest(evidence: Evidence) -> Iterable[Finding]:
    for status, why, rest in nearest.below_the_target(evidence):
        yield CHECK.finding("W130", status, why, **rest)


def w140_baseline(evidence: Evidence) -> Iterable[Finding]:
    for status, why, rest in baseline.judged(evidence):
        yield CHECK.finding("W140", status, why, **rest)


CHECK = Check(
    question="W",
    title="Workload shape",
    answers=("W102", "W103"),
    rules=(
        Rule("W101", "Workload shape declared", w101_declared),
        Rule("W102", "What users wait for", w102_user_time),
        Rule("W103", "User time against device time", w103_device_time),
        Rule("W104", "Goal of the deployment", w104_goal),
        Rule("W105", "SLO on what dominates", w105_slo),
        Rule("W106", "Tail within the context", w106_tail),
        *observed.RULES,
        Rule("W110", "TTFT SLO", w110_ttft),
        Rule("W111", "TPS SLO", w111_tps),
        Rule("W112", "E2E SLO", w112_e2e),
        Rule("W113", "Error rate", w113_errors),
        Rule("W114", "First-answer SLO", w114_first_answer),
        *overload.RULES,
        Rule("W130", "Nearest load that passes", w130_nearest),
        Rule("W140", "Against the baseline", w140_baseline),
    ),
)
