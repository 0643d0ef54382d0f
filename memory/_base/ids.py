"""Ids that never collide and sort by time, so that the id index grows at its end."""

from __future__ import annotations

import os
import time


def new_ids(count: int) -> list[str]:
    """`count` fresh ids: 11 hex digits of milliseconds, then 64 random bits."""
    moment = f"{time.time_ns() // 1_000_000:011x}"
    noise = os.urandom(8 * count).hex()
    return [moment + noise[at : at + 16] for at in range(0, 16 * count, 16)]
