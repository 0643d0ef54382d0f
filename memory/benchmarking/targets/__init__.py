"""Memory systems under test: one file each, with the interface of `base.py`.

Another package registers its target in the entry point group `agentmemory.targets`. A target in your own
file is passed as `--target my_target.py:MyTarget`. See docs/new-target.md.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from memory.benchmarking.errors import BrokenBenchmark, InvalidBenchmarkConfig, UnknownName, nearest
from memory.benchmarking.model.user_files import cause_of, load_file
from memory.benchmarking.targets.base import Capabilities as Capabilities
from memory.benchmarking.targets.base import Item as Item
from memory.benchmarking.targets.base import Target as Target
from memory.benchmarking.targets.not_runnable import NOT_RUNNABLE
from memory.benchmarking.targets.spelling import parse_target

if TYPE_CHECKING:
    from memory.embedding import ContentEmbedder

GROUP = "agentmemory.targets"
DEFAULT = "agentmemory"

_BUILT_IN = {
    "agentmemory": "memory.benchmarking.targets.agentmemory:AgentMemoryTarget",
    "agentmemory-disk": "memory.benchmarking.targets.agentmemory:AgentMemoryDiskTarget",
    "agentmemory-postgres": "memory.benchmarking.targets.agentmemory_postgres:AgentMemoryPostgresTarget",
    "sqlite-baseline": "memory.benchmarking.targets.sqlite_baseline:SQLiteBaselineTarget",
    "chroma": "memory.benchmarking.targets.chroma:ChromaTarget",
    "lancedb": "memory.benchmarking.targets.lance:LanceDBTarget",
    "milvus-lite": "memory.benchmarking.targets.milvus_lite:MilvusLiteTarget",
    "usearch": "memory.benchmarking.targets.usearch:USearchTarget",
    "faiss": "memory.benchmarking.targets.faiss:FaissTarget",
    "qdrant": "memory.benchmarking.targets.qdrant:QdrantTarget",
    "qdrant-edge": "memory.benchmarking.targets.qdrant_edge:QdrantEdgeTarget",
    "sqlite-vec": "memory.benchmarking.targets.sqlite_vec:SQLiteVecTarget",
    "txtai": "memory.benchmarking.targets.txtai:TxtaiTarget",
    "langgraph-memory": "memory.benchmarking.targets.langgraph_store:LangGraphMemoryTarget",
    "langgraph-sqlite": "memory.benchmarking.targets.langgraph_sqlite:LangGraphSQLiteTarget",
    "langgraph-postgres": "memory.benchmarking.targets.langgraph_postgres:LangGraphPostgresTarget",
    "mem0": "memory.benchmarking.targets.mem0:Mem0Target",
    "pgvector": "memory.benchmarking.targets.pgvector:PgvectorTarget",
    "pgvector-exact": "memory.benchmarking.targets.pgvector:PgvectorExactTarget",
    "hindsight": "memory.benchmarking.targets.hindsight:HindsightTarget",
    "mcp-memory": "memory.benchmarking.targets.mcp_memory:McpMemoryTarget",
    "mcp": "memory.benchmarking.targets.generic_mcp:McpTarget",
    "http": "memory.benchmarking.targets.generic_http:HttpTarget",
}


def target_names() -> list[str]:
    """Return the names of the built-in targets and of those of installed packages."""
    return sorted({*_BUILT_IN, *_installed()})


def _installed() -> dict[str, str]:
    """Return the targets of installed packages: name to `package.module:Class`."""
    from importlib.metadata import entry_points  # slow to import, and most commands don't need it

    return {point.name: point.value for point in entry_points(group=GROUP)}


def is_built_in(text: str) -> bool:
    """Return whether a target belongs to membench; others are the user's or another package's."""
    return parse_target(text).name in _BUILT_IN


def make_target(text: str, embedder: ContentEmbedder | None = None) -> Target:
    """Return a new target, not open yet.

    Args:
        text: as written after `--target`: NAME, NAME@VERSION, NAME=ADDRESS, or a location.
        embedder: the run's embedder; None for the default one.
    """
    target = load_target(text)()
    target.address = parse_target(text).address
    if embedder is not None:
        target.embedder = embedder
    return target


def load_target(text: str) -> type[Target]:
    """Return a target's class by its name, by `file.py:Class` or by `package.module:Class`."""
    spelling = parse_target(text)
    kind = _load(spelling.name)
    if spelling.address and not kind.address_form:
        raise InvalidBenchmarkConfig(f"--target {text}: {spelling.name} takes no address")
    return kind.for_address(spelling.address)


def _load(name: str) -> type[Target]:
    location = _BUILT_IN.get(name)
    if location is None and ":" not in name:
        location = f"{name}:" if name.endswith(".py") else _installed().get(name)
        if location is None and name in NOT_RUNNABLE:
            raise UnknownName(f"{name} can't be measured: {NOT_RUNNABLE[name]}")
        if location is None:
            raise UnknownName(f"there is no target {name!r}: {nearest(name, target_names())}")
    source, _, attribute = (location or name).rpartition(":")
    try:
        if source.endswith(".py"):
            module = _load_file(Path(source))
            if not hasattr(module, attribute):
                raise _no_such_class(source, attribute, module)
        else:
            module = import_module(source)
        target = getattr(module, attribute)
    except (BrokenBenchmark, UnknownName):
        raise
    except (Exception, SystemExit) as problem:
        raise BrokenBenchmark(f"target {name!r} can't be loaded: {cause_of(problem)}") from problem
    if not (isinstance(target, type) and issubclass(target, Target)):
        raise BrokenBenchmark(
            f"target {name!r} is not a class that derives from Target: see docs/new-target.md"
        )
    return target


def _load_file(path: Path) -> ModuleType:
    try:
        return load_file(path)
    except BrokenBenchmark as problem:
        if isinstance(problem.__cause__, ModuleNotFoundError):
            raise BrokenBenchmark(
                f"{problem}; import the system inside the methods of the target"
            ) from None
        raise


def _no_such_class(file: str, name: str, module: ModuleType) -> UnknownName:
    """Return the error for a file without `:Class`, or with the name of a class that it lacks."""
    own = [
        key
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Target) and value.__module__ == module.__name__
    ]
    ways = " or ".join(f"{file}:{key}" for key in own)
    wrong = f"{file} has no class {name!r}" if name else f"--target {file} has no :Class"
    return UnknownName(f"{wrong}: write {ways or f'{file}:Class, with a class that derives from Target'}")
