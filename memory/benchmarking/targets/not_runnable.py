"""Systems that were tried as targets and can't run here, with the reason that `membench targets` lists."""

from __future__ import annotations

from collections.abc import Mapping

NOT_RUNNABLE: Mapping[str, str] = {
    "basic-memory": "0.24 needs Python 3.12: pip finds no version for 3.11",
    "cognee": (
        "1.6.5 downloads an embedding model or a tokenizer at the first call, also with another embedder, "
        "and needs a language model to build its graph"
    ),
    "graphiti": (
        "graphiti-core 0.31.1 needs a language model for every memory, and Neo4j or FalkorDB: with Kuzu, "
        "which it calls deprecated, add_episode fails (KuzuDriver has no attribute _database)"
    ),
    "letta": "0.34.12 on PyPI is a terminal client of cloud agents, without a memory server",
}
"""By name: what is missing, in one line."""
