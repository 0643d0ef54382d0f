"""What can be set: one part a tier, and what concerns the whole."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from memory.errors import InvalidConfig, short

Durability = Literal["process", "disk"]

HOUR = 3600.0
DAY = 24 * HOUR
MIB = 1024 * 1024


def default_db_path() -> str:
    """A file in the user's data folder, so that the plain constructor just works."""
    from platformdirs import user_data_path

    return str(user_data_path("agentmemory") / "memory.db")


@dataclass
class StmConfig:
    """Short-term: full vectors, raw content, served from the process's own memory."""

    memory_limit: int | None = 1_000
    """Memories an agent keeps here before the least important go to im; None for no limit."""
    ttl_seconds: float | None = DAY
    """How long after it was stored a memory goes to im; None for never."""


@dataclass
class ImConfig:
    """Intermediate: int8 vectors, content compressed without loss."""

    memory_limit: int | None = 10_000
    ttl_seconds: float | None = 7 * DAY
    """How long after it was stored a memory goes to ltm; None for never."""
    codec: str = "int8"
    codec_options: dict[str, Any] = field(default_factory=dict)


@dataclass
class LtmConfig:
    """Long-term: the smallest vectors, content compressed without loss, and the durable file."""

    db_path: str = field(default_factory=default_db_path)
    """The file that holds all three tiers; ":memory:" for a memory that ends with the process."""
    memory_limit: int | None = None
    """Only if set does the memory forget: the least important first, and it counts them."""
    codec: str = "pq"
    codec_options: dict[str, Any] = field(default_factory=dict)
    keep_fine_vectors: bool = True
    """Keep an int8 vector beside the small code, so that search loses nothing; costs 256 bytes."""


@dataclass
class MemoryConfig:
    """All settings of an `AgentMemorySystem`."""

    stm_config: StmConfig = field(default_factory=StmConfig)
    im_config: ImConfig = field(default_factory=ImConfig)
    ltm_config: LtmConfig = field(default_factory=LtmConfig)
    durability: Durability = "process"
    """"process" survives the end of the process by any cause; "disk" also that of the machine."""
    cache_bytes: int = 1024 * MIB
    """Upper bound for the search indexes and stm records held in RAM, over all agents.

    A quarter of it is for records. An index takes some 450 bytes a memory, so that by default an agent
    with a million memories is searched in RAM; where it does not fit, parts are read anew each time."""
    maintenance: Literal["background", "manual"] = "background"
    """Whether transitions run by themselves or only when `maintain()` is called."""
    maintenance_interval_seconds: float = 30.0
    """How often the background looks for memories whose time is up."""
    transition_batch: int = 64
    """Memories moved in one transaction: bounds how long a writer can wait for the mover."""
    busy_timeout_seconds: float = 30.0
    """How long a write waits for another process's write."""
    read_only: bool = False

    def validate(self) -> None:
        """Raise InvalidConfig, naming the field and its value, if a value can't work."""
        for name, part in (
            ("stm_config", self.stm_config),
            ("im_config", self.im_config),
            ("ltm_config", self.ltm_config),
        ):
            _require(
                part.memory_limit is None or (_is_int(part.memory_limit) and part.memory_limit >= 0),
                f"{name}.memory_limit is {short(part.memory_limit)}: use a whole number ≥ 0 or None",
            )
        for name, ttl in (
            ("stm_config", self.stm_config.ttl_seconds),
            ("im_config", self.im_config.ttl_seconds),
        ):
            _require(
                ttl is None or _positive(ttl),
                f"{name}.ttl_seconds is {short(ttl)}: use a number above 0 or None",
            )
        path = self.ltm_config.db_path
        _require(
            isinstance(path, str | os.PathLike) and str(path) != "",
            f"ltm_config.db_path is {short(path)}: use a file's path, or ':memory:'",
        )
        _require(
            self.durability in ("process", "disk"),
            f"durability is {short(self.durability)}: use 'process' or 'disk'",
        )
        _require(
            self.maintenance in ("background", "manual"),
            f"maintenance is {short(self.maintenance)}: use 'background' or 'manual'",
        )
        _require(
            _is_int(self.cache_bytes) and self.cache_bytes >= MIB,
            f"cache_bytes is {short(self.cache_bytes)}: use at least {MIB} (1 MiB)",
        )
        _require(
            _is_int(self.transition_batch) and self.transition_batch >= 1,
            f"transition_batch is {short(self.transition_batch)}: use a whole number ≥ 1",
        )
        for name, flag in (
            ("read_only", self.read_only),
            ("ltm_config.keep_fine_vectors", self.ltm_config.keep_fine_vectors),
        ):
            _require(isinstance(flag, bool), f"{name} is {short(flag)}: use True or False")
        for name in ("maintenance_interval_seconds", "busy_timeout_seconds"):
            value = getattr(self, name)
            _require(_positive(value), f"{name} is {short(value)}: use a number above 0")

    @property
    def is_in_memory(self) -> bool:
        return str(self.ltm_config.db_path) == ":memory:"

    @property
    def path(self) -> Path:
        return Path(self.ltm_config.db_path).expanduser()


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= sys.float_info.max


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidConfig(message)
