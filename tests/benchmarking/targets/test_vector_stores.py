"""Embedded vector stores as targets: they keep the promises of targets/base.py."""

from __future__ import annotations

from system_conformance import SystemConformance


class TestChroma(SystemConformance):
    name = "chroma"


class TestLanceDB(SystemConformance):
    name = "lancedb"


class TestMilvusLite(SystemConformance):
    name = "milvus-lite"


class TestQdrant(SystemConformance):
    name = "qdrant"


class TestQdrantEdge(SystemConformance):
    name = "qdrant-edge"


class TestSQLiteVec(SystemConformance):
    name = "sqlite-vec"


class TestUSearch(SystemConformance):
    name = "usearch"


class TestFaiss(SystemConformance):
    name = "faiss"


class TestTxtai(SystemConformance):
    name = "txtai"
