"""Any JSON content as one text, for systems that store texts only."""

from __future__ import annotations

import json
from typing import Any


def to_text(content: Any) -> str:
    """Return a text as it is and a state as JSON, so that `from_text` returns the same content.

    A text that is valid JSON itself, such as "12", is quoted: it must come back as a text. So is one with
    a NUL, which PostgreSQL does not store.
    """
    if isinstance(content, str) and "\0" not in content and not _is_json(content):
        return content
    return json.dumps(content, ensure_ascii=False)


def from_text(text: str) -> Any:
    """Return the content that `to_text` turned into this text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
