"""What a profile must satisfy beyond types: one function a rule, each yields (path, message, what else it rests on)."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from itertools import pairwise
from typing import Any

from auditor.catalog.accelerators import find, is_this_cpu
from auditor.engines.launch import Launch
from auditor.engines.speculation import MOST
from auditor.errors import UsageError
from auditor.loading.endpoint import OWN_BODY_KEYS, address_fault, header_fault, key_name_fault
from auditor.loading.problems import Path, Problems, did_you_mean
from auditor.loading.ranges import goal_out_of_range, out_of_range
from auditor.loading.traffic import OBSERVED
from auditor.profile import Lengths, Profile, Slo

__all__ = ["check", "warn"]

Found = Iterator[tuple[Path, str, tuple[Path, ...]]]
Rule = Callable[[Profile, Launch | None], Found]

SHARE_ROUNDING = 0.011
"""How far the shares of the classes may be from 1 in all: three classes of 33 % are meant as thirds."""

PERCENTILE = re.compile(r"p(0?[1-9]|[1-9][0-9]|(?=.*[1-9])[0-9]{1,2}\.[0-9]{1,4})")


def check(profile: Profile, launch: Launch | None, problems: Problems) -> None:
    """Add the problems that a profile of the right types still has."""
    for rule in RULES:
        for path, message, also in rule(profile, launch):
            problems.add(path, message, also=also)


# -------------------------------------------------------------------------------------------------------------- ranges


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every number and text of the profile with its path."""
    if is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    else:
        yield path, value


def _ranges(profile: Profile, launch: Launch | None) -> Found:
    """Counts of at least 1 and within reason, positive rates and durations, fractions within (0, 1]."""
    for name, value in launch.fields.items() if launch is not None else ():
        message = out_of_range(name, value) if isinstance(value, int | float) else None
        if launch is not None and message:
            yield ("deployment", "launch"), f"{launch.flag_of.get(name, name)} {value:.15g}: {message}", ()
    for path, value in _leaves(profile):
        if isinstance(value, str | bool | None) or path[:2] in (
            ("endpoint", "extra_body"),
            ("deployment", "speculative"),
        ):
            continue
        of_goal = path[0] == "slo" and path[-1] != "error_rate"
        message = goal_out_of_range(value) if of_goal else out_of_range(str(path[-1]), value)
        if message:
            yield path, message, ()


def _names(profile: Profile, _launch: Launch | None) -> Found:
    """Names that can be printed on one line; classes that can be told apart."""
    if not profile.name.strip() or "\n" in profile.name:
        yield ("name",), "needs a name on one line", ()
    if len(profile.deployment.engine_version or "") > 100:
        yield ("deployment", "engine_version"), "needs a version such as 0.18.0", ()
    seen: set[str] = set()
    for index, cls in enumerate(profile.traffic.classes):
        path: Path = ("traffic", "classes", index, "name")
        if not cls.name.strip() or "\n" in cls.name:
            yield path, "needs a name on one line", ()
        if cls.name in seen:
            yield path, f"the class '{cls.name}' is declared twice", ()
        seen.add(cls.name)


# ------------------------------------------------------------------------------------------------------------- traffic


def _target(profile: Profile, _launch: Launch | None) -> Found:
    traffic = profile.traffic
    if traffic.target_concurrency is not None and traffic.request_rate is not None:
        yield ("traffic", "request_rate"), "give either target_concurrency or request_rate, not both", ()
    if traffic.arrivals == "closed" and traffic.request_rate is not None:
        yield ("traffic", "arrivals"), "closed means workers that wait for their replies: give target_concurrency", ()


def _shares(profile: Profile, _launch: Launch | None) -> Found:
    classes = profile.traffic.classes
    total = sum(cls.share for cls in classes)
    if classes and abs(total - 1) > SHARE_ROUNDING:
        shares = " + ".join(f"{cls.share:g}" for cls in classes)
        yield ("traffic", "classes"), f"the shares of the classes sum to {total:.4g}, not 1 ({shares})", ()


