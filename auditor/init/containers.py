"""A container that serves a model, whatever file declares it, and what it says of a deployment."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from auditor.catalog import accelerators
from auditor.engines.flavours import FLAVOURS, command_end
from auditor.engines.launch import Launch
from auditor.errors import UsageError
from auditor.init.draft import Draft, Said
from auditor.init.launching import KEY_VARIABLE, Line, read_line
from auditor.loading import read_model
from auditor.redact import Redactor, find_secrets

__all__ = ["Container", "draft_of", "draft_of_line", "serves", "unknown_model"]

_PORTS = {"vllm": 8000, "sglang": 30000, "llamacpp": 8080, "trtllm": 8000, "lmdeploy": 23333}  # the engines' defaults
# What the name of an image that is nobody's own says of the engine in it, and the command that it then starts.
_IN_NAME = {
    "sglang": "sglang.launch_server",
    "vllm": "vllm serve",
    "llama-cpp|llama.cpp|llama-server": "llama-server",
    "lmdeploy": "lmdeploy serve api_server",
    "trtllm|tensorrt": "trtllm-serve",
}


_COUNT_THEIR_OWN = r"lmcache/|llm-d|huggingfaceserver|rayproject/|ai-dynamo/|/nim/|djl-serving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container: the words that it starts with, its environment, and what its file says around it.

    `name` is that of the deployment, `inner` the container's own, where several share the first.
    `secret_variables` are those whose value the file only refers to, with the place where it is; `devices` are those
    of one replica, `part` what the file calls the accelerator; `address` is where others reach it, `hint` how one does
    from elsewhere, `port` the one it listens on; `scaled` says that an autoscaler keeps the replicas.
    """

    name: str
    where: str
    inner: str = ""
    words: tuple[str, ...] = ()
    image: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    secret_variables: Mapping[str, str] = field(default_factory=dict)
    devices: int | None = None
    part: str | None = None
    replicas: int | None = None
    scaled: bool = False
    port: int | None = None
    address: str | None = None
    hint: str = ""
    secrets: tuple[str, ...] = ()


def serves(container: Container) -> bool:
    """Whether the container starts an engine that is known."""
    try:
        read_line(_words(container), container.variables)
    except UsageError:
        return False
    return True


def _words(container: Container) -> list[str]:
    """Image and command in one line, as `docker run` has them; an image that is nobody's own by the engine in its name,
    where no command starts one.
    """
    words = [*([container.image] if container.image else []), *container.words]
    image = (container.image or "").lower()
    if any(command_end(flavour, words) is not None for flavour in FLAVOURS.values()) or not container.words:
        return words
    command = next((line for name, line in _IN_NAME.items() if re.search(name, image)), None)
    if command is None or not (container.words[0].startswith("-") or container.words[0] == "serve"):
        return words
    return [*words[:1], *command.split(), *container.words[container.words[0] == "serve" :]]


