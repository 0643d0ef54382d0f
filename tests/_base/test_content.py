"""Any JSON value is returned exactly from every tier; other values are refused and nothing is stored."""

from __future__ import annotations

import math
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_embedder import small_embedder

from memory import AgentMemorySystem, ManualClock, MemoryConfig
from memory._base.content import MAX_DEPTH, compressible_body, decode_body, encode_body, leaves_of
from memory.errors import InvalidMemory

Open = Callable[..., AgentMemorySystem]


def exact(value: Any) -> Any:
    """Return a form that differs for any two JSON values, also for 1, 1.0 and true, 0.0 and -0.0."""
    if isinstance(value, dict):
        return {key: exact(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [exact(child) for child in value]
    return type(value).__name__, repr(value)


def open_at(path: Path) -> AgentMemorySystem:
    config = MemoryConfig(maintenance="manual")
    config.ltm_config.db_path = str(path)
    return AgentMemorySystem(config, clock=ManualClock(), embedder=small_embedder())


any_text = st.text(st.characters(exclude_categories=())) | st.text(
    '\0\x01\x1f\x7f\ud800\udfff"\\é😀\u2028', max_size=8
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 10**300, -(10**400)])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([-0.0, 0.0, 5e-324, 1.7976931348623157e308, 0.1, 1.0, 2.0**53])
    | any_text
)
values = st.recursive(
    scalars,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(any_text, children, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(any_text, values, max_size=3)


def kept_exactly(
    memory: AgentMemorySystem, ids: list[str], given_: list[tuple[Any, Any]], tier: str
) -> None:
    for id_, (content, metadata) in zip(ids, given_, strict=True):
        entry = memory.get("ann", id_)
        assert entry is not None
        assert entry.tier == tier
        assert exact(entry.content) == exact(content)
        assert exact(entry.metadata) == exact(metadata)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("content")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(given_=st.lists(st.tuples(values, objects), min_size=1, max_size=6))
def test_any_json_value_round_trips_through_every_tier_and_a_reopening(
    folder: Path, given_: list[tuple[Any, Any]]
) -> None:
    path = folder / "round.db"
    memory = open_at(path)
    try:
        memory.delete_all("ann")
        ids = memory.add_many(
            [{"agent_id": "ann", "content": content, "metadata": metadata} for content, metadata in given_]
        )
        kept_exactly(memory, ids, given_, "stm")
        memory.force_transition_to_im()
        kept_exactly(memory, ids, given_, "im")
        memory.force_transition_to_ltm()
        kept_exactly(memory, ids, given_, "ltm")
        found = {hit.id for hit in memory.search("ann", "anything", len(ids))}
        assert found == set(ids)
    finally:
        memory.close()
    memory = open_at(path)
    try:
        kept_exactly(memory, ids, given_, "ltm")
    finally:
        memory.close()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(content=values, metadata=objects)
def test_a_body_decodes_to_what_was_encoded(content: Any, metadata: dict[str, Any]) -> None:
    leaves_of(content)
    back, back_metadata = decode_body(encode_body(content, metadata))
    assert (exact(back), exact(back_metadata)) == (exact(content), exact(metadata))


decimals = st.floats(-1e6, 1e6).map(lambda number: round(number, 3)) | st.sampled_from([-0.0, 1e22, 5e-324])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(content=st.tuples(values, st.lists(decimals, min_size=4)), metadata=objects)
def test_a_compressible_body_decodes_to_what_was_encoded(content: Any, metadata: dict[str, Any]) -> None:
    back, back_metadata = decode_body(compressible_body(encode_body(content, metadata)))
    assert (exact(back), exact(back_metadata)) == (exact(content), exact(metadata))


def test_a_body_with_short_decimal_numbers_is_compressed_as_json() -> None:
    rounded = encode_body([0.25, 1.5, -2.125, 0.1, 1700000000.0], {})
    assert compressible_body(rounded) == b"[[0.25,1.5,-2.125,0.1,1700000000.0],{}]"
    assert compressible_body(compressible_body(rounded)) == compressible_body(rounded)


@pytest.mark.parametrize(
    "content",
    ["a text", [1, 2, 3, 4, 5], [0.5, 0.5, 0.5], [number / 7 for number in range(1, 9)]],
    ids=["text", "whole numbers", "few decimals", "many digits"],
)
def test_a_body_that_json_does_not_make_smaller_stays(content: Any) -> None:
    body = encode_body(content, {})
    assert compressible_body(body) == body


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = wrap(None)
    for _ in range(depth - 1):
        value = wrap(value)
    return value


EXTREMES: dict[str, Any] = {
    "text of 1 MB": "word " * 200_000,
    "text of 1 MB without spaces": "x" * 1_000_000,
    "text of 1 MB beyond the first plane": "😀" * 250_000,
    "text of NUL": "\0" * 1000,
    "every control character": "".join(map(chr, range(32))) + "\x7f\x85\u2028\u2029",
    "lone surrogates": ["\ud800", "\udfff", "a\ud83d"],
    "two halves that were never joined": ["\ud83d\ude00", "😀"],
    "keys that differ by a joined pair": {"\ud83d\ude00": 1, "😀": 2},
    "a surrogate in a key": {"\ud800": {"\udc00": 1}},
    "lists to the limit": nested(MAX_DEPTH, lambda child: [child]),
    "objects to the limit": nested(MAX_DEPTH, lambda child: {"k": child}),
    "wide list": list(range(20_000)),
    "wide object": {f"key {number}": number for number in range(2_000)},
    "whole numbers past 64 bits": [2**64, -(2**64), 10**1000, 2**63, -(2**63) - 1],
    "minus zero": [-0.0, 0.0, {"x": -0.0}],
    "smallest and largest floats": [5e-324, -5e-324, 1.7976931348623157e308],
    "empty object": {},
    "empty list": [],
    "empty text": "",
    "null": None,
    "true": True,
    "one": 1,
    "one and a dot": 1.0,
    "empties inside": {"": "", "a": {}, "b": [], "c": [[], {}, ""], "d": None},
    "keys that look like paths": {"a.b": 1, "a": {"b": 2}, ".": 3, "..": 4, "\0kind": "x", "kind": "y"},
    "bytes that look like a float that is not finite": "\u02df\xf0" * 50 + "\ufffd\x7f\xf0",
    "text that looks like a body": "[1,{}]",
}


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_values_are_exact_from_every_tier(open_memory: Open, name: str) -> None:
    content = EXTREMES[name]
    metadata = {"m": content}
    if name.endswith("to the limit"):
        metadata = {}
    memory = open_memory()
    ids = [
        memory.add("ann", content, metadata=metadata, tier=tier, id=tier) for tier in ("stm", "im", "ltm")
    ]
    for system in (memory, None):
        if system is None:
            memory.close()
            system = open_memory()
        for id_ in ids:
            kept_exactly(system, [id_], [(content, metadata)], id_)
    assert len(system.search("ann", "word x key", 3)) == 3
    assert len(system.retrieve_similar_states("ann", content, 3)) == 3


def test_bytes_that_only_look_like_nan_are_text(memory: AgentMemorySystem) -> None:
    text = b"\xcb\x7f\xf0".decode("latin-1")
    for content in (text, {"a": text, "b": 1.5}, [b"\xf3\x8b\xbf\xb0".decode("utf-8"), 2.5]):
        entry = memory.get("ann", memory.add("ann", content))
        assert entry is not None
        assert entry.content == content


# -- subclasses -----------------------------------------------------------------------------------


class Colour(str, Enum):  # noqa: UP042 - many programs have this; its str() is not its value
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Text(str):
    __slots__ = ()


class Many(list):  # type: ignore[type-arg]
    pass


SUBCLASSES: dict[str, tuple[Any, Any]] = {
    "numpy.float64": (np.float64(1.5), 1.5),
    "numpy.float64 inside": ({"x": [np.float64(-0.0)]}, {"x": [-0.0]}),
    "OrderedDict": (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    "defaultdict": (defaultdict(int, a=1), {"a": 1}),
    "IntEnum": ({"level": Level.HIGH}, {"level": 3}),
    "text enum": ({"colour": Colour.RED}, {"colour": "red"}),
    "text enum beside a numpy.float64": (
        {"colour": Colour.RED, "x": np.float64(0.5)},
        {"colour": "red", "x": 0.5},
    ),
    "text enum as a key beside a numpy.float64": (
        {Colour.RED: np.float64(0.5)},
        {"red": 0.5},
    ),
    "text enum beside a whole number past 64 bits": (
        {"colour": Colour.RED, "x": 2**70},
        {"colour": "red", "x": 2**70},
    ),
    "subclass of str": ({"x": Text("a"), "y": [Text("b")]}, {"x": "a", "y": ["b"]}),
    "subclass of str at the top": (Text("a"), "a"),
    "subclass of str as a key": ({Text("a"): 1}, {"a": 1}),
    "subclass of list": (Many([1, Many([2])]), [1, [2]]),
    "tuple": ((1, ("a", ())), [1, ["a", []]]),
    "all of them and a surrogate": (
        {"a": Text("\ud800"), "b": np.float64(2.0), "c": Level.HIGH, "d": (1,)},
        {"a": "\ud800", "b": 2.0, "c": 3, "d": [1]},
    ),
}


@pytest.mark.parametrize("tier", ["stm", "im"])
@pytest.mark.parametrize("name", SUBCLASSES)
def test_subclasses_of_json_types_are_stored_as_plain_values(
    open_memory: Open, name: str, tier: str
) -> None:
    memory = open_memory(embedder=small_embedder())
    given_, plain = SUBCLASSES[name]
    id_ = memory.add("ann", given_, metadata={"m": given_}, tier=tier)
    for _ in range(2):
        kept_exactly(memory, [id_], [(plain, {"m": plain})], tier)
        memory.drop_caches()
    assert memory.add("ann", plain, id=id_) == id_, "the plain value is the same content"


def test_metadata_can_be_any_mapping(memory: AgentMemorySystem) -> None:
    for mapping in (MappingProxyType({"a": 1}), UserDict(a=1), OrderedDict(a=1)):
        entry = memory.get("ann", memory.add("ann", "x", metadata=mapping))
        assert entry is not None
        assert entry.metadata == {"a": 1}


# -- what is not JSON -----------------------------------------------------------------------------


def holding_itself() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    value.append(value)
    return value


def objects_holding_each_other() -> dict[str, Any]:
    one: dict[str, Any] = {}
    one["other"] = {"back": one, "list": [one]}
    return one


NOT_JSON: dict[str, Callable[[], Any]] = {
    "NaN": lambda: math.nan,
    "numpy NaN": lambda: np.float64("nan"),
    "infinity": lambda: math.inf,
    "minus infinity": lambda: -math.inf,
    "NaN beside a number past 64 bits": lambda: [math.nan, 2**70],
    "NaN beside a surrogate": lambda: ["\ud800", math.inf],
    "set": lambda: {1, 2},
    "bytes": lambda: b"bytes",
    "bytearray": lambda: bytearray(b"x"),
    "whole number as a key": lambda: {1: "a"},
    "None as a key": lambda: {None: "a"},
    "key with a line break above a bad one": lambda: {"a\nb": {"c\r\u2028d": {1: 2}}},
    "key with a surrogate above a bad value": lambda: {"\ud800": object()},
    "object": object,
    "type": lambda: int,
    "function": lambda: len,
    "complex": lambda: 1j,
    "Decimal": lambda: Decimal("1.5"),
    "datetime": lambda: datetime.now(UTC),
    "date": lambda: date(2020, 1, 1),
    "numpy array": lambda: np.zeros((2, 2)),
    "numpy.int64": lambda: np.int64(1),
    "numpy.bool": lambda: np.bool_(True),
    "generator": lambda: (number for number in range(3)),
    "dict view": lambda: {}.keys(),
    "UserDict": lambda: UserDict(a=1),
    "list that holds itself": holding_itself,
    "objects that hold each other": objects_holding_each_other,
    "one level too deep": lambda: nested(MAX_DEPTH + 1, lambda child: [child]),
    "far too deep": lambda: nested(100_000, lambda child: {"k": child}),
    "whole number of too many digits": lambda: 10**5000,
    "an object whose repr fails": lambda: _Unprintable(),
}


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentMemorySystem]:
    memory = open_at(tmp_path_factory.mktemp("refused") / "memory.db")
    yield memory
    memory.close()


@pytest.mark.parametrize("place", ["top", "in a list", "in an object", "metadata"])
@pytest.mark.parametrize("name", NOT_JSON)
def test_a_value_that_is_not_json_is_refused_in_one_line_and_not_stored(
    empty: AgentMemorySystem, name: str, place: str
) -> None:
    value = NOT_JSON[name]()
    content = {"top": value, "in a list": [1, [value]], "in an object": {"a": {"b": value}}}.get(
        place, "text"
    )
    metadata = {"a": [value]} if place == "metadata" else None
    with pytest.raises(InvalidMemory) as caught:
        empty.add("ann", content, metadata=metadata)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    message.encode()
    assert message.startswith("metadata" if place == "metadata" else "content")
    with pytest.raises(InvalidMemory):
        empty.add_many(
            [
                {"agent_id": "ann", "content": "good"},
                {"agent_id": "ann", "content": content, "metadata": metadata},
            ]
        )
    assert empty.get_memory_statistics()["total"] == 0
    assert empty.agents() == []


@pytest.mark.parametrize("name", ["set", "numpy array", "datetime", "list that holds itself"])
def test_a_query_that_is_not_json_is_refused(memory: AgentMemorySystem, name: str) -> None:
    memory.add("ann", "x")
    with pytest.raises(InvalidMemory):
        memory.retrieve_similar_states("ann", NOT_JSON[name]())


# -- leaves ---------------------------------------------------------------------------------------


def test_leaves_have_dotted_paths_and_the_elements_of_a_list_share_one() -> None:
    content = {"a": {"b": [1, {"c": "x"}]}, "d": None, "e": [[True]], "f": {}}
    assert leaves_of(content) == [("a.b", 1), ("a.b.c", "x"), ("d", None), ("e", True)]
    assert leaves_of("text") == [("", "text")]
    nested = [1, ["a", (2.5, None)], {"b": [True, "c"], "d": []}, 3]
    assert leaves_of(nested) == [
        ("", 1), ("", "a"), ("", 2.5), ("", None), ("b", True), ("b", "c"), ("", 3),
    ]  # fmt: skip
    assert leaves_of([]) == []
