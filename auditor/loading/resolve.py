"""Names in the profile -> the objects of the catalogue, or of the model files that the user has."""

from collections.abc import Callable
from pathlib import Path

from auditor.engines.settings import drafting
from auditor.errors import UsageError
from auditor.loading.problems import one_line
from auditor.loading.profile import Loaded
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry

__all__ = ["Here", "read_model", "resolve_device", "resolve_draft", "resolve_model"]

Here = Callable[[], Device]
"""Gives the figures of the machine that audits, for whoever declares `this-cpu`; raises UsageError where it cannot."""


def resolve_model(loaded: Loaded) -> tuple[Geometry | None, str | None]:
    """The model's geometry, or None and why not.

    `deployment.model` (else the launch line's model) is a HF folder, a config.json or a GGUF file relative to the
    profile, else a catalogue name.
    """
    name = _declared(loaded, "model")
    if name is None:
        return None, "no model is declared (deployment.model)"
    try:
        return read_model(name, loaded.path.parent), None
    except (UsageError, OSError) as error:
        return None, f"deployment.model: {error}"


def resolve_draft(loaded: Loaded) -> Geometry | None:
    """The geometry of a draft model of its own, found as `resolve_model` does; None without one, or where it is not
    known.
    """
    name = drafting(loaded.profile, loaded.launch)
    try:
        return read_model(name, loaded.path.parent) if name is not None else None
    except (UsageError, OSError):
        return None


def read_model(name: str, folder: Path) -> Geometry:
    """Geometry of a HF folder, a config.json or a GGUF file relative to `folder`, else of a catalogue model; of a GGUF
    file or repository that is not at hand, of the model that its name tells.

    Raises UsageError where it cannot be read or is not known.
    """
    from auditor.catalog import gguf, gguf_names, hf, models

    try:
        path = (folder / name).expanduser()
        if name.endswith(".gguf") and path.exists():
            return gguf.read(path)
        if name.endswith(".json") or (path / "config.json").exists():
            return hf.read(path)
        bare = path.is_dir()
    except OSError as error:  # no path, or one that may not be read
        raise UsageError(f"{one_line(name)[:60]}: cannot be read ({error.strerror or error})") from None
    except RuntimeError:
        raise UsageError(f"{one_line(name)[:60]}: no such home folder") from None
    try:
        return gguf_names.find(name) or models.find(name)
    except UsageError:
        if not bare:
            raise
        raise UsageError(f"{path}: this folder has no config.json, which a model folder needs") from None


def resolve_device(loaded: Loaded, here: Here | None = None) -> tuple[Device | None, str | None]:
    """The accelerator's figures, or None and why not. `here` tells those of this machine."""
    from auditor.catalog import accelerators

    name = loaded.profile.deployment.accelerator
    if name is None:
        return None, "no accelerator is declared (deployment.accelerator)"
    try:
        if here is not None and accelerators.is_this_cpu(name):
            return here(), None
        return accelerators.find(name), None
    except UsageError as error:
        return None, f"deployment.accelerator: {error}"


def _declared(loaded: Loaded, field: str) -> str | None:
    explicit = getattr(loaded.profile.deployment, field)
    if explicit is None and loaded.launch is not None:
        explicit = loaded.launch.fields.get(field)
    return None if explicit is None else str(explicit)
