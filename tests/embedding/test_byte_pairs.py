"""Our tokenizer gives the same tokens, at the same places, as the package `tokenizers`."""

from __future__ import annotations

import json
import subprocess
from itertools import islice
from pathlib import Path

import pytest
import reference_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.models import BPE

from memory.embedding import byte_pairs
from memory.embedding.byte_pairs import MARK, SPECIAL, BytePairs, split_words
from memory.embedding.files import files_folder, read_vocabulary

ROOT = Path(__file__).parents[2]
VOCABULARY = read_vocabulary()
OURS = BytePairs(VOCABULARY)


def assert_same_tokens(text: str) -> None:
    expected = reference_tokenizer.encode(text)
    found = OURS.encode(text)
    assert found == expected.ids, text
    assert list(OURS.spans(text, found)) == expected.offsets, text


def assert_all_same_tokens(texts: list[str]) -> None:
    """Compare many texts as lists first: an assertion for each would take most of the time."""
    expected = [reference_tokenizer.encode(text) for text in texts]
    found = [OURS.encode(text) for text in texts]
    different = [
        text
        for text, ours, other in zip(texts, found, expected, strict=True)
        if ours != other.ids or list(OURS.spans(text, ours)) != other.offsets
    ]
    assert different == []


def test_the_ranks_are_the_order_of_the_merges_in_the_file() -> None:
    """The file's list of merges is not read: it is the list of all pairs of tokens that form a token."""
    document = json.loads((files_folder() / "l2_supercat_tokenizer_config.json").read_text())
    in_file = [tuple(merge.split(" ")) for merge in document["model"]["merges"]]
    pairs = {
        (token[:cut], token[cut:])
        for token in VOCABULARY
        for cut in range(1, len(token))
        if token[:cut] in VOCABULARY and token[cut:] in VOCABULARY
    }
    assert sorted(pairs, key=lambda pair: OURS._rank(*pair)) == in_file
    assert len(in_file) == 61_249
    assert OURS._rank("q", "zz") == byte_pairs._NEVER > OURS._rank(*in_file[-1])


def test_the_vocabulary_is_numbered_in_its_order() -> None:
    assert list(VOCABULARY.values()) == list(range(32_000))
    assert [list(VOCABULARY)[3 + byte] for byte in range(256)] == [f"<0x{byte:02X}>" for byte in range(256)]


def test_in_every_token_the_marks_come_first() -> None:
    assert [token for token in VOCABULARY if MARK in token.lstrip(MARK)] == []


def test_a_word_that_is_a_token_is_this_token() -> None:
    """`encode_word` does not merge such words, so this compares with what merging gives."""
    words = [token for token in VOCABULARY if token.startswith(MARK)]
    assert [word for word in words if "".join(OURS._merge_long(list(word))) != word] == []
    assert [word for word in words if len(OURS._merge_long(list(word))) > 1] == []


def test_every_token_as_a_text() -> None:
    assert_all_same_tokens(list(VOCABULARY))


def test_all_words_of_this_repository() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    words: set[str] = set()
    for name in listed.stdout.split("\0"):
        if name.endswith((".py", ".md", ".toml", ".js", ".css")):
            words.update((ROOT / name).read_text().split(" "))
    assert len(words) > 10_000
    assert_all_same_tokens(sorted(words))


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "  ", "\n", "\0", "\x7f", "a", " a", "a ", "  a  b   ", "a\nb", "a\r\n", "\u00a0\u00a0",
        "don't (really) stop-and-go, 3.14%!", "snake_case.camelCase[0]", "日本語のテキスト", "\u3000x",
        "東京-都、龘龘.", "🦖", "🦖🦖-a", "a-🦖🦖x", "👩‍👩‍👧‍👦 family", "e\u0301", "Ünïcödé", "ﷺ",
        "<s>", "</s>", "<unk>", "<s><s>", "<s>a", "a<s>b", "a <s> b", "<s> a", "</s>-a b", "<unk>🦖<unk>",
        "\U0010ffff", "<s", "s>", "<0x0A>", "<0xFF>", MARK, f"a{MARK}b", f"{MARK}{MARK}a", f"a {MARK} b",
        f"<s>{MARK}", "xyxyxyx", "aaaaaaa", "abcabcabcabc", "----====----", "ababab" * 9,
    ],
    ids=ascii,
)  # fmt: skip
def test_unusual_texts(text: str) -> None:
    assert_same_tokens(text)


