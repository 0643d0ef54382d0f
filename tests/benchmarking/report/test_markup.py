"""HTML is built correctly, and every text is escaped."""

from __future__ import annotations

from html.parser import HTMLParser
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.benchmarking.report.markup import Markup, asset, element, join, with_code


class Seen(HTMLParser):
    """Collects the elements, attributes and texts of a page, as a browser parses them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


HOSTILE = st.text() | st.sampled_from(
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onload='x",
        "</td>",
        "&lt;",
        "]]>",
        "<!--",
    ]
)


@given(HOSTILE, HOSTILE)
def test_texts_and_attributes_are_escaped(text: str, value: str) -> None:
    seen = Seen(element("td", text, title=value))
    assert seen.tags == [("td", [("title", value)])]
    assert seen.text == text


def test_elements_nest_and_are_escaped_once() -> None:
    inner = element("b", "a < b")
    assert element("p", "x & ", [inner, None, " y"]) == "<p>x &amp; <b>a &lt; b</b> y</p>"
    assert join(["<", Markup("<br>")]) == "&lt;<br>"


def test_commands_between_backticks_are_code() -> None:
    assert with_code("use `a < b` now") == "use <code>a &lt; b</code> now"
    assert with_code("one ` alone") == "one ` alone"


def test_attributes_have_the_names_of_html() -> None:
    made = element(
        "input", class_="wide", data_live="rows", aria_label="x", disabled=True, hidden=False, id=None
    )
    assert made == '<input class="wide" data-live="rows" aria-label="x" disabled>'


@pytest.mark.parametrize("name", ["style.css", "theme.js"])
def test_the_assets_are_in_the_package_and_can_be_inlined(name: str) -> None:
    text = asset(name)
    assert text == files("memory.benchmarking.report").joinpath(name).read_text(encoding="utf-8")
    assert "</" not in text  # it would end the element around it
    assert "http" not in text