def draft_of(container: Container, folder: Path) -> Draft:
    """What a container says. `folder` is where the profile will be, for models on disk.

    Raises UsageError where it starts no engine that is known.
    """
    line = read_line(_words(container), container.variables)
    nodes = _nodes(line)
    devices = container.devices * nodes if container.devices is not None else None
    found = draft_of_line(line, folder, container.where, devices)
    version = line.version or _tag(container.image)
    deployment = dict(found.deployment)
    if version and "engine_version" not in deployment:
        deployment["engine_version"] = Said(version, "of the image")
    if container.part is not None:
        deployment |= _accelerator(container.part)
    if container.replicas is not None and container.replicas // nodes > 1:
        why = "the fewest that its autoscaler keeps" if container.scaled else ""
        deployment["replicas"] = Said(container.replicas // nodes, why)
    secrets = (*line.secrets, *container.secrets, *find_secrets(dict(container.variables)))
    note = () if container.part is None or "accelerator" in deployment else (_unknown_part(container.part),)
    draft = replace(found, name=container.name, deployment=deployment, secrets=secrets, notes=(*found.notes, *note))
    return replace(draft, endpoint={**draft.endpoint, **_reached(container, line)})


def _nodes(line: Line) -> int:
    """Pods that one replica takes: SGLang's and vLLM's --nnodes."""
    match = re.search(r"--nnodes[= ](\d{1,4})\b", line.text)
    return max(1, int(match[1])) if match else 1


def _tag(image: str | None) -> str | None:
    """The version in an image's tag, where it is the engine's: distributions around engines count their own."""
    if re.search(_COUNT_THEIR_OWN, image or ""):
        return None
    match = re.search(r":v?(\d+\.\d+\.\d+)(?:[-.+\w]*)$", image or "")
    return match[1] if match else None


def _accelerator(part: str) -> dict[str, Said]:
    try:
        return {"accelerator": Said(accelerators.find(part).key, f"the file says {part}")}
    except UsageError:
        return {}


def _unknown_part(part: str) -> str:
    return f"accelerator: {part} is not in the catalogue, or stands for several parts: audit catalog accelerators"


def _reached(container: Container, line: Line) -> dict[str, Said]:
    """Where the container is reached, and by which key."""
    found: dict[str, Said] = {}
    if container.address is not None:
        found["url"] = Said(container.address, container.hint)
    elif container.hint:
        url = _local(line.launch, container.port)
        found["url"] = Said(url, container.hint.replace("PORT", url.rpartition(":")[2].removesuffix("/v1")))
    if line.key is not None or any(name.endswith("API_KEY") for name in container.secret_variables):
        name = line.key if line.key not in (None, KEY_VARIABLE) else None
        name = name or next((n for n in container.secret_variables if n.endswith("API_KEY")), KEY_VARIABLE)
        place = container.secret_variables.get(name)
        found["api_key_env"] = Said(name, f"its value: {place}" if place else "put the key into this variable")
    return found


def _local(launch: Launch, port: int | None = None) -> str:
    return f"http://127.0.0.1:{launch.fields.get('port') or port or _PORTS.get(launch.engine, 8000)}/v1"


# --------------------------------------------------------------------------------------------------------- launch lines


def draft_of_line(line: Line, folder: Path, where: str, devices: int | None = None) -> Draft:
    """What a launch line alone says; `devices` are those that something else gives a replica."""
    launch = line.launch
    fields: dict[str, Any] = dict(launch.fields)
    endpoint = {"url": Said(_local(launch), "where the launch line listens"), "engine": Said(launch.engine)}
    served = fields.get("served_model_name")
    if isinstance(served, str):
        endpoint["model"] = Said(served, "--served-model-name")
    if line.key is not None:
        endpoint["api_key_env"] = Said(line.key, "the server wants a key: put it into this variable")
    notes = [f"{missing} was left out of the launch line: the variable is not known here" for missing in line.left_out]
    notes += [f"the engine would refuse this: {problem}" for problem in launch.problems]
    if config := re.search(r"--config[= ](\S+)", line.text):
        notes.append(f"deployment: what {config[1]} sets is not read; write it as flags or as fields")
    deployment, more = _deployment(line, folder, devices)
    return Draft(
        name=_plain(str(served or fields.get("model") or launch.engine)),
        endpoint=endpoint,
        deployment=deployment,
        context=fields.get("max_model_len"),
        sources=(where,),
        notes=(*notes, *more),
        secrets=line.secrets,
    )


def _deployment(line: Line, folder: Path, devices: int | None) -> tuple[dict[str, Said], list[str]]:
    found, notes = dict[str, Said](), list[str]()
    model = line.launch.fields.get("model")
    if isinstance(model, str):
        note = unknown_model(model, folder)
        found["model"] = Said(model, "not in the catalogue: see above" if note else "")
        notes += [note] if note else []
    else:
        notes.append("deployment.model: the launch line names none; add it")
    version = line.version or line.launch.fields.get("engine_version")
    if version is not None:
        found["engine_version"] = Said(str(version), "of the image")
    used = _used(line.launch)
    if used is not None or devices is not None:
        found["count"] = Said(used or devices, "accelerators of one replica")
        if used and devices and used != devices:
            notes.append(f"the file gives a replica {devices} accelerators, its flags use {used}")
    found["launch"] = Said(line.text)
    return found, notes


def unknown_model(name: str, folder: Path) -> str | None:
    """What to do about a model whose geometry is not at hand; None where it is."""
    try:
        read_model(name, folder)
    except (UsageError, OSError) as error:
        text = Redactor().text(str(error)).partition("\n")[0].partition(" (")[0]
        return f"deployment.model: {text[:200]}; name its folder, config.json or GGUF file, or a model of the catalogue"
    return None


def _used(launch: Launch) -> int | None:
    """Accelerators that the parallelism takes; None where no flag tells. SGLang's attention DP runs within TP."""
    names = ["tensor_parallel", "pipeline_parallel", "data_parallel"]
    if launch.fields.get("dp_attention"):
        names.remove("data_parallel")
    sizes = [launch.fields[name] for name in names if isinstance(launch.fields.get(name), int)]
    return math.prod(sizes) if sizes else None


def _plain(name: str) -> str:
    """A name for the profile: the last part of a path, letters and digits."""
    last = name.rstrip("/").rpartition("/")[2].removesuffix(".gguf")
    return re.sub(r"[^\w.-]+", "-", last).strip("-.").lower() or "service"
