"""Every error the memory raises on purpose: one line that names the value and what to do."""

from __future__ import annotations


class AgentMemoryError(Exception):
    """Base of all errors of this package."""


class InvalidMemory(AgentMemoryError, ValueError):
    """What was given can't be stored or asked for as it is; nothing was changed."""


class UnknownTier(InvalidMemory):
    """A tier that is none of stm, im and ltm."""


class IdConflict(InvalidMemory):
    """The id is taken by a memory with other content; update() changes a memory on purpose."""


class InvalidConfig(AgentMemoryError, ValueError):
    """A configuration value that can't work."""


class StoreError(AgentMemoryError):
    """The store could not do what was asked; what it had acknowledged is still there."""


class StoreCorrupt(StoreError):
    """The file is damaged, cut short or not ours; it was not touched."""


class StoreTooNew(StoreError):
    """The file was written by a newer version of this package; it was not touched."""


class StoreFull(StoreError):
    """The disk is full; the write was taken back whole."""


class StoreReadOnly(StoreError):
    """The file or the configuration does not allow writing."""


class StoreBusy(StoreError):
    """Another process held the file's write lock for longer than `busy_timeout_seconds`."""


class StoreClosed(StoreError):
    """The memory was closed before this call."""


class EmbedderMismatch(StoreError):
    """The file's vectors were made by another embedder than the one given."""


class ImportDamaged(AgentMemoryError, ValueError):
    """An export file that is cut short, changed or not an export; nothing of it was stored."""


def short(value: object) -> str:
    """A value as part of a message: one line, and not a page of it."""
    text = " ".join(repr(value).split())
    if not text.isprintable():
        text = ascii(text)[1:-1]
    return text if len(text) <= 80 else text[:77] + "..."
