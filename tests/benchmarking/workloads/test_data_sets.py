"""Public data sets: read in their published form, downloaded, and checked."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from data_set_files import write_beir

from memory.benchmarking.cli import main
from memory.benchmarking.errors import DamagedResult, InvalidBenchmarkConfig, UnknownName
from memory.benchmarking.workloads import downloads
from memory.benchmarking.workloads.collections import Passage
from memory.benchmarking.workloads.datasets import load_data_set
from memory.benchmarking.workloads.downloads import fetch, resolve


@pytest.mark.parametrize("test_folder", [True, False])
def test_a_folder_of_beir_is_read_with_its_grades(tmp_path: Path, test_folder: bool) -> None:
    found = load_data_set(write_beir(tmp_path / "mine", test_folder))
    assert (found.name, found.form, len(found.collections)) == ("mine", "beir", 1)
    collection = found.collections[0]
    assert {each.id: each.text for each in collection.passages} == {"1": "Cats purr", "2": "Dogs bark"}
    assert [(each.text, each.grades) for each in collection.questions] == [("who purrs", {"1": 2, "2": 0})]


def test_locomo_is_read_turn_by_turn_with_its_evidence(tmp_path: Path) -> None:
    sample = {
        "sample_id": "conv-1",
        "conversation": {
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "Hello"},
                {"speaker": "Ben", "dia_id": "D1:2", "text": "I moved"},
            ],
        },
        "qa": [
            {"question": "Who moved?", "evidence": ["D1:2; D9:9"], "category": 4},
            {"question": "No evidence?", "evidence": [], "category": 5},
        ],
    }
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([sample]))
    (collection,) = load_data_set(path).collections
    assert [passage.metadata["speaker"] for passage in collection.passages] == ["Ann", "Ben"]
    assert collection.passages[0].timestamp == 1683554160.0
    assert [(q.text, q.category, q.grades) for q in collection.questions] == [
        ("Who moved?", "single_hop", {"D1:2": 1})
    ]


def test_longmemeval_is_read_question_by_question(tmp_path: Path) -> None:
    sample = {
        "question_id": "7",
        "question_type": "single-session-user",
        "question": "Where do I live?",
        "haystack_session_ids": ["s1"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21"],
        "haystack_sessions": [
            [
                {"role": "user", "content": "I live in Ghent", "has_answer": True},
                {"role": "assistant", "content": "Ok"},
            ]
        ],
    }
    path = tmp_path / "lme.json"
    path.write_text(json.dumps([sample, {**sample, "question_id": "8_abs"}]))
    answered, unanswerable = load_data_set(path).collections
    assert answered.questions[0].grades == {"s1:0": 1}
    assert unanswerable.questions[0].category == "no_answer"
    assert unanswerable.questions[0].grades == {}


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '[{"a": 1}]', '[{"conversation": 3, "qa": []}]', "[1, 2]"]
)
def test_other_files_are_refused_with_a_one_line_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(InvalidBenchmarkConfig) as caught:
        load_data_set(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_error_for_a_folder_names_the_missing_files_of_beir(tmp_path: Path) -> None:
    with pytest.raises(InvalidBenchmarkConfig) as caught:
        load_data_set(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} is not a folder of BEIR: corpus.jsonl, queries.jsonl, qrels/test.tsv is missing"
    )


def test_a_missing_file_gives_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidBenchmarkConfig, match=r"gone.json can't be read: No such file or directory$"
    ):
        load_data_set(tmp_path / "gone.json")


def test_a_copy_in_other_files_has_the_same_judgements_digest_and_a_part_has_another(
    tmp_path: Path,
) -> None:
    whole = load_data_set(write_beir(tmp_path / "whole")).judgements
    copy = write_beir(tmp_path / "copy", test_folder=False)
    documents = [{"id": "2", "text": "Dogs  bark", "scope": "x"}, {"id": "1", "text": "Cats purr"}]
    (copy / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (copy / "queries.jsonl").write_text(json.dumps({"id": "q1", "text": "who purrs"}))
    (copy / "qrels.tsv").write_text("q1\t2\t0\nq1\t1\t2\n")
    assert load_data_set(copy).judgements == whole
    (copy / "qrels.tsv").write_text("q1\t1\t2\n")
    assert load_data_set(copy).judgements != whole
    part = write_beir(tmp_path / "part")
    (part / "corpus.jsonl").write_text(json.dumps({"_id": "1", "text": "Cats purr"}))
    assert load_data_set(part).judgements != whole


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Serve a folder over HTTP."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def archive(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for path in sorted(write_beir(folder / "scifact").rglob("*")):
            packed.write(path, path.relative_to(folder))
    return buffer.getvalue()


def test_a_linked_data_set_is_named_after_the_link(tmp_path: Path) -> None:
    link = tmp_path / "mine"
    link.symlink_to(write_beir(tmp_path / "blob-1a2b"))
    assert load_data_set(resolve(str(link))).name == "mine"


def test_a_downloaded_set_is_checked_and_found_by_name(
    mirror: tuple[Path, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, address = mirror
    data = archive(tmp_path / "made")
    (folder / "scifact.zip").write_bytes(data)
    known = replace(downloads.PUBLISHED["scifact"], sha256=hashlib.sha256(data).hexdigest())
    monkeypatch.setitem(downloads.PUBLISHED, "scifact", known)
    monkeypatch.setenv("MEMBENCH_DATA", str(tmp_path / "kept"))
    with pytest.raises(InvalidBenchmarkConfig, match="membench data fetch scifact"):
        resolve("scifact")
    for _ in range(2):  # a second download replaces the first
        assert main(["data", "fetch", "scifact", "--url", f"{address}/scifact.zip"]) == 0
    assert resolve("scifact") == tmp_path / "kept" / "scifact"
    assert main(["data", "check", "scifact"]) == 0
    assert "1 questions" in capsys.readouterr().out
    assert main(["data", "list"]) == 0
    assert "downloaded" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["scifact"]


def test_a_download_with_another_digest_is_deleted(mirror: tuple[Path, str], tmp_path: Path) -> None:
    folder, address = mirror
    (folder / "locomo10.json").write_text("[]")
    with pytest.raises(DamagedResult, match="it was deleted"):
        fetch("locomo", tmp_path / "kept", url=f"{address}/locomo10.json")
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_failed_download_gives_a_one_line_error(mirror: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(InvalidBenchmarkConfig, match="can't be downloaded"):
        fetch("locomo", tmp_path, url=f"{mirror[1]}/nothing")
    with pytest.raises(UnknownName, match="did you mean 'locomo'"):
        fetch("lokomo", tmp_path)


def test_turns_that_locomo_writes_in_another_way_are_found(tmp_path: Path) -> None:
    sample = {
        "sample_id": "conv-1",
        "conversation": {
            "session_11_date_time": "1:56 pm on 8 May, 2023",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": f"D1:{number}", "text": "Hello"} for number in range(1, 7)
            ],
        },
        "qa": [{"question": "Who?", "evidence": ["D1:05", "D:1:2", "D1:6, D01:3"], "category": 1}],
    }
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([sample]))
    question = load_data_set(path).collections[0].questions[0]
    assert set(question.grades) == {"D1:2", "D1:3", "D1:5", "D1:6"}


def conversation(id_: str) -> dict[str, Any]:
    return {
        "id": id_,
        "passages": [
            {"id": "1", "text": "I moved", "speaker": "Ann", "session": "x", "time": "2024-01-02T03:00:00"},
            {"id": "2", "text": "Nice", "speaker": None, "session": None, "time": None},
        ],
        "questions": [
            {"text": "Who moved?", "category": "fact", "evidence": ["1", "nowhere"], "answer": "Ann"},
            {"text": "Who flew?", "category": "abstention", "evidence": []},
            {"text": "Who ran?", "category": "fact", "evidence": []},
        ],
    }


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("lines", [True, False])
def test_conversations_are_read_line_by_line_or_from_a_list(
    tmp_path: Path, count: int, lines: bool
) -> None:
    samples = [conversation(f"c{number}") for number in range(count)]
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(map(json.dumps, samples)) + "\n" if lines else json.dumps(samples))
    data_set = load_data_set(path)
    assert (data_set.form, [each.id for each in data_set.collections]) == (
        "conversations",
        [f"c{number}" for number in range(count)],
    )
    collection = data_set.collections[0]
    assert collection.passages == (
        Passage("1", "I moved", 1704164400.0, {"speaker": "Ann", "session": 1}),
        Passage("2", "Nice"),
    )
    assert [(each.text, each.category, dict(each.grades)) for each in collection.questions] == [
        ("Who moved?", "fact", {"1": 1}),
        ("Who flew?", "abstention", {}),
    ]


def test_a_conversation_without_a_text_is_refused(tmp_path: Path) -> None:
    sample = conversation("c")
    del sample["passages"][0]["text"]
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps(sample))
    with pytest.raises(InvalidBenchmarkConfig, match="KeyError: 'text'"):
        load_data_set(path)
