"""The tokenizer of the package `tokenizers`, with which the tests compare our own."""

from __future__ import annotations

from functools import lru_cache

from tokenizers import Encoding, Tokenizer

from memory.embedding.files import files_folder


@lru_cache(maxsize=1)
def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(files_folder() / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def encode(text: str) -> Encoding:
    """Return the tokens of a text without a token for its start."""
    return _tokenizer().encode(text, add_special_tokens=False)
