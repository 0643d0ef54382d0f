"""The one interface through which the benchmark reaches a memory system.

Everything a target can't do is said in its `capabilities`, and reported as `n/a`: never as zero, and
never left out without a word.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from memory.benchmarking.errors import NotSupported

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Item:
    """One memory to store: a state (any JSON value) or a text."""

    agent_id: str
    content: Any
    step: int | None = None
    importance: float = 1.0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    kind: str | None = None
    timestamp: float | None = None
    """When it happened, where that is not now."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Everything a target knows of one memory, for comparing it with what was given."""

    id: str
    content: Any
    place: str
    step: int | None = None
    kind: str | None = None
    importance: float | None = None


@dataclass(frozen=True)
class VectorForm:
    """One form in which the vectors of some memories are kept."""

    name: str
    bytes_per_vector: float
    vectors: NDArray[np.float32]
    """As they are read back from it, one row a memory."""


@dataclass(frozen=True)
class Kept:
    """What a target really keeps of some memories."""

    content_bytes: int
    """Of all their contents together, without keys and indexes."""
    forms: tuple[VectorForm, ...]
    """The smallest first. Where there are several, each is kept: their bytes add up."""


@dataclass(frozen=True)
class Coding:
    """How one place writes contents and vectors and reads them back, by itself and without storing.

    What the encoders give is handed to the decoders as it is.
    """

    encode_content: Callable[[Any], Any]
    decode_content: Callable[[Any], Any]
    encode_vectors: Callable[[NDArray[np.float32]], Any]
    decode_vectors: Callable[[Any], NDArray[np.float32]]


class Codec(Protocol):
    """A way to write vectors that the users of a system can pick."""

    @property
    def bytes_per_vector(self) -> int: ...

    def fit(self, vectors: NDArray[np.float32], /) -> object:
        """Learn from vectors; where there is something learnt and it can, it learns on."""

    def encode(self, vectors: NDArray[np.float32], /) -> NDArray[np.uint8]: ...

    def decode(self, codes: NDArray[np.uint8], /) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class Settings:
    """How a benchmark wants the target to be; only one with transitions is asked for this."""

    limits: Mapping[str, int] = field(default_factory=dict)
    """Memories an agent may have in a tier; without one a tier takes everything."""
    ages: Mapping[str, float] = field(default_factory=dict)
    """Seconds after which a memory leaves a tier; without one it stays."""
    clock: Any = None
    """An object with `now()`, moved by the benchmark; the system's own clock otherwise."""
    background: bool = False
    """Whether transitions run by themselves, beside the operations that are measured."""


@dataclass(frozen=True, slots=True)
class Found:
    """One answer of a search; `content` as it was stored."""

    id: str
    score: float
    content: Any


@dataclass(frozen=True)
class Capabilities:
    """What a system can do beyond storing, reading and deleting by id."""

    tiers: tuple[str, ...] = ()
    """Tiers that can be written to by name; empty for a system without tiers."""
    search: bool = True
    """Finds memories by what they are about."""
    update: bool = True
    persistence: bool = True
    """What was acknowledged is there after the process has ended."""
    transitions: bool = False
    """Moves memories between its tiers."""
    compression: bool = False
    """Has several codecs for vectors to pick from."""
    forms: bool = False
    """Shows how it keeps contents and vectors (see `kept` and `coding`)."""
    metadata_filters: bool = False
    threads: bool = False
    """Threads may share one open store."""
    processes: bool = False
    """Processes may have the same folder open, and see at once what another one has stored."""
    vector_queries: bool = False
    """Can be searched by a vector of the common embedder, without embedding anything."""

    @property
    def places(self) -> tuple[str, ...]:
        """Where a memory can be put: each tier, or the whole store where there are none."""
        return self.tiers or (WHOLE,)


WHOLE = "store"
"""The one place of a system without tiers."""


class Target(ABC):
    """A memory system under test. One object is one open store in one folder."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities] = Capabilities()

    @abstractmethod
    def open(self, folder: Path, settings: Settings | None = None) -> None:
        """Start with the store in this folder; empty at first, the same data when opened again."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; what was acknowledged stays in the folder."""

    @abstractmethod
    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        """Store all of them as one batch; their ids. Acknowledged means: as durable as it gets."""

    @abstractmethod
    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        """The contents by id, in that order; None for what is not there."""

    @abstractmethod
    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        """The `k` memories of this agent (in one place, or in all) that fit best, the best first."""

    @abstractmethod
    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        """Remove memories for good; how many there were."""

    @abstractmethod
    def delete_all(self, agent_id: str) -> int:
        """Remove everything of one agent; how many there were."""

    @abstractmethod
    def count(self) -> dict[str, int]:
        """How many memories are in each place."""

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        """Replace the content of one memory; False if there is none."""
        raise NotSupported(f"{self.name} can't update")

    def search_vector(
        self, agent_id: str, vector: NDArray[np.float32], k: int, place: str | None = None
    ) -> list[Found]:
        """As `search`, by a vector."""
        raise NotSupported(f"{self.name} can't be searched by a vector")

    def inspect(self, agent_id: str, ids: Sequence[str]) -> list[Stored | None]:
        """All that is known of some memories, for systems with transitions."""
        raise NotSupported(f"{self.name} has no tiers")

    def kept(self, agent_id: str, ids: Sequence[str]) -> Kept:
        """How the contents and vectors of some memories of one place lie in the store."""
        raise NotSupported(f"{self.name} does not show in what form it keeps memories")

    def coding(self, place: str) -> Coding:
        """How contents and vectors are written in a place now."""
        raise NotSupported(f"{self.name} does not show in what form it keeps memories")

    @classmethod
    def codec(cls, name: str, **options: Any) -> Codec:
        """One of the codecs named by `codec_names`, new and not fitted."""
        raise NotSupported(f"{cls.name} has no codecs to pick from")

    @classmethod
    def codec_names(cls) -> tuple[str, ...]:
        """All codecs for vectors that a user of the system can pick."""
        raise NotSupported(f"{cls.name} has no codecs to pick from")

    def maintain(self) -> None:
        """Do now, to the end, what the settings' limits and ages ask for."""
        raise NotSupported(f"{self.name} has no transitions")

    def add_one(self, item: Item, place: str | None = None) -> str:
        """Store one memory; for systems with a shorter way than a batch of one."""
        return self.add([item], place)[0]

    def get_one(self, agent_id: str, id: str) -> Any:
        """Read one memory; for systems with a shorter way than a list of one."""
        return self.get(agent_id, [id])[0]

    def flush(self) -> None:
        """Return when everything acknowledged can be searched."""
        return

    def settle(self, sample: Sequence[Item]) -> None:
        """Become what the system is after some use (fitted codecs, statistics), from items like these.

        Called before the clock starts; nothing of the sample may be left in the store.
        """
        return

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
