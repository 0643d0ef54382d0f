"""The pieces of a question, in the form that the compiled core searches with.

A piece is the text between two spaces. Everything that a search needs of a question is that of its pieces,
one after the other: the words and their terms, the attributes of the persons that they may name, and the
tokens for the vector. So pieces are cached, and most questions are only looked up.
"""

from __future__ import annotations

import re
import sys
from array import array
from typing import NamedTuple, TypeAlias

from memory.embedding.tokens import split_piece
from memory.search.dates import may_mention_time, without_ordinals
from memory.search.people import name_terms
from memory.search.terms import function_terms, term_of, words_of

CorePiece: TypeAlias = tuple[tuple[str, ...], bytes, bytes, bytes, bytes, bytes]
"""The words; their terms; whether each is no function word; attributes of persons; tokens; the term of each
token's word. The compiled core takes this form. Numbers have 32 bits."""

_CACHED = 50_000  # Pieces: about 25 MB when full, more than the vocabulary of most questions
_LONGEST = 40  # Characters of a cached piece: longer ones are rarely repeated
_MOST_PIECES = 64  # A question of more pieces may have too many names (`people.py`)
_MOST_CHARACTERS = 2000  # A longer text may be cut before it is embedded
_NO_WORD = 0xFFFFFFFF  # The term of a token that belongs to no word
_UNUSUAL = re.compile(r"[^\x20-\x7e]|  |<|^ | $")
"""What may change the tokens or the words if a text is split at its spaces; few questions have it."""

_pieces: dict[str, tuple[CorePiece, bool]] = {}
"""Pieces by text, and whether they may mention a time. A full cache is replaced by an empty one."""


class QuestionPieces(NamedTuple):
    """The pieces of one question."""

    for_core: list[CorePiece]
    mention_time: bool
    """Whether they may mention a time; False only if `dates.spans_in` finds none."""


def pieces_of_question(text: str) -> QuestionPieces | None:
    """Return the pieces of a question; None for an unusual one, which is not the sum of its pieces."""
    parts = text.split(" ")
    known = _pieces
    try:
        found = [known[part] for part in parts]
    except KeyError:
        if not text or len(text) > _MOST_CHARACTERS or _UNUSUAL.search(text) is not None:
            return None
        found = [_piece(part) for part in parts]
    if len(found) > _MOST_PIECES:
        return None
    return QuestionPieces([piece for piece, _ in found], True in [mentions for _, mentions in found])


def _piece(text: str) -> tuple[CorePiece, bool]:
    global _pieces
    known = _pieces.get(text)
    if known is not None:
        return known
    words = words_of(text)
    forms = [sys.intern(word) for word in without_ordinals(words)]
    terms = [term_of(word) for word in forms]
    functions = function_terms()
    tokens, owners = split_piece(text)
    piece: CorePiece = (
        tuple(forms),
        _packed(terms),
        bytes([term not in functions for term in terms]),
        _packed(name_terms(text)),
        array("i", tokens).tobytes(),
        _packed([_NO_WORD if word is None else term_of(word.lower()) for word in owners]),
    )
    found = piece, may_mention_time(text, words)
    if len(text) <= _LONGEST:
        if len(_pieces) >= _CACHED:
            _pieces = {}
        _pieces[text] = found
    return found


def _packed(numbers: list[int]) -> bytes:
    return array("I", numbers).tobytes()
