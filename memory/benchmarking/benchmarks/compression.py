"""How much space the codecs save, and what they lose."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.errors import NotSupported
from memory.benchmarking.measure.resources import disk_bytes, traced_peak_bytes
from memory.benchmarking.metrics import SHARE, Metric, declare
from memory.benchmarking.model.parameters import Count, CountOrZero, Names, Sizes
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.model.presentation import BarChart, LineChart, ListChart, ScatterChart
from memory.benchmarking.targets import load_target
from memory.benchmarking.targets.base import Coding, Item, Kept, Target
from memory.benchmarking.workloads.contents import contents_of, mixed_contents

if TYPE_CHECKING:
    from memory.benchmarking.benchmarks._compression_vectors import Floats

_CORPUS = "agent of the corpus"
_SAMPLES = "agent_of_the_samples"
_BATCH = 1000
"""Memories stored at once, and how many vectors or contents a coding is timed with."""


@declare(
    headline="mixed/tiers/ltm_small_code/neighbour_recall_at_10|*/ltm_small_code/neighbour_recall_at_10"
    "|*/codecs/pq/neighbour_recall_at_10|*/neighbour_recall_at_10",
    reports=["fit_seconds", "encode_ops_per_second", "decode_ops_per_second"],
    reconstruction_mse=Metric("", "lower"),
    cosine_similarity=SHARE,
    neighbour_recall_at_10=SHARE,
    bytes_per_vector=Metric("B", "lower"),
    vs_full_ratio=Metric("×", "lower"),
    rounds=1,
    profiles={
        "quick": {
            "test_data_categories": ["dialogue"],
            "samples": 50,
            "corpus_vectors": 300,
            "training_vectors": 300,
        },
        "standard": {"corpus_vectors": 1000},
    },
    expected_seconds={"quick": 3.0, "standard": 18.0, "full": 25.0},
    charts=[
        ScatterChart(
            "Neighbours that are still found, against the bytes of a vector",
            x_metric="bytes_per_vector",
            y_metric="neighbour_recall_at_10",
            x_label="bytes per vector",
            label="neighbours found",
            names=["part2"],
            panels=["part0"],
            only="*/codecs/*",
            notes="pick",
            share=True,
            note="Up and to the left is better.",
        )
    ],
    notes=["pick"],
)
def benchmark_embedding_quality(
    test_data_categories: Names = ("navigation", "dialogue", "inventory"),
    samples: Count = 100,
    corpus_vectors: Count = 2000,
    training_vectors: Count = 2000,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """What a vector loses in each tier and codec, and how many of its neighbours are still found.

    Read `neighbour_recall_at_10` together with `bytes_per_vector`. `pick` names the codec with the highest
    recall within a quarter, a sixteenth and a thirty-second of the full vector's bytes. All codecs are
    fitted on other data of the same kind. `mixed` has all kinds in one store, which is harder. A tier may
    keep two vectors: a small code and a finer one. `ltm` searches the finer vector and counts the bytes of
    both; `ltm_small_code` is the small code alone.

    Args:
        test_data_categories: kinds of data: navigation, dialogue, inventory
        samples: how many vectors are tested, of each kind
        corpus_vectors: how many other vectors they have as possible neighbours
        training_vectors: how many vectors the codecs are fitted on; the store's own codecs need 2,000
    """
    bench = bench or Bench()
    if not (bench.capabilities.forms or bench.capabilities.compression):
        raise NotSupported(f"{bench.system} shows neither its codecs nor how it keeps vectors")
    found: dict[str, Any] = {}
    for kind in test_data_categories:
        training = contents_of(kind, training_vectors, bench.seed + 1)
        contents = contents_of(kind, samples + corpus_vectors, bench.seed)
        tested, corpus = contents[:samples], contents[samples:]
        found[kind] = {
            "tiers": _tiers(bench, training, tested, corpus),
            **_codecs(bench, kind, training, tested, corpus),
        }
    if len(test_data_categories) > 1:
        training = mixed_contents(training_vectors, bench.seed + 1, test_data_categories)
        contents = mixed_contents(samples + corpus_vectors, bench.seed, test_data_categories)
        found["mixed"] = {"tiers": _tiers(bench, training, contents[:samples], contents[samples:])}
    return found


def _codecs(
    bench: Bench, kind: str, training: Sequence[Any], tested: Sequence[Any], corpus: Sequence[Any]
) -> dict[str, Any]:
    from memory.benchmarking.benchmarks._compression_vectors import embedded, picks, through_codec

    target = load_target(bench.target_name)
    if not target.capabilities.compression:
        return {"codecs": not_available(f"{bench.system} has no codecs to pick from")}
    training_vectors, samples, others = embedded(training), embedded(tested), embedded(corpus)
    codecs = {
        name: through_codec(bench, target.codec(name), f"{kind}, {name}", training_vectors, samples, others)
        for name in target.codec_names()
    }
    return {"codecs": codecs, "pick": picks(codecs)}


def _tiers(
    bench: Bench, training: Sequence[Any], tested: Sequence[Any], corpus: Sequence[Any]
) -> dict[str, Any]:
    from memory.benchmarking.benchmarks._compression_vectors import embedded, quality

    places = bench.capabilities.places
    if not bench.capabilities.forms:
        reason = f"{bench.system} does not show in what form it keeps vectors"
        return {place: not_available(reason) for place in places}
    sample = [Item(_CORPUS, content) for content in training]
    samples, others = embedded(tested), embedded(corpus)
    found: dict[str, Any] = {}
    for place in places:
        with bench.target(sample) as target:
            kept_samples = _stored(bench, target, place, _SAMPLES, tested)
            kept_corpus = _stored(bench, target, place, _CORPUS, corpus)
        pairs = list(zip(kept_samples.forms, kept_corpus.forms, strict=True))
        widths = [form.bytes_per_vector for form, _ in pairs]
        for number, (read_back, kept) in enumerate(pairs):
            finest = number == len(pairs) - 1
            figures = quality(
                samples,
                read_back.vectors,
                others,
                kept.vectors,
                sum(widths) if finest else widths[number],
            )
            name = place if finest else f"{place}_small_code"
            written_as = " + ".join(form.name for form, _ in pairs) if finest else kept.name
            found[name] = figures | {"codec": written_as}
    return found


def _stored(bench: Bench, target: Target, place: str, agent: str, contents: Sequence[Any]) -> Kept:
    ids = _add(bench, target, place, [Item(agent, content) for content in contents])
    target.maintain()  # a tier may encode new memories in its own form only then
    return target.kept(agent, ids)


def _add(bench: Bench, target: Target, place: str, items: Sequence[Item]) -> list[str]:
    ids = bench.store(target, items, place)
    bench.read_back(target)
    target.flush()
    return ids


_SAVED = Metric("×", "higher")
_CODED = ("encode_vectors", "decode_vectors", "encode_content", "decode_content")
_SIZE = Metric("B", "lower")


@declare(
    headline="size_*/ltm/raw_to_kept_ratio|*/raw_to_kept_ratio",
    reports=[f"{what}_ops_per_second" for what in _CODED],
    raw_content_bytes_per_memory=Metric("B", "neither"),
    raw_vector_bytes_per_memory=Metric("B", "neither"),
    disk_bytes_per_memory=_SIZE,
    content_bytes_per_memory=_SIZE,
    vector_bytes_per_memory=_SIZE,
    raw_to_disk_ratio=_SAVED,
    raw_to_kept_ratio=_SAVED,
    raw_to_content_ratio=_SAVED,
    raw_to_vector_ratio=_SAVED,
    stm_to_im_ratio=_SAVED,
    im_to_ltm_ratio=_SAVED,
    stm_to_ltm_ratio=_SAVED,
    rounds={"quick": 1, "standard": 3, "full": 3},
    profiles={
        "quick": {"dataset_sizes": [100], "settle_memories": 0},
        "standard": {"dataset_sizes": [100, 1000]},
    },
    expected_seconds={"quick": 1.2, "standard": 4.0, "full": 15.0},
    charts=[
        LineChart(
            "How many times smaller than raw, by number of memories",
            "raw_to_kept_ratio",
            "size",
            x_label="memories",
            label="times smaller",
            lines=["tier"],
        ),
        BarChart(
            "Coding speed of the tiers",
            metric=[f"{what}_ops_per_second" for what in _CODED],
            names=["tier"],
            label="operations",
        ),
    ],
)
def benchmark_compression_ratio(
    dataset_sizes: Sizes = (100, 1000, 10000),
    settle_memories: CountOrZero = 2000,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How much smaller memories are in each tier than their JSON and float32 vectors; speed of the codecs.

    Read `raw_to_kept_ratio` as what compression saves: raw bytes of content and vector ÷ kept bytes.
    `raw_to_disk_ratio` includes keys and search indexes: it divides by how much a store in use grew. The
    ratios between tiers compare this growth. `coding` is the speed of encoding and decoding alone, contents
    one by one and vectors in batches.

    Args:
        dataset_sizes: how many memories are stored, a third each of navigation, dialogue and inventory
        settle_memories: how many other memories the store already holds and has fitted its codecs on
    """
    bench = bench or Bench()
    sample = [Item(_CORPUS, content) for content in mixed_contents(settle_memories, bench.seed + 1)]
    found: dict[str, Any] = {}
    with bench.folder() as base:
        _used_store(bench, base, sample)
        for size in dataset_sizes:
            found[f"size_{size}"] = _sizes(bench, base, mixed_contents(size, bench.seed))
        found["coding"] = {
            place: _coding_speed(bench, base, place, mixed_contents(_BATCH, bench.seed))
            for place in bench.capabilities.places
        }
    return found


