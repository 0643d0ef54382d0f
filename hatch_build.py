"""Adds the compiled core and the files of the default embedder to a wheel: the repository has neither.

build_core.py compiles the core. Without a C compiler there is none, and the memory runs in pure Python.

The files of the embedder come from the wordllama wheel.
This repository contains no data of others, and `wordllama` itself would install 26 packages that the memory
does not use. So `wordllama` is a build requirement (pyproject.toml), and an installation has only its two
data files, with its licence. The code of wordllama is not run. docs/dependencies.md has the reasons.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

from build_core import CORE, CompileError, NoCompiler, build_core, wheel_tag

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


class BuildHook(BuildHookInterface[Any]):
    """Adds both to a wheel. An editable installation gets the core in its own folder of sources."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files to the wheel. `version` is "standard" or "editable"."""
        editable = version == "editable"
        included = "force_include_editable" if editable else "force_include"
        build_data[included].update({str(path): f"{FOLDER}/{name}" for name, path in find_files().items()})
        self._scratch = tempfile.TemporaryDirectory()
        try:
            if editable:
                build_core(Path(self.root))
                return
            core = build_core(Path(self.root), output=Path(self._scratch.name, CORE.name))
        except (NoCompiler, CompileError) as problem:
            self.app.display_warning(f"without the compiled core, in pure Python: {problem}")
            return
        build_data["force_include"][str(core)] = CORE.as_posix()
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the compiled file, which the wheel has by now."""
        self._scratch.cleanup()


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
