"""The interface between the benchmark and a memory system: write one subclass of `Target` a system.

Required: `open`, `close`, `add`, `get`, `delete`, `delete_all`, `count`, and to search `search` or
`search_vector`. Everything else is optional; `capabilities` declares what the system has. A benchmark that
needs more than that reports `n/a` with the reason, never 0. `membench targets check` tests these promises.

Import the system inside the methods, not at the top of the module: `membench targets` reads the class also
where the system is not installed.

- Vectors: `self.embed` returns the vectors of contents and queries, from the embedder of the run. All
  systems get the same vectors. A system that embeds by itself gets `self.embed_texts` as its function.
- Agents: every memory belongs to an agent. A call for one agent never sees or changes another agent's.
- Ids: the target chooses them, as text. No id is used twice in one store, also after a restart.
- Acknowledged: `add` has returned. From then on `get` returns the memory, and it survives what
  `durability` declares. Every benchmark that stores reads a sample back and fails if memories are lost.
- Persistent: a folder that was closed and opened again holds the same memories.
- Searchable: at the latest when `flush` has returned.
- Places: the tiers of a system with tiers, else the single place "store".
- Errors: raise `NotSupported` for what the system can't do; let any other exception through. An unknown
  id is no error: `get` returns None for it, and `delete` does not count it. The same id twice is no error
  either: `get` returns its content twice, and `delete` counts it once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import msgspec

from memory.benchmarking.errors import BrokenBenchmark, NotSupported, nearest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memory.embedding import ContentEmbedder

WHOLE = "store"
"""The single place of a system without tiers."""

SearchBy = Literal["words", "vector", "both"]
"""What a text search compares: the words, the meaning (vectors), or both in one ranking."""
SEARCHES: tuple[SearchBy, ...] = ("words", "vector", "both")

Durability = Literal["ram", "process", "machine"]
"""What an acknowledged write survives: nothing, the end of the process, or the end of the machine."""
DURABILITIES: tuple[Durability, ...] = ("ram", "process", "machine")


@dataclass(frozen=True, slots=True)
class Item:
    """One memory to store. A system ignores the fields that it has no use for."""

    agent_id: str
    content: Any
    """A text, or a state: any JSON value."""
    step: int | None = None
    """The agent's step in its world or conversation."""
    importance: float = 1.0
    """A finite number ≥ 0; a higher one is more important."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    kind: str | None = None
    """What sort of memory it is, such as "message"."""
    timestamp: float | None = None
    """Seconds since 1970 when it happened; None for now."""
    id: str | None = None
    """The id to store it under, only for targets with `caller_ids`; None lets the target choose."""


class Found(msgspec.Struct, frozen=True, gc=False):
    """One hit of a search; a higher score is better.

    Not a dataclass: to make ten of those takes 4 µs, and the fastest searches about 100."""

    id: str
    score: float
    content: Any
    """As it was stored."""
    confidence: float | None = None
    """The estimated chance, from 0 to 1, that it is relevant; only from targets with `confidence`."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One memory with everything the target has of it, to compare it with its `Item`."""

    id: str
    content: Any
    place: str
    step: int | None = None
    kind: str | None = None
    importance: float | None = None


@dataclass(frozen=True)
class VectorForm:
    """One form in which a store keeps the vectors of some memories."""

    name: str
    bytes_per_vector: float
    vectors: NDArray[np.float32]
    """The vectors as decoded from this form, one row a memory."""


@dataclass(frozen=True)
class Kept:
    """What a store keeps of some memories."""

    content_bytes: int
    """All contents together, without keys and indexes."""
    forms: tuple[VectorForm, ...]
    """Every form that is kept, the smallest first. The total size is the sum of their bytes."""


@dataclass(frozen=True)
class Coding:
    """How one place encodes contents and vectors, usable without storing anything.

    The decoders take exactly what the encoders return.
    """

    encode_content: Callable[[Any], Any]
    decode_content: Callable[[Any], Any]
    encode_vectors: Callable[[NDArray[np.float32]], Any]
    decode_vectors: Callable[[Any], NDArray[np.float32]]


