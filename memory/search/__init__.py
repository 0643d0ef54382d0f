"""Search of one agent's memories: by words, by vectors, with filters, in one ranking."""

from memory.search.cache import IndexCache
from memory.search.index import AgentIndex
from memory.search.ranking import Match, QueryVector, by_text, by_vector, query_vector_of

__all__ = ["AgentIndex", "IndexCache", "Match", "QueryVector", "by_text", "by_vector", "query_vector_of"]
