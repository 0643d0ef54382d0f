"""Names of speakers: which metadata hold them, and which spellings sound alike.

A memory's speaker is read from the metadata keys in `SPEAKER_KEYS`. Every word of a speaker's name becomes
an attribute of the memory, in the form of its sound. So a search finds the turns of "Muhhamed" and of
"Fahim Khan", also if the question says "Muhammad" or "Fahim".
"""

from __future__ import annotations

from functools import lru_cache

SPEAKER_KEYS = ("speaker", "author", "sender", "role")
"""Metadata keys that say who said or wrote a memory. All that are present count."""
ROLES = frozenset(("user", "human", "assistant", "ai", "bot", "agent", "system", "tool", "function"))
"""Values of these keys that are roles, not names. A question never names a person with them."""
USER_ROLES = ("user", "human")
"""The roles of the person who asks: "I" and "my" in a question mean their turns."""

_LENGTH = 4  # Characters of a sound: the initial and up to three digits, as in Soundex
_SOUNDS = {
    letter: digit
    for digit, letters in enumerate(("bfpv", "cgjkqsxz", "dt", "l", "mn", "r"), start=1)
    for letter in letters
}


@lru_cache(maxsize=4096)
def sound_of(word: str) -> str:
    """Return how a lower-case word sounds in English, by Soundex (Russell, US patent 1,261,167).

    A word with other letters than a to z is its own sound.
    """
    if not (word.isascii() and word.isalpha()):
        return word
    sound, last = word[0], _SOUNDS.get(word[0])
    for letter in word[1:]:
        digit = _SOUNDS.get(letter)
        if digit and digit != last:
            sound += str(digit)
            if len(sound) == _LENGTH:
                break
        if letter not in "hw":  # letters of one sound count once, also if an h or a w is between them
            last = digit
    return sound
