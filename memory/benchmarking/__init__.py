"""The benchmark: runs workloads against any memory system, measures, compares, reports."""
