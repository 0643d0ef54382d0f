"""HTML that can't be broken by what it shows: every text is escaped, unless it was made here.

element("td", name, class_="n")     <td class="n">&lt;b&gt;</td> for a name that holds markup
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path

_WITHOUT_END = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Markup(str):
    """Text that is HTML already. Only this module and constants of ours make one."""

    __slots__ = ()


Child = str | Iterable["Child"] | None


def element(tag: str, /, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """An element. `class_` is `class`, `data_live` is `data-live`.

    An attribute that is True stands without a value; one that is False or None is left out.
    """
    shown = "".join(
        f" {_name(key)}" if value is True else f' {_name(key)}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _WITHOUT_END:
        return Markup(f"<{tag}{shown}>")
    return Markup(f"<{tag}{shown}>{join(children)}</{tag}>")


def with_code(text: str) -> Markup:
    """A sentence whose `commands` stand between backticks."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # one backtick too many: it is a text like any other
        return join(text)
    return join([element("code", piece) if place % 2 else piece for place, piece in enumerate(pieces)])


def join(children: Child) -> Markup:
    """Several pieces, one after the other; what is no Markup is text."""
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
    """A file of this folder: the stylesheet or a script."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
