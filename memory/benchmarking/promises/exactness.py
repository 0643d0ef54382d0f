"""What is read back is what was stored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from memory.benchmarking.promises.model import Outcome, check, judge, not_promised, promise
from memory.benchmarking.promises.trial import ANN, Trial
from memory.benchmarking.targets.base import Item

_JSON: Mapping[str, Any] = {
    "an object": {"a": 1, "b": [1, 2, {"c": None}], "d": {"e": {"f": True}}},
    "an empty object": {},
    "an empty list": {"list": []},
    "a list": [1, "two", 3.5, None, False],
    "keys with dots, quotes and spaces": {
        "a.b": 1,
        "$set": 2,
        "a'b": 3,
        'a"b': 4,
        "": 5,
        " ": 6,
        "日本": 7,
    },
    "true and 1": [True, 1, 1.0, "1", "true", None, "null"],
    "nested": {"deep": [[[[[["bottom"]]]]]]},
    "looks like JSON": '{"not": "parsed"}',
    "looks like a list": "[1, 2]",
    "looks like a number": "0012",
    "looks like null": "null",
}
_NUMBERS: Mapping[str, Any] = {
    "zero and minus zero": [0, 0.0, -0.0],
    "large whole numbers": [2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)],
    "very small and large": [5e-324, 1.7976931348623157e308, 1e-7, 0.1, 1 / 3, math.pi],
    "beyond 64 bits": {"n": 2**64 + 1},
}
_TEXTS: Mapping[str, str] = {
    "accents and scripts": "größe naïve Ελληνικά русский עברית العربية 日本語 한국어 ไทย",
    "emoji with joiners": "👩‍👩‍👧‍👦 🏳️‍🌈 🎈🇯🇵",
    "combining and composed": "é e\u0301 Å A\u030a ﬁ",
    "control characters": "tab\tnewline\nreturn\r\x01\x1f\x7f end",
    "a zero character": "before\x00after",
    "line separators": "a\u2028b\u2029c\u0085d",
    "direction marks": "a\u202eb\u200fc\u2066d",
    "spaces at the ends": "  leading and trailing  \n",
    "quotes and backslashes": "' '' \" \\ \\\\ ` ; -- /* */ %s %d {} {0} ${x} <b>&amp;</b>",
    "beyond the basic plane": "𝕳𝖊𝖑𝖑𝖔 𐍈 🜁 𠜎",
    "the last code points": "\ufffd \ufffe \uffff \U0010ffff",
}


def _equal(one: Any, other: Any) -> bool:
    """Compare with types: True is not 1, 1 is not 1.0, and -0.0 is not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


def _read_back(trial: Trial, contents: Mapping[str, Any]) -> Outcome:
    if not (trial.capabilities.get and trial.capabilities.exact):
        return not_promised("the system rewrites contents, or can't read by id")
    folder = trial.folder()
    target = trial.open(folder)
    ids: dict[str, str] = {}
    refused: list[str] = []
    for name, content in contents.items():
        try:
            ids[name] = _store(target, content)
        except Exception:
            refused.append(name)
    changed = _changed(target, ids, contents)
    if trial.capabilities.persistence:
        trial.close(target)
        changed |= _changed(trial.open(folder), ids, contents)
    evidence = f"{len(ids)} contents: {len(changed)} not equal when read back, {len(refused)} refused"
    if changed:
        name, got = next(iter(changed.items()))
        evidence += f" (first: {name}, {_short(contents[name])} became {_short(got)})"
    if refused:
        evidence += f"; refused: {', '.join(refused[:4])}"
    first = next(iter(changed), "")
    return judge(
        not changed,
        evidence,
        {"contents": len(ids), "changed": len(changed), "refused": len(refused)},
        (
            f"content = {_as_code(contents[first])}",
            'id_ = target.add_one(Item("ann", content))',
            'target.get("ann", [id_])   # expected: [content]',
        )
        if first
        else (),
    )


def _store(target: Any, content: Any) -> str:
    """Store a content and return its id. A write that is lost at once is tried again: others find that."""
    for _ in range(3):
        id_ = str(target.add_one(Item(ANN, content)))
        try:
            if target.get(ANN, [id_]) != [None]:
                break
        except Exception:
            break  # it is there, but can't be read: `_changed` reports it
    return id_


def _changed(target: Any, ids: Mapping[str, str], contents: Mapping[str, Any]) -> dict[str, Any]:
    changed = {}
    for name, id_ in ids.items():
        try:
            got = target.get(ANN, [id_])[0]
        except Exception as problem:
            got = f"{type(problem).__name__}: {problem}"
        if not _equal(got, contents[name]):
            changed[name] = got
    return changed


def _short(value: Any, most: int = 60) -> str:
    """Return the start of a value. Characters that look alike, or like nothing, are escaped."""
    text = ascii(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _as_code(value: Any) -> str:
    """Return a content as code; a long text as what it repeats."""
    if isinstance(value, str) and len(value) > 200:
        for width in (1, 8):
            times = -(-len(value) // width)
            if (value[:width] * times)[: len(value)] == value:
                return f"({value[:width]!a} * {times})[:{len(value)}]"
    return _short(value, 400)


with promise("contents are exact"):

    @check()
    def any_json_is_read_back(trial: Trial) -> Outcome:
        """Objects, lists, keys with syntax, and texts that look like JSON."""
        return _read_back(trial, _JSON)

    @check()
    def any_number_is_read_back(trial: Trial) -> Outcome:
        """Numbers at the edges of their types."""
        return _read_back(trial, _NUMBERS)

    @check()
    def any_text_is_read_back(trial: Trial) -> Outcome:
        """Unicode from all planes, control characters, quotes."""
        return _read_back(trial, _TEXTS)

    @check()
    def long_and_empty_texts_are_read_back(trial: Trial) -> Outcome:
        """A text of a million characters, many lines, and the empty text."""
        return _read_back(trial, _lengths(trial))


def _lengths(trial: Trial) -> dict[str, str]:
    lines: Sequence[str] = [trial.text() for _ in range(2000)]
    return {
        "empty": "",
        "one space": " ",
        "one character": "x",
        "70,000 characters": ("lantern " * 8750)[:70_000],
        "2,000 lines": "\n".join(lines),
        "a million characters": ("harbour " * 125_000)[:1_000_000],
        "one long word": "a" * 100_000,
    }
