"""`--embedder`: one embedder for all targets, by name, from a file or from a server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from embedding_server import DIMENSIONS, EmbeddingServer, embedding_server
from membench import membench, only_run, write

from memory.benchmarking.errors import EXIT_FINE, EXIT_INCOMPARABLE, BenchmarkError
from memory.benchmarking.model.files import read_result_of, run_folders
from memory.benchmarking.targets import make_target
from memory.benchmarking.targets.embedders import EndpointEmbedder, embedder_label, load_embedder

MINE = """
class Mine:
    name = "mine"
    dimensions = 3

    def embed(self, texts):
        return [[len(text), text.count("e"), 1] for text in texts]

class Half:
    name = "half"
"""
BENCHMARK = """
from memory.benchmarking.targets.base import Item

def benchmark_dimensions(bench=None):
    with bench.target() as target:
        bench.store(target, [Item("ann", "one"), Item("ann", "two words")])
        hits = target.search("ann", "two words", 1)
        return {"dimensions": target.dimensions, "best": bench.time(lambda: hits[0].content)}
"""


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as running:
        yield running


def test_the_default_embedder_has_no_label() -> None:
    for text in ("", "wordllama"):
        assert load_embedder(text) is None
        assert embedder_label(text) == ""


def test_a_server_gives_the_vectors_in_the_order_of_the_texts(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    embedder = load_embedder(server.address)
    assert embedder is not None
    assert embedder.dimensions == DIMENSIONS
    texts = [f"text number {number}" for number in range(600)] + [""]
    vectors = embedder.embed_texts(texts)
    assert vectors.shape == (601, DIMENSIONS)
    assert np.allclose(vectors[7], embedder.embed_texts(["text number 7"])[0])
    sent = [document for path, document, _ in server.requests if path == "/v1/embeddings"]
    assert {document["model"] for document in sent} == {"words-32"}
    assert max(len(document["input"]) for document in sent) <= 256
    assert {key for _, _, key in server.requests} == {"Bearer a key"}


def test_the_model_can_be_named(server: EmbeddingServer) -> None:
    label = embedder_label(f"{server.address}#other")
    assert label == f"{server.address}#other, 32 dimensions"
    assert server.requests[-1][1]["model"] == "other"


def test_a_target_gets_the_embedder(server: EmbeddingServer, tmp_path: Path) -> None:
    for name in ("agentmemory", "sqlite-baseline"):
        target = make_target(name, load_embedder(server.address))
        (tmp_path / name).mkdir()
        target.open(tmp_path / name)
        assert target.embed(["a text", {"x": 1}]).shape == (2, DIMENSIONS)
        target.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wordlama", "there is no embedder 'wordlama': did you mean 'wordllama'?; or write file.py:Class"),
        ("http://ann:secret@host/v1", "--embedder: leave user, password and query out of the address"),
        ("http://127.0.0.1:9/v1", "the embedder http://127.0.0.1:9/v1 failed: ConnectionRefusedError"),
        ("none.py:Mine", "none.py is not a file"),
        ("mine.py:Other", "--embedder mine.py:Other: mine.py has no class 'Other'"),
    ],
)
def test_a_wrong_embedder_is_one_line_before_anything_runs(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.py", MINE)
    with pytest.raises(BenchmarkError, match=re.escape(message)) as problem:
        embedder_label(text)
    assert "secret" not in str(problem.value)
    done = membench("run", "--category", "storage", "--embedder", text, "--output-dir", "out", cwd=tmp_path)
    assert message in done.error
    assert run_folders(tmp_path / "out") == []


def test_a_class_that_is_no_embedder_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.py", MINE)
    with pytest.raises(BenchmarkError, match="has no dimensions: it needs name, dimensions and embed"):
        load_embedder(f"{file}:Half")


def test_a_server_that_fails_is_an_error_never_a_zero(server: EmbeddingServer) -> None:
    embedder = EndpointEmbedder(server.address)
    server.broken = True
    with pytest.raises(BenchmarkError, match=r"failed: HTTP 503 Service Unavailable: .*out of order"):
        embedder.embed(["text"])


def test_a_run_uses_and_records_the_embedder(server: EmbeddingServer, tmp_path: Path) -> None:
    file = write(tmp_path / "which.py", BENCHMARK)
    write(tmp_path / "mine.py", MINE)
    prints = {}
    for number, (text, dimensions) in enumerate(
        [("", 256), (server.address, DIMENSIONS), ("mine.py:Mine", 3)]
    ):
        chosen = ("--embedder", text) if text else ()
        out = tmp_path / str(number)
        done = membench(
            "run", "--path", file, "--category", "which", "--target", "sqlite-baseline", "--rounds", 1,
            "--set", "seconds=0.001", "--output-dir", out, *chosen, cwd=tmp_path,
        )  # fmt: skip
        assert done.code == EXIT_FINE, done.err
        folder, run = only_run(out)
        assert run.config["embedder"] == text
        assert run.environment.embedder.startswith(text)
        prints[text] = run.environment.fingerprint
        (ref,) = run.results
        assert read_result_of(folder, ref).results["dimensions"] == dimensions
    assert len(set(prints.values())) == 3
    assert "SHA-256" in run.environment.embedder
    folders = ("--baseline-dir", tmp_path / "0", "--current-dir", tmp_path / "1")
    compared = membench("compare", *folders, cwd=tmp_path)
    assert compared.code == EXIT_INCOMPARABLE
    assert f"embedder: default → {server.address}#words-32, 32 dimensions" in compared.out
