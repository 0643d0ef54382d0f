"""Read and search memories: the entry cache, read counts, the reader, the searcher."""
