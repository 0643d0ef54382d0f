"""Loads the compiled core, `memory._core`, whose C sources are in memory/_native/.

`core` is None where it was not built, or if AGENTMEMORY_PURE=1 is set. Every function of it has a twin in
pure Python with the same result. So a caller writes `if core is not None`, and else uses the twin.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

_INTERFACE = 7  # CORE_INTERFACE in memory/_native/core.h

_log = logging.getLogger(__name__)


class Tokenizer(Protocol):
    """Splits texts into tokens: the compiled form of memory/embedding/tokens.py."""

    def tokens(self, text: str, /) -> list[int]:
        """Return the tokens of a text."""

    def count(self, text: str, /) -> int:
        """Return the number of tokens of a text."""

    def sum(self, text: str, vectors: Any, out: Any, few: int, /) -> tuple[bytes, bytes] | None:
        """Write the sum of the tokens' vectors into `out`.

        For a text with more than `few` pieces, write nothing and return how often each distinct token
        occurs, and the vectors of these tokens, both as float32.
        """

    def sums(self, texts: Sequence[str], vectors: Any, out: Any, few: int, /) -> list[int]:
        """Write one sum for each text into `out`, except for long texts, whose places are returned."""


class TermCache(Protocol):
    """Finds the search terms of texts: the compiled form of functions in memory/search/terms.py."""

    def of_text(self, text: str, /) -> bytes:
        """Return the terms of a text."""

    def of_leaves(self, leaves: list[tuple[str, Any]], /) -> bytes:
        """Return the terms of all paths, and of all values that are text or whole numbers."""

    def __len__(self) -> int:
        """Return the number of parts in the cache."""


PreparedText = tuple[bytes, int, Any, bytes]
"""What is stored of a text: body, digest, vector (bytes of float32; None without one) and search terms."""


class TextPreparer(Protocol):
    """Turns texts into what is stored of them: the compiled form of what memory/_write/intake.py calls.

    `metadata` is the end of a body, in MessagePack. `ending` is appended to the search terms.
    """

    def of_text(self, text: str, metadata: bytes, ending: bytes, /) -> PreparedText | None:
        """Prepare a text; return None for one that only the twins can prepare."""

    def of_texts(
        self, texts: Sequence[str], metadata: Sequence[bytes], endings: Sequence[bytes], vectors: bool, /
    ) -> list[PreparedText | None]:
        """Do the same for many texts, mostly without the GIL; `vectors` says whether with their vectors."""


class Core(Protocol):
    """The functions of the core. Arrays must be C-contiguous and have the type that is named."""

    def to_int8(self, vectors: Any, codes: Any, dimensions: int, /) -> None:
        """Write rows of float32 into `codes` (int8), each scaled by its largest component."""

    def to_int8_one(self, vector: Any, code: Any, /) -> float:
        """Write one vector of float32 into `code` (int8). Return the length of the result."""

    def put_vector(self, vector: bytes, row: int, codes: Any, norms: Any, /) -> None:
        """Write a vector of float32 into a row of `codes` (int8), and its length into `norms` (float32)."""

    def centred_to_int8(self, codes: Any, scales: Any, levels: Any, mean: Any, out: Any, /) -> None:
        """Write codes (uint8) of the codec `centred` into `out` (int8). The scales are float32."""

    def replace_version(self, slots: Any, slot: int, expected: int, version: int, /) -> bool:
        """Store a version (uint64) in one step if the slot has the expected one; return whether it has."""

    def leaves_of(self, value: Any, levels: int, /) -> list[tuple[str, Any]] | None:
        """Return the leaves of a JSON value; None for a value that only the twin can judge."""

    def attribute_terms(self, leaves: list[tuple[str, Any]], /) -> bytes:
        """Return one term for each distinct path and value, as bytes to be stored."""

    def mix_numbers(
        self, words: Any, numbers: Any, slots: Any, directions: Any, frequencies: Any, share: float, /
    ) -> None:
        """Mix the vector of numbers, which are (path, value), into `words` (float32), with their share.

        slots: the place (int64) of each number's path; None if all paths differ
        directions: rows of float32, two for each place and each of the `frequencies` (float64)
        """

    def TermCache(  # noqa: N802
        self,
        terms_of_part: Callable[[str], bytes],
        terms_of_value: Callable[[Any], bytes],
        capacity: int,
        longest: int,
        /,
    ) -> TermCache:
        """Return an empty cache. It calls the functions for what it does not have.

        capacity: the most parts in the cache
        longest: the most characters of a part in the cache
        """

    def take_vectors(self, vectors: Any, tokens: Any, out: Any, /) -> None:
        """Write the rows `tokens` (int32) of `vectors` (float16) into `out` (float32)."""

    def Tokenizer(self, texts: list[str], longest_text: int, /) -> Tokenizer:  # noqa: N802
        """Return a tokenizer with these tokens, in the order of their numbers.

        Of a text, it takes the first `longest_text` characters.
        """

    def TextPreparer(  # noqa: N802
        self, tokenizer: Any, vectors: Any, few: int, terms: Any, /
    ) -> TextPreparer:
        """Return a preparer. Texts with more than `few` pieces are left to the twins."""

    def file_state(self, path: bytes, /) -> tuple[int, int, int]:
        """Return device, inode and the time of the last change in nanoseconds. Keeps the GIL."""

    def is_row_intact(self, row: tuple[Any, ...], id: object = None, /) -> bool:
        """Return whether a row's values match its checksum; False too if a value has an unusual type."""

    # memory/search/_scans.py says what these do.

    def add_words(
        self,
        scores: Any,
        lengths: Any,
        postings: Any,
        bounds: list[int],
        weights: list[float],
        slope: float,
        offset: float,
        /,
    ) -> None: ...

    def differing_signs(self, bits: Any, query: Any, out: Any, /) -> None: ...

    def cosines(
        self, codes: Any, norms: Any, query: Any, positions: Any, scale: float, out: Any, /
    ) -> None: ...

    def add_shares(self, scores: Any, shares: Any, context: Any, turns: int, /) -> None: ...

    def best_of_turns(self, scores: Any, barriers: Any, peaks: Any, turns: int, /) -> None: ...

    # memory/search/_context.py says what these do.

    def around(self, positions: Any, before: Any, after: Any, memories: int, turns: int, /) -> bytes: ...

    def context_of(
        self,
        positions: Any,
        before: Any,
        after: Any,
        own: Any,
        sessions: Any,
        scores: Any,
        out: Any,
        shares: tuple[float, float, float, float],
        no_session: int,
        /,
    ) -> None: ...

    def at_most(self, numbers: Any, most: int, /) -> bytes: ...

    def at_least(
        self, differing: Any, table: Any, words: Any, weight: float, bonus: Any, lowest: float, /
    ) -> bytes: ...

    # memory/search/_lookups.py says what these do.

    def add_to_tail(
        self, tail: Any, position: int, terms: bytes, longest: int, to_array: Callable[[Any], Any], /
    ) -> int: ...

    def find_postings(self, terms: Any, starts: Any, wanted: list[int], /) -> list[int]: ...

    def find_in_tail(self, tail: Any, wanted: list[int], most: int, /) -> tuple[bytes, list[int]]: ...

    def count_living(self, packed: Any, bounds: list[int], living: Any, /) -> list[int]: ...

    def words_at(self, packed: Any, bounds: list[int], positions: list[int], /) -> list[list[int]]: ...

    # memory/search/dates.py, own_scores.py and _rank.py say what these do.

    def closeness(self, times: Any, spans: Any, table: Any, steps: float, out: Any, /) -> float: ...

    def scale_of(self, scores: Any, living: Any, /) -> tuple[float, float]: ...

    def rank(
        self,
        count: int,
        k: int,
        vectors: tuple[Any, ...],
        words: tuple[Any, ...] | None,
        living: Any,
        links: tuple[Any, ...] | None,
        bonus: Any,
        allowed: Any,
        /,
    ) -> tuple[list[int], list[float], list[float], list[float] | None, list[float] | None, float]: ...

    # `_rank_pieces` in memory/search/ranking.py says what this does.

    def rank_question(
        self,
        pieces: list[tuple[tuple[str, ...], bytes, bytes, bytes, bytes, bytes]],
        finds_people: bool,
        k: int,
        index: tuple[Any, ...],
        token_vectors: Any,
        bonus: Any,
        allowed: Any,
        constants: Any,
        /,
    ) -> tuple[Any, ...] | None: ...


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
    functions = [name for name in vars(Core) if not name.startswith("_")]
    if module.INTERFACE != _INTERFACE or not all(hasattr(module, name) for name in functions):
        _log.warning(
            "the compiled core is of another version, pure Python is used: install agentmemory-tiers anew "
            "(in a clone: `python build_core.py`)"
        )
        return None
    return cast(Core, module)


core = _load()
CORE_KIND = "pure" if core is None else "compiled"
"""Which of the two this process uses; figures of the two can't be compared."""