characters = st.characters(exclude_categories=["Cs"])
parts = st.one_of(
    st.sampled_from([token.replace(MARK, " ") for token in VOCABULARY]),
    st.sampled_from([*SPECIAL, MARK, " ", "  ", "\n", "日本語", "🦖", "'s", ")."]),
    st.text(characters, max_size=5),
)


@settings(max_examples=400, deadline=None)
@given(text=st.one_of(st.text(characters, max_size=60), st.lists(parts, max_size=30).map("".join)))
def test_any_text(text: str) -> None:
    assert_same_tokens(text)


@settings(max_examples=200, deadline=None)
@given(text=st.text("ab xyz<s>\N{LOWER ONE EIGHTH BLOCK}", max_size=150))
def test_repetitive_text(text: str) -> None:
    """Few different characters make many pairs of equal rank."""
    assert_same_tokens(text)


@settings(max_examples=300, deadline=None)
@given(
    merged=st.lists(st.text("ab", min_size=2, max_size=6), unique=True, max_size=25),
    texts=st.lists(st.text("ab", min_size=1, max_size=80), min_size=1, max_size=10),
)
def test_other_vocabularies(merged: list[str], texts: list[str]) -> None:
    """In small random vocabularies, unlike in Llama's, most pairs of neighbours compete."""
    tokens = [*islice(VOCABULARY, 3 + 256), *merged, MARK, "a", "b"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    ours = BytePairs(vocabulary)
    pairs = [(token[:cut], token[cut:]) for token in merged for cut in range(1, len(token))]
    merges = sorted(
        (pair for pair in pairs if vocabulary.keys() >= set(pair)), key=lambda pair: ours._rank(*pair)
    )
    reference = BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    for text in texts:
        assert ours.encode(text) == [token.id for token in reference.tokenize(MARK + text)]


def test_of_two_pairs_that_form_the_same_token_the_lower_rank_is_first() -> None:
    assert OURS._rank("th", "e") < OURS._rank("t", "he")
    the = VOCABULARY["the"]
    merged = [the, byte_pairs._NEVER, the]
    assert OURS._first_to_merge(["t", "he", "th", "e"], merged, the) == 2
    assert OURS._first_to_merge(["th", "e", "th", "e"], merged, the) == 0


@settings(max_examples=200, deadline=None)
@given(word=st.text(st.sampled_from("etaoinshrdlucm\n日🦖.,"), min_size=1, max_size=150))
def test_short_and_long_words_are_merged_alike(word: str) -> None:
    symbols = [part for symbol in MARK + word for part in OURS._character_or_bytes(symbol)]
    assert OURS._merge_short(list(symbols)) == OURS._merge_long(list(symbols))


@pytest.mark.parametrize(
    "unit",
    [
        "w",
        " ",
        "ab",
        "日本語龘",
        "etaoinshrdlu",
        "=-",
        "\n",
        "\t ",
        "<s>",
        "🦖",
        "antidisestablishmentarianism",
    ],
)
def test_long_texts_without_words(unit: str) -> None:
    for length in (63, 64, 65, 1_000, 20_000):
        assert_same_tokens((unit * length)[:length])


def test_a_long_word_takes_about_n_log_n_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the ranks that are looked up: each merge looks up at most two."""
    looked_up = 0
    rank = OURS._rank

    def counted(left: str, right: str) -> int:
        nonlocal looked_up
        looked_up += 1
        return rank(left, right)

    monkeypatch.setattr(OURS, "_rank", counted)
    OURS.encode_word("etaoinshrdlu" * 1_667)
    assert 20_000 < looked_up < 3 * 20_005


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b", ["a", "b"]),
        ("a  b <s>", ["a", " b", "", "<s>"]),
        ("a<s>b", ["a", "<s>", "b"]),
        (f"a{MARK}b", ["a", "b"]),
        ("", []),
        (" ", [" "]),
        ("a ", ["a", ""]),
    ],
)
def test_a_text_is_split_before_the_marks_of_each_word(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@settings(max_examples=200, deadline=None)
@given(texts=st.lists(parts, max_size=12))
def test_the_words_of_a_text_have_its_tokens(texts: list[str]) -> None:
    text = " ".join(texts)
    words = split_words(text)
    assert [token for word in words for token in OURS.encode_word(word)] == OURS.encode(text)
    assert all(" " not in word.lstrip(" ") for word in words)
