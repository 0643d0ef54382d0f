"""Check the arguments of public methods. A wrong argument raises InvalidMemory before any change."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import numpy as np
import simsimd
from numpy.typing import NDArray

from memory._base.unit_vectors import unit
from memory.errors import InvalidMemory, short

MAX_NAME = 512
"""The most characters of an id, an agent's name or a kind."""
MAX_WHOLE = 2**63 - 1
"""The largest whole number that SQLite stores."""
_FLOAT32 = np.dtype(np.float32)


def check_name(field: str, value: object) -> str:
    """Return a name as a plain str. Refuse one that is not text, is empty or too long, or can't be encoded.

    MessagePack encodes no subclass of str, such as numpy.str_ or a str enum."""
    if type(value) is str and 0 < len(value) <= MAX_NAME and value.isascii():
        return value
    if not isinstance(value, str) or not value or len(value) > MAX_NAME:
        raise InvalidMemory(f"{field} is {short(value)}: use text of 1 to {MAX_NAME} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidMemory(
            f"{field} {short(value)} holds half a surrogate pair: use valid Unicode"
        ) from None
    return str.__str__(value)  # for a str enum, this is the text, not the name of the member


def check_names(field: str, values: Iterable[object]) -> list[str]:
    """Return names as a list. Refuse a single text, which would otherwise be split into letters."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidMemory(f"{field} is {short(values)}: use a list of texts")
    return [check_name(field, name) for name in values]


def check_flag(field: str, value: object) -> None:
    """Raise InvalidMemory for a value that is not True or False."""
    if not isinstance(value, bool):
        raise InvalidMemory(f"{field} is {short(value)}: use True or False")


def check_count(field: str, value: object) -> int:
    """Return a whole number ≥ 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidMemory(f"{field} is {short(value)}: use a whole number ≥ 0")
    return min(value, MAX_WHOLE)


def check_number(field: str, value: object) -> float:
    """Return a number that is not NaN, as a float."""
    number = _as_float(value)
    if number is None or math.isnan(number):
        raise InvalidMemory(f"{field} is {short(value)}: use a number")
    return number


def check_importance(value: object) -> float:
    """Return a finite number ≥ 0, as a float."""
    number = _as_float(value)
    if number is None or not math.isfinite(number) or number < 0:
        raise InvalidMemory(f"importance is {short(value)}: use a finite number ≥ 0")
    return number


def check_step(field: str, value: object) -> int | None:
    """Return a whole number of 64 bits, or None."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_WHOLE:
        raise InvalidMemory(f"{field} is {short(value)}: use a whole number of 64 bits or None")
    return int(value)


def check_step_bound(field: str, value: object) -> int:
    """Return a bound of a range of steps. Clip it to the smallest and the largest possible step."""
    number = check_number(field, value)
    if math.isfinite(number) and isinstance(value, int):
        number = value
    return int(min(max(number, -MAX_WHOLE), MAX_WHOLE))


def check_timestamp(field: str, value: object) -> float:
    """Return a time as seconds since 1970."""
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, datetime):
        try:
            return value.timestamp()
        except (ValueError, OverflowError, OSError):
            raise InvalidMemory(
                f"{field} is {short(value)}: use a time that this machine can represent"
            ) from None
    number = _as_float(value)
    if number is None or not math.isfinite(number):
        raise InvalidMemory(f"{field} is {short(value)}: use seconds since 1970 or a datetime")
    return number


def check_vector(value: Any, dimensions: int) -> NDArray[np.float32]:
    """Return a vector of the right size, scaled to length 1."""
    if (
        type(value) is np.ndarray
        and value.dtype is _FLOAT32
        and value.shape == (dimensions,)
        and value.flags.c_contiguous
        and abs(_square(value) - 1) < 1e-6
    ):
        return value  # the usual case in a search by vector: a vector that the embedder returned
    try:
        given = np.asarray(value)
    except (TypeError, ValueError):
        given = np.asarray(None)
    if given.dtype.kind not in "fiu":
        raise InvalidMemory(f"vector is {short(value)}: use {dimensions} numbers")
    if given.shape != (dimensions,):
        raise InvalidMemory(f"vector has shape {given.shape}: this memory uses ({dimensions},)")
    if given.dtype != np.float32:
        given = given.astype(np.float64)
    elif given.flags.c_contiguous:
        square = _square(given)
        if 1e-12 < square < 1e12:
            return np.asarray(given / np.float32(math.sqrt(square)))
    peak = max(float(given.max()), -float(given.min()))  # not finite if an element is not
    if not math.isfinite(peak):
        raise InvalidMemory("vector holds NaN or infinity: use finite numbers")
    if peak > 0 and not 1e-9 < peak < 1e9:
        given = given / peak  # the squares of very large or small numbers would overflow or underflow
    return unit(given.astype(np.float32, copy=False))


def _square(vector: NDArray[np.float32]) -> float:
    product: Any = simsimd.inner(vector, vector)
    return float(product)


def _as_float(value: object) -> float | None:
    """Return a number as a float, infinity if it is too large for one, None for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
