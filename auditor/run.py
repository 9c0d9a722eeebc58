"""The pipeline: profile -> served -> plan -> measurements -> evidence -> findings -> report, one line a stage."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path

from auditor import baseline, judgement, looks, monitored, nearest, plugins, store, verdict
from auditor.catalog import accelerators, metrics
from auditor.emulator.process import start_process
from auditor.emulator.spec import spec_from
from auditor.engines.flavours import FLAVOURS, flag_names
from auditor.engines.settings import conflicts, engine_of, resolve
from auditor.errors import NothingMeasured, UsageError
from auditor.evidence import Evidence, Report
from auditor.instruments.inputs import Inputs
from auditor.instruments.load import Load as Asked
from auditor.instruments.ranking import declared_prices, ranking
from auditor.levels import Levels
from auditor.loading import Here, Loaded, load_profile, resolve_device, resolve_draft, resolve_model
from auditor.loads import Load, Logged, Plan
from auditor.measurement import Measurement, Sample, Served
from auditor.monitoring import truth
from auditor.options import Options, as_then, choices
from auditor.plan.make import make_plan, without_loads
from auditor.plan.pace import Pace, concurrency
from auditor.probe import machine, observing
from auditor.probe.discover import discover
from auditor.probe.events import Event, Listener
from auditor.probe.load import INTERRUPTED
from auditor.probe.local import local_source
from auditor.probe.session import Judge, Watcher, run_plan
from auditor.profile import Profile
from auditor.redact import Redactor
from auditor.theory import roofline
from auditor.theory.device import Device

__all__ = ["Event", "Options", "audit", "judge", "plan_offline", "unsaved"]

_RANKED = 8  # accelerators in time, and in money where prices are declared


async def audit(loaded: Loaded, options: Options, events: Listener) -> Report:
    """Audit a deployment from profile to report; `options.save` keeps what is measured as it comes in."""
    evidence = declare(loaded, options, _measuring(events))
    events = redacting(events, store.redactor_of(loaded, evidence))
    for warning in (*loaded.warnings, *filter(None, (evidence.geometry_error, evidence.device_error))):
        events(Event(kind="note", text=f"warning: {warning}"))
    before = baseline.read(options.baseline, evidence)
    with store.recording(options.save, loaded, evidence, choices(options)) as keep:
        if options.passive is not None:
            evidence = await _passively(evidence, loaded, options.passive, events)
        elif not options.offline:
            async with endpoint(evidence, loaded.key, events) as profile:
                evidence = await discovered(evidence, profile, loaded, events)
                evidence = await monitored.before(evidence, loaded, events)
                evidence = await observing.lengths(evidence, loaded)
                evidence = replace(evidence, plan=_planned(evidence, profile, loaded.log))
                keep.update(evidence)
                began = asyncio.get_running_loop().time()
                evidence = await _measured(evidence, profile, loaded, keep, events, options.only)
                evidence = await monitored.after(evidence, loaded, events, began)
        evidence = baseline.beside(keep.redact(_ranked(_compared(evidence))), before, options.min_effect)
        report = conclude(evidence, options)
        keep.finish(evidence, report)
        report = _with_failure(report, keep)
    _refuse_silence(evidence)
    return report


def judge(folder: Path, *, profile: Path | None, options: Options) -> Report:
    """Judge a saved run again, against its own profile or another one; sends nothing."""
    evidence, options = store.load(folder), as_then(options, store.load_options(folder))
    if profile:
        loaded = load_profile(profile)
        _refuse_other_traffic(evidence, loaded)
        declared = replace(declare(loaded, options, _then(evidence)), today=evidence.today, offline=evidence.offline)
        evidence = _ranked(_compared(with_served(_seen(declared, evidence), loaded, evidence.served)))
        with store.recording(None, loaded, evidence) as keep:
            evidence = keep.redact(evidence)
    before = baseline.read(options.baseline, evidence)
    return conclude(baseline.beside(evidence, before, options.min_effect), options)


def _seen(declared: Evidence, then: Evidence) -> Evidence:
    """What another profile declares, with what a saved run saw."""
    kept = ("plan", "measurements", "nearest", "watch", "observed", "compared")
    return replace(declared, **{name: getattr(then, name) for name in kept})


def _refuse_other_traffic(evidence: Evidence, loaded: Loaded) -> None:
    """Raise UsageError where a profile declares traffic that the saved run did not send: a verdict would be a guess."""
    then, now = evidence.profile.traffic, loaded.profile.traffic
    differs = [
        f.name for f in fields(now) if f.name != "optimize_for" and getattr(then, f.name) != getattr(now, f.name)
    ]
    if differs and evidence.measurements:
        where = loaded.lines.get(f"traffic.{differs[0]}") or loaded.lines.get("traffic") or loaded.path
        raise UsageError(
            f"{where}: traffic.{differs[0]} is not what the saved run measured; run the audit again for it"
        )


def conclude(evidence: Evidence, options: Options) -> Report:
    """Judge evidence by every installed check: the same evidence gives the same report."""
    evidence = replace(evidence, nearest=nearest.judged(evidence))
    return verdict.decide(
        judgement.findings(evidence),
        plugins.load_checks(),
        evidence.profile,
        evidence,
        today=options.today or evidence.today,
        only=options.only,
        on_inconclusive=options.on_inconclusive or "inconclusive",
        fail_on=options.fail_on or "low",
        interrupted=_interrupted(evidence),
    )


def plan_offline(loaded: Loaded) -> Plan:
    """What an audit would send, as far as the files tell; sends nothing."""
    evidence = declare(loaded, Options(offline=True))
    return _planned(evidence, evidence.profile, loaded.log)


def _measuring(events: Listener) -> Here:
    """Measures this machine's CPU, and says so."""

    def here() -> Device:
        events(Event(kind="stage", text="measure this CPU, about five seconds"))
        return machine.measured()

    return here


