"""Split texts into the tokens of Llama 2: byte-pair encoding with a SentencePiece vocabulary.

The tokens are those of the package `tokenizers`, which the tests compare. Four rules make them:

- A text starts with a mark, and each of its spaces becomes a mark: "a  b" is read as "▁a▁▁b".
- A character that the vocabulary lacks becomes the tokens of its UTF-8 bytes.
- Two neighbours whose joined text is a token are merged; of all such pairs the one with the lowest rank
  first, of equal ranks the leftmost.
- "<unk>", "<s>" and "</s>" in a text are tokens, and the text after them starts anew, with a mark.

In every token, marks come first. So no token contains the end of a word and the mark of the next word, and
a text can be split before the marks of each word without changing its tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

MARK = "\N{LOWER ONE EIGHTH BLOCK}"
SPECIAL = ("<unk>", "<s>", "</s>")

_SPLIT_SPECIAL = re.compile(f"({'|'.join(SPECIAL)})")
_MARKED_WORD = re.compile(" +[^ ]*")
_FIRST_BYTE_TOKEN = 3  # "<0x00>"; the tokens of the other bytes follow
_TOKEN_BITS = 15  # 32,000 tokens
_NEVER = 1 << (3 * _TOKEN_BITS + 1)
"""The rank of two symbols that are not merged."""
_LONG = 64
"""The symbols of a word from which a heap is faster than a list."""


class BytePairs:
    """Splits texts into tokens.

    Args:
        vocabulary: the number of each token, by its text.
    """

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._vocabulary = vocabulary
        self._texts = list(vocabulary)
        self._special = {vocabulary[text] for text in SPECIAL}
        self.mark = vocabulary[MARK]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text. It must not contain lone surrogates."""
        return [token for word in split_words(text) for token in self.encode_word(word)]

    def encode_word(self, word: str) -> list[int]:
        """Return the tokens of one item of `split_words`."""
        vocabulary = self._vocabulary
        if word in SPECIAL:
            return [vocabulary[word]]
        marked = MARK + word.replace(" ", MARK)
        whole = vocabulary.get(marked)
        if whole is not None:  # merging would give this token: so it is for every token with a mark
            return [whole]
        symbols = list(marked)
        if not all(map(vocabulary.__contains__, symbols)):
            symbols = [part for symbol in symbols for part in self._character_or_bytes(symbol)]
        is_short = len(symbols) < _LONG and not word.startswith(" ")
        merged = self._merge_short(symbols) if is_short else self._merge_long(symbols)
        return [vocabulary[symbol] for symbol in merged]

    def spans(self, text: str, tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Return the start and end of each token of a text, in characters.

        The mark before the first character has the place of that character.
        """
        place, bytes_left, has_mark = 0, 0, True
        for token in tokens:
            if token in self._special:
                length, has_mark = len(self._texts[token]), True
                yield place, place + length
                place += length
            elif _FIRST_BYTE_TOKEN <= token < _FIRST_BYTE_TOKEN + 256:
                bytes_left = (bytes_left or len(text[place].encode())) - 1
                yield place, place + 1
                place += not bytes_left
            else:
                length = len(self._texts[token]) - has_mark
                has_mark = False
                yield place, place + max(length, 1)
                place += length

    def _character_or_bytes(self, symbol: str) -> list[str]:
        if symbol in self._vocabulary:
            return [symbol]
        return [self._texts[_FIRST_BYTE_TOKEN + byte] for byte in symbol.encode()]

    def _merge_short(self, symbols: list[str]) -> list[str]:
        """Merge the symbols of a word with one mark, in quadratic time with a very small factor."""
        find = self._vocabulary.get
        tokens = [find(left + right, _NEVER) for left, right in pairwise(symbols)]
        while tokens and (first := min(tokens)) != _NEVER:
            at = tokens.index(first)
            if tokens.count(first) > 1:
                at = self._first_to_merge(symbols, tokens, first)
            merged = symbols[at] + symbols.pop(at + 1)
            symbols[at] = merged
            del tokens[at]
            if at:
                tokens[at - 1] = find(symbols[at - 1] + merged, _NEVER)
            if at < len(tokens):
                tokens[at] = find(merged + symbols[at + 1], _NEVER)
        return symbols

    def _first_to_merge(self, symbols: list[str], tokens: list[int], token: int) -> int:
        pairs = [at for at, other in enumerate(tokens) if other == token]
        return min(pairs, key=lambda at: self._rank(symbols[at], symbols[at + 1]))

    def _rank(self, left: str, right: str) -> int:
        """Return the place of a pair in the order of merges.

        The tokenizer's file lists its merges in this order: by the number of the merged token, then of the
        left one, then of the right one. Only the merges of marks come after all others.
        """
        vocabulary = self._vocabulary
        merged = vocabulary.get(left + right)
        if merged is None:
            return _NEVER
        rank = (merged << _TOKEN_BITS | vocabulary[left]) << _TOKEN_BITS | vocabulary[right]
        return rank if right[0] != MARK else rank | 1 << 3 * _TOKEN_BITS

    def _merge_long(self, symbols: list[str]) -> list[str]:
        """Merge the symbols of any word, in n log n steps with a heap."""
        rank, end = self._rank, len(symbols)
        before, after = list(range(-1, end - 1)), list(range(1, end + 1))
        ranks = [*(rank(left, right) for left, right in pairwise(symbols)), _NEVER]
        heap = [(lowest, at) for at, lowest in enumerate(ranks) if lowest != _NEVER]
        heapify(heap)
        while heap:
            lowest, at = heappop(heap)
            if ranks[at] != lowest:
                continue  # one of the two symbols was merged meanwhile
            right = after[at]
            symbols[at] += symbols[right]
            symbols[right] = ""
            ranks[right] = _NEVER
            after[at] = after[right]
            for left in (before[at], at):
                if left < 0:
                    continue
                ranks[left] = _NEVER
                if after[left] < end:
                    ranks[left] = rank(symbols[left], symbols[after[left]])
                    if ranks[left] != _NEVER:
                        heappush(heap, (ranks[left], left))
            if after[at] < end:
                before[after[at]] = at
        return [symbol for symbol in symbols if symbol]


def split_words(text: str) -> list[str]:
    """Split a text into parts whose tokens do not depend on each other.

    A part is a special token, or a word with all spaces before it except the first, which stands for the
    mark that every part begins with: "a  b <s>" gives "a", " b", "" and "<s>".
    """
    words = []
    for part in _SPLIT_SPECIAL.split(text.replace(MARK, " ")):
        if part in SPECIAL:
            words.append(part)
        elif part:
            words += [word[1:] for word in _MARKED_WORD.findall(" " + part)]
    return words
