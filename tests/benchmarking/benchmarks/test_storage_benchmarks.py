"""The storage benchmarks: every tier by itself, real figures, and no figure of a store that is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from light_target import LightTarget
from membench import LIGHT, membench, once, only_run, write

from memory.benchmarking.bench import Bench
from memory.benchmarking.benchmarks.storage import (
    benchmark_memory_efficiency,
    benchmark_read_latency,
    benchmark_write_throughput,
)
from memory.benchmarking.errors import InvalidBenchmarkConfig, LostWrites
from memory.benchmarking.measure.timing import Timing
from memory.benchmarking.model.files import read_result
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.model.records import Result
from memory.benchmarking.targets import load_target
from memory.benchmarking.targets.base import Item, Settings

TARGETS = ["agentmemory", "sqlite-baseline"]


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    return lambda name="agentmemory", seed=1: Bench(target=name, seed=seed, seconds=0.001, scratch=tmp_path)


def places_of(name: str) -> Sequence[str]:
    return load_target(name).capabilities.places


@pytest.mark.parametrize("name", TARGETS)
def test_writes_are_timed_in_every_place_one_by_one_and_as_a_batch(
    name: str, bench: Callable[..., Bench], tmp_path: Path
) -> None:
    found = benchmark_write_throughput([3, 5], [2], settle_memories=0, bench=bench(name))
    assert list(found) == ["complexity_2", "texts"]
    for sizes in found.values():
        assert list(sizes) == ["batch_3", "batch_5"]
        for size, places in zip((3, 5), sizes.values(), strict=True):
            assert tuple(places) == tuple(places_of(name))
            for each in places.values():
                assert each["one_by_one"].calls == size
                assert each["as_one_batch"]["items_processed"] == 10 * size
                assert each["as_one_batch"].work == size
                for timing in each.values():
                    assert isinstance(timing, Timing)
                    assert timing["throughput_ops_per_second"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TARGETS)
def test_reads_are_timed_in_every_place_single_and_in_batches(
    name: str, bench: Callable[..., Bench], tmp_path: Path
) -> None:
    both = benchmark_read_latency(6, [2, 50], settle_memories=0, bench=bench(name))
    assert list(both) == ["complexity_1", "texts"]
    found = both["texts"]
    assert tuple(found) == tuple(places_of(name))
    for each in found.values():
        assert list(each) == ["single", "batch_2", "batch_50"]
        assert each["single"].calls >= 6
        assert each["batch_2"].work == 2
        assert each["batch_50"].work == 50, "a batch may be larger than the store: ids repeat"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TARGETS)
def test_space_is_measured_on_disk_and_in_ram(
    name: str, bench: Callable[..., Bench], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"settle_memories": 0, "contents": ["states"], "bench": bench(name)}
    found = benchmark_memory_efficiency(20, [1], **options)["complexity_1"]
    for place in places_of(name):
        each = found[place]
        assert each["disk_bytes_per_memory"] > 0
        assert each["memories_per_mb"] == pytest.approx(1e6 / each["disk_bytes_per_memory"])
        assert 200 < each["content_bytes_per_memory"] < 2000
    ratios = [found["im_to_stm_ratio"], found["ltm_to_stm_ratio"]]
    if name == "agentmemory":
        for tier, ratio in zip(("im", "ltm"), ratios, strict=True):
            assert ratio == found[tier]["disk_bytes_per_memory"] / found["stm"]["disk_bytes_per_memory"]
    else:
        assert ratios == [NotAvailable("sqlite-baseline has no tiers")] * 2
    assert list(tmp_path.iterdir()) == []


def test_the_same_seed_stores_the_same(bench: Callable[..., Bench]) -> None:
    def content(seed: int, name: str) -> Any:
        found = benchmark_memory_efficiency(
            20, settle_memories=0, contents=["texts"], bench=bench(name, seed)
        )
        return next(iter(found["texts"].values()))["content_bytes_per_memory"]

    assert content(1, LIGHT) == content(1, "sqlite-baseline") != content(2, LIGHT)


def test_space_left_by_settling_does_not_count_for_the_memories(bench: Callable[..., Bench]) -> None:
    options: dict[str, Any] = {"settle_memories": 600, "contents": ["states"], "bench": bench()}
    found = benchmark_memory_efficiency(600, [1], **options)["complexity_1"]
    room = {tier: found[tier]["disk_bytes_per_memory"] for tier in ("stm", "im", "ltm")}
    assert room["ltm"] < 0.8 * room["stm"], room
    assert room["im"] < 0.8 * room["stm"], room


def test_a_benchmark_can_be_called_by_hand() -> None:
    found = benchmark_read_latency(
        num_samples=3, batch_sizes=[2], settle_memories=0, contents=["states"], unknown="ignored"
    )
    assert set(found["complexity_1"]) == {"stm", "im", "ltm"}


def test_an_unknown_workload_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(InvalidBenchmarkConfig, match="contents has 'text': did you mean 'texts'"):
        benchmark_read_latency(3, contents=["text"])


class Tidy(LightTarget):
    """Writes a megabyte for every memory, and deletes it in its maintenance. Has 5 KB without memories."""

    name = "tidy"
    folder: Path

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        super().open(folder, settings)
        self.folder = folder
        (folder / "catalogue").write_bytes(b"x" * 5000)

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        (self.folder / "free pages").write_bytes(b"x" * 1_000_000 * len(items))
        return super().add(items, place)

    def close(self) -> None:
        (self.folder / "memories").write_bytes(b"x" * 100 * len(self._kept))
        super().close()

    def maintain(self) -> None:
        (self.folder / "free pages").unlink()


def test_space_is_measured_after_the_maintenance_of_the_target(tmp_path: Path) -> None:
    bench = Bench(target=f"{__name__}:Tidy", scratch=tmp_path)
    found = benchmark_memory_efficiency(10, settle_memories=0, contents=["texts"], bench=bench)
    assert found["texts"]["store"]["disk_bytes_per_memory"] == 100
    assert found["texts"]["store"]["empty_store_bytes"] == 5000, "it does not count for the memories"


def test_a_store_that_returns_wrong_content_fails_the_benchmark(tmp_path: Path) -> None:
    target = write(
        tmp_path / "forgetful.py",
        """
        from memory.benchmarking.targets.sqlite_baseline import SQLiteBaselineTarget
        class Forgetful(SQLiteBaselineTarget):
            name = "forgetful"
            def get_one(self, agent_id, id):
                return {"something": "else"}
        """,
    )
    with pytest.raises(LostWrites, match="forgetful acknowledged 3 memories, but 3 changed"):
        benchmark_read_latency(3, [2], settle_memories=0, bench=Bench(target=f"{target}:Forgetful"))


# -- a real run -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Result]:
    """All three on two targets, as small as it gets."""

    def run(folder: Path) -> None:
        done = membench(
            "run", "--category", "storage", "--profile", "quick", "--rounds", 1, "--set", "seconds=0.001",
            "--set", "storage.batch_sizes=3,4", "--set", "storage.num_samples=5",
            "--set", "storage.num_memories=20", "--target", "agentmemory", "--target", "sqlite-baseline",
            "--output-dir", folder / "out",
            cwd=folder,
        )  # fmt: skip
        assert done.code == 0, done.err

    folder, finished = only_run(once(tmp_path_factory, "storage-run", run) / "out")
    return {(ref.benchmark, ref.target): read_result(folder / ref.file) for ref in finished.results}


def test_every_storage_benchmark_gives_a_result_on_every_target(
    results: dict[tuple[str, str], Result],
) -> None:
    names = ("write_throughput", "read_latency", "memory_efficiency", "footprint")
    assert set(results) == {(name, target) for name in names for target in TARGETS}
    for result in results.values():
        assert result.metadata["headline"] in result.metrics


@pytest.mark.parametrize(
    ("benchmark", "target", "headline", "unit", "better"),
    [
        (
            "write_throughput", "agentmemory",
            "texts/batch_4/stm/one_by_one/throughput_ops_per_second", "/s", "higher",
        ),
        (
            "write_throughput", "sqlite-baseline",
            "texts/batch_4/store/one_by_one/throughput_ops_per_second", "/s", "higher",
        ),
        ("read_latency", "agentmemory", "texts/stm/single/p50_ms", "ms", "lower"),
        ("read_latency", "sqlite-baseline", "texts/store/single/p50_ms", "ms", "lower"),
        ("memory_efficiency", "agentmemory", "texts/ltm/disk_bytes_per_memory", "B", "lower"),
    ],
)  # fmt: skip
def test_the_headline_is_the_most_important_figure(
    results: dict[tuple[str, str], Result],
    benchmark: str,
    target: str,
    headline: str,
    unit: str,
    better: str,
) -> None:
    result = results[benchmark, target]
    assert result.metadata["headline"] == headline
    found = result.units[headline.rpartition("/")[2]]
    assert (found.unit, found.better) == (unit, better)


def test_the_result_has_the_keys_of_the_specification(results: dict[tuple[str, str], Result]) -> None:
    write_result = results["write_throughput", "agentmemory"]
    batch = write_result.results["complexity_1"]["batch_3"]["stm"]["one_by_one"]
    assert {"throughput_ops_per_second", "total_time_seconds", "items_processed"} <= set(batch)
    assert batch["items_processed"] == 3
    assert write_result.metadata["params"]["batch_sizes"] == [3, 4]
    read = results["read_latency", "agentmemory"].results["texts"]["ltm"]["single"]
    assert {"mean_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms"} <= set(read)
    room = results["memory_efficiency", "sqlite-baseline"]
    assert room.results["texts"]["im_to_stm_ratio"] is None
    missing = room.metadata["not_available"]
    assert "grew by less than 3 MB with 20" in missing.pop("texts/store/ram_bytes_per_memory")
    assert missing == {
        f"texts/{name}": "sqlite-baseline has no tiers" for name in ("im_to_stm_ratio", "ltm_to_stm_ratio")
    }


def test_a_target_without_search_or_persistence_is_measured_too(tmp_path: Path) -> None:
    bench = Bench(target=LIGHT, seconds=0.001, scratch=tmp_path)
    found = benchmark_read_latency(3, [2], settle_memories=2, bench=bench)
    assert set(found["texts"]) == {"store"}
    assert benchmark_write_throughput([2], [1], settle_memories=2, bench=bench)
    room = benchmark_memory_efficiency(3, [1], settle_memories=2, bench=bench)["complexity_1"]["store"]
    assert room["disk_bytes_per_memory"] == NotAvailable("light keeps nothing on disk")
    assert room["memories_per_mb"] == room["disk_bytes_per_memory"]
    assert room["empty_store_bytes"] == 0


class Large(LightTarget):
    """Keeps 100 KB in RAM for every memory: half in its process, half in a child process."""

    name = "large"

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        super().open(folder, settings)
        self._held: list[bytes] = []
        code = (
            "import sys\nheld = []\nfor line in sys.stdin:\n"
            "    held.append(b'x' * int(line)); print(flush=True)"
        )
        self._server = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        self._held.append(b"x" * 50_000 * len(items))
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(50_000 * len(items), file=self._server.stdin, flush=True)
        self._server.stdout.readline()
        return super().add(items, place)

    def close(self) -> None:
        self._server.communicate()
        super().close()


def test_ram_is_that_of_the_process_and_of_its_children(tmp_path: Path) -> None:
    bench = Bench(target=f"{__name__}:Large", scratch=tmp_path)
    found = benchmark_memory_efficiency(200, settle_memories=0, contents=["texts"], bench=bench)
    assert found["texts"]["store"]["ram_bytes_per_memory"] == pytest.approx(100_000, rel=0.2)
