"""The compression benchmarks at tiny sizes: shapes, properties, n/a, and figures that must fall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from memory.benchmarking.bench import Bench, Score
from memory.benchmarking.benchmarks._compression_vectors import embedded, neighbours_kept, picks
from memory.benchmarking.benchmarks.compression import (
    benchmark_compression_ratio,
    benchmark_embedding_quality,
    benchmark_training_efficiency,
)
from memory.benchmarking.errors import LostWrites, NotSupported, UnknownName
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.targets.agentmemory import AgentMemoryTarget
from memory.benchmarking.targets.base import Capabilities, Coding, Item, Kept, Target, VectorForm
from memory.benchmarking.targets.sqlite_baseline import SQLiteBaselineTarget
from memory.benchmarking.workloads.contents import KINDS, contents_of, mixed_contents
from memory.compression.vectors import CODEC_NAMES


def bench(target: str | type[Target] = "agentmemory") -> Bench:
    name = target if isinstance(target, str) else f"{__name__}:{target.__name__}"
    return Bench(target=name, seconds=0.001)


@cache
def quality() -> dict[str, Any]:
    return benchmark_embedding_quality(
        ["dialogue"], samples=20, corpus_vectors=200, training_vectors=260, bench=bench()
    )


class Blurred(AgentMemoryTarget):
    """Keeps of its vectors only the signs."""

    name = "blurred"
    capabilities = replace(AgentMemoryTarget.capabilities, compression=False)

    def kept(self, agent_id: str, ids: Sequence[str]) -> Kept:
        kept = super().kept(agent_id, ids)
        forms = [
            VectorForm(form.name, form.bytes_per_vector, np.sign(form.vectors).astype(np.float32) / 16)
            for form in kept.forms
        ]
        return Kept(kept.content_bytes, tuple(forms))


class Changing(AgentMemoryTarget):
    """Reads other content than was written."""

    def coding(self, place: str) -> Coding:
        return replace(super().coding(place), decode_content=lambda written: "something else")


class Opaque(SQLiteBaselineTarget):
    """Shows nothing of how it keeps memories."""

    name = "opaque"
    capabilities = Capabilities()

    def kept(self, agent_id: str, ids: Sequence[str]) -> Kept:
        raise NotSupported("opaque does not show it")


class Forgetful(AgentMemoryTarget):
    """Stores one memory of each batch only."""

    name = "forgetful"

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        return super().add(items[:1], place) * len(items)


class TiersAlone(AgentMemoryTarget):
    """Has tiers and no codecs to pick from."""

    name = "tiers-alone"
    capabilities = replace(AgentMemoryTarget.capabilities, compression=False)


# -- the data ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_data_follows_from_its_seed_and_repeats_nothing(kind: str) -> None:
    contents = contents_of(kind, 500, seed=3)
    assert contents == contents_of(kind, 500, seed=3)
    assert contents[:100] == contents_of(kind, 100, seed=3)
    assert contents != contents_of(kind, 500, seed=4)
    assert len({repr(content) for content in contents}) == 500


def test_a_mix_takes_the_kinds_in_turn() -> None:
    mix = mixed_contents(7)
    assert [type(content) for content in mix[:3]] == [dict, str, dict]
    assert len(mix) == 7
    assert mixed_contents(2, kinds=["dialogue"]) == contents_of("dialogue", 2)


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(UnknownName, match="'dialog' is not a kind of data: did you mean 'dialogue'"):
        contents_of("dialog", 1)


# -- embedding_quality ------------------------------------------------------------------------


def test_the_table_has_every_codec_and_every_tier() -> None:
    found = quality()["dialogue"]
    assert set(found["codecs"]) == set(CODEC_NAMES)
    assert set(found["tiers"]) == {"stm", "im", "ltm"}
    for figures in (*found["codecs"].values(), *found["tiers"].values()):
        assert 0 <= figures["neighbour_recall_at_10"].value <= 1
        assert -1 <= figures["cosine_similarity"] <= 1 + 1e-6
        assert figures["vs_full_ratio"] == figures["bytes_per_vector"] / 1024
        assert figures["reconstruction_mse"] >= 0


def test_nothing_is_lost_without_compression_and_something_with_it() -> None:
    found = quality()["dialogue"]
    for whole in (found["codecs"]["float32"], found["tiers"]["stm"]):
        assert whole["neighbour_recall_at_10"].value == 1
        assert whole["reconstruction_mse"] < 1e-12
        assert whole["vs_full_ratio"] == 1
    assert found["codecs"]["truncate"]["neighbour_recall_at_10"].value < 0.9
    assert found["codecs"]["truncate"]["reconstruction_mse"] > found["codecs"]["int8"]["reconstruction_mse"]


def test_a_codec_is_picked_by_the_neighbours_it_keeps_within_its_bytes() -> None:
    assert quality()["dialogue"]["pick"]["within_1_4"] == "int8"
    table = {
        "large": {"vs_full_ratio": 1.0, "neighbour_recall_at_10": Score(1.0)},
        "middle": {"vs_full_ratio": 0.25, "neighbour_recall_at_10": Score(0.9)},
        "small": {"vs_full_ratio": 0.0625, "neighbour_recall_at_10": Score(0.95)},
    }
    assert picks(table) == {"within_1_4": "small", "within_1_16": "small"}


def test_a_fitted_store_shows_the_codec_of_each_tier() -> None:
    """The store fits its codecs on 2,000 memories; so this is the one test that waits for it."""
    found = benchmark_embedding_quality(
        ["dialogue"], samples=30, corpus_vectors=300, training_vectors=2000, bench=bench(TiersAlone)
    )["dialogue"]
    tiers = found["tiers"]
    assert tiers["im"]["codec"] == "int8"
    assert tiers["im"]["neighbour_recall_at_10"].value >= 0.95
    assert tiers["ltm"]["codec"] == "centred"
    assert tiers["ltm"]["bytes_per_vector"] == 194
    assert tiers["ltm"]["neighbour_recall_at_10"].value >= 0.9
    assert isinstance(found["codecs"], NotAvailable)


def test_several_kinds_are_also_measured_in_one_store() -> None:
    found = benchmark_embedding_quality(
        ["dialogue", "inventory"], samples=6, corpus_vectors=40, training_vectors=2, bench=bench(TiersAlone)
    )
    assert set(found) == {"dialogue", "inventory", "mixed"}
    assert set(found["mixed"]) == {"tiers"}
    assert found["mixed"]["tiers"]["stm"]["neighbour_recall_at_10"].value == 1


def test_vectors_that_lost_most_of_their_values_have_low_quality() -> None:
    found = benchmark_embedding_quality(
        ["inventory"], samples=20, corpus_vectors=200, training_vectors=1, bench=bench(Blurred)
    )
    blurred = found["inventory"]["tiers"]["im"]
    assert blurred["neighbour_recall_at_10"].value < 0.8
    assert blurred["reconstruction_mse"] > 1e-4


def test_neighbours_of_the_original_vector_are_searched_among_the_kept_vectors() -> None:
    samples, corpus = embedded(contents_of("dialogue", 5)), embedded(contents_of("dialogue", 60, 1))
    assert neighbours_kept(samples, corpus, corpus) == [1.0] * 5
    assert neighbours_kept(samples, corpus, -corpus) == [0.0] * 5
    assert neighbours_kept(samples, corpus[:4], -corpus[:4]) == [1.0] * 5


def test_a_target_without_tiers_has_one_place_and_no_codecs() -> None:
    found = benchmark_embedding_quality(
        ["dialogue"], samples=5, corpus_vectors=20, training_vectors=1, bench=bench("sqlite-baseline")
    )["dialogue"]
    assert found["tiers"]["store"]["codec"] == "float32"
    assert found["tiers"]["store"]["neighbour_recall_at_10"].value == 1
    assert found["codecs"] == NotAvailable("sqlite-baseline has no codecs to pick from")


def test_a_target_that_shows_nothing_has_no_quality_to_measure() -> None:
    with pytest.raises(NotSupported, match="shows neither its codecs nor how it keeps vectors"):
        benchmark_embedding_quality(["dialogue"], bench=bench(Opaque))


# -- compression_ratio ------------------------------------------------------------------------


@cache
def ratio() -> dict[str, Any]:
    return benchmark_compression_ratio([60, 300], settle_memories=0, bench=bench())


def test_kept_bytes_add_up_and_give_the_ratios() -> None:
    for size in ("size_60", "size_300"):
        found = ratio()[size]
        raw = found["raw_content_bytes_per_memory"] + found["raw_vector_bytes_per_memory"]
        for place in ("stm", "im", "ltm"):
            tier = found[place]
            kept = tier["content_bytes_per_memory"] + tier["vector_bytes_per_memory"]
            assert tier["raw_to_kept_ratio"] == pytest.approx(raw / kept)
            assert tier["raw_to_disk_ratio"] == pytest.approx(raw / tier["disk_bytes_per_memory"])
            assert tier["disk_bytes_per_memory"] > 0
        assert found["stm"]["vector_bytes_per_memory"] == 1024
        assert found["im"]["vector_bytes_per_memory"] == 256
        assert found["im"]["content_bytes_per_memory"] < found["stm"]["content_bytes_per_memory"]
    found = ratio()["size_300"]
    assert found["stm"]["disk_bytes_per_memory"] > found["im"]["disk_bytes_per_memory"]
    assert found["stm_to_ltm_ratio"] == pytest.approx(found["stm_to_im_ratio"] * found["im_to_ltm_ratio"])


def test_free_pages_left_by_settling_do_not_count_as_compression() -> None:
    """Memories that fit into what was deleted before would seem to cost nothing."""
    sizes = benchmark_compression_ratio([100], settle_memories=500, bench=bench())["size_100"]
    for place in ("stm", "im", "ltm"):
        tier = sizes[place]
        kept = tier["content_bytes_per_memory"] + tier["vector_bytes_per_memory"]
        assert tier["disk_bytes_per_memory"] > 0.9 * kept


def test_memories_that_are_not_stored_have_no_size() -> None:
    with pytest.raises(LostWrites, match="of 200 that were read back"):
        benchmark_compression_ratio([300], settle_memories=0, bench=bench(Forgetful))


def test_a_store_without_tiers_has_sizes_and_no_ratios_between_tiers() -> None:
    found = benchmark_compression_ratio([50], settle_memories=0, bench=bench("sqlite-baseline"))
    sizes = found["size_50"]
    assert sizes["store"]["raw_to_vector_ratio"] == 1
    assert sizes["stm_to_im_ratio"] == NotAvailable("sqlite-baseline has no stm and im")
    assert found["coding"]["store"]["encode_content_ops_per_second"] > 0


def test_a_store_that_shows_no_forms_still_has_its_size_on_disk() -> None:
    found = benchmark_compression_ratio([50], settle_memories=0, bench=bench(Opaque))
    assert found["size_50"]["store"]["disk_bytes_per_memory"] > 0
    assert found["size_50"]["store"]["raw_to_kept_ratio"] == NotAvailable("opaque does not show it")
    assert isinstance(found["coding"]["store"], NotAvailable)


def test_content_that_comes_back_changed_fails_the_benchmark() -> None:
    with pytest.raises(AssertionError, match="stm returns other content than was written"):
        benchmark_compression_ratio([10], settle_memories=0, bench=bench(Changing))


# -- training_efficiency ----------------------------------------------------------------------


@cache
def training() -> dict[str, Any]:
    return benchmark_training_efficiency([260], epochs=2, batch_size=32, bench=bench())


def test_training_gives_time_memory_and_loss() -> None:
    found = training()["size_260"]
    network = found["autoencoder"]
    assert len(network["loss_per_epoch"]) == 4
    assert network["loss_per_epoch"][1] < network["loss_per_epoch"][0]
    assert network["final_loss"] == pytest.approx(network["loss_per_epoch"][1], abs=1e-6)
    assert network["loss_after_incremental"] == pytest.approx(network["loss_per_epoch"][3], abs=1e-6)
    assert network["incremental_training_seconds"] > 0
    for figures in found.values():
        assert figures["training_time_seconds"] > 0
        assert figures["peak_memory_bytes"] > 260 * 256 * 4
        assert figures["inference_time_ms"] > 0
        assert figures["inference_1000_time_ms"] > 0
    for name in ("pq", "pca"):
        assert isinstance(found[name]["incremental_training_seconds"], NotAvailable)


def test_there_is_nothing_to_train_without_codecs() -> None:
    with pytest.raises(NotSupported, match="sqlite-baseline has no codecs to train"):
        benchmark_training_efficiency([300], bench=bench("sqlite-baseline"))
