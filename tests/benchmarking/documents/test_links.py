"""Every relative link, anchor and path that a document names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    ROOT / "memory" / "benchmarking" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
INDEX = ROOT / "docs" / "README.md"


def linked(document: Path) -> list[tuple[Path, str]]:
    """Return the file and the anchor (maybe empty) of every relative link of a document."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    split = [target.partition("#") for target in targets if "://" not in target]
    return [((document.parent / path).resolve() if path else document, anchor) for path, _, anchor in split]


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for path, anchor in linked(document):
        assert path.exists(), path
        assert not anchor or anchor in anchors(path), f"{path.name}#{anchor}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_of_the_repository_exist(document: Path) -> None:
    if document.name == "CHANGELOG.md":
        return  # It also names files of past versions.
    text = document.read_text(encoding="utf-8")
    for name in re.findall(r"\b(?:memory|tests|scripts|examples|docs)/[\w/.-]+\.(?:py|md|yml)\b", text):
        assert (ROOT / name).exists(), name


def test_the_index_lists_every_page() -> None:
    pages = {path for path, _ in linked(INDEX)}
    assert set((ROOT / "docs").rglob("*.md")) - {INDEX} <= pages