def _lengths(profile: Profile, _launch: Launch | None) -> Found:
    """Percentiles grow; a shared prefix fits into the prompt that starts with it."""
    for index, cls in enumerate(profile.traffic.classes):
        for name in ("prompt_tokens", "output_tokens"):
            yield from _growing(getattr(cls, name), ("traffic", "classes", index, name))
        lengths = cls.prompt_tokens
        longest = max(x for x in (lengths.p50, lengths.p95, lengths.p99, lengths.max) if x is not None)
        if cls.shared_prefix is not None and cls.shared_prefix.tokens > longest:
            path: Path = ("traffic", "classes", index, "shared_prefix", "tokens")
            yield path, "is longer than any prompt of the class", ()


def _growing(lengths: Lengths, path: Path) -> Found:
    known = [(name, value) for name in ("p50", "p95", "p99", "max") if (value := getattr(lengths, name)) is not None]
    for (low, small), (high, large) in pairwise(known):
        if small > large:
            yield (*path, high), f"{high} ({large}) is below {low} ({small})", ((*path, low),)


# ---------------------------------------------------------------------------------------------------------------- SLOs


def _goals(profile: Profile, _launch: Launch | None) -> Found:
    """Percentiles spelled right, growing with their limits, and classes that exist."""
    yield from _percentiles(profile.slo, ("slo",))
    names = [cls.name for cls in profile.traffic.classes] or [OBSERVED] * (profile.traffic.log is not None)
    for name, slo in profile.slo.classes.items():
        path: Path = ("slo", "classes", name)
        if name not in names:
            rest = did_you_mean(name, names) or "; declare it in traffic.classes"
            yield path, f"there is no class '{name}'{rest}", (("traffic", "classes"),)
        if slo.classes:
            yield (*path, "classes"), "a class has no classes of its own", ()
        yield from _percentiles(slo, path)


def _percentiles(slo: Slo, path: Path) -> Found:
    for metric in ("ttft", "first_answer", "tps", "e2e"):
        goals: Mapping[str, float] = getattr(slo, metric) or {}
        for name in goals:
            if not PERCENTILE.fullmatch(name):
                yield (*path, metric, name), _percentile_hint(name), ()
        known = sorted((float(name[1:]), name) for name in goals if PERCENTILE.fullmatch(name))
        for (_, low), (_, high) in pairwise(known):
            if goals[low] > goals[high]:
                yield (*path, metric, high), f"the limit at {high} is below the one at {low}", ((*path, metric, low),)


def _percentile_hint(name: str) -> str:
    if re.fullmatch(r"(?i)(avg|mean|average)", name):
        return f"'{name}' hides the slow requests; give a percentile such as p95"
    if re.fullmatch(r"(?i)(max|p100(\.0*)?)", name):
        return f"'{name}' cannot be shown by any number of requests; give a percentile such as p99.9"
    digits = re.sub(r"(?i)^(p|perc(entile)?)?[ _-]?|(th)?%?$", "", "50" if name.lower() == "median" else name)
    near = f", did you mean 'p{digits}'" if PERCENTILE.fullmatch(f"p{digits}") else ""
    return f"'{name}' is no percentile such as p50, p95 or p99.9{near}"


# ------------------------------------------------------------------------------------------------------------ endpoint


