"""The settings of a memory: one class for each tier, and one class for all settings."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from memory.errors import InvalidConfig, short

Durability = Literal["process", "disk"]

HOUR = 3600.0
DAY = 24 * HOUR
MIB = 1024 * 1024


URL_VARIABLE = "AGENTMEMORY_URL"
"""The environment variable with the place of a memory for which the program names none."""
_SERVER_SCHEMES = ("postgresql://", "postgres://")
_OTHER_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://|(.*\s)?password\s*=", re.DOTALL)
"""A URL, or libpq's "host=… password=…". As the name of a file it would show a password to everybody."""


def is_server_url(place: object) -> bool:
    """Return whether a memory's place is a PostgreSQL server."""
    return str(place).startswith(_SERVER_SCHEMES)


def is_place(value: object) -> bool:
    """Return whether a memory can be there: a path, ":memory:" or the URL of a PostgreSQL server."""
    if not isinstance(value, str | os.PathLike) or str(value) == "" or "\0" in str(value):
        return False
    return is_server_url(value) or not _OTHER_ADDRESS.match(str(value))


def shown(place: object) -> str:
    """Return a memory's place for a message: a path as it is, a URL without server, user and password."""
    if not is_server_url(place):
        return "…" if _OTHER_ADDRESS.match(str(place)) else str(place)
    try:
        parts = urlsplit(str(place))
        schema = dict(parse_qsl(parts.query)).get("schema")
    except ValueError:  # such as an unclosed "["
        return "postgresql://…"
    if "@" in parts.path or parts.fragment:  # "/" or "#" in the password
        return "postgresql://…"
    return f"postgresql://…/{parts.path.lstrip('/')}" + (f"?schema={schema}" if schema else "")


def default_db_path() -> str:
    """Return the value of AGENTMEMORY_URL, or a file in the user's data folder."""
    place = os.environ.get(URL_VARIABLE)
    if place:
        return place
    from platformdirs import user_data_path

    return str(user_data_path("agentmemory") / "memory.db")


@dataclass
class StmConfig:
    """Short-term memory: full vectors, uncompressed content, cached in RAM."""

    memory_limit: int | None = 1_000
    """Memories for each agent. Above this, the least important move to im; None for no limit."""
    ttl_seconds: float | None = DAY
    """Seconds after which a stored memory moves to im; None for never."""


@dataclass
class ImConfig:
    """Intermediate memory: int8 vectors, losslessly compressed content."""

    memory_limit: int | None = 10_000
    """Memories for each agent. Above this, the least important move to ltm; None for no limit."""
    ttl_seconds: float | None = 7 * DAY
    """Seconds after which a stored memory moves to ltm; None for never."""
    codec: str = "int8"
    """How vectors are compressed: one of `memory.compression.vectors.CODEC_NAMES`."""
    codec_options: dict[str, Any] = field(default_factory=dict)
    """Arguments of that codec."""


