"""Read only the fields of `run.json` that the list of runs shows. This halves the reading time.

The first page needs the headers of all runs, which may be thousands. The decoder skips other fields. If the
decoder fails, `index.py` reads the whole file again, to report what is wrong.
"""

from __future__ import annotations

import msgspec

from memory.benchmarking.model.files import MOST_KEYS
from memory.benchmarking.model.records import FORMAT, Status
from memory.benchmarking.model.regular_files import read_regular


class HeaderCase(msgspec.Struct, frozen=True, gc=False):
    category: str
    benchmark: str
    target: str
    most_rounds: int | None = None


class HeaderEnvironment(msgspec.Struct, frozen=True, gc=False):
    git_revision: str = ""
    git_dirty: bool | None = None


class _Round(msgspec.Struct, frozen=True, gc=False):
    """A finished or failed round."""

    case: str
    round: int


class RunHeader(msgspec.Struct, frozen=True, gc=False):
    """Some fields of `records.Run`, with the same names."""

    status: Status
    started_at: str
    profile: str
    rounds: int
    targets: list[str]
    cases: list[HeaderCase]
    environment: HeaderEnvironment
    finished_at: str = ""
    command: str = ""
    results: list[msgspec.Raw] = []
    failures: list[_Round] = []
    moments: msgspec.Raw = msgspec.Raw(b"[]")
    """One entry for each finished round; only `done` decodes it."""
    format: int = 1

    @property
    def total(self) -> int:
        """The number of rounds of the whole run."""
        return sum(min(self.rounds, case.most_rounds or self.rounds) for case in self.cases)

    @property
    def done(self) -> int:
        """The number of finished rounds, including failed ones."""
        if self.status == "complete":
            return self.total
        finished = msgspec.json.decode(self.moments, type=list[_Round])
        return len({(each.case, each.round) for each in (*finished, *self.failures)})


_decoder = msgspec.json.Decoder(RunHeader)


def read_run_header(path: str) -> RunHeader | None:
    """Read the header of a `run.json`; None if it is not valid."""
    try:
        data = read_regular(path)
        if data.count(b":") > MOST_KEYS:
            return None
        header = _decoder.decode(data)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return header if header.format <= FORMAT else None
