"""Ids for memories. Ids sort by time, so new ids are added at the end of the id index in the file."""

from __future__ import annotations

import os
import time

from memory._base.randomness import random_64


def new_ids(count: int) -> list[str]:
    """Return `count` new ids: 11 hex digits for the milliseconds, then 64 random bits."""
    now = f"{time.time_ns() // 1_000_000:011x}"
    noise = os.urandom(8 * count).hex()
    return [now + noise[at : at + 16] for at in range(0, 16 * count, 16)]


def new_id() -> str:
    """Return one new id."""
    return f"{time.time_ns() // 1_000_000:011x}{random_64():016x}"