def _then(evidence: Evidence) -> Here:
    """The CPU as a saved run measured it: another machine may judge that run."""

    def here() -> Device:
        if evidence.device is None or not evidence.device.here:
            raise UsageError("the saved run did not measure this CPU; run the audit again for it")
        return evidence.device

    return here


def redacting(events: Listener, redactor: Redactor) -> Listener:
    """A listener that never sees a secret: addresses hold passwords, servers send back what they were sent."""
    return lambda event: events(replace(event, text=redactor.text(event.text)) if event.text else event)


# -------------------------------------------------------------------------------------------------------------- stages


def declare(loaded: Loaded, options: Options, here: Here = machine.measured) -> Evidence:
    """What the user's files alone say; `here` tells the figures of this machine where they declare it."""
    geometry, geometry_error = resolve_model(loaded)
    device, device_error = resolve_device(loaded, here)
    evidence = Evidence(
        profile=loaded.profile,
        today=options.today or datetime.date.today().isoformat(),
        offline=options.offline,
        lines=loaded.lines,
        geometry=geometry,
        geometry_error=geometry_error,
        device=device,
        device_error=device_error,
        problems=loaded.warnings,
    )
    return with_served(evidence, loaded, None)


def with_served(evidence: Evidence, loaded: Loaded, served: Served | None) -> Evidence:
    """The evidence with what the endpoint says of itself, and everything that follows from both."""
    profile, launch = evidence.profile, loaded.launch
    draft = resolve_draft(loaded)
    settings, sources = resolve(profile, launch, served, evidence.geometry, evidence.device, draft=draft)
    engine, version = engine_of(profile, launch, served)[0], settings.engine_version
    known = replace(
        evidence,
        served=served,
        settings=settings,
        setting_sources=sources,
        conflicts=conflicts(profile, launch, served, loaded.lines),
        flags=flag_names(FLAVOURS[engine]),
        candidates=_candidates(evidence),
        metric_names=metrics.remedies(engine, version),
    )
    return replace(known, coverage=monitored.covered(known, loaded))


