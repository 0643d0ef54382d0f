"""The types of a benchmark's parameters, and how a value becomes one of them.

A benchmark's signature names the types: `def benchmark_sort(sizes: Sizes = (10, 100)) -> ...`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.errors import short

Parameters = dict[str, Any]
Count = Annotated[int, Meta(ge=1)]
CountOrZero = Annotated[int, Meta(ge=0)]
Sizes = Annotated[Sequence[Count], Meta(min_length=1)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Fractions = Annotated[Sequence[Fraction], Meta(min_length=1)]
Positive = Annotated[float, Meta(gt=0)]
Names = Annotated[Sequence[str], Meta(min_length=1)]


def checked(key: str, value: Any, kind: Any) -> Any:
    """Return the value as its parameter's type, or raise an error that names the key."""
    if isinstance(value, tuple | set):
        value = list(value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as problem:
        raise InvalidBenchmarkConfig(f"{key} is {short(value)}: {str(problem).lower()}") from None
    except TypeError:
        return value  # msgspec can't check this annotation: the benchmark itself must


def parse_text(key: str, text: str, kind: Any) -> Any:
    """Return a value of the command line: JSON, or a list with commas, or plain text."""
    problems = []
    for attempt in (text, f"[{text}]", json.dumps(text), json.dumps(text.split(","))):
        try:
            return checked(key, json.loads(attempt), kind)
        except json.JSONDecodeError:
            continue
        except InvalidBenchmarkConfig as problem:
            problems.append(problem)
    # A message about a list's items helps more than the message that the value should be a list.
    raise next((problem for problem in problems if "array" not in str(problem)), problems[0])
