"""The names of the output formats, apart from the code that writes them: so `--help` stays fast."""

from __future__ import annotations

COMPARISON_FORMATS = ("table", "json", "markdown", "junit", "github")
"""Of a comparison of two runs, as `compare` and `ab` print it."""
EXPORT_FORMATS = ("csv", "parquet", "json", "pytest-benchmark", "bmf")
"""Of results that are exported for other tools."""
