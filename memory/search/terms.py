"""Index terms: numbers that stand for the words and attributes of a memory.

A word's term is a 31-bit number: the CRC of its lower-case stem. An attribute's term has the high bit
set. A memory's terms are stored with it as 32-bit numbers, one for each occurrence. The search index is
built from them without reading the content.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from zlib import crc32

import Stemmer

from memory._base.content import Leaves, Scalar
from memory._base.locks import fork_safe_lock
from memory._base.native import TermCache, core
from memory.search.names import ROLES, SPEAKER_KEYS, sound_of

ATTRIBUTE_BIT = 1 << 31
KIND = "\0kind"
"""The attribute path of a memory's kind. No path in a content can be equal to it."""
SPEAKER = "\0speaker"
"""The attribute path of the sound of a speaker's name. No path in a metadata can be equal to it."""
SESSION_KEYS = (
    "session_id",
    "session",
    "conversation_id",
    "conversation",
    "thread_id",
    "thread",
)
"""Metadata keys that name a conversation. The first key that is present is used."""
_TERM_MASK = ATTRIBUTE_BIT - 1
_CACHE_WORDS = 200_000
"""Words whose terms are cached, about 25 MB when full: more than the vocabulary of most agents together."""
_LONGEST_CACHED = 40
"""Characters of the longest part of a text whose terms are cached: longer ones are rarely repeated."""
_MAX_ATTRIBUTE_TEXT = 200
"""Characters of an attribute's text that its term depends on: a bound on the cost of a long text."""

# Japanese, Chinese and Korean are indexed character by character: no spaces separate their words.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")

_stemmer = Stemmer.Stemmer("english")
_stemmer_lock = fork_safe_lock()  # a stemmer is not thread-safe
_terms: dict[str, int] = {}


def words_of(text: str) -> list[str]:
    """Return the words of a text, lower-case, in order."""
    return _WORD.findall(text.lower())


def term_of(word: str) -> int:
    """Return the term of a lower-case word."""
    term = _terms.get(word)
    if term is None:
        with _stemmer_lock:
            stem = _stemmer.stemWord(word)
        term = crc32(stem.encode("utf-8", "surrogatepass")) & _TERM_MASK
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
    # Words about asking and talking, which say nothing about what was talked about:
    " ask asked chat conversation describe discuss explain list mention recall remember said say session"
    " summarize summary talk told"
)


@lru_cache(maxsize=1)
def function_terms() -> frozenset[int]:
    """Return the terms of English words that occur in questions on any subject."""
    return frozenset(map(term_of, _FUNCTION_WORDS.split()))


def terms_of_text(text: str) -> list[int]:
    known = _terms
    return [known.get(word) or term_of(word) for word in words_of(text)]


_encoded: dict[str, bytes] = {}
"""The terms of texts between two spaces, as they are stored. A full cache is replaced by an empty one."""


def _encoded_terms(text: str) -> bytes:
    """Return the terms of a text as they are stored.

    No word has a space in it. So the terms of a text are those of the parts between its spaces, and most of
    these are cached: this takes a quarter of the time of splitting the text into words."""
    if _compiled is not None:
        return _compiled.of_text(text)
    parts = text.split(" ")
    try:
        return b"".join(map(_encoded.__getitem__, parts))
    except KeyError:
        return b"".join(map(_encoded_part, parts))


def _encoded_part(part: str) -> bytes:
    global _encoded
    found = _encoded.get(part)
    if found is None:
        found = _terms_of_part(part)
        if len(part) <= _LONGEST_CACHED:
            if len(_encoded) >= _CACHE_WORDS:
                _encoded = {}
            _encoded[part] = found
    return found


def metadata_texts(metadata_leaves: Leaves) -> list[str]:
    """Return the texts of the metadata that are searched like the content, such as the speaker's name."""
    return [value for path, value in metadata_leaves if isinstance(value, str) and path not in SESSION_KEYS]


def _terms_of_part(part: str) -> bytes:
    return array("I", terms_of_text(part)).tobytes()


def terms_of_memory(
    leaves: Leaves,
    kind: str,
    metadata_texts: Iterable[str],
    metadata_leaves: Leaves,
    timestamp: float | None,
) -> bytes:
    """Return all terms that a memory can be found by, as bytes to be stored.

    `metadata_texts` are searched like the content; so is the date of `timestamp`, if there is one.
    Filters compare `leaves` (the scalars of the content) and `metadata_leaves`. The speaker's name, if the
    metadata have one, is also an attribute (see `names.py`).
    """
    is_structured = len(leaves) != 1 or leaves[0][0] != ""
    words = _words_of_leaves(leaves) if is_structured else [_words_of_value(leaves[0][1])]
    words.append(terms_after_words(kind, metadata_texts, metadata_leaves, timestamp))
    if is_structured:
        words.append(attribute_terms(leaves))
    return b"".join(words)