def _used_store(bench: Bench, base: Path, sample: Sequence[Item]) -> None:
    """Make a store with fitted codecs and without free pages.

    The memories deleted while settling left free pages in the files. Storing the same memories again fills
    them, so that the next memories make the files grow.
    """
    with bench.target_folder(sample) as folder:
        with bench.open_target(folder) as target:
            if sample:
                _add(bench, target, bench.capabilities.places[0], sample)
        shutil.copytree(folder, base, dirs_exist_ok=True)


def _sizes(bench: Bench, base: Path, contents: Sequence[Any]) -> dict[str, Any]:
    import msgspec

    from memory.benchmarking.benchmarks._compression_vectors import FULL_BYTES

    raw_content = sum(len(msgspec.json.encode(content)) for content in contents) / len(contents)
    found: dict[str, Any] = {
        "raw_content_bytes_per_memory": raw_content,
        "raw_vector_bytes_per_memory": float(FULL_BYTES),
    }
    grown = {}
    for place in bench.capabilities.places:
        disk, kept = _grown(bench, base, place, contents)
        grown[place] = disk
        found[place] = {
            "disk_bytes_per_memory": disk,
            "raw_to_disk_ratio": _ratio(raw_content + FULL_BYTES, disk),
            **_as_kept(kept, raw_content, FULL_BYTES, len(contents)),
        }
    for upper, lower in (("stm", "im"), ("im", "ltm"), ("stm", "ltm")):
        found[f"{upper}_to_{lower}_ratio"] = (
            _ratio(grown[upper], grown[lower])
            if upper in grown and lower in grown
            else not_available(f"{bench.system} has no {upper} and {lower}")
        )
    return found


