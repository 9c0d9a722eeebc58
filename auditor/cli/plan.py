"""`audit plan PROFILE`: what a run would send and cost. Sends nothing."""

from typing import TYPE_CHECKING

from auditor.cli.options import ProfileName
from auditor.cli.output import write
from auditor.cli.presets import PresetName, preset_of

if TYPE_CHECKING:
    from auditor.loading import Loaded
    from auditor.loads import Load, Plan
    from auditor.profile import Profile

__all__ = ["command", "describe"]


def _load_line(load: "Load", purpose: str = "") -> str:
    from auditor.report.figures import prompt_and_output, tokens_of
    from auditor.report.words import clip

    prompt, output = prompt_and_output(load)
    requests = f"{len(load.shapes)}+{len(load.warmup)}"
    flight = f"~{load.concurrency}" if load.arrivals else f"{load.concurrency}"
    numbers = f"{flight:>9}  {requests:>8}  {f'{prompt}/{output}':>13}  {tokens_of(load):>11,}"
    return f"  {clip(load.id, 22):<22}{numbers}  {purpose or load.purpose}"


def _legend(plan: "Plan") -> list[str]:
    """What the marks of the table mean."""
    from auditor.report.figures import tokens_of

    lines = []
    if opened := next((load for load in plan.loads if load.arrivals), None):
        rate = f"{opened.rate:.3g} requests a second" if opened.rate else "the rate that the load before reaches"
        lines.append(f"  ~         sent at {rate}, whatever is in flight")
    if plan.reserve:
        count = sum(len(load.shapes) + len(load.warmup) for load in plan.reserve)
        tokens = sum(map(tokens_of, plan.reserve))
        lines.append(
            f"  reserve   {count:,} requests, {tokens:,} tokens, only where the SLO loads leave something undecided"
        )
    return ["", *lines] if lines else []


def _address(profile: "Profile") -> str:
    from auditor.report.words import clean

    url = profile.endpoint.url
    where = "an emulated engine on this machine (url: emulator)" if url == "emulator" else clean(url)
    metrics = profile.endpoint.metrics
    named = (metrics,) if isinstance(metrics, str) else (metrics or ("none",))
    pages = f"\n{'':12}".join("found by the engine" if page == "auto" else clean(page) for page in named)
    return f"  endpoint  {where}\n  metrics   {pages}"


def _cost(plan: "Plan", profile: "Profile") -> str:
    from auditor.report.words import quantity

    known = plan.seconds > 0 or not plan.requests
    seconds = f"about {quantity(round(plan.seconds), 's')}" if known else "no time known without model and accelerator"
    lines = f"  in all    {plan.requests:,} requests, {plan.tokens:,} tokens, {seconds}"
    if not known or profile.deployment.price_per_hour is None:
        return lines
    price = profile.deployment.price_per_hour * profile.deployment.replicas
    return f"{lines}\n  cost      about {price * plan.seconds / 3600:.2f} at {price:g} per hour of the deployment"


def describe(plan: "Plan", profile: "Profile") -> str:
    """The plan as text: addresses, loads in order, the sum and its cost, and what cannot be decided."""
    from auditor.report.words import clean, quantity

    budget = profile.probe.budget
    head = f"  {'load':<22}{'in flight':>9}  {'requests':>8}  {'prompt/output':>13}  {'tokens':>11}  purpose"
    lines = [
        f"Plan for {clean(profile.name)}; nothing is sent.",
        "",
        _address(profile),
        "",
        head,
        *map(_load_line, plan.loads),
        *(_load_line(load, f"{load.purpose}, reserve") for load in plan.reserve),
        *_legend(plan),
        "",
        _cost(plan, profile),
        f"  budget    {budget.requests:,} requests, {budget.tokens:,} tokens, {quantity(budget.duration, 's')}",
    ]
    if plan.notes:
        lines += ["", "This plan cannot decide:"]
    for note in plan.notes:
        rules = f" ({', '.join(note.rules)})" if note.rules else ""
        lines.append(f"  - {clean(note.message)}{rules}")
    return "\n".join(lines) + "\n"


def _plan(loaded: "Loaded") -> "Plan":
    from auditor.run import plan_offline

    return plan_offline(loaded)


def command(profile: ProfileName, *, preset: PresetName = None) -> None:
    """Show what a run would send and cost; send nothing.

    Says what the budget could not decide. Requests are counted as measured+warm-up, prompt and output
    tokens at the median.

    \b
    audit plan prod.yaml
    audit plan prod.yaml --preset launch        what an hour could decide
    """
    from auditor.loading import load_profile
    from auditor.redact import Redactor

    loaded = preset_of(load_profile(profile), preset)
    write(Redactor(loaded.secrets).text(describe(_plan(loaded), loaded.profile)))
