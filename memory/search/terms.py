"""Text to index terms: lower-case words, stemmed, as 31-bit numbers; attributes with the high bit set.

A memory's terms are stored with it as plain 32-bit numbers, one an occurrence. They are what the
search index is built from when an agent is loaded, without touching the content.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from array import array
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

import Stemmer

from memory._base.content import Leaves, Scalar

ATTRIBUTE_BIT = 1 << 31
KIND = "\0kind"
"""The path that a memory's kind has as an attribute: no path of a content is like it."""
_TERM_MASK = ATTRIBUTE_BIT - 1
_CACHE_WORDS = 200_000

# Scripts written without spaces are indexed character by character.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")

_stemmer = Stemmer.Stemmer("english")
_stemmer_lock = threading.Lock()  # a stemmer keeps state while it works
os.register_at_fork(
    before=_stemmer_lock.acquire,
    after_in_parent=_stemmer_lock.release,
    after_in_child=_stemmer_lock.release,
)
_terms: dict[str, int] = {}


def words_of(text: str) -> list[str]:
    """The words of a text, lower-case, in order."""
    return _WORD.findall(text.lower())


def term_of(word: str) -> int:
    """The number of a lower-case word's stem."""
    term = _terms.get(word)
    if term is None:
        with _stemmer_lock:
            stem = _stemmer.stemWord(word)
        term = zlib.crc32(stem.encode("utf-8", "surrogatepass")) & _TERM_MASK
        if len(_terms) >= _CACHE_WORDS:
            _terms.clear()
        _terms[word] = term
    return term


_FUNCTION_WORDS = (
    "a about above after again against all am an and any are as at be been before being below between both"
    " but by can could did do does doing don down during each few for from further had has have having he"
    " her here him his how i if in into is it its just know may me might more most must my no nor not now"
    " of off on once only or other our out over own s same shall she should so some such t tell than that"
    " the their them then there these they this those through to too under up very was we were what when"
    " where which who whom why will with would you your"
)


@lru_cache(maxsize=1)
def function_terms() -> frozenset[int]:
    """Terms of the words that an English question is made of, whatever it asks for."""
    return frozenset(map(term_of, _FUNCTION_WORDS.split()))


def terms_of_text(text: str) -> list[int]:
    known = _terms
    return [known.get(word) or term_of(word) for word in words_of(text)]


def terms_of_memory(
    leaves: Leaves,
    kind: str,
    metadata_texts: Iterable[str],
    metadata_leaves: Leaves,
    moment: float | None,
) -> bytes:
    """Everything a memory can be found by, ready to be stored.

    `moment` is given where the caller said when it happened: the date then belongs to its words.
    """
    terms: list[int] = []
    is_structured = len(leaves) != 1 or leaves[0][0] != ""
    for path, value in leaves:
        if path:
            terms.extend(terms_of_text(path))
        if isinstance(value, str):
            terms.extend(terms_of_text(value))
        elif isinstance(value, int):
            terms.append(term_of(str(value).lower()))
    for text in metadata_texts:
        terms.extend(terms_of_text(text))
    if moment is not None:
        terms.extend(terms_of_text(date_words(moment)))
    terms.append(attribute_term(KIND, kind))
    if metadata_leaves:
        terms.extend(attribute_terms(metadata_leaves))
    if is_structured:
        terms.extend(attribute_terms(leaves))
    return array("I", terms).tobytes()


def date_words(moment: float) -> str:
    """A moment as people name it: "8 May 2023"."""
    try:
        when = datetime.fromtimestamp(moment, tz=UTC)
    except (OverflowError, OSError, ValueError):
        return ""  # outside the calendar, as the times of a simulation may be
    return f"{when.day} {when:%B} {when.year}"


def attribute_terms(leaves: Leaves) -> set[int]:
    """One term for each distinct path and value."""
    return {attribute_term(path, value) for path, value in leaves}


def attribute_term(path: str, value: Scalar) -> int:
    """The term of one attribute. Numbers are rounded to three digits, so that a measured quantity does
    not get a term a memory: whoever filters compares the memory itself afterwards."""
    if isinstance(value, str):
        return _text_attribute(path, value[:200])
    if isinstance(value, bool) or value is None:
        text = str(value)
    else:
        try:
            text = f"{float(value) + 0.0:.3g}"  # -0.0 is 0
        except OverflowError:
            text = "huge"
    return _attribute(path, text)


@lru_cache(maxsize=4096)
def _text_attribute(path: str, value: str) -> int:
    """Remembered: speakers, kinds and sessions are the same again and again."""
    return _attribute(path, "s" + value)


def _attribute(path: str, text: str) -> int:
    return zlib.crc32(f"{path}\0{text}".encode("utf-8", "surrogatepass")) | ATTRIBUTE_BIT
