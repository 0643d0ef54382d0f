"""The part of `run.json` that a list shows, read in half the time of all of it.

Thousands of runs are read before the first page is there. What a list does not show is skipped over, and
what is damaged is read again as a whole, for an error that says what is wrong.
"""

from __future__ import annotations

import os

import msgspec

from memory.benchmarking.model.records import FORMAT, Status


class HeaderCase(msgspec.Struct, frozen=True, gc=False):
    category: str
    benchmark: str
    target: str
    most_rounds: int | None = None


class HeaderEnvironment(msgspec.Struct, frozen=True, gc=False):
    git_revision: str = ""
    git_dirty: bool | None = None


class _Round(msgspec.Struct, frozen=True, gc=False):
    """A moment or a failure: both say which round it was."""

    case: str
    round: int


class RunHeader(msgspec.Struct, frozen=True, gc=False):
    """Fields of `records.Run`, by the same names."""

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
    format: int = 1

    @property
    def total(self) -> int:
        """Rounds of the whole run."""
        return sum(min(self.rounds, case.most_rounds or self.rounds) for case in self.cases)

    @property
    def done(self) -> int:
        """Rounds that are over: a run's file names each of them as soon as it ends."""
        if self.status == "complete":
            return self.total
        over = msgspec.json.decode(self.moments, type=list[_Round])
        return len({(each.case, each.round) for each in (*over, *self.failures)})


_decoder = msgspec.json.Decoder(RunHeader)


def read_run_header(path: str) -> RunHeader | None:
    """None for a file that is no run of ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
        header = _decoder.decode(data)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return header if header.format <= FORMAT else None
