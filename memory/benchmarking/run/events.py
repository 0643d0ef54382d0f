"""The events that a round's process sends to the executor: one JSON object a line."""

from __future__ import annotations

import msgspec

from memory.benchmarking.measure.turn_control import TimingProposal

LONGEST_EVENT = 1_000_000
"""The most bytes of one event. The label of a timing is the only part that a benchmark can make long."""


class _Event(msgspec.Struct, frozen=True, tag_field="event"):
    """Base class; the field `event` has the tag of the class."""


class Began(_Event, tag="began", frozen=True):
    """The interpreter has started."""

    at: float
    """Seconds since 1970."""


class Loaded(_Event, tag="loaded", frozen=True):
    """Benchmark and target are imported."""

    seconds: float


class Timed(_Event, tag="timing", frozen=True):
    """A timing is done."""

    label: str
    p50_ms: float | None


class Stopped(_Event, tag="stop", frozen=True):
    """In lockstep: the process waits for a reply. Before a timing, it proposes how to divide the timing."""

    proposal: TimingProposal | None


class Failed(_Event, tag="failed", frozen=True):
    """The benchmark raised an exception."""

    message: str


Event = Began | Loaded | Timed | Stopped | Failed

_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def decode_event(line: bytes) -> Event:
    """Return the event of a line; ValueError, with the beginning of the line, if it is not an event."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise ValueError(f"{line[:60]!r} is not an event: {problem}") from problem