def _candidates(evidence: Evidence) -> tuple[Device, ...]:
    """Accelerators of the same kind with more memory or bandwidth than the declared one: what a remedy may name."""
    device = evidence.device
    if device is None or device.usable_bytes is None:
        return ()
    return tuple(
        other
        for other in accelerators.devices()
        if other.kind == device.kind
        and other.confidence != "C"
        and other.usable_bytes is not None
        and (other.usable_bytes > device.usable_bytes or other.bandwidth > device.bandwidth)
    )


def _ranked(evidence: Evidence) -> Evidence:
    """The evidence with the accelerators that serve the target fastest, and those whose prices are declared."""
    theory, batch, (prompt, output) = evidence.theory, evidence.batch, evidence.profile.traffic.mean_lengths
    if theory is None or batch is None or prompt <= 0 or output <= 0:
        return evidence
    geometry, settings, device = theory
    prices = declared_prices(evidence.profile.deployment, device, settings.devices)
    found = Inputs(geometry=geometry, settings=settings, device=device, sources={})
    asked = Asked(batch=float(batch), prompt=prompt, output=output)
    rows = {row.key: row for row in ranking(found, asked, {}, _RANKED)}
    if prices:
        rows |= {row.key: row for row in ranking(found, asked, prices, _RANKED)}
    return replace(evidence, ranking=tuple(sorted(rows.values(), key=lambda row: row.request)))


def _compared(evidence: Evidence) -> Evidence:
    """The evidence with the server's numbers beside the client's."""
    return replace(evidence, truth=truth.compared(evidence))


def unsaved(report: Report) -> str | None:
    """Why the run of this report could not be saved; None if it was, or was not to be."""
    return next((line for line in report.evidence.problems if store.UNSAVED in line), None)


@asynccontextmanager
async def endpoint(evidence: Evidence, key: str | None, events: Listener) -> AsyncIterator[Profile]:
    """The profile with an address that answers: `url: emulator` gets one for as long as the audit runs."""
    profile = evidence.profile
    if profile.endpoint.url != "emulator":
        yield profile
        return
    if evidence.geometry is None or evidence.device is None or evidence.settings is None:
        reason = evidence.geometry_error or evidence.device_error or "deployment.model and accelerator are missing"
        raise UsageError(f"{evidence.where('endpoint.url') or 'endpoint.url'}: nothing to emulate: {reason}")
    events(Event(kind="stage", text="start the emulator"))
    parts = evidence.geometry, evidence.device, evidence.settings
    url, stop = await start_process(spec_from(profile, *parts, api_key=key))
    try:
        yield replace(profile, endpoint=replace(profile.endpoint, url=url))
    finally:
        stop()


async def discovered(evidence: Evidence, profile: Profile, loaded: Loaded, events: Listener) -> Evidence:
    """The evidence with what the endpoint serves. Raises PreflightFailed where no load would make sense."""
    events(Event(kind="stage", text=f"look at {profile.endpoint.url}"))
    served = await discover(await monitored.replicas(evidence, profile, loaded, events), loaded.key)
    for warning in served.warnings:
        events(Event(kind="note", text=warning))
    return with_served(evidence, loaded, served)


async def _passively(evidence: Evidence, loaded: Loaded, seconds: float, events: Listener) -> Evidence:
    """The evidence with what Prometheus saw of the service and of its panels' queries; sends the service nothing."""
    events(Event(kind="stage", text="ask Prometheus what users got"))
    evidence = with_served(await observing.window(evidence, loaded, seconds), loaded, None)
    evidence = await monitored.before(evidence, loaded, events)
    return await monitored.after(evidence, loaded, events, asyncio.get_running_loop().time() - seconds)


