"""Kubernetes manifests: every pod template in them (Deployment, StatefulSet, LeaderWorkerSet, KServe ...) and the
Services, Secrets and ConfigMaps beside it, as containers.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auditor.init.containers import Container
from auditor.monitoring.documents import listing, mapping, text_of

__all__ = ["containers", "devices_of", "environment", "node_part", "whole"]

Doc = Mapping[str, Any]

_DEVICES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi")
# Node labels that name the accelerator: GPU feature discovery, GKE, Karpenter, AMD's labeller, machine types.
_LABELS = (
    *("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name"),
    *("amd.com/gpu.product-name", "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
)


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod template and what stands around it: replicas of its group, pods of one replica."""

    template: Doc
    replicas: int | None
    size: int


def containers(documents: Sequence[Doc], file: str) -> list[Container]:
    """Every container of every pod template in the documents of a manifest."""
    return [
        _container(item, pod, document, documents, file)
        for document in documents
        for pod in _pods(document, None, 1)
        for item in _items(mapping(pod.template.get("spec")))
    ]


def _pods(node: Any, replicas: int | None, size: int) -> Iterator[_Pod]:
    if isinstance(node, list):
        for child in node:
            yield from _pods(child, replicas, size)
    if not isinstance(node, Mapping):
        return
    replicas = next((n for key in ("replicas", "minReplicas") if (n := whole(node.get(key))) is not None), replicas)
    size = whole(mapping(node.get("leaderWorkerTemplate")).get("size")) or size
    if _items(mapping(node.get("spec"))):
        yield _Pod(node, whole(mapping(node.get("spec")).get("replicas")) or replicas, size)
        return
    if _items(node):
        yield _Pod({"spec": node}, replicas, size)
        return
    for child in node.values():
        yield from _pods(child, replicas, size)


def _items(spec: Doc) -> list[Doc]:
    """The containers of a pod; KServe writes the only one as `model`."""
    items = [item for item in listing(spec.get("containers")) if isinstance(item, Mapping)]
    model = mapping(spec.get("model"))
    return items or ([model] if "modelFormat" in model or "args" in model else [])


