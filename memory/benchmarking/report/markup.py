"""Build HTML. Every text is escaped, except HTML that this module built.

element("td", "<b>", class_="n")     returns <td class="n">&lt;b&gt;</td>
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path

_VOID_TAGS = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Markup(str):
    """Text that is already HTML. Only this module and our own constants may create it."""

    __slots__ = ()


Child = str | Iterable["Child"] | None


def element(tag: str, /, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """Return an element. The attribute `class_` becomes `class`, and `data_live` becomes `data-live`.

    True writes an attribute without a value; False and None leave it out.
    """
    shown = "".join(
        f" {_name(key)}" if value is True else f' {_name(key)}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _VOID_TAGS:
        return Markup(f"<{tag}{shown}>")
    return Markup(f"<{tag}{shown}>{join(children)}</{tag}>")


def with_code(text: str) -> Markup:
    """Return a text as HTML. Text between backticks becomes a `code` element."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # an odd number of backticks: no code
        return join(text)
    return join([element("code", piece) if place % 2 else piece for place, piece in enumerate(pieces)])


def join(children: Child) -> Markup:
    """Join pieces of HTML; plain texts are escaped."""
    if children is None:
        return Markup()
    if isinstance(children, Markup):
        return children
    if isinstance(children, str):
        return Markup(escape(children))
    return Markup("".join(map(join, children)))


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


@cache
def asset(name: str) -> str:
    """Read a stylesheet or script, by its path relative to this folder."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
