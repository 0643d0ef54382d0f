"""Find and read the two files of the default embedder: WordLlama's token vectors and its vocabulary.

The files are not in this repository. The build hook (hatch_build.py) copies them from the wordllama wheel
into a folder beside the package when it is installed. docs/dependencies.md says why.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from memory.errors import AgentMemoryError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FOLDER = "agentmemory_embedder_files"
"""A top-level folder of the installation, not of `memory`: `membench ab` runs the code of other revisions,
unpacked without building them, with the files of the installed one."""
_WEIGHTS = "l2_supercat_256.safetensors"
_VOCABULARY = "l2_supercat_tokenizer_config.json"
_ADVICE = (
    "install agentmemory-tiers anew (in a clone: `pip install -e .`), "
    "or pass your own embedder to AgentMemorySystem"
)


class _Model(msgspec.Struct):
    vocab: dict[str, int]


class _Tokenizer(msgspec.Struct):
    """The part of the tokenizer's file that is used. Its 61,249 merges follow from the vocabulary."""

    model: _Model


def files_folder() -> Path:
    """Return the folder of the files. Raise AgentMemoryError if it is not installed."""
    spec = find_spec(FOLDER)  # finds the folder without importing anything
    for folder in (spec and spec.submodule_search_locations) or ():
        if Path(folder, _WEIGHTS).is_file() and Path(folder, _VOCABULARY).is_file():
            return Path(folder)
    raise AgentMemoryError(f"the files of the default embedder are missing: {_ADVICE}")


def read_vectors() -> NDArray[np.float16]:
    """Return one vector for each token, in the order of the tokens' numbers."""
    from safetensors import SafetensorError, safe_open

    path = files_folder() / _WEIGHTS
    try:
        with safe_open(path, framework="numpy") as file:
            (name,) = file.keys()
            vectors: NDArray[np.float16] = file.get_tensor(name)
    except (SafetensorError, OSError, ValueError) as problem:
        raise _damaged(path, problem) from None
    return vectors


def read_vocabulary() -> dict[str, int]:
    """Return the number of each token, by its text."""
    path = files_folder() / _VOCABULARY
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Tokenizer).model.vocab
    except (msgspec.MsgspecError, OSError, ValueError) as problem:
        raise _damaged(path, problem) from None


def _damaged(path: Path, problem: Exception) -> AgentMemoryError:
    return AgentMemoryError(f"{path} can't be read ({problem}): {_ADVICE}")