def whole(value: Any) -> int | None:
    """A count as manifests write it; None for anything else."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


def _container(item: Doc, pod: _Pod, document: Doc, documents: Sequence[Doc], file: str) -> Container:
    spec, meta = mapping(pod.template.get("spec")), mapping(document.get("metadata"))
    kind, name = text_of(document.get("kind")) or "pod", text_of(meta.get("name")) or text_of(item.get("name"))
    variables, secret = environment(item, documents)
    devices, kept = devices_of(item), _scaled(kind, name, documents)
    address, hint = _service(pod, kind, name, documents, text_of(meta.get("namespace")))
    ports = [whole(mapping(port).get("containerPort")) for port in listing(item.get("ports"))]
    return Container(
        name=name or "service",
        where=f"{file}, {kind} {name}".strip(),
        inner=text_of(item.get("name")),
        words=tuple(str(word) for key in ("command", "args") for word in listing(item.get(key))),
        image=text_of(item.get("image")) or None,
        variables=variables,
        secret_variables=secret,
        devices=devices * pod.size if devices is not None else None,
        part=node_part(spec),
        replicas=kept or pod.replicas,
        scaled=kept is not None,
        port=next((port for port in ports if port), None),
        address=address,
        hint=hint,
        secrets=tuple(_secret_values(documents)),
    )


def _scaled(kind: str, name: str, documents: Sequence[Doc]) -> int | None:
    """The fewest replicas that an autoscaler (of Kubernetes or KEDA) keeps, which overrules what the workload says."""
    for spec in (mapping(document.get("spec")) for document in documents):
        target = mapping(spec.get("scaleTargetRef"))
        if text_of(target.get("name")) == name and text_of(target.get("kind") or "Deployment") == kind:
            return whole(spec.get("minReplicas", spec.get("minReplicaCount")))
    return None


def devices_of(item: Doc) -> int | None:
    """Accelerators that a container asks for; None where it asks for none."""
    resources = mapping(item.get("resources"))
    asked = {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}
    return next((n for name in _DEVICES if (n := whole(asked.get(name)))), None)


def node_part(spec: Doc) -> str | None:
    """What the node selector or affinity of a pod calls the accelerator."""
    labels = dict(mapping(spec.get("nodeSelector")))
    required = mapping(mapping(spec.get("affinity")).get("nodeAffinity")).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    for term in listing(mapping(required).get("nodeSelectorTerms")):
        for rule in listing(mapping(term).get("matchExpressions")):
            values = listing(mapping(rule).get("values"))
            if mapping(rule).get("operator") == "In" and len(values) == 1:
                labels.setdefault(str(rule.get("key")), values[0])
    name = next((str(labels[label]) for label in _LABELS if labels.get(label)), None)
    return name.removesuffix("-SHARED") if name else None


# ---------------------------------------------------------------------------------------------------------- environment


def environment(item: Doc, documents: Sequence[Doc] = ()) -> tuple[dict[str, str], dict[str, str]]:
    """Variables of a container by their value, and those whose value a Secret holds by where that is."""
    known: dict[str, str] = {}
    secret: dict[str, str] = {}
    for source in listing(item.get("envFrom")):
        known |= _data(documents, "ConfigMap", mapping(mapping(source).get("configMapRef")).get("name"))
    for entry in map(mapping, listing(item.get("env"))):
        name, origin = text_of(entry.get("name")), mapping(entry.get("valueFrom"))
        if isinstance(entry.get("value"), str):
            known[name] = entry["value"]
        elif "configMapKeyRef" in origin:
            reference = mapping(origin["configMapKeyRef"])
            value = _data(documents, "ConfigMap", reference.get("name")).get(str(reference.get("key")))
            known |= {name: value} if value is not None else {}
        elif "secretKeyRef" in origin:
            reference = mapping(origin["secretKeyRef"])
            secret[name] = f"Secret {reference.get('name')}, entry {reference.get('key')}"
    return known, secret


def _data(documents: Sequence[Doc], kind: str, name: Any) -> dict[str, str]:
    return {
        str(key): str(value)
        for document in documents
        if document.get("kind") == kind and mapping(document.get("metadata")).get("name") == name
        for key, value in mapping(document.get("data")).items()
    }


def _secret_values(documents: Sequence[Doc]) -> Iterator[str]:
    """What Secrets in the same file hold, plain and encoded."""
    for document in documents:
        if document.get("kind") == "Secret":
            plain = mapping(document.get("stringData")).values()
            coded = mapping(document.get("data")).values()
            yield from (str(value) for value in (*plain, *coded))
            for value in coded:
                try:
                    yield base64.b64decode(str(value), validate=True).decode()
                except ValueError:
                    continue


# -------------------------------------------------------------------------------------------------------------- address


def _service(pod: _Pod, kind: str, name: str, documents: Sequence[Doc], namespace: str) -> tuple[str | None, str]:
    """Where a pod is reached inside the cluster, and how from outside."""
    labels = mapping(mapping(pod.template.get("metadata")).get("labels"))
    space = f" -n {namespace}" if namespace else ""
    for document in documents:
        spec = mapping(document.get("spec"))
        selector = mapping(spec.get("selector"))
        if document.get("kind") != "Service" or not selector or not selector.items() <= labels.items():
            continue
        service = text_of(mapping(document.get("metadata")).get("name"))
        port = next((p for entry in listing(spec.get("ports")) if (p := whole(mapping(entry).get("port")))), 80)
        host = f"{service}.{namespace or 'default'}.svc"
        shown = "" if port == 80 else f":{port}"
        return f"http://{host}{shown}/v1", f"from outside: kubectl port-forward{space} svc/{service} 8000:{port}"
    return None, f"after kubectl port-forward{space} {kind.lower()}/{name} PORT, which reaches one replica alone"