def _urls(profile: Profile, launch: Launch | None) -> Found:
    """Addresses with a scheme and a host: of the API or one of its methods, not of the metrics."""
    endpoint = profile.endpoint
    if endpoint.url != "emulator":
        yield from _url(endpoint.url, ("endpoint", "url"))
        if re.search(r"/metrics/?$", endpoint.url):
            yield ("endpoint", "url"), "give the root of the API, without /metrics", ()
    else:
        named = {"model", "accelerator"} if launch is None else {"model", "accelerator"} - launch.fields.keys()
        for name in sorted(field for field in named if getattr(profile.deployment, field) is None):
            yield ("endpoint", "url"), f"the emulator needs deployment.{name}", (("deployment", name),)
    if isinstance(endpoint.metrics, tuple):
        if not endpoint.metrics:
            yield ("endpoint", "metrics"), "the list is empty; write auto, or null for none", ()
        for index, url in enumerate(endpoint.metrics):
            yield from _url(url, ("endpoint", "metrics", index))
    elif endpoint.metrics == "prometheus" and profile.monitoring.prometheus is None:
        yield ("endpoint", "metrics"), "needs monitoring.prometheus, whose targets are the replicas", ()
    elif endpoint.metrics not in (None, "auto", "prometheus"):
        yield from _url(endpoint.metrics, ("endpoint", "metrics"))


def _watching(profile: Profile, _launch: Launch | None) -> Found:
    """Addresses of what watches the service, and labels that can be one's."""
    monitoring = profile.monitoring
    for index, url in enumerate(monitoring.exporters):
        yield from _url(url, ("monitoring", "exporters", index))
    for name in ("prometheus", "grafana"):
        if (url := getattr(monitoring, name)) is not None:
            yield from _url(url, ("monitoring", name))
    for name, value in monitoring.headers.items():
        if (fault := header_fault(name, value)) is not None:
            yield ("monitoring", "headers", name), fault, ()
    for label in monitoring.selector:
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", label):
            yield ("monitoring", "selector", label), "is no name of a label: letters, digits and _", ()


def _url(url: str, path: Path) -> Found:
    if (fault := address_fault(url, query=path[-1] != "url")) is not None:
        yield path, fault, ()


def _key(profile: Profile, _launch: Launch | None) -> Found:
    """Fields that name where a key is. A key itself must not stand in a profile, and is not repeated here."""
    for path, name in profile.key_names.items():
        if not name.startswith("file:") and (fault := key_name_fault(name)) is not None:
            yield path, fault, ()
    if profile.endpoint.api_key_env is not None and profile.endpoint.api_key_file is not None:
        yield ("endpoint", "api_key_file"), "give either api_key_env or api_key_file", (("endpoint", "api_key_env"),)


def _request_extras(profile: Profile, _launch: Launch | None) -> Found:
    """Headers that HTTP can carry; no body keys that the audit must set itself."""
    for name, value in profile.endpoint.headers.items():
        if (fault := header_fault(name, value)) is not None:
            yield ("endpoint", "headers", name), fault, ()
    for name in profile.endpoint.extra_body:
        if name in OWN_BODY_KEYS:
            yield ("endpoint", "extra_body", name), "the audit sets this key itself", ()


# ---------------------------------------------------------------------------------------------------------- deployment


def _devices(profile: Profile, launch: Launch | None) -> Found:
    """TP x PP x DP devices are what one replica has. SGLang's attention data parallelism runs within TP."""
    said = dict(launch.fields) if launch is not None else {}
    names = ("tensor_parallel", "pipeline_parallel", "data_parallel")
    written = {name: getattr(profile.deployment, name) or said.get(name) for name in names}
    sizes = {name: size for name, size in written.items() if isinstance(size, int) and size > 0}
    if not sizes:
        return
    tp, pp, dp = (sizes.get(name, 1) for name in names)
    engine = launch.engine if launch is not None else profile.endpoint.engine
    within = engine in ("sglang", "auto") and tp % dp == 0
    needed = {tp * pp * dp, tp * pp} if within else {tp * pp * dp}
    count = profile.deployment.count
    if count not in needed and (count < max(needed) or "tensor_parallel" in sizes):
        product = " x ".join(f"{name} {size}" for name, size in sizes.items())
        path: Path = ("deployment", next((n for n in names if getattr(profile.deployment, n)), "launch"))
        also: tuple[Path, ...] = (("deployment", "count"), ("deployment", "launch"))
        yield path, f"{product} = {tp * pp * dp} devices, but count is {count}", also


