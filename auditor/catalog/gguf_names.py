"""What the name of a GGUF file or repository tells of a model that is not at hand: whose it is, and its format."""

import re
from dataclasses import replace
from functools import lru_cache

from auditor.catalog import models
from auditor.errors import UsageError
from auditor.theory.kv.geometry import Geometry

__all__ = ["find", "told"]

_FORMAT = r"(?:ud-|i1-)?((?:i?q\d|tq\d|mxfp4)(?:_\w+?)*|bf16|f16|f32)"
_FILE = re.compile(rf"(?i)(?:^|.*/)([^/]+?)(?:[-._]{_FORMAT})?(?:-\d{{5}}-of-\d{{5}})?\.gguf")
_REPOSITORY = re.compile(rf"(?i)(.+?)(?:(-gguf)(?::{_FORMAT})?|:{_FORMAT})")
_DEFAULT = "q4_k_m"  # of -hf without a tag (common/arg.cpp)
_PLAIN = ("bf16", "f16", "f32")


def told(name: str) -> tuple[str, str | None] | None:
    """The model and the format that a name tells: "gemma-3-27b-it-Q4_K_M.gguf" as a file, "ggml-org/gemma-3-27b-it-
    GGUF:Q4_K_M" as a repository. None where it is neither; the format of a file may not be told.
    """
    file = _FILE.fullmatch(name)
    if file is not None:
        return file[1], file[2] and file[2].lower()
    repository = _REPOSITORY.fullmatch(name)
    if repository is None:
        return None
    return repository[1], (repository[3] or repository[4] or _DEFAULT).lower()


@lru_cache(maxsize=1024)
def find(name: str) -> Geometry | None:
    """The catalogue's model in the format that the name tells; None where the name is none of a GGUF file's.

    Raises UsageError where the model is not known.
    """
    said = told(name)
    if said is None:
        return None
    model, word = said
    try:
        found = models.find(model)
    except UsageError as error:
        raise UsageError(f"{name} is not at hand, and by its name: {error}") from None
    note = f"{name} is not at hand: by its name it is {found.name} with {word or '16-bit'} weights"
    packed = None if word in _PLAIN else word
    return replace(found, quantization=packed, formats={}, weight_bytes=None, notes=(*found.notes, note))