def _ratio(size: float, disk: float) -> float | NotAvailable:
    if size > 0 and disk > 0:
        return size / disk
    return not_available("the files did not grow: use a larger size")


def _grown(
    bench: Bench, base: Path, place: str, contents: Sequence[Any]
) -> tuple[float, Kept | NotSupported]:
    """Return by how many bytes per memory the store grew, and what it keeps of the memories."""
    kept: Kept | NotSupported
    with bench.folder() as folder:
        shutil.copytree(base, folder, dirs_exist_ok=True)
        with bench.open_target(folder) as target:
            ids = _add(bench, target, place, [Item(_SAMPLES, content) for content in contents])
            target.maintain()
            try:
                kept = target.kept(_SAMPLES, ids)
            except NotSupported as reason:
                kept = reason
        return (disk_bytes(folder) - disk_bytes(base)) / len(contents), kept


def _as_kept(
    kept: Kept | NotSupported, raw_content: float, raw_vector: float, count: int
) -> dict[str, Any]:
    if isinstance(kept, NotSupported):
        return {"raw_to_kept_ratio": not_available(str(kept))}
    content = kept.content_bytes / count
    vector = sum(form.bytes_per_vector for form in kept.forms)
    return {
        "content_bytes_per_memory": content,
        "vector_bytes_per_memory": vector,
        "raw_to_content_ratio": raw_content / content,
        "raw_to_vector_ratio": raw_vector / vector,
        "raw_to_kept_ratio": (raw_content + raw_vector) / (content + vector),
    }


def _coding_speed(bench: Bench, base: Path, place: str, contents: Sequence[Any]) -> Any:
    from memory.benchmarking.benchmarks._compression_vectors import embedded

    if not bench.capabilities.forms:
        return not_available(f"{bench.system} does not show in what form it keeps memories")
    vectors = embedded(contents)
    with bench.folder() as folder:
        shutil.copytree(base, folder, dirs_exist_ok=True)
        with bench.open_target(folder) as target:
            return _time_coding(bench, target.coding(place), place, contents, vectors)


def _time_coding(
    bench: Bench, coding: Coding, place: str, contents: Sequence[Any], vectors: Floats
) -> dict[str, float]:
    bodies = [coding.encode_content(content) for content in contents]
    codes = coding.encode_vectors(vectors)
    if [coding.decode_content(body) for body in bodies] != list(contents):
        raise AssertionError(f"{place} returns other content than was written")
    count = len(vectors)
    timings = {
        "encode_content": bench.time(coding.encode_content, contents, label=f"{place}, contents"),
        "decode_content": bench.time(coding.decode_content, bodies, label=f"{place}, contents back"),
        "encode_vectors": bench.time(
            lambda: coding.encode_vectors(vectors), work=count, label=f"{place}, vectors"
        ),
        "decode_vectors": bench.time(
            lambda: coding.decode_vectors(codes), work=count, label=f"{place}, vectors back"
        ),
    }
    return {f"{name}_ops_per_second": each["throughput_ops_per_second"] for name, each in timings.items()}


