"""Check, encode and decode content: any JSON value, returned exactly as it was stored.

A body holds the content and the metadata of one row. Its format is MessagePack. JSON is used for values
that MessagePack can't hold: whole numbers of more than 64 bits, lone surrogates. It is also used for bodies
with decimal numbers that are compressed. The first byte shows the format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec

from memory._base.native import core
from memory.errors import InvalidMemory, short

Scalar: TypeAlias = str | int | float | bool | None
Leaves: TypeAlias = list[tuple[str, Scalar]]
"""The scalars of a value with their dotted paths. The elements of a list have the list's path."""

MAX_DEPTH = 200
"""The most levels of nested lists and objects. Deeper content is refused."""

_SCALARS = frozenset((str, int, float, bool, type(None)))
_JSON_START = ord("[")
_encode = msgspec.msgpack.Encoder().encode
_encode_sorted = msgspec.msgpack.Encoder(order="sorted").encode
_decode = msgspec.msgpack.Decoder(tuple[Any, dict[str, Any]]).decode
_decode_any = msgspec.msgpack.Decoder().decode
_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder(tuple[Any, dict[str, Any]]).decode
_PAIR = 0x92  # MessagePack for "two values follow": the first byte of a body
_LEAST_DECIMALS = 4
"""The fewest decimal numbers for which a body is compressed as JSON."""
_MOST_GROWTH = 1.25
"""A JSON text that is longer than MessagePack by more has numbers of many digits, which do not compress."""
# NaN and infinity are encoded as 0xcb and a double with all exponent bits set. A string may contain the
# same bytes by chance, so a match must be checked.
_MAYBE_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


def leaves_of(value: Any, what: str = "content") -> Leaves:
    """Return all scalars of a JSON value. Raise InvalidMemory if the value is not JSON.

    `what` names the value in the error message.
    """
    if type(value) is str:
        return [("", value)]
    if core is not None:
        found = core.leaves_of(value, MAX_DEPTH)
        if found is not None:
            return found
    return leaves_of_pure(value, what)


def leaves_of_pure(value: Any, what: str = "content") -> Leaves:
    """Do what `leaves_of` does, without the compiled core. It also judges what the core leaves to it."""
    leaves: Leaves = []
    stack: list[tuple[str, Any, int]] = [("", value, 0)]
    while stack:
        path, node, depth = stack.pop()
        if type(node) in _SCALARS or isinstance(node, (str, int, float)):
            leaves.append((path, node))
            continue
        if depth >= MAX_DEPTH:
            raise InvalidMemory(
                f"{what} is nested deeper than {MAX_DEPTH} levels (or holds itself): flatten it"
            )
        if isinstance(node, dict):
            prefix = path + "." if path else ""
            for key, child in node.items():
                if not isinstance(key, str):
                    raise InvalidMemory(
                        f"{what} has the key {short(key)} at {_place(path)}: JSON keys are text"
                    )
                stack.append((prefix + key, child, depth + 1))
        elif isinstance(node, list | tuple):
            if _SCALARS.issuperset(map(type, node)):
                leaves.extend([(path, child) for child in reversed(node)])
            else:
                stack.extend([(path, child, depth + 1) for child in node])
        else:
            raise InvalidMemory(
                f"{what} holds a {type(node).__name__} at {_place(path)}: "
                "only JSON values (text, numbers, true/false, null, lists, objects) can be stored"
            )
    leaves.reverse()
    return leaves


def encode_body(content: Any, metadata: Mapping[str, Any]) -> bytes:
    """Encode content and metadata as a body. The caller must first check both with `leaves_of`."""
    try:
        body = _encode((content, metadata))
    except (OverflowError, UnicodeEncodeError):
        return _encode_as_json(content, metadata)
    except TypeError:  # a subclass of a JSON type, such as numpy.float64 or an OrderedDict
        return encode_body(_plain(content), _plain(metadata))
    if _MAYBE_NOT_FINITE.search(body):
        _refuse_not_finite(content, "content")
        _refuse_not_finite(metadata, "metadata")
    return body


def encode_metadata(metadata: Mapping[str, Any]) -> bytes | None:
    """Return the end of a body that has this metadata; None if only `encode_body` can encode it."""
    try:
        encoded = _encode(metadata)
    except (OverflowError, UnicodeEncodeError, TypeError):
        return None
    if _MAYBE_NOT_FINITE.search(encoded):
        _refuse_not_finite(metadata, "metadata")
    return encoded


def decode_body(body: bytes) -> tuple[Any, dict[str, Any]]:
    """Return the content and the metadata of a body."""
    if body[0] != _JSON_START:
        return _decode(body)
    try:
        return _decode_json(body)
    except ValueError:  # a lone surrogate
        content, metadata = json.loads(body.decode("utf-8", "surrogatepass"))
        return content, metadata


def compressible_body(body: bytes) -> bytes:
    """Return the same content and metadata in the format that compresses better.

    MessagePack stores a decimal number in 8 bytes that hardly compress. In JSON it has the digits that it
    was rounded to. Compressed states were 21 to 27 % smaller, and decoding them took no longer."""
    if body[0] != _PAIR or body.count(b"\xcb") < _LEAST_DECIMALS or _MAYBE_NOT_FINITE.search(body):
        return body
    text = _encode_json(_decode_any(body))
    return text if len(text) <= _MOST_GROWTH * len(body) else body


def digest_of(content: Any) -> int:
    """Return a 63-bit hash of the content that does not depend on the order of keys."""
    try:
        encoded = _encode_sorted(content)
    except (OverflowError, UnicodeEncodeError):
        encoded = to_json_bytes(content, sort_keys=True)
    except TypeError:
        return digest_of(_plain(content))
    return hash_of(encoded)


def hash_of(data: str | bytes) -> int:
    """Return a 63-bit hash that is the same in every process."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") >> 1


def to_json_bytes(value: Any, *, sort_keys: bool = False) -> bytes:
    """Encode as JSON without escapes. Escapes would join two lone surrogates into one character."""
    text = json.dumps(
        value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys
    )
    return text.encode("utf-8", "surrogatepass")


def _encode_as_json(content: Any, metadata: Mapping[str, Any]) -> bytes:
    _refuse_not_finite(content, "content")
    _refuse_not_finite(metadata, "metadata")
    for what, value in (("content", content), ("metadata", metadata)):
        try:
            to_json_bytes(value)
        except ValueError as problem:
            raise InvalidMemory(f"{what} is not JSON: {problem}") from None
    return to_json_bytes([content, metadata])


def _plain(value: Any) -> Any:
    """Convert subclasses of JSON types, such as numpy.float64, to Python's own types."""
    if isinstance(value, str):
        return str.__str__(value)  # for a str enum, this is the text, not the name of the member
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {str.__str__(key): _plain(child) for key, child in value.items()}
    return [_plain(child) for child in value]


def _refuse_not_finite(value: Any, what: str) -> None:
    for path, leaf in leaves_of(value, what):
        if isinstance(leaf, float) and (leaf != leaf or leaf in (float("inf"), float("-inf"))):
            raise InvalidMemory(f"{what} holds {leaf!r} at {_place(path)}: JSON has no such number")


def _place(path: str) -> str:
    return short(path) if path else "its top level"
