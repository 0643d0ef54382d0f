"""Which runs a list shows: what the address asks for, and the address that asks for something else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from urllib.parse import urlencode

from memory.benchmarking.view.index import RunLine

PER_PAGE = 50
LONGEST = 200
"""Letters of a field that count; nobody types more."""


@dataclass(frozen=True)
class RunFilter:
    """What to search for; an empty field leaves nothing out."""

    text: str = ""
    """Words that must all be found in what the run says of itself."""
    profile: str = ""
    target: str = ""
    status: str = ""
    since: str = ""
    """First day, as in 2026-11-16."""
    until: str = ""
    page: int = 1

    @classmethod
    def from_query(cls, query: Mapping[str, Sequence[str]]) -> RunFilter:
        """From an address; what is not understood is as if it were not there."""
        texts = {
            field.name: query[field.name][-1].strip()[:LONGEST]
            for field in fields(cls)
            if query.get(field.name) and field.name != "page"
        }
        page = query.get("page", ["1"])[-1]
        return cls(**texts, page=int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 1)

    @property
    def is_empty(self) -> bool:
        return replace(self, page=1) == RunFilter()

    def address(self, page: int = 1) -> str:
        """Of the list with this choice, at a page."""
        asked = {name: value for name, value in asdict(replace(self, page=page)).items() if value}
        if page == 1:
            del asked["page"]
        return f"/?{urlencode(asked)}" if asked else "/"

    def apply(self, lines: Iterable[RunLine]) -> list[RunLine]:
        words = self.text.casefold().split()
        return [
            line for line in lines if self._fits(line) and all(word in _words_of(line) for word in words)
        ]

    def _fits(self, line: RunLine) -> bool:
        return (
            (not self.profile or line.profile == self.profile)
            and (not self.status or line.status == self.status)
            and (not self.target or self.target in line.targets)
            and (not self.since or line.day >= self.since)
            and (not self.until or line.day <= self.until)
        )


def _words_of(line: RunLine) -> str:
    """All that a search looks at."""
    names = {part for category, benchmark, _ in line.cases for part in (category, benchmark)}
    parts = (
        line.id, line.day, line.status, line.profile, line.revision, line.command, *line.targets, *names,
    )  # fmt: skip
    return " ".join(parts).casefold()
