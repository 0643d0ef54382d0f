"""Copies the files of the default embedder from the wordllama wheel into our own, when it is built.

This repository contains no data of others, and `wordllama` itself would install 26 packages that the memory
does not use. So `wordllama` is a build requirement (pyproject.toml), and an installation has only its two
data files, with its licence. The code of wordllama is not run. docs/dependencies.md has the reasons.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "agentmemory_embedder_files"  # the same name as in memory/embedding/files.py
SHA256 = {
    "wordllama/weights/l2_supercat_256.safetensors": (
        "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
    ),
    "wordllama/tokenizers/l2_supercat_tokenizer_config.json": (
        "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"
    ),
}
"""Stored vectors can be compared only if they come from these very files."""


class EmbedderFiles(BuildHookInterface[Any]):
    """Adds the files to a wheel, also to that of an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files to the wheel. `version` is "standard" or "editable"."""
        included = "force_include_editable" if version == "editable" else "force_include"
        build_data[included].update({str(path): f"{FOLDER}/{name}" for name, path in find_files().items()})


def find_files() -> dict[str, Path]:
    """Return the files to add, by their names in the folder. Exit with one line if one is missing."""
    try:
        wordllama = distribution("wordllama")
    except PackageNotFoundError:
        raise SystemExit(
            "building agentmemory-tiers needs the files of wordllama: run `pip install --no-deps wordllama`"
        ) from None
    found = {}
    for name, expected in SHA256.items():
        path = Path(str(wordllama.locate_file(name)))
        if not path.is_file():
            raise SystemExit(f"wordllama {wordllama.version} has no {name}: install another version")
        if hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            raise SystemExit(
                f"{name} of wordllama {wordllama.version} is another file than expected: "
                "install the version that pyproject.toml requires"
            )
        found[path.name] = path
    found["LICENSE-wordllama"] = _licence_of(wordllama)
    return found


def _licence_of(package: Distribution) -> Path:
    for file in package.files or ():
        if file.name == "LICENSE" and ".dist-info" in str(file.parent):
            return Path(str(package.locate_file(file)))
    raise SystemExit(f"wordllama {package.version} has no LICENSE: install another version")