def _this_cpu(profile: Profile, _launch: Launch | None) -> Found:
    """Only what runs here can be held against this machine."""
    name = profile.deployment.accelerator
    if name is not None and is_this_cpu(name) and not profile.endpoint.on_this_machine:
        message = "is the machine that audits, and the endpoint is on another one; audit from there, or name a part"
        yield ("deployment", "accelerator"), message, (("endpoint", "url"),)


def _one_cpu(profile: Profile, _launch: Launch | None) -> Found:
    """This machine is measured with all of its cores, so that a replica is never several of it."""
    name, count = profile.deployment.accelerator, profile.deployment.count
    if name is not None and is_this_cpu(name) and count > 1:
        message = f"{count}, but this-cpu is one machine with all of its cores"
        yield ("deployment", "count"), message, (("deployment", "accelerator"),)


def _drafts(profile: Profile, _launch: Launch | None) -> Found:
    given = profile.deployment.speculative
    tokens = given.get("num_speculative_tokens") if isinstance(given, Mapping) else None
    if isinstance(tokens, int) and not 0 <= tokens <= MOST:
        yield ("deployment", "speculative"), f"{tokens} tokens drafted a step, 0 to {MOST} are needed", ()


def _prices(profile: Profile, _launch: Launch | None) -> Found:
    """Prices of accelerators that the catalogue knows."""
    for name, price in profile.deployment.prices.items():
        path: Path = ("deployment", "prices", name)
        if price <= 0:
            yield path, "needs a price above zero", ()
        try:
            find(name, any_memory=True)
        except UsageError as error:
            yield path, str(error), ()


def _engine(profile: Profile, launch: Launch | None) -> Found:
    engine = profile.endpoint.engine
    if launch is not None and engine not in ("auto", "generic", launch.engine) and launch.engine != "generic":
        yield ("endpoint", "engine"), f"says {engine}, but deployment.launch starts {launch.engine}", ()


def _flags(_profile: Profile, launch: Launch | None) -> Found:
    if launch is not None and launch.problems:
        yield ("deployment", "launch"), "; ".join(launch.problems), ()


# ------------------------------------------------------------------------------------------------------------- waivers


def _waivers(profile: Profile, _launch: Launch | None) -> Found:
    for index, waiver in enumerate(profile.waivers):
        path: Path = ("waivers", index)
        if not re.fullmatch(r"[A-Z][0-9]{3}", waiver.rule):
            yield (*path, "rule"), "needs a rule id such as M401", ()
        if not waiver.reason.strip():
            yield (*path, "reason"), "a waiver needs a reason", ()
        if not _is_date(waiver.expires):
            yield (*path, "expires"), "needs a date such as 2027-01-31", ()


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) is not None


RULES: tuple[Rule, ...] = (
    _ranges,
    _names,
    _target,
    _shares,
    _lengths,
    _goals,
    _urls,
    _key,
    _watching,
    _request_extras,
    _devices,
    _this_cpu,
    _one_cpu,
    _drafts,
    _prices,
    _engine,
    _flags,
    _waivers,
)


# ------------------------------------------------------------------------------------------------------------ warnings


def warn(profile: Profile, launch: Launch | None) -> Iterator[tuple[Path, str]]:
    """What is probably not meant, but may be."""
    if launch is not None and launch.unknown:
        yield ("deployment", "launch"), f"flags that are not known: {', '.join(launch.unknown)}"
    for path, slo in [(("slo",), profile.slo), *((("slo", "classes", n), s) for n, s in profile.slo.classes.items())]:
        for name in slo.tps or {}:
            if PERCENTILE.fullmatch(name) and float(name[1:]) > 50:
                share = f"{100 - float(name[1:]):g} %"
                yield (
                    (*path, "tps", name),
                    f"asks only the fastest {share} of the streams for this speed; p05 asks 95 %",
                )
    if profile.traffic.log is not None and profile.traffic.classes:
        yield ("traffic", "log"), "is not used, because traffic.classes are declared"