def terms_after_words(
    kind: str, metadata_texts: Iterable[str], metadata_leaves: Leaves, timestamp: float | None
) -> bytes:
    """Return the terms of a memory that do not depend on its content; see `terms_of_memory`."""
    words = [_encoded_terms(text) for text in metadata_texts]
    if timestamp is not None:
        words.append(_encoded_terms(date_words(timestamp)))
    words.append(kind_terms(kind))
    if metadata_leaves:
        words.append(attribute_terms(metadata_leaves))
        for path, value in metadata_leaves:
            if path in SPEAKER_KEYS and isinstance(value, str):
                words.append(array("I", _speaker_terms(value)).tobytes())
    return b"".join(words)


@lru_cache(maxsize=4096)
def kind_terms(kind: str) -> bytes:
    """Return the term of a memory's kind, as bytes to be stored."""
    return array("I", [attribute_term(KIND, kind)]).tobytes()


def term_cache() -> TermCache | None:
    """Return the compiled cache of terms, None without the compiled core."""
    return _compiled


def _words_of_leaves(leaves: Leaves) -> list[bytes]:
    """Return the terms of all paths and values of a structured content."""
    if _compiled is not None:
        return [_compiled.of_leaves(leaves)]
    words = []
    for path, value in leaves:
        if path:
            words.append(_encoded_terms(path))
        if type(value) is not float:
            words.append(_words_of_value(value))
    return words


def _words_of_value(value: Scalar) -> bytes:
    if isinstance(value, str):
        return _encoded_terms(value)
    if isinstance(value, int):
        return _encoded_word(str(value).lower())
    return b""


@lru_cache(maxsize=4096)
def _encoded_word(word: str) -> bytes:
    return array("I", [term_of(word)]).tobytes()


_compiled = (
    None if core is None else core.TermCache(_terms_of_part, _words_of_value, _CACHE_WORDS, _LONGEST_CACHED)
)
"""Does the same with the compiled core. Instead of `_encoded`, it has a cache of its own."""


def date_words(timestamp: float) -> str:
    """Return a timestamp's date in words: "8 May 2023"."""
    try:
        date = datetime.fromtimestamp(timestamp, tz=UTC)
    except (OverflowError, OSError, ValueError):
        return ""  # outside the calendar, as the timestamps of a simulation may be
    return f"{date.day} {date:%B} {date.year}"


def attribute_terms(leaves: Leaves) -> bytes:
    """Return one term for each distinct path and value, as bytes to be stored."""
    if core is not None:
        return core.attribute_terms(leaves)
    terms = [
        # The usual case of `attribute_term`, without its calls: a state has dozens of these.
        crc32(b"%.3g" % (value + 0.0), _path_crc(path)) | ATTRIBUTE_BIT
        if type(value) is float
        else attribute_term(path, value)
        for path, value in leaves
    ]
    return array("I", dict.fromkeys(terms)).tobytes()


def attribute_term(path: str, value: Scalar) -> int:
    """Return the term of one attribute.

    Numbers are rounded to three digits, so that a measured quantity does not need a term for each
    memory. Different values can share a term, so a filter must also compare the memory itself.
    """
    if isinstance(value, str):
        return _text_attribute(path, value[:_MAX_ATTRIBUTE_TEXT])
    if isinstance(value, bool) or value is None:
        text = str(value)
    else:
        try:
            text = f"{float(value) + 0.0:.3g}"  # adding 0.0 turns -0.0 into 0.0
        except OverflowError:
            text = "huge"
    return crc32(text.encode(), _path_crc(path)) | ATTRIBUTE_BIT


@lru_cache(maxsize=4096)
def _text_attribute(path: str, value: str) -> int:
    """Cached: many memories share their speaker, kind or session."""
    return crc32(f"s{value}".encode("utf-8", "surrogatepass"), _path_crc(path)) | ATTRIBUTE_BIT


@lru_cache(maxsize=4096)
def _speaker_terms(name: str) -> list[int]:
    words = dict.fromkeys(words_of(name[:_MAX_ATTRIBUTE_TEXT]))
    return [attribute_term(SPEAKER, sound_of(word)) for word in words if word not in ROLES]


@lru_cache(maxsize=4096)
def _path_crc(path: str) -> int:
    """Return the CRC of a path and a separator. The CRC of a value continues it."""
    return crc32(f"{path}\0".encode("utf-8", "surrogatepass"))