class Codec(Protocol):
    """An encoding of vectors that users of a system can choose."""

    @property
    def bytes_per_vector(self) -> int: ...

    def fit(self, vectors: NDArray[np.float32], /) -> object:
        """Learn from vectors; a fitted codec that can learn more does so."""

    def encode(self, vectors: NDArray[np.float32], /) -> NDArray[np.uint8]: ...

    def decode(self, codes: NDArray[np.uint8], /) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class Settings:
    """How to configure the system; only targets with `transitions` receive one."""

    limits: Mapping[str, int] = field(default_factory=dict)
    """By tier: the most memories that an agent may have in it. Other tiers have no limit."""
    ages: Mapping[str, float] = field(default_factory=dict)
    """By tier: the seconds after which a memory leaves it. Memories do not leave other tiers by age."""
    clock: Any = None
    """An object with `now()` that the benchmark controls; None for the system's own clock."""
    background: bool = False
    """Whether transitions run in the background, beside the operations that are measured."""
    as_shipped: bool = False
    """Whether to use the default settings, with limits and background work; the rest is then ignored."""


@dataclass(frozen=True)
class Dial:
    """A setting of the vector search that trades time for recall, such as `ef` of an HNSW graph."""

    name: str
    """As the system calls it, with letters only: `ef`, `nprobe`."""
    settings: tuple[int, ...]
    """At least four settings to measure, from the fastest to the one that finds the most."""

    def __post_init__(self) -> None:
        if not self.name.isalpha() or len(set(self.settings)) < 4:
            raise BrokenBenchmark(
                f"the dial {self.name!r} has the settings {self.settings}: use a name of letters, "
                "and at least four different settings"
            )


