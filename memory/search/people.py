"""Which of an agent's speakers a question is about, and which memories are theirs.

Nearly always the answer to a question about one person was said by that person: in three sets of
conversations, 95 % of the evidence. A question that names several speakers, or none, is about nobody here.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from memory.search.lexical import WordMatches
from memory.search.names import ROLES, SPEAKER_KEYS, USER_ROLES, sound_of
from memory.search.terms import SPEAKER, attribute_term, function_terms, term_of

FIRST_PERSON = frozenset(("i", "me", "my", "mine", "myself"))
_WORD = re.compile(r"[^\W\d_]+")
_MAX_WORDS = 64
"""Words of a question that may be names, a bound on the cost: no question has so many."""
_SHORTEST_SOUND = 4
"""Letters of the shortest name that is recognised by its sound: shorter ones sound like too many words."""

Mask = NDArray[np.bool_]


class Person:
    """The speaker that a question may be about. `terms` must be looked up; then `find` tells who it is."""

    def __init__(self, text: str) -> None:
        self.names: set[str] = set()
        """After `find`: the words of the question, lower-case, that are names of speakers."""
        self.misspelled: set[str] = set()
        """After `find`: those of `names` that no memory holds."""
        self.terms: list[int] = []
        """The terms of attributes by which the turns of this person are found."""
        self._written: dict[str, str] = {}
        self._word_of: list[str | None] = []
        """For each of `terms`: the word of the question that it is for; None for the one who asks."""
        asks = False
        for written in _WORD.findall(text):
            word, terms = _as_name(written)
            if word in self._written:
                continue
            if terms:
                self._written[word] = written
                if len(self._written) > _MAX_WORDS:
                    break
                self.terms += terms
                self._word_of += [word] * len(terms)
            elif word in FIRST_PERSON:
                asks = True
        if asks:
            self.terms += _user_terms()
            self._word_of += [None] * (len(self.terms) - len(self._word_of))

    def find(self, matches: WordMatches) -> Mask | None:
        """Return which memories are by the person; None if it is nobody, or several.

        `matches` are those of the question's words and of `terms`.
        """
        attributes = matches.attributes
        by_user: Mask | None = None
        of_names: dict[str, Mask] = {}
        for number in attributes.numbers:  # of a word, the exact name comes before its sound
            word = self._word_of[number]
            if word is None:
                by_user = attributes.mask(number) if by_user is None else by_user | attributes.mask(number)
            elif self.terms[number] != attribute_term(SPEAKER, sound_of(word)):
                mask = attributes.mask(number)
                of_names[word] = of_names[word] | mask if word in of_names else mask
            elif word not in of_names:
                said = self._said(word, attributes.mask(number), matches)
                if said is not None:
                    of_names[word] = said
        if not of_names:
            return by_user
        self.names = set(of_names)
        # First name and surname have the same memories; the names of two persons have none in common.
        first, *others = of_names.values()
        for mask in others:
            first = first & mask
        return first if first.any() else None

    def _said(self, word: str, sounding: Mask, matches: WordMatches) -> Mask | None:
        """Return which of the memories of speakers with this sound are by a speaker with this name."""
        with_word = matches.mask(word)
        if with_word is not None:
            sounding &= with_word
            return sounding if sounding.any() else None
        if self._written[word] == word or len(word) < _SHORTEST_SOUND:
            return None  # not written like a name, or too short to tell names by their sound
        self.misspelled.add(word)
        return sounding


def name_terms(text: str) -> list[int]:
    """Return the terms of the attributes that `Person` looks up for a text."""
    terms: list[int] = []
    for written in _WORD.findall(text):
        word, of_word = _as_name(written)
        terms += _user_terms() if word in FIRST_PERSON else of_word
    return terms


@lru_cache(maxsize=4096)
def _as_name(written: str) -> tuple[str, list[int]]:
    """Return a word of a question in lower case, and the attributes of a speaker with this name.

    There are none for a word that can't be a name. The last one is the sound. Those of the whole name are
    before it, if it is written like a name: they are the only ones in rows that version 0.2 stored.
    """
    word = written.lower()
    if word in FIRST_PERSON or word in ROLES or term_of(word) in function_terms():
        return word, []
    exact = [attribute_term(key, written) for key in SPEAKER_KEYS] if written != word else []
    return word, [*exact, attribute_term(SPEAKER, sound_of(word))]


@lru_cache(maxsize=1)
def _user_terms() -> list[int]:
    return [
        attribute_term(key, role)
        for key in SPEAKER_KEYS
        for name in USER_ROLES
        for role in (name, name.capitalize())
    ]
