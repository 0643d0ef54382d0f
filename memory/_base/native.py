"""Loads the compiled core, `memory._core`, whose C sources are in memory/_native/.

`core` is None where it was not built, or if AGENTMEMORY_PURE=1 is set. Every function of it has a twin in
pure Python with the same result. So a caller writes `if core is not None`, and else uses the twin.
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from typing import Any, Protocol, cast

_INTERFACE = 1  # CORE_INTERFACE in memory/_native/core.h

_log = logging.getLogger(__name__)


class Core(Protocol):
    """The functions of the core. Arrays must be C-contiguous and have the type that is named."""

    def to_int8(self, vectors: Any, codes: Any, dimensions: int, /) -> None:
        """Write rows of float32 into `codes` (int8), each scaled by its largest component."""


def _load() -> Core | None:
    if os.environ.get("AGENTMEMORY_PURE", "0") not in ("", "0"):
        return None
    try:
        module = import_module("memory._core")
    except ModuleNotFoundError:
        return None
    except ImportError as problem:
        _log.warning("the compiled core can't be loaded, pure Python is used: %s", problem)
        return None
    if module.INTERFACE != _INTERFACE:
        _log.warning(
            "the compiled core is of another version, pure Python is used: install agentmemory-tiers anew "
            "(in a clone: `python build_core.py`)"
        )
        return None
    return cast(Core, module)


core = _load()
CORE_KIND = "pure" if core is None else "compiled"
"""Which of the two this process uses; figures of the two can't be compared."""
