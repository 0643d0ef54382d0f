"""Turn texts and states into vectors. The default embedder needs no server and no download."""

from memory.embedding.base import Embedder, FloatMatrix, FunctionEmbedder, WeightedEmbedder
from memory.embedding.content import ContentEmbedder, Rendering, render
from memory.embedding.files import files_folder
from memory.embedding.tokens import count_tokens
from memory.embedding.wordllama import WordLlamaEmbedder

__all__ = [
    "ContentEmbedder",
    "Embedder",
    "FloatMatrix",
    "FunctionEmbedder",
    "Rendering",
    "WeightedEmbedder",
    "WordLlamaEmbedder",
    "count_tokens",
    "files_folder",
    "render",
]