_TRAINED = ("autoencoder", "pq", "pca")


@declare(
    headline="size_*/autoencoder/training_time_seconds|*/training_time_seconds",
    reports=["training_time_seconds", "incremental_training_seconds", "peak_memory_bytes"],
    final_loss=Metric("", "lower"),
    loss_after_incremental=Metric("", "lower"),
    inference_time_ms=Metric("ms", "lower"),
    inference_1000_time_ms=Metric("ms", "lower"),
    rounds={"quick": 1, "standard": 2, "full": 2},
    profiles={
        "quick": {"data_sizes": [300], "epochs": 1},
        "standard": {"data_sizes": [300, 1000]},
    },
    expected_seconds={"quick": 1.8, "standard": 5.0, "full": 120.0},
    charts=[
        ListChart(
            "Loss of the autoencoder",
            leaf="loss_per_epoch",
            x_label="epoch",
            label="loss",
            note="The second half continues the training with further data.",
        ),
        LineChart(
            "Time to train, by number of vectors",
            "training_time_seconds",
            "size",
            x_label="vectors",
            label="time to train",
            lines=["part"],
            fit=True,
        ),
    ],
)
def benchmark_training_efficiency(
    data_sizes: Sizes = (1000, 10000, 100000),
    epochs: Count = 10,
    batch_size: Count = 32,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """What it costs to train the autoencoder and to continue training, compared with fitting pq and pca.

    Read `training_time_seconds` as the time before a codec can be used. `incremental_training_seconds` is
    the time to continue the training with a tenth as many new vectors; pq and pca can't do this.
    `peak_memory_bytes` is the most that the allocators of Python and NumPy held, traced in a separate pass
    with one epoch. pq samples 16,384 of the vectors; the others use all. `loss_per_epoch` is 1 - cosine,
    with the incremental epochs last.

    Args:
        data_sizes: how many vectors of dialogue are trained on; pq needs at least 256
        epochs: how many times the autoencoder sees each vector
        batch_size: how many vectors each training step uses
    """
    bench = bench or Bench()
    if not bench.capabilities.compression:
        raise NotSupported(f"{bench.system} has no codecs to train")
    from memory.benchmarking.benchmarks._compression_vectors import embedded

    largest = max(data_sizes)
    vectors = embedded(contents_of("dialogue", largest + max(largest // 10, batch_size), bench.seed))
    found: dict[str, Any] = {}
    for size in data_sizes:
        training, later = vectors[:size], vectors[size : size + max(size // 10, batch_size)]
        found[f"size_{size}"] = {
            name: _training(bench, name, size, training, later, epochs, batch_size) for name in _TRAINED
        }
    return found


def _training(
    bench: Bench, name: str, size: int, training: Floats, later: Floats, epochs: int, batch_size: int
) -> dict[str, Any]:
    target = load_target(bench.target_name)
    options = {"batch_size": batch_size, "epochs": epochs} if name == "autoencoder" else {}
    label = f"{name}, {size} vectors"
    codec = target.codec(name, **options)
    fitting = bench.time(lambda: codec.fit(training), calls=1, warm_up=0, label=label)
    found: dict[str, Any] = {"training_time_seconds": fitting["total_time_seconds"]}
    if name == "autoencoder":
        losses = getattr(codec, "history", [])
        trained = len(losses)
        incremental = bench.time(lambda: codec.fit(later), calls=1, warm_up=0, label=f"{label}, continued")
        found["incremental_training_seconds"] = incremental["total_time_seconds"]
        found["final_loss"] = losses[trained - 1]
        found["loss_after_incremental"] = losses[-1]
        found["loss_per_epoch"] = [round(loss, 6) for loss in losses]
    else:
        found["incremental_training_seconds"] = not_available(f"{name} can't continue its training")
    traced = target.codec(name, **(options | {"epochs": 1} if options else {}))
    found["peak_memory_bytes"] = traced_peak_bytes(lambda: traced.fit(training))
    thousand = training[:1000]
    if len(thousand) < 1000:
        import numpy as np

        thousand = np.resize(training, (1000, training.shape[1]))
    one = bench.time(codec.encode, [row[None, :] for row in thousand[:100]], label=f"{label}, one")
    many = bench.time(lambda: codec.encode(thousand), label=f"{label}, 1000")
    return found | {"inference_time_ms": one["p50_ms"], "inference_1000_time_ms": many["p50_ms"]}
