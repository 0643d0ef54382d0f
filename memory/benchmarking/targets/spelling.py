"""How a target is written after `--target`: NAME, NAME@VERSION, NAME=ADDRESS or `file.py:Class`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from memory.benchmarking.errors import InvalidBenchmarkConfig

_NAMED = re.compile(r"(?P<name>[\w.-]+)(?:@(?P<version>[\w.+!-]+))?(?:=(?P<address>.+))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Spelling:
    """The parts of a target as written after `--target`."""

    name: str
    """The name of a target, or its location: `file.py:Class` or `package.module:Class`."""
    version: str = ""
    """The version of the system that is asked for; empty for any."""
    address: str = ""
    """Where a server is, or a file that describes it; empty if the benchmark starts the system."""

    @property
    def environment(self) -> str:
        """The name of the environment: NAME or NAME@VERSION."""
        return f"{self.name}@{self.version}" if self.version else self.name


def parse_target(text: str) -> Spelling:
    """Split a target as written after `--target` into its parts.

    A password in an address is refused: results record the address.
    """
    match = _NAMED.fullmatch(text)
    if match is None or match["name"].endswith(".py"):
        return Spelling(text)
    address = match["address"] or ""
    try:
        password = "://" in address and _has_password(address)
    except ValueError as problem:
        raise InvalidBenchmarkConfig(
            f"--target {match['name']}=…: the address is wrong: {problem}"
        ) from None
    if password:
        raise InvalidBenchmarkConfig(
            f"--target {match['name']}=…: leave the password out of the address, "
            "because results record it; use PGPASSWORD or a password file"
        )
    return Spelling(match["name"], match["version"] or "", address)


def _has_password(url: str) -> bool:
    """Return whether a URL has a password before its host, or as a parameter, which libpq reads too."""
    parts = urlsplit(url)
    return bool(parts.password) or any(
        "password" in name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)
    )
