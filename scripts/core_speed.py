"""Measures the compiled core beside its twins in pure Python: CPU microseconds of one call.

Both sides run in turns in one process, over the same texts, and the least time of each text counts. So a
busy machine changes the figures little. docs/dependencies.md has a table of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from memory._base import content
from memory._base.content import leaves_of
from memory._base.native import core
from memory.benchmarking.workloads import agent_states
from memory.benchmarking.workloads.contents import contents_of
from memory.compression import quantise
from memory.embedding import ContentEmbedder, WordLlamaEmbedder, render, tokens, wordllama
from memory.search import terms

ROUNDS = 9
SWITCHES = (
    (content, "core"),
    (tokens, "core"),
    (tokens, "_tokenizer"),
    (wordllama, "core"),
    (terms, "core"),
    (terms, "_compiled"),
    (quantise, "core"),
)
"""Where modules keep the compiled core, or what they made with it."""


@contextmanager
def pure_python() -> Iterator[None]:
    """Use the twins, as with AGENTMEMORY_PURE=1."""
    saved = [getattr(module, name) for module, name in SWITCHES]
    for module, name in SWITCHES:
        setattr(module, name, None)
    try:
        yield
    finally:
        for (module, name), value in zip(SWITCHES, saved, strict=True):
            setattr(module, name, value)


def measure(call: Callable[[Any], object], items: Sequence[Any], least: list[int]) -> None:
    """Lower each item's least time by one more call of each."""
    for at, item in enumerate(items):
        started = time.thread_time_ns()
        call(item)
        least[at] = min(least[at], time.thread_time_ns() - started)


def main() -> int:
    if core is None:
        print("there is no compiled core: run `python build_core.py`", file=sys.stderr)
        return 1
    embedder = ContentEmbedder(WordLlamaEmbedder())
    texts, states = contents_of("dialogue", 400), agent_states(300)
    text_leaves, state_leaves = [leaves_of(text) for text in texts], [leaves_of(state) for state in states]
    renderings = [render(leaves) for leaves in state_leaves]
    rows = [embedder.embed_texts([text]) for text in texts]
    batches = [texts[at : at + 100] for at in range(0, 400, 100)]
    parts: list[tuple[str, Callable[[Any], object], Sequence[Any]]] = [
        ("vector of a text", lambda text: embedder.embed_texts([text]), texts),
        ("vectors of 100 texts", embedder.embed_texts, batches),
        ("vector of a state", lambda rendering: embedder.embed([rendering]), renderings),
        ("terms of a text", lambda one: terms.terms_of_memory(one, "text", [], [], None), text_leaves),
        ("terms of a state", lambda one: terms.terms_of_memory(one, "state", [], [], None), state_leaves),
        ("leaves of a state", leaves_of, states),
        ("tokens in a text", tokens.count_tokens, texts),
        ("a vector as int8", quantise.to_int8, rows),
    ]
    overhead = [sys.maxsize] * 1000
    measure(lambda item: None, range(1000), overhead)
    print(f"{'CPU time in µs':24} {'pure':>8} {'compiled':>9} {'ratio':>6}")
    for name, call, items in parts:
        pure, compiled = [sys.maxsize] * len(items), [sys.maxsize] * len(items)
        for _ in range(ROUNDS):
            measure(call, items, compiled)
            with pure_python():
                measure(call, items, pure)
        slow, fast = (sum(least) / len(least) / 1000 - min(overhead) / 1000 for least in (pure, compiled))
        print(f"{name:24} {slow:8.1f} {fast:9.1f} {slow / fast:6.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
