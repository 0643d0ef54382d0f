"""All output formats of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from memory.benchmarking.model.files import encode_json
from memory.benchmarking.verdicts.as_github import as_github
from memory.benchmarking.verdicts.as_junit import as_junit
from memory.benchmarking.verdicts.as_markdown import as_markdown
from memory.benchmarking.verdicts.as_table import as_table
from memory.benchmarking.verdicts.records import Comparison


def render(
    comparison: Comparison,
    format: str = "table",
    *,
    show_all: bool = False,
    strict: bool = False,
    width: int | None = None,
    heading: Callable[[str], str] = str,
) -> str:
    """Return the comparison as text that ends with a line break.

    `format` is one of FORMATS. The other options are those of the formats: see `as_table`.
    """
    if format == "json":
        return as_json(comparison, strict=strict)
    if format == "markdown":
        return as_markdown(comparison, show_all=show_all, strict=strict)
    if format == "junit":
        return as_junit(comparison, strict=strict)
    if format == "github":
        return as_github(comparison, strict=strict)
    return as_table(comparison, show_all=show_all, strict=strict, width=width, heading=heading)


def as_json(comparison: Comparison, *, strict: bool = False) -> str:
    """Return the exit code and the comparison as JSON; `records.decode` reads it."""
    document: dict[str, Any] = {"exit_code": comparison.exit_code(strict)}
    return encode_json(document | msgspec.to_builtins(comparison)).decode()