async def _measured(  # noqa: PLR0917
    evidence: Evidence,
    profile: Profile,
    loaded: Loaded,
    keep: store.Recording,
    events: Listener,
    only: Sequence[str] | None,
) -> Evidence:
    """The evidence with every load of its plan measured, and where it fails under load some of a lighter one."""
    plan, served = evidence.plan, evidence.served
    if plan is None or served is None:
        return evidence
    for note in plan.notes:
        events(Event(kind="note", text=note.message))
    async with local_source(profile, served, loaded.key, plan, loaded.prompts) as ready:
        watcher, judge = watching(keep, events), replace(_judge(evidence), harm=ready.harm)
        spent, budget = ready.spent_tokens, profile.probe.budget
        levels = Levels(evidence, ready, watcher, nearest.RULES, budget=budget, log=loaded.log)
        levels.measured += await run_plan(plan, ready.source, budget, watcher, judge=judge, spent_tokens=spent)
        levels.evidence = replace(evidence, measurements=tuple(levels.measured))
        return await nearest.seek(levels, only or ())


def _judge(evidence: Evidence) -> Judge:
    """Who looks between loads whether more of them could change the outcome."""

    def after(measured: Sequence[Measurement]) -> Evidence:
        return replace(evidence, measurements=tuple(measured))

    return Judge(more=lambda seen: looks.reserve_wanted(after(seen)), decided=lambda seen: looks.decided(after(seen)))


def _with_failure(report: Report, keep: store.Recording) -> Report:
    """The report with the reason why the run could not be saved, where there is one."""
    if keep.failure is None:
        return report
    evidence = replace(report.evidence, problems=(*report.evidence.problems, keep.failure))
    return replace(report, evidence=evidence)


def _planned(evidence: Evidence, profile: Profile, log: Sequence[Logged]) -> Plan:
    chunk = evidence.settings.max_num_batched_tokens if evidence.settings else None
    plan = make_plan(profile, evidence.served, _pace(evidence), chunk, log=log)
    if profile.probe.allow_load or profile.endpoint.on_this_machine:
        return plan
    return without_loads(plan, "the endpoint is not on this machine: it is loaded only with probe.allow_load: true")


def _pace(evidence: Evidence) -> Pace | None:
    """The speed to expect at the target load, where model and accelerator are known."""
    profile, geometry, settings, device = evidence.profile, evidence.geometry, evidence.settings, evidence.device
    if geometry is None or settings is None or device is None or not profile.traffic.classes:
        return None
    prompt = round(sum(c.share * c.prompt_tokens.p50 for c in profile.traffic.classes))
    batch = max(1, concurrency(profile) // max(1, profile.deployment.replicas))
    prefill = roofline.predict_prefill(geometry, settings, device, max(1, prompt))
    step = roofline.predict_decode(geometry, settings, device, batch, max(1, prompt))
    return Pace(per_prompt_token=prefill.seconds / max(1, prompt), per_step=step.seconds)


def watching(keep: store.Recording, events: Listener) -> Watcher:
    """Save each sample as it comes and tell the listener."""
    done: dict[str, int] = {}

    def started(load: Load) -> None:
        events(Event(kind="load_start", text=load.why, total=len(load.shapes), load=load.id))

    def sample(load: Load, sample: Sample) -> None:
        keep.sample(sample)
        done[load.id] = done.get(load.id, 0) + 1
        events(Event(kind="request", done=done[load.id], total=len(load.shapes), load=load.id))

    def ended(measurement: Measurement) -> None:
        keep.measurement(measurement)
        count = len(measurement.samples)
        events(
            Event(kind="load_end", text=measurement.stopped or "", done=count, total=count, load=measurement.load.id)
        )

    return Watcher(load_started=started, sample=sample, load_ended=ended)


def _interrupted(evidence: Evidence) -> str | None:
    return next((INTERRUPTED for m in evidence.measurements if m.stopped == INTERRUPTED), None)


def _refuse_silence(evidence: Evidence) -> None:
    """Raise NothingMeasured where not one request reached the endpoint. One that hangs was reached, and has failed."""
    samples = [sample for m in evidence.measurements for sample in m.samples]
    if samples and all(s.unreached for s in samples) and not _interrupted(evidence):
        raise NothingMeasured(f"none of {len(samples)} requests was answered: {samples[0].detail or samples[0].error}")
