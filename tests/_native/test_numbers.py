"""The numbers of a state: the compiled function and its twin give the same vector, up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_embedder import small_embedder

from memory._base.content import leaves_of
from memory._base.native import core
from memory.embedding import ContentEmbedder, Rendering, render

pytestmark = pytest.mark.skipif(core is None, reason="the compiled core is not built")

NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.booleans())
STATES = st.dictionaries(
    st.text(max_size=3), st.one_of(NUMBERS, st.text(max_size=5), st.lists(NUMBERS, max_size=5)), max_size=8
)
EMBEDDER = ContentEmbedder(small_embedder())


def both(rendering: Rendering) -> tuple[Any, Any]:
    words = EMBEDDER.embed_texts([rendering.text])[0]
    pure = EMBEDDER._with_numbers_pure(words, rendering)
    EMBEDDER._mix_numbers(words, rendering)
    return words, pure


@given(STATES)
@settings(max_examples=300, deadline=None)
def test_any_state_gives_the_same_vector(state: dict[str, Any]) -> None:
    rendering = render(leaves_of(state))
    if rendering.numbers:
        compiled, pure = both(rendering)
        np.testing.assert_allclose(compiled, pure, atol=3e-6)


def test_numbers_of_one_list_share_their_directions() -> None:
    compiled, pure = both(
        render(leaves_of({"position": [1.5, -2.0, 1e300], "step": 7, "lists": [[1], [2]]}))
    )
    np.testing.assert_allclose(compiled, pure, atol=3e-6)


def test_a_state_without_words_is_only_its_numbers() -> None:
    compiled, pure = both(render(leaves_of({"a": 0, "b": -0.0})))
    np.testing.assert_allclose(compiled, pure, atol=3e-6)
    assert np.linalg.norm(compiled) == pytest.approx(1.0)


def mix(**changed: Any) -> None:
    assert core is not None
    arguments: dict[str, Any] = {
        "words": np.zeros(4, np.float32),
        "numbers": (("a", 1.0), ("b", 2.0)),
        "slots": None,
        "directions": np.zeros((4, 4), np.float32),
        "frequencies": np.ones(1),
        "share": 0.5,
        **changed,
    }
    core.mix_numbers(*arguments.values())


@pytest.mark.parametrize(
    "changed",
    [
        {"directions": np.zeros((3, 4), np.float32)},
        {"directions": np.zeros((6, 4), np.float32)},
        {"directions": np.zeros(15, np.float32)},
        {"slots": np.array([0, 2])},
        {"slots": np.array([0, -1])},
        {"slots": np.array([0])},
        {"words": np.zeros(0, np.float32)},
        {"frequencies": np.zeros(0)},
    ],
)
def test_sizes_that_do_not_fit_are_refused(changed: dict[str, Any]) -> None:
    mix()
    mix(slots=np.array([1, 0]))
    with pytest.raises(ValueError, match="do not fit"):
        mix(**changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"numbers": (("a", 1.0), ("b", "x"))},
        {"words": np.zeros(4)},
        {"slots": np.array([0.0, 1.0])},
        {"frequencies": np.ones(1, np.float32)},
        {"share": "half"},
    ],
)
def test_values_of_other_types_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        mix(**changed)
