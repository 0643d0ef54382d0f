"""The code blocks of the documents.

A block with the language `python`, `toml` or `yaml` is a file or a program. One without a language, or with
`sh` or `bash`, holds commands. Output, drawings and synopses have the language `text`.

    <!-- not run: needs a server -->        before a fence: why a test can't run the block
    <!-- file: my_benchmarks.py -->         before a fence: commands of the document find this file
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "memory" / "benchmarking" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
SHELL = ("", "sh", "bash")

_BLOCK = re.compile(r"((?:<!-- [^\n]+ -->\n+)*)^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"# ([\w.-]+\.(?:py|toml))\b")
"""The first line of a block that is a file."""


@dataclass(frozen=True)
class Block:
    """One code block."""

    document: Path
    line: int
    language: str
    code: str
    comments: str

    @property
    def runs(self) -> bool:
        return "<!-- not run: " not in self.comments

    @property
    def file_name(self) -> str | None:
        """The name of the file that it shows; None for other blocks."""
        found = re.search(r"<!-- file: (\S+) -->", self.comments) or _FILE_NAME.match(self.code)
        return found[1] if found else None

    @property
    def name(self) -> str:
        """A name for a test: file and line."""
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks_of(document: Path) -> Iterator[Block]:
    """Yield the blocks of a document."""
    text = document.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(3)) + 1
        yield Block(document, line, match[2], match[3], match[1])


def all_blocks() -> list[Block]:
    return [block for document in DOCUMENTS for block in blocks_of(document)]
