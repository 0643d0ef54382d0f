"""Build the page for an address. `server.py` handles the requests and checks the access rules."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from memory.benchmarking.errors import BenchmarkError, UnknownName
from memory.benchmarking.view.compare_page import compare_page
from memory.benchmarking.view.failures import log_page
from memory.benchmarking.view.history_page import history_page
from memory.benchmarking.view.index import RunIndex
from memory.benchmarking.view.layout import Page, problem_page
from memory.benchmarking.view.league_page import league_view
from memory.benchmarking.view.run_filter import RunFilter
from memory.benchmarking.view.run_page import run_page
from memory.benchmarking.view.runs_page import runs_page
from memory.benchmarking.view.side_by_side import side_by_side_page

MOST_FIELDS = 50
"""The largest number of query fields in an address; an address with more is refused."""


class App:
    """All pages of one folder of results."""

    def __init__(self, output_dir: Path) -> None:
        self.index = RunIndex(output_dir)

    def page(self, address: str) -> Page:
        """Return the page for an address; if there is none, return a page with an error message."""
        try:
            parts = urlsplit(address)
            query = parse_qs(parts.query, max_num_fields=MOST_FIELDS, errors="surrogateescape")
        except ValueError:
            return problem_page(400, "This address is not valid", "Go back, or start at the list of runs.")
        # Split before decoding, so that an encoded slash stays a part of its name.
        names = [unquote(part, errors="surrogateescape") for part in parts.path.split("/")[1:]]
        try:
            found = self._route(names, query)
        except UnknownName as problem:
            return problem_page(404, "Not found", f"{problem}.")
        except BenchmarkError as problem:
            return problem_page(200, "This can't be shown", f"{problem}.")
        if found is None:
            return problem_page(404, "There is no such page", "Go back, or start at the list of runs.")
        return found

    def _route(self, names: list[str], query: dict[str, list[str]]) -> Page | None:
        match names:
            case [""]:
                return runs_page(self.index.lines(), RunFilter.from_query(query), self.index.output_dir)
            case ["compare"]:
                return compare_page(self.index, query)
            case ["side-by-side"]:
                return side_by_side_page(self.index, query)
            case ["history"]:
                return history_page(self.index, query)
            case ["run", run_id]:
                return run_page(self.index.line(run_id), self.index.lines(), self.index.version)
            case ["run", run_id, "league"]:
                return league_view(self.index.line(run_id))
            case ["run", run_id, "log", name]:
                return log_page(self.index.line(run_id), name)
        return None