@dataclass
class LtmConfig:
    """Long-term memory: the smallest vectors, losslessly compressed content."""

    db_path: str = field(default_factory=default_db_path)
    """The file of all three tiers, or the URL of a PostgreSQL database: docs/postgres.md. ":memory:" keeps
    the memory in RAM until the process ends. By default AGENTMEMORY_URL, else a file of the user."""
    memory_limit: int | None = None
    """Memories for each agent. Above this, the least important are evicted; None for no limit."""
    codec: str = "centred"
    codec_options: dict[str, Any] = field(default_factory=dict)
    keep_fine_vectors: bool = False
    """Also store an int8 vector, and search it instead: as exact as in im, but 256 bytes more per memory.

    This is useful with codecs of lower recall, such as "pq" or "binary"."""

    def __repr__(self) -> str:
        """Show all settings, but no password."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["db_path"] = shown(self.db_path)
        return f"LtmConfig({', '.join(f'{name}={value!r}' for name, value in values.items())})"


@dataclass
class MemoryConfig:
    """All settings of an `AgentMemorySystem`."""

    stm_config: StmConfig = field(default_factory=StmConfig)
    im_config: ImConfig = field(default_factory=ImConfig)
    ltm_config: LtmConfig = field(default_factory=LtmConfig)
    durability: Durability = "process"
    """What a finished write survives: "process": the end of the process; "disk": also a power failure."""
    cache_bytes: int = 1024 * MIB
    """The largest size of all search indexes and cached entries in RAM.

    A quarter is for entries. An index takes about 450 bytes per memory, so by default the index of a
    million memories fits. If an index does not fit, it is used from a mapped file, which does not count."""
    maintenance: Literal["background", "manual"] = "background"
    """Whether a thread maintains the tiers, or only calls of `maintain()` do."""
    maintenance_interval_seconds: float = 30.0
    """The longest time between two rounds of the maintenance thread."""
    transition_batch: int = 64
    """Memories moved in one transaction. A writer waits at most for one transaction."""
    busy_timeout_seconds: float = 30.0
    """How long a write waits for the write lock of another process before it raises StoreBusy."""
    rerank_candidates: int = 50
    """The most memories that the reranker of a search scores."""
    rerank_seconds: float | None = 2.0
    """How long a search waits for its reranker before it keeps its own order; None for no limit."""
    read_only: bool = False
    """Open an existing file without writing to it."""
    url: InitVar[str | None] = None
    """The same as `ltm_config.db_path`: MemoryConfig(url="postgresql://…")."""
    server_connections: int = 8
    """On a server: the most connections of this process. A thread needs one during a call."""
    freshness_seconds: float = 0.0
    """On a server: how long reads may use what this process knows without asking the server.

    With 0, every call sees what any host has stored before it. With 0.1, a call may miss what other hosts
    have changed in the last 0.1 seconds; the process's own changes are always seen."""

    def __post_init__(self, url: str | None) -> None:
        if url is not None:
            self.ltm_config.db_path = url

    def validate(self) -> None:
        """Raise InvalidConfig if a setting has a value that can't work."""
        for names, is_valid, use in _RULES:
            for name in names:
                value = attrgetter(name)(self)
                if not is_valid(value):
                    seen = shown(value) if isinstance(value, str) else value
                    raise InvalidConfig(f"{name} is {short(seen)}: use {use}")

    @property
    def is_in_memory(self) -> bool:
        return str(self.ltm_config.db_path) == ":memory:"

    @property
    def is_on_server(self) -> bool:
        return is_server_url(self.ltm_config.db_path)

    @property
    def shown_place(self) -> str:
        """Where the memory is, for a message, without a password."""
        return shown(self.ltm_config.db_path)

    @property
    def path(self) -> Path:
        return Path(self.ltm_config.db_path).expanduser()


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= sys.float_info.max


_RULES: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (
        ("stm_config.memory_limit", "im_config.memory_limit", "ltm_config.memory_limit"),
        lambda value: value is None or (_is_int(value) and value >= 0),
        "a whole number ≥ 0 or None",
    ),
    (
        ("stm_config.ttl_seconds", "im_config.ttl_seconds", "rerank_seconds"),
        lambda value: value is None or _is_positive(value),
        "a number above 0 or None",
    ),
    (
        ("ltm_config.db_path",),
        is_place,
        "a file's path, a URL postgresql://…, or ':memory:'",
    ),
    (("durability",), lambda value: value in ("process", "disk"), "'process' or 'disk'"),
    (("maintenance",), lambda value: value in ("background", "manual"), "'background' or 'manual'"),
    (("cache_bytes",), lambda value: _is_int(value) and value >= MIB, f"at least {MIB} (1 MiB)"),
    (
        ("transition_batch", "server_connections", "rerank_candidates"),
        lambda value: _is_int(value) and value >= 1,
        "a whole number ≥ 1",
    ),
    (
        ("freshness_seconds",),
        lambda value: _is_positive(value) or (value == 0 and not isinstance(value, bool)),
        "a number ≥ 0",
    ),
    (("read_only", "ltm_config.keep_fine_vectors"), lambda value: isinstance(value, bool), "True or False"),
    (("maintenance_interval_seconds", "busy_timeout_seconds"), _is_positive, "a number above 0"),
)
"""For each rule: the paths of the settings, a check of the value, and the hint in the error message."""
