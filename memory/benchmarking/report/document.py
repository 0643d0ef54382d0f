"""A page in one HTML file. It contains its style and scripts; its policy forbids loading anything else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from memory.benchmarking.report.markup import Child, Markup, asset, element, join
from memory.benchmarking.report.svg import shapes

_STYLES = ("style.css", "charts.css", "report.css")
_SCRIPTS = ("theme.js", "charts.js")


def document(
    title: str, body: Child, links: Sequence[tuple[str, str]] = (), *, assets: Sequence[str] = ()
) -> str:
    """Return the whole page.

    Args:
        title: the title of the window.
        body: what is on the page.
        links: address and text of each link in the bar at the top.
        assets: more styles and scripts, by their path relative to this folder.
    """
    style = "".join(map(asset, (*_STYLES, *(name for name in assets if name.endswith(".css")))))
    scripts = [asset(name) for name in (*_SCRIPTS, *(name for name in assets if name.endswith(".js")))]
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {_hash(style)}",
            f"script-src {' '.join(map(_hash, scripts))}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        # The policy must come before the elements that it controls. Its hashes allow only our own code.
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(style)),
        [element("script", Markup(script)) for script in scripts],
    )
    bar = element(
        "header",
        element("a", "Skip to the content", class_="skip", href="#content"),
        element("span", "membench", class_="name"),
        element("button", "Dark", type="button", class_="end", data_theme_switch=True, hidden=True),
        element("nav", [element("a", text, href=address) for address, text in links], aria_label="Parts"),
        class_="top",
    )
    main = element("main", shapes(), join(body), id="content", tabindex="-1")
    return f"<!doctype html>\n{element('html', head, element('body', bar, main), lang='en')}\n"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
