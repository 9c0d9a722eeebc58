"""What a running endpoint says of itself and of its users: its models, settings, and histograms of its metrics page."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from auditor.catalog.metrics import is_known
from auditor.engines.replies import field, models
from auditor.errors import PreflightFailed
from auditor.init.containers import unknown_model
from auditor.init.draft import Draft, Said
from auditor.init.users import users
from auditor.probe.discover import Look, look
from auditor.probe.gpus import local_gpu
from auditor.probe.scrape import snapshot
from auditor.probe.target import basic_of
from auditor.profile import Endpoint, Profile, is_loopback

__all__ = ["draft_of_look", "from_endpoint"]

_SHARED = 0.1  # of the prompt tokens: less is what templates have in common
_FLAGS = {"endpoint.url": "--url", "endpoint.api_key_env": "--api-key-env"}
_DECLARED = (
    *("engine_version", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization"),
    *("mem_fraction_static", "tensor_parallel", "pipeline_parallel", "data_parallel", "quantization"),
)


async def from_endpoint(url: str, key_name: str | None, key: str | None, folder: Path) -> Draft:
    """Look at an endpoint by GETs alone, so that nothing is generated. Raises PreflightFailed, which names flags."""
    endpoint = Endpoint(url=url, api_key_env=key_name)
    try:
        seen = await look(Profile(version=1, name="init", endpoint=endpoint), key)
    except PreflightFailed as failure:
        text = str(failure).replace("such as api_key_env: LLM_API_KEY", "such as --api-key-env LLM_API_KEY")
        for name, flag in _FLAGS.items():
            text = text.replace(name, flag)
        raise PreflightFailed(text) from None
    return draft_of_look(seen, url, key_name, folder, (key or "", *_userinfo(url)))


def _userinfo(url: str) -> tuple[str, ...]:
    parts = urlsplit(url)
    return tuple(filter(None, (parts.password, parts.username if parts.password is None else None, basic_of(url))))


def draft_of_look(seen: Look, url: str, key_name: str | None, folder: Path, secrets: tuple[str, ...] = ()) -> Draft:
    """A draft of what was seen at `url`."""
    bare, notes = _bare(url)
    endpoint = {"url": Said(bare), "engine": Said(seen.flavour.name, f"by {seen.source}")}
    if key_name is not None:
        endpoint["api_key_env"] = Said(key_name, "the variable that holds the key")
    name, model, more = _model(seen, folder)
    if name is not None:
        endpoint["model"] = Said(name, "as the endpoint lists it")
    values = {n: Said(v, f"as {seen.sources.get(n, 'the server')} tells") for n in _DECLARED if (v := _worth(seen, n))}
    deployment = {**values, **_count(seen, values), **({"model": model} if model else {}), **_here(bare, values)}
    users = _users(seen)
    return Draft(
        name=re.sub(r"[^\w.-]+", "-", (name or "service").rpartition("/")[2]).strip("-.").lower() or None,
        endpoint=endpoint,
        deployment=deployment,
        goals=users.goals,
        prompt=users.prompt,
        output=users.output,
        context=seen.values.get("max_model_len"),
        sources=(f"{bare} ({seen.flavour.title})",),
        notes=(*notes, *more, *seen.warnings, *users.notes),
        secrets=secrets,
    )


def _bare(url: str) -> tuple[str, list[str]]:
    """The address without user and password, and what to do about them."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url, []
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return bare, ["endpoint.url: user and password were left out, since a profile is shared; give a key by api_key_env"]


def _worth(seen: Look, name: str) -> object:
    """A setting that says something: one device of everything is what a profile means anyway."""
    value = seen.values.get(name)
    return None if name.endswith("_parallel") and value == 1 else value


def _count(seen: Look, values: Mapping[str, Said]) -> dict[str, Said]:
    """The accelerators that the parallelism takes; SGLang's attention DP runs on those of TP."""
    names = ["tensor_parallel", "pipeline_parallel", "data_parallel"]
    if any(field(seen.replies, path, "enable_dp_attention") is True for path in seen.flavour.info_paths):
        names.remove("data_parallel")
    count = math.prod(values[name].value for name in names if name in values)
    return {"count": Said(count, "accelerators of one replica")} if count > 1 else {}


def _here(url: str, values: Mapping[str, Said]) -> dict[str, Said]:
    """This machine's accelerator, where the endpoint is on it and either is plain: a CPU build, or GPUs of one kind."""
    if not is_loopback(url):
        return {}
    version = str(values["engine_version"].value) if "engine_version" in values else ""
    if version.endswith("+cpu"):
        return {"accelerator": Said("this-cpu", "the engine is a CPU build; wrong if the address leads elsewhere")}
    part = local_gpu()
    return {"accelerator": Said(part, "of this machine; wrong if the address leads elsewhere")} if part else {}


def _model(seen: Look, folder: Path) -> tuple[str | None, Said | None, list[str]]:
    """The name to ask for, the model behind it, and what to look after."""
    entries = [entry for entry in models(seen.replies) if isinstance(entry.get("id"), str)]
    bases = [entry for entry in entries if not entry.get("parent")]
    if not bases:
        return None, None, ["endpoint.model: the endpoint lists no model; write its name"]
    notes = []
    if len(bases) > 1:
        rest = ", ".join(str(entry["id"]) for entry in bases[1:9])
        notes.append(f"endpoint.model: the endpoint serves others as well: {rest}")
    name = str(bases[0]["id"])
    places = (
        bases[0].get("root"),
        *(field(seen.replies, path, "model_path") for path in seen.flavour.info_paths),
        name,
    )
    named = [place for place in places if isinstance(place, str) and place]
    behind = next((place for place in named if unknown_model(place, folder) is None), named[0])
    unknown = unknown_model(behind, folder)
    said = Said(behind, "not in the catalogue: see above" if unknown else "")
    return name, said, [*notes, *([unknown] if unknown else [])]


# ---------------------------------------------------------------------------------------------------------------- users


def _users(seen: Look) -> Draft:
    """Lengths and times of what users sent, off the histograms of the engine's pages."""
    pages = [page.series for page in seen.pages if page.page.exporter is None]
    name = seen.flavour.name
    found = snapshot(pages, name, 0.0, "before", version=seen.values.get("engine_version")) if is_known(name) else None
    if found is None:
        return Draft()
    draft = users(found.histograms, seen.values.get("max_model_len"), "the engine", "since it started")
    return replace(draft, notes=(*draft.notes, *_shared(found.values)))


def _shared(values: Mapping[str, float]) -> tuple[str, ...]:
    """A word on prompts that begin alike, where the engine's prefix cache says that many do."""
    hits, queries = values.get("prefix_hits"), values.get("prefix_queries")
    if not hits or not queries or hits < _SHARED * queries:
        return ()
    return (
        f"shared_prefix: {hits / queries:.0%} of the prompt tokens were in the prefix cache: declare what is shared",
    )
