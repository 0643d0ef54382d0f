"""What a check works with: the target, folders, sizes by profile, other processes."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from memory.benchmarking.promises.actor import Actor
from memory.benchmarking.targets import load_target, make_target
from memory.benchmarking.targets.base import Capabilities, Item, Settings, Target

_T = TypeVar("_T")
ANN, BOB = "ann", "bob"
_BUDGET = {"quick": 6.0, "standard": 60.0, "full": 1800.0}
"""Seconds after which a check repeats nothing that it has tried a few times. In `full` all are repeated."""
_WORDS = (
    "harbour", "lantern", "bridge", "market", "garden", "window", "river", "castle",
    "winter", "summer", "letter", "engine", "orchard", "violin", "mountain", "kitchen",
    "ticket", "doctor", "pencil", "station", "island", "candle", "blanket", "mirror",
    "ladder", "basket", "anchor", "forest",
)  # fmt: skip


class Trial:
    """One run of one check, in a process and a folder of its own.

    Args:
        target: as `--target` takes it.
        scratch: an empty folder.
        profile: "quick", "standard" or "full"; see `size`.
        seed: for texts, orders and moments.
    """

    def __init__(self, target: str, scratch: Path, profile: str, seed: int) -> None:
        self.target_name = target
        self.scratch = scratch
        self.profile = profile
        self.random = random.Random(f"promises {seed}")
        self._deadline = time.monotonic() + _BUDGET[profile]
        self._opened: list[Target] = []

    @property
    def capabilities(self) -> Capabilities:
        return load_target(self.target_name).capabilities

    def size(self, quick: _T, standard: _T, full: _T) -> _T:
        """Return the size for the profile of this run."""
        return {"quick": quick, "standard": standard, "full": full}[self.profile]

    def has_time(self) -> bool:
        """Return whether there is time to repeat a trial. A slow system gets fewer of them, never none."""
        return time.monotonic() < self._deadline

    def folder(self) -> Path:
        """Make an empty folder for a store."""
        return Path(tempfile.mkdtemp(prefix="store-", dir=self.scratch))

    def open(self, folder: Path | None = None, settings: Settings | None = None) -> Target:
        """Open the target in this process; it is closed when the check ends."""
        target = make_target(self.target_name)
        folder = self.folder() if folder is None else folder
        if settings is None:
            target.open(folder)
        else:
            target.open(folder, settings)
        self._opened.append(target)
        return target

    def close(self, target: Target) -> None:
        """Close a target that `open` returned."""
        self._opened.remove(target)
        target.close()

    def actor(self, folder: Path, command: Sequence[str] = ()) -> Actor:
        """Start another process for the store in a folder; it waits for commands."""
        return Actor(self.target_name, folder, command)

    def end(self) -> None:
        """Close what the check has left open."""
        while self._opened:
            self._opened.pop().close()

    def text(self, length: int = 8) -> str:
        """Return a text with a token that no other text has, so that it can be looked for."""
        words = self.random.choices(_WORDS, k=length)
        return f"{' '.join(words)} {self.token()}"

    def token(self) -> str:
        return f"{self.random.getrandbits(80):020x}"

    def store(self, target: Target, agent: str, texts: Sequence[object]) -> list[str]:
        """Store texts in batches of 500; return their ids when a search can find them."""
        ids: list[str] = []
        for start in range(0, len(texts), 500):
            ids += target.add([Item(agent, text) for text in texts[start : start + 500]])
        target.flush()
        return ids
