"""All exceptions of the package. A message names the wrong value and says what to do.

    AgentMemoryError (Exception)
    ├── InvalidMemory (ValueError)
    │   ├── UnknownTier
    │   └── IdConflict
    ├── InvalidConfig (ValueError)
    ├── RerankerUnavailable
    ├── ImportDamaged (ValueError)
    ├── TransferFailed (OSError)
    ├── StoreError
    │   ├── StoreCorrupt
    │   │   └── ExportIncomplete
    │   ├── StoreTooNew
    │   ├── StoreFull
    │   ├── StoreReadOnly
    │   ├── StoreBusy
    │   ├── StoreUnavailable
    │   ├── CodecRetired
    │   ├── StoreClosed
    │   ├── StoreReplaced
    │   ├── EraseIncomplete
    │   └── EmbedderMismatch
    ├── CodecError (ValueError)
    │   ├── InvalidVector
    │   ├── UnknownCodec
    │   ├── InvalidCodecOption
    │   ├── CodecNotFitted
    │   ├── CodecNeedsMoreData
    │   └── CodecDamaged
    └── AgentError
        ├── InvalidAgentInput (ValueError)
        ├── BudgetTooSmall (ValueError)
        ├── UnknownSession (LookupError)
        ├── UnknownTool (LookupError)
        ├── SessionStoreError
        └── ModelError
            └── ModelTimeout

Errors of the benchmark are in `memory.benchmarking.errors`. Their base class is also an AgentMemoryError.
"""

from __future__ import annotations


class AgentMemoryError(Exception):
    """Base of all errors of this package."""


class InvalidMemory(AgentMemoryError, ValueError):
    """An argument has a wrong type or value. Nothing was changed."""


class UnknownTier(InvalidMemory):
    """The tier is not stm, im or ltm."""


class IdConflict(InvalidMemory):
    """The id belongs to a memory with other content. To change that memory, call update()."""


class InvalidConfig(AgentMemoryError, ValueError):
    """A setting has a value that can't work."""


class RerankerUnavailable(AgentMemoryError):
    """Raised by a reranker that can't score now. The search logs it and keeps its own order."""


class ImportDamaged(AgentMemoryError, ValueError):
    """The file is not a complete, unchanged export. Nothing of it was stored."""


class TransferFailed(AgentMemoryError, OSError):
    """The file of an export, an import or a backup can't be read or written."""


class StoreError(AgentMemoryError):
    """The store failed. Everything that it had acknowledged is still there."""


class StoreCorrupt(StoreError):
    """The file is damaged, incomplete or from another program. It was not changed."""


class ExportIncomplete(StoreCorrupt):
    """An export was written without the memories that are damaged in the file."""


class StoreTooNew(StoreError):
    """The file was written by a newer version of this package. It was not changed."""


class StoreFull(StoreError):
    """The disk is full. The write was rolled back."""


class StoreReadOnly(StoreError):
    """The file or the configuration does not allow writing."""


class StoreBusy(StoreError):
    """Another process held the write lock for longer than `busy_timeout_seconds`."""


class StoreUnavailable(StoreError):
    """The server could not be reached for `busy_timeout_seconds`, or refused the connection."""

    stored: bool | None = False
    """False: nothing was stored. None: not known, because the connection broke during the commit."""

    def __init__(self, message: str, *, stored: bool | None = False) -> None:
        super().__init__(message)
        self.stored = stored


class CodecRetired(StoreError):
    """Rows were encoded with a codec that another process has replaced. Encode them again."""


class StoreClosed(StoreError):
    """The memory was closed before this call."""


class StoreReplaced(StoreError):
    """The file was deleted, moved or replaced by another one while it was open. Nothing was written."""


class EraseIncomplete(StoreError):
    """The memories are deleted, but bytes of them are still in a file. Call again with `erase=True`."""


class EmbedderMismatch(StoreError):
    """The file's vectors were made by another embedder."""


class CodecError(AgentMemoryError, ValueError):
    """Base of all errors of the vector codecs."""


class InvalidVector(CodecError):
    """Vectors or codes have the wrong shape, or values that are not finite numbers."""


class UnknownCodec(CodecError):
    """No codec has that name."""


class InvalidCodecOption(CodecError):
    """The codec does not have that option, or the option can't have that value."""


class CodecNotFitted(CodecError):
    """The codec must be fitted before it can be used."""


class CodecNeedsMoreData(CodecError):
    """There are too few vectors to fit the codec."""


class CodecDamaged(CodecError):
    """The bytes are not a saved codec, are damaged, or were written by a newer version."""


class AgentError(AgentMemoryError):
    """Base of all errors of the agent loop."""


class InvalidAgentInput(AgentError, ValueError):
    """A session, message, tool or setting has a wrong type or value. Nothing was changed."""


class BudgetTooSmall(AgentError, ValueError):
    """The system prompt and the newest message do not fit into the token budget."""


class UnknownSession(AgentError, LookupError):
    """There is no session with that id."""


class UnknownTool(AgentError, LookupError):
    """The model called a tool that does not exist or that it may not use."""


class SessionStoreError(AgentError):
    """The session store failed. Everything that it had acknowledged is still there."""


class ModelError(AgentError):
    """The model was not reachable or returned no usable reply, even after retries."""


class ModelTimeout(ModelError):
    """The model did not reply in time."""


def short(value: object) -> str:
    """Return a value as text for a message: one line of at most 80 characters."""
    try:
        text = " ".join(repr(value).split())
    except RecursionError:
        text = f"a deeply nested {type(value).__name__}"
    if not text.isprintable():
        text = ascii(text)[1:-1]
    return text if len(text) <= 80 else text[:77] + "..."