@dataclass(frozen=True)
class Capabilities:
    """What a system can do besides storing, reading and deleting by id."""

    tiers: tuple[str, ...] = ()
    """Tiers that can be written to by name; empty for a system without tiers."""
    search_by: SearchBy | None = "vector"
    """What `search` compares; None for a system that can't search. It is shown beside search figures."""
    max_k: int | None = None
    """The most hits of one search; None for no limit."""
    delayed_search: bool = False
    """`search` may miss a new memory until `flush` has returned; the delay is measured."""
    get: bool = True
    """Reads memories by id. Without it, `get` raises NotSupported, and `search` is used to read back."""
    exact: bool = True
    """Contents come back as they were stored. False for a system that rewrites them."""
    update: bool = True
    """Has `update`."""
    caller_ids: bool = False
    """Stores a memory under the id that the caller gives (`Item.id`)."""
    erasure: Literal["delete", "maintain"] | None = None
    """When no byte of a deleted text is left in any file: when `delete` returns, after `maintain`, or
    None if the system does not promise it."""
    detects_damage: bool = False
    """Damaged bytes in its files are reported, or have no effect; they are never served as content."""
    persistence: bool = True
    """A folder that was closed and opened again holds the same memories."""
    durability: Durability | None = None
    """What an acknowledged write survives without `close`. It is shown beside every write figure.

    - "ram": nothing. A killed process loses it.
    - "process": a killed process. The write is in files or in the operating system's cache.
    - "machine": a power failure. The write was synced to disk before `add` returned.

    None stands for "process" with `persistence` and for "ram" without.
    """
    transitions: bool = False
    """Moves memories between its tiers when `maintain` is called; has `inspect`, and obeys `Settings`."""
    compression: bool = False
    """Offers several vector codecs: has `codec` and `codec_names`."""
    forms: bool = False
    """Shows how it keeps contents and vectors: has `kept` and `coding`."""
    threads: bool = False
    """Several threads may use one open store."""
    processes: bool = False
    """Several processes may open the same folder; each sees at once what another one stored."""
    vector_queries: bool = False
    """Has `search_vector`, for vectors of the run's embedder (`Target.embed`)."""
    confidence: bool = False
    """Every hit of a text search has a `confidence`, an estimate of the chance that it is relevant."""

    def __new__(cls, *values: Any, **named: Any) -> Capabilities:
        """Raise BrokenBenchmark for an unknown name. A TypeError would not tell the known ones."""
        known = [each.name for each in fields(cls)]
        for name in named:
            if name not in known:
                raise BrokenBenchmark(f"there is no capability {name!r}: {nearest(name, known)}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if self.durability is None:
            object.__setattr__(self, "durability", "process" if self.persistence else "ram")
        if self.durability not in DURABILITIES:
            raise BrokenBenchmark(
                f"durability is {self.durability!r}: use {', '.join(map(repr, DURABILITIES))} or None"
            )
        if self.search_by is not None and self.search_by not in SEARCHES:
            raise BrokenBenchmark(
                f"search_by is {self.search_by!r}: use {', '.join(map(repr, SEARCHES))} or None"
            )
        if self.durability != "ram" and not self.persistence:
            raise BrokenBenchmark(
                f"durability is {self.durability!r}, but persistence is False: "
                "writes that survive the process need persistence=True"
            )

    @property
    def search(self) -> bool:
        """Whether the system can search at all."""
        return self.search_by is not None

    @property
    def places(self) -> tuple[str, ...]:
        """Where a memory can be stored: each tier, or the whole store if there are no tiers."""
        return self.tiers or (WHOLE,)


class Target(ABC):
    """A memory system under test. One object is one open store in one folder.

    In every method `place` is one of `capabilities.places`. None means the system's default place when
    storing, and all places when searching.
    """

    name: ClassVar[str]
    """The name in results and messages."""
    capabilities: ClassVar[Capabilities] = Capabilities()
    requirements: ClassVar[tuple[str, ...]] = ()
    """What `membench targets install` installs, as pip takes it: `("chromadb>=1.0",)`.

    The first one is the system itself: `name@1.2.3` installs that version of it.
    """
    unneeded: ClassVar[tuple[str, ...]] = ()
    """Packages that the requirements bring but the target never imports, such as `("torch",)`.

    They are left out, with everything that only they need.
    """
    npm_requirements: ClassVar[tuple[str, ...]] = ()
    """The same for packages of npm, installed into `node_modules` of the target's environment."""
    distributions: ClassVar[tuple[str, ...]] = ()
    """The installed packages whose versions a run records; those of `requirements` by default.

    The package that has the target's module is always recorded.
    """
    limits: ClassVar[str] = ""
    """What users should know before they choose the system: one or two sentences for `membench targets`."""
    dial: ClassVar[Dial | None] = None
    """What `turn_dial` sets; None for a search that can't be set, such as an exact one."""
    address_form: ClassVar[str] = ""
    """What `--target NAME=ADDRESS` takes, such as "postgresql://…"; empty for a target without address."""

    @classmethod
    def for_address(cls, address: str) -> type[Target]:
        """Return the class for an address; override it if name or capabilities depend on the address."""
        return cls

    address: str = ""
    """What stood behind `=` in `--target NAME=ADDRESS`; set before `open`. Results record it."""
    _embedder: ContentEmbedder | None = None

    # -- vectors, for subclasses to call ------------------------------------------------------

    @property
    def embedder(self) -> ContentEmbedder:
        """The embedder of the run, the default one unless `--embedder` names another."""
        if self._embedder is None:
            from memory.embedding import ContentEmbedder, WordLlamaEmbedder  # loads NumPy

            self._embedder = ContentEmbedder(WordLlamaEmbedder())
        return self._embedder

    @embedder.setter
    def embedder(self, embedder: ContentEmbedder) -> None:
        self._embedder = embedder

    @property
    def dimensions(self) -> int:
        """The length of every vector."""
        return self.embedder.dimensions

    def embed(self, contents: Sequence[Any]) -> NDArray[np.float32]:
        """Return one unit vector for each content or query: texts or states."""
        from memory.benchmarking.targets.memory_content import leaves_of
        from memory.embedding import render

        return self.embedder.embed([render(leaves_of(content)) for content in contents])

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector for each text, for systems that call an embedding function."""
        return self.embedder.embed_texts(texts)

    # -- required -----------------------------------------------------------------------------

    @abstractmethod
    def open(self, folder: Path, settings: Settings | None = None) -> None:
        """Open the store in this folder: empty the first time, later with the data it had."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; acknowledged memories stay in the folder."""

    @abstractmethod
    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        """Store the items as one batch; return their ids, in the same order."""

    @abstractmethod
    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        """Return the contents by id, in the order of `ids`; None for an unknown id."""

    @abstractmethod
    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        """Delete memories for good; return how many there were."""

    @abstractmethod
    def delete_all(self, agent_id: str) -> int:
        """Delete all memories of one agent; return how many there were."""

    @abstractmethod
    def count(self) -> dict[str, int]:
        """Return the number of memories in each place, all agents together."""

    # -- optional, with a default that works --------------------------------------------------

    def add_one(self, item: Item, place: str | None = None) -> str:
        """Store one memory; override it if the system has a shorter way than a batch of one."""
        return self.add([item], place)[0]

    def get_one(self, agent_id: str, id: str) -> Any:
        """Return one content; override it if the system has a shorter way than a list of one."""
        return self.get(agent_id, [id])[0]

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        """Return the agent's `k` memories that fit a text or a state best, the best first.

        By default the query is embedded and `search_vector` is called.
        """
        return self.search_vector(agent_id, self.embed([query])[0], k, place)

    def flush(self) -> None:
        """Return when every acknowledged memory can be found by `search`; for indexes built later."""
        return

    def settle(self, sample: Sequence[Item]) -> None:
        """Learn from a sample what the system learns in use: codecs, statistics.

        Called before anything is timed. No memory of the sample may stay in the store.
        """
        return

    def maintain(self) -> None:
        """Do the system's upkeep and return when it is done; never inside a timing.

        With `transitions`: all moves that the settings' limits and ages require. Also what the system
        does to its files by itself sooner or later: compaction, compression, giving back free space.
        """
        return

    def discard(self, folder: Path) -> None:
        """Delete what a closed store keeps outside of its folder, such as a schema on a server.

        Called before the folder is deleted.
        """
        return

    def transport_ms(self) -> float | None:
        """Return the milliseconds of one empty round trip to an open store; None without a transport.

        For systems behind a protocol, such as HTTP: part of every figure, but not the system's own time.
        """
        return None

    # -- optional, declared in `capabilities` -------------------------------------------------

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        """Replace the content of one memory; return False for an unknown id."""
        raise NotSupported(f"{self.name} can't update")

    def search_vector(
        self, agent_id: str, vector: NDArray[np.float32], k: int, place: str | None = None
    ) -> list[Found]:
        """Search as `search` does, by a vector."""
        raise NotSupported(f"{self.name} can't be searched by a vector")

    def turn_dial(self, setting: int) -> None:
        """Use this setting of `dial` for all searches of the open store from now on."""
        raise NotSupported(f"{self.name} has no dial")

    def inspect(self, agent_id: str, ids: Sequence[str]) -> list[Stored | None]:
        """Return the memories with all their fields; None for an unknown id."""
        raise NotSupported(f"{self.name} has no tiers")

    def kept(self, agent_id: str, ids: Sequence[str]) -> Kept:
        """Return in what form the store keeps these memories, which are all in one place."""
        raise NotSupported(f"{self.name} does not show in what form it keeps memories")

    def coding(self, place: str) -> Coding:
        """Return how a place encodes contents and vectors at present."""
        raise NotSupported(f"{self.name} does not show in what form it keeps memories")

    @classmethod
    def codec(cls, name: str, **options: Any) -> Codec:
        """Return a new codec, not fitted; `name` is one of `codec_names`."""
        raise NotSupported(f"{cls.name} has no codecs to pick from")

    @classmethod
    def codec_names(cls) -> tuple[str, ...]:
        """Return the names of all vector codecs that a user of the system can choose."""
        raise NotSupported(f"{cls.name} has no codecs to pick from")
