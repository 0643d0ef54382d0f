"""The filter of the list of runs. It is read from an address, and can be written as an address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from urllib.parse import urlencode

from memory.benchmarking.view.index import RunLine

PER_PAGE = 50
"""The number of runs on one page of the list."""
LONGEST = 200
"""The largest number of characters of a field; the rest is cut off."""


@dataclass(frozen=True)
class RunFilter:
    """What the list shows. An empty field matches every run."""

    text: str = ""
    """Words that must all occur in the run's id, command, targets, benchmarks and so on."""
    profile: str = ""
    target: str = ""
    status: str = ""
    since: str = ""
    """First day, such as 2026-11-16."""
    until: str = ""
    """Last day."""
    page: int = 1

    @classmethod
    def from_query(cls, query: Mapping[str, Sequence[str]]) -> RunFilter:
        """Read the filter from the fields of an address. Invalid fields are ignored."""
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
        """Return the address of a page of the list with this filter."""
        fields_set = {name: value for name, value in asdict(replace(self, page=page)).items() if value}
        if page == 1:
            del fields_set["page"]
        return f"/?{urlencode(fields_set)}" if fields_set else "/"

    def apply(self, lines: Iterable[RunLine]) -> list[RunLine]:
        """Return the runs that match."""
        words = self.text.casefold().split()
        return [line for line in lines if self._matches(line) and _contains(line, words)]

    def _matches(self, line: RunLine) -> bool:
        return (
            (not self.profile or line.profile == self.profile)
            and (not self.status or line.status == self.status)
            and (not self.target or self.target in line.targets)
            and (not self.since or line.day >= self.since)
            and (not self.until or line.day <= self.until)
        )


def _contains(line: RunLine, words: Sequence[str]) -> bool:
    """Return whether all words occur in the columns of a run, in its command or in its benchmarks."""
    if not words:
        return True
    names = {part for category, benchmark, _ in line.cases for part in (category, benchmark)}
    parts = (
        line.id, line.day, line.status, line.profile, line.revision, line.command, *line.targets, *names,
    )  # fmt: skip
    text = " ".join(parts).casefold()
    return all(word in text for word in words)
