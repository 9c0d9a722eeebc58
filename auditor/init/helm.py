"""Values of Helm charts: containers written out, an image with its arguments, or the vLLM production stack's models."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from auditor.engines.flavours import tokens
from auditor.init import kubernetes
from auditor.init.containers import Container
from auditor.monitoring.documents import listing, mapping, text_of

__all__ = ["containers"]

Doc = Mapping[str, Any]

# Keys of the production stack's vllmConfig and the flags that its template makes of them.
_FLAGS = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
}
_HINT = "after kubectl port-forward, which reaches one replica alone; or the service's address in the cluster"


def containers(document: Doc, file: str) -> list[Container]:
    """Every container that a values file describes."""
    spec = mapping(document.get("servingEngineSpec"))
    models = [_stacked(mapping(model), spec, file) for model in listing(spec.get("modelSpec"))]
    if models:
        return models
    top = {key: value for key, value in document.items() if not isinstance(value, Mapping)}
    sections = {"": top} | {str(key): child for key, child in document.items() if isinstance(child, Mapping)}
    written = [
        _modelled(item, document, file, key)
        for key, section in sections.items()
        for item in kubernetes.containers([section], file)
    ]
    return written or list(_images(document, file, None))


def _stacked(model: Doc, spec: Doc, file: str) -> Container:
    """A model of the vLLM production stack (helm/templates/deployment-vllm-multi.yaml there)."""
    config, key = mapping(model.get("vllmConfig")), spec.get("vllmApiKey")
    flags = [word for name, flag in _FLAGS.items() if (value := text_of(config.get(name))) for word in (flag, value)]
    if "enableChunkedPrefill" in config:
        flags.append(f"--{'' if _true(config['enableChunkedPrefill']) else 'no-'}enable-chunked-prefill")
    if config:
        flags.append(f"--{'' if _true(config.get('enablePrefixCaching')) else 'no-'}enable-prefix-caching")
    flags += [str(word) for word in listing(config.get("extraArgs"))]
    known, secret = kubernetes.environment(model)
    if isinstance(key, Mapping):
        secret["VLLM_API_KEY"] = f"Secret {key.get('secretName')}, entry {key.get('secretKey')}"
    elif key:
        secret["VLLM_API_KEY"] = "vllmApiKey of the values file"
    name, image = text_of(model.get("name")) or "model", text_of(model.get("repository"))
    return Container(
        name=name,
        where=f"{file}, model {name}",
        words=("vllm", "serve", text_of(model.get("modelURL")), *flags),
        image=f"{image}:{text_of(model.get('tag')) or 'latest'}" if image else None,
        variables=known,
        secret_variables=secret,
        devices=kubernetes.whole(model.get("requestGPU")),
        part=kubernetes.node_part(_selected(model)),
        replicas=kubernetes.whole(model.get("replicaCount")),
        hint="after kubectl port-forward svc/RELEASE-router-service PORT:80, the stack's router",
        secrets=tuple(value for value in (key, model.get("hf_token")) if isinstance(value, str)),
    )


def _true(value: Any) -> bool:
    return str(value).lower() == "true"


def _selected(model: Doc) -> Doc:
    """A model's node selection as a pod has it: the stack lists the terms alone."""
    terms = model.get("nodeSelectorTerms")
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {**model, "affinity": {"nodeAffinity": affinity}} if terms else model


def _modelled(container: Container, document: Doc, file: str, section: str) -> Container:
    """A container written out. In llm-d's model service the model stands apart, the command is a word of its own, and
    prefill and decode have a section each.
    """
    model = mapping(document.get("modelArtifacts"))
    uri, name = text_of(model.get("uri")), text_of(model.get("name")) or container.name
    command = ("vllm", "serve", uri.removeprefix("hf://"), *container.words) if uri else container.words
    where = f"{file}, {section}" if section else file
    return replace(container, name=name, where=where, inner=section or container.inner, words=command, hint=_HINT)


def _images(node: Any, file: str, replicas: int | None, section: str = "") -> Iterator[Container]:
    """Mappings that hold an image beside what it is started with."""
    if not isinstance(node, Mapping):
        return
    image = node.get("image")
    counts = (node.get("replicaCount"), node.get("replicas"), mapping(node.get("autoscaling")).get("minReplicas"))
    replicas = next((n for count in counts if (n := kubernetes.whole(count))), replicas)
    words = [*_words(mapping(image).get("command")), *_words(node.get("command"))]
    words += [word for key in ("args", "extraArgs") for word in _words(node.get(key))]
    if image and words:
        known, secret = kubernetes.environment(node)
        yield Container(
            name=text_of(node.get("name")) or text_of(node.get("fullnameOverride")) or "service",
            where=f"{file}, {section}" if section else file,
            inner=section,
            words=tuple(words),
            image=_image(image),
            variables=known,
            secret_variables=secret,
            devices=kubernetes.devices_of(node),
            part=kubernetes.node_part(node),
            replicas=replicas,
            hint=_HINT,
        )
    for key, child in node.items():
        if key != "extraInit":
            yield from _images(child, file, replicas, str(key))


def _words(value: Any) -> list[str]:
    return tokens(value) if isinstance(value, str) else [str(word) for word in listing(value)]


def _image(image: Any) -> str:
    if not isinstance(image, Mapping):
        return str(image)
    parts = [text_of(image.get(key)) for key in ("registry", "repository")]
    return f"{'/'.join(filter(None, parts))}:{text_of(image.get('tag')) or 'latest'}"
