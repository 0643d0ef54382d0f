"""Generated texts have the vocabulary and the lengths of real ones."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from collections import Counter
from itertools import islice

from memory.benchmarking.workloads.natural_texts import (
    all_words,
    document_texts,
    memory_texts,
    question_texts,
)


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def test_the_seed_determines_the_texts_in_every_process() -> None:
    here = list(islice(memory_texts(7), 300))
    assert here == list(islice(memory_texts(7), 300))
    assert here[:5] != list(islice(memory_texts(8), 5))
    code = (
        "from memory.benchmarking.workloads.natural_texts import memory_texts as m\n"
        "print([next(m(7)) for _ in range(1)][0])"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here[0]


def test_texts_differ_and_have_the_lengths_of_chat_turns_questions_and_abstracts() -> None:
    for texts, low, high in ((memory_texts, 18, 23), (question_texts, 8, 11), (document_texts, 195, 240)):
        made = list(islice(texts(1), 250))
        assert len(set(made)) == len(made)
        assert low <= statistics.median(len(words_of(text)) for text in made) <= high


def test_the_vocabulary_is_large_and_keeps_growing() -> None:
    """LoCoMo has 2,919 different words in 30,000, REALTALK 4,283, SciFact 5,600; 41,465 in 1.2 million."""
    assert len(all_words()) >= 20_000
    counts: Counter[str] = Counter()
    grown = {}
    for text in memory_texts(1):
        counts.update(words_of(text))
        if counts.total() >= 10_000:
            grown.setdefault(10_000, len(counts))
        if counts.total() >= 30_000:
            grown[30_000] = len(counts)
            break
    assert 1_700 <= grown[10_000] <= 2_800
    assert 2_900 <= grown[30_000] <= 5_600
    frequencies = [count / counts.total() for _, count in counts.most_common(1000)]
    assert 0.02 <= frequencies[0] <= 0.06  # real sets: .029 to .039
    assert 0.0009 <= frequencies[99] <= 0.0019  # .0010 to .0018
    assert 0.00006 <= frequencies[999] <= 0.00018  # .00009 to .00017


def test_questions_share_words_with_the_memories() -> None:
    known = {word for text in islice(memory_texts(1), 2000) for word in words_of(text)}
    for question in islice(question_texts(2), 100):
        assert len(known & set(words_of(question))) >= 2
