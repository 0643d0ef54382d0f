"""How long an agent waits for a search of its memory."""

from __future__ import annotations

import random
import re
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.benchmarks._growing import growth_leaves
from memory.benchmarking.benchmarks._spread import SPREAD, TIMED_WITH_SPREAD, spread_of, with_spread
from memory.benchmarking.measure.interleaved import time_interleaved, turn_medians_us
from memory.benchmarking.measure.resources import traced_peak_bytes
from memory.benchmarking.measure.timing import wall_ns
from memory.benchmarking.metrics import Metric, declare
from memory.benchmarking.model.parameters import Count, Sizes
from memory.benchmarking.model.presentation import AnyChart, LineChart, PercentileChart
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.natural_texts import all_words, memory_texts, question_texts

if TYPE_CHECKING:
    from memory.benchmarking.benchmarks import BenchmarkRunner

GOAL_MS = 10.0
K = 10
"""How many answers each search requests."""
_LONG = 5
"""Sentences of a long question: about a hundred words."""
_SHORT_LEAST, _SHORT_MOST = 2, 4
"""Words of a short question."""
_WARM_UP = 3
"""Searches before the first timed one."""
_COUNT = Metric("", "neither")


# -- questions --------------------------------------------------------------------------------


def _short(seed: int) -> Iterator[str]:
    """Yield two to four words that are in the memories."""
    rng = random.Random(seed)
    for text in memory_texts(seed):
        words = re.findall(r"[a-z]{4,}", text)
        if len(words) >= _SHORT_MOST:
            yield " ".join(rng.sample(words, rng.randint(_SHORT_LEAST, _SHORT_MOST)))


def _long(seed: int) -> Iterator[str]:
    """Yield a question after several statements."""
    statements, questions = memory_texts(seed), question_texts(seed)
    while True:
        yield " ".join([*islice(statements, _LONG - 1), next(questions)])


def _unmatched(seed: int) -> Iterator[str]:
    """Yield questions as long as short ones, of words in no memory: made of syllables, none twice."""
    rng = random.Random(seed)
    known = all_words()
    seen: set[str] = set()
    while True:
        words = ["".join(rng.choices(("zu", "vox", "qui", "jep", "wug", "xan"), k=3)) for _ in range(3)]
        question = " ".join(words)
        if question not in seen and not known & set(words):
            seen.add(question)
            yield question


# -- one at a time, or two ways in turns ------------------------------------------------------

Search = Callable[[Target, str, Any], object]
Ways = Mapping[str, tuple[Search, Sequence[Any]]]
"""Ways to search, by name: the call, and what to search for. The last one searches by text."""

_declare = partial(
    declare,
    reports=[*TIMED_WITH_SPREAD, "peak_traced_bytes", "growth_exponent"],
    goals={"p50_ms": GOAL_MS},
    entries_created=_COUNT,
    answers=_COUNT,
)


def _charts(what: str) -> list[AnyChart]:
    return [
        LineChart(
            f"{what}, by number of memories",
            "p50_ms",
            "entries",
            x_label="memories",
            lines=["part"],
            fit=True,
        ),
        PercentileChart(f"{what}, with the most memories", lines=["part"], largest="entries"),
    ]


def _by_text(target: Target, agent: str, question: str) -> object:
    return target.search(agent, question, K)


def _by_vector(target: Target, agent: str, vector: Any) -> object:
    return target.search_vector(agent, vector, K)


@_declare(
    headline="entries_*/search/p50_ms",
    search_figures="*",
    profiles={"quick": {"entries": [10, 100], "iterations": 20}},
    expected_seconds={"quick": 0.4, "standard": 2.0, "full": 2.5},
    charts=_charts("Search by a few words"),
)
def benchmark_short_query(
    entries: Sizes = (10, 1000, 10000),
    iterations: Count = 100,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long a search by a few words takes.

    Read it as the time that an agent waits before it can answer. It includes embedding the question.
    `growth_exponent` is how the time grows: 1.0 means ten times slower with ten times as many memories.
    `peak_traced_bytes` is the most memory that one search allocates, measured separately.

    Args:
        entries: how many memories the agent has
        iterations: the smallest number of searches to time, each with another question
    """
    bench = bench or Bench()
    questions = list(islice(_short(bench.seed + 1), iterations))
    return _searches(bench, entries, {"search": (_by_text, questions)})


@_declare(
    headline="entries_*/search/p50_ms",
    search_figures="*",
    profiles={"quick": {"entries": [10, 100], "iterations": 20}},
    expected_seconds={"quick": 0.6, "standard": 2.5, "full": 3.0},
    charts=_charts("Search by a paragraph"),
)
def benchmark_long_query(
    entries: Sizes = (10, 1000, 10000),
    iterations: Count = 100,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long a search by a paragraph of about a hundred words takes.

    Compare it with `short_query`: the difference is the cost of a long question (more to embed, more words
    to look up). An agent loop that searches by a whole message pays this cost.

    Args:
        entries: how many memories the agent has
        iterations: the smallest number of searches to time, each with another question
    """
    bench = bench or Bench()
    questions = list(islice(_long(bench.seed + 1), iterations))
    return _searches(bench, entries, {"search": (_by_text, questions)})


@_declare(
    headline="entries_*/no_match/p50_ms",
    search_figures="*",
    profiles={"quick": {"entries": [10, 100], "iterations": 20}, "standard": {"entries": [10, 1000]}},
    expected_seconds={"quick": 0.4, "standard": 0.8, "full": 2.0},
    charts=_charts("Search without a match"),
    no_match_to_match=Metric("×", "lower"),
)
def benchmark_no_match(
    entries: Sizes = (10, 1000, 10000),
    iterations: Count = 100,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long a search takes whose words are in no memory, compared with one whose words are.

    Read `no_match_to_match`: above 1, a question about something unknown is slower to answer. A search by
    meaning still returns the nearest memories (`answers`), however distant they are. The two kinds are
    timed in turns, and include embedding the question.

    Args:
        entries: how many memories the agent has
        iterations: how many searches of each kind are timed, each with another question
    """
    bench = bench or Bench()
    count = _WARM_UP + iterations
    ways: Ways = {
        "no_match": (_by_text, list(islice(_unmatched(bench.seed + 1), count))),
        "match": (_by_text, list(islice(_short(bench.seed + 1), count))),
    }
    return _searches(bench, entries, ways, ratio="no_match_to_match")


@_declare(
    headline="entries_*/by_vector/p50_ms",
    search_figures="*/by_text/*",
    vector_figures="*/by_vector/*",
    profiles={"quick": {"entries": [10, 100], "iterations": 20}, "standard": {"entries": [10, 1000]}},
    expected_seconds={"quick": 0.4, "standard": 0.8, "full": 2.0},
    charts=_charts("Search by vector and by text"),
    vector_to_text=Metric("×", "lower"),
)
def benchmark_vector_search(
    entries: Sizes = (10, 1000, 10000),
    iterations: Count = 100,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long a search by a ready-made vector takes, compared with the same question as text.

    Read `vector_to_text` as the share of a text search's time that finds near vectors. The rest embeds the
    question and looks up its words. It matters to callers that keep the vectors of their questions. The two
    kinds are timed in turns.

    Args:
        entries: how many memories the agent has
        iterations: how many searches of each kind are timed, each with another question
    """
    bench = bench or Bench()
    bench.require(bench.no_vector_search(K))
    from memory.benchmarking.benchmarks._compression_vectors import embedded

    questions = list(islice(question_texts(bench.seed + 1), _WARM_UP + iterations))
    vectors = list(embedded(questions, bench.embedder))
    ways: Ways = {"by_vector": (_by_vector, vectors), "by_text": (_by_text, questions)}
    return _searches(bench, entries, ways, ratio="vector_to_text")


def _searches(bench: Bench, entries: Sequence[int], ways: Ways, ratio: str = "") -> dict[str, Any]:
    """Time the ways to search, for each size; `ratio` names the first way's time ÷ the second's."""
    bench.require(bench.no_search(K))
    first, (_, questions) = next(iter(ways)), list(ways.values())[-1]
    found: dict[str, Any] = {}
    with bench.target() as target:
        for count in sorted(set(entries)):
            agent = fill(bench, target, count)
            search = partial(target.search, agent, questions[0], K)
            answers = len(search())
            if answers != min(K, count):
                raise AssertionError(f"{target.name} gave {answers} answers out of {count} memories")
            found[f"entries_{count}"] = {
                **_timed(bench, target, agent, ways, ratio),
                "entries_created": count,
                "answers": answers,
                "peak_traced_bytes": traced_peak_bytes(search),
            }
    costs = {each["entries_created"]: each[first]["p50_ms"] for each in found.values()}
    return {**found, **growth_leaves(f"{first} p50", costs)}


def _timed(bench: Bench, target: Target, agent: str, ways: Ways, ratio: str) -> dict[str, Any]:
    calls = {name: partial(search, target, agent) for name, (search, _) in ways.items()}
    items = {name: items for name, (_, items) in ways.items()}
    if len(ways) == 1:
        return {name: with_spread(bench.time(calls[name], items[name], label=agent)) for name in ways}
    timings = time_interleaved(calls, items, warm_up=_WARM_UP)
    pairs = zip(*map(turn_medians_us, timings.values()), strict=True)
    return {
        **{name: with_spread(timing) for name, timing in timings.items()},
        ratio: statistics.median(one / other for one, other in pairs),
    }


def fill(bench: Bench, target: Target, count: int) -> str:
    """Store this many memories for a new agent, and return its id."""
    agent = f"agent_with_{count}"
    bench.store(target, [Item(agent, text) for text in islice(memory_texts(bench.seed), count)])
    target.flush()
    return agent


# -- many at once -----------------------------------------------------------------------------


@declare(
    headline="entries_*/threads_*/searches_per_second",
    search_figures="*",
    reports=[*SPREAD, "searches_per_second"],
    profiles={
        "quick": {"entries": [10, 100], "iterations": 20, "threads": [1, 2, 4]},
        "standard": {"entries": [10, 1000]},
    },
    expected_seconds={"quick": 0.4, "standard": 2.4, "full": 7.0},
    goals={"p50_ms": GOAL_MS},
    charts=[
        LineChart(
            "Searches per second, by number of threads", "searches_per_second", "threads", lines=["entries"]
        ),
        LineChart("How long each search waits", "p50_ms", "threads", lines=["entries"]),
    ],
    scaling=Metric("×", "higher"),
)
def benchmark_concurrent_search(
    entries: Sizes = (10, 1000, 10000),
    iterations: Count = 100,
    threads: Sizes = (1, 2, 4, 8),
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How many searches per second several threads make on one open store, and how long each one waits.

    Read `scaling` as the throughput against that of one thread. It can't exceed the number of cores; below
    1, the threads slow each other down. The latencies are those of one thread while the others search. They
    include embedding the question.

    Args:
        entries: how many memories the agent has
        iterations: how many searches each thread makes
        threads: how many threads search at once
    """
    bench = bench or Bench()
    bench.require(bench.no_search(K))
    found: dict[str, Any] = {}
    with bench.target() as target:
        for count in sorted(set(entries)):
            agent = fill(bench, target, count)
            found[f"entries_{count}"] = {
                f"threads_{number}": _searches_at_once(target, agent, iterations, number, bench.seed)
                for number in sorted(set(threads))
            }
    for by_threads in found.values():
        alone = by_threads.get("threads_1")
        for figures in by_threads.values() if alone else ():
            if isinstance(figures, dict):
                figures["scaling"] = figures["searches_per_second"] / alone["searches_per_second"]
    return found


def _searches_at_once(target: Target, agent: str, iterations: int, threads: int, seed: int) -> Any:
    if threads > 1 and not target.capabilities.threads:
        return not_available(f"threads can't share one open store of {target.name}")
    samples: list[list[int]] = [[] for _ in range(threads)]
    problems: list[BaseException] = []
    start_line, finish_line = threading.Barrier(threads + 1), threading.Barrier(threads + 1)

    def work(number: int) -> None:
        questions = list(islice(question_texts(seed + 1 + number), _WARM_UP + iterations))
        try:
            for question in questions[:_WARM_UP]:
                target.search(agent, question, K)
            start_line.wait()
            for question in questions[_WARM_UP:]:
                start = wall_ns()
                target.search(agent, question, K)
                samples[number].append(wall_ns() - start)
            finish_line.wait()
        except threading.BrokenBarrierError:
            pass
        except BaseException as problem:
            problems.append(problem)
            start_line.abort()
            finish_line.abort()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    started = ended = 0
    try:
        start_line.wait()
        started = wall_ns()
        finish_line.wait()
        ended = wall_ns()
    except threading.BrokenBarrierError:
        pass
    for worker in workers:
        worker.join()
    if problems:
        raise problems[0]
    milliseconds = [sample / 1e6 for by_thread in samples for sample in by_thread]
    return {"searches_per_second": len(milliseconds) / (ended - started) * 1e9, **spread_of(milliseconds)}


# -- as a program -----------------------------------------------------------------------------

_SIZES = (10, 1000, 10000)
_THREADS = 4


def prepare(runner: BenchmarkRunner, iterations: int, stack: ExitStack) -> None:
    """Add three benchmarks at three sizes, a search by vector and one with several threads."""
    from memory.benchmarking.benchmarks._compression_vectors import embedded

    bench = Bench()
    seed, most = bench.seed + 1, max(1, iterations)
    texts = list(islice(question_texts(seed), most))
    vectors = list(embedded(texts))
    target = stack.enter_context(bench.target())
    pool = stack.enter_context(ThreadPoolExecutor(_THREADS))
    for count in _SIZES:
        agent = fill(bench, target, count)
        searches = {
            "short_query": _searching(target.search, agent, list(islice(_short(seed), most))),
            "long_query": _searching(target.search, agent, list(islice(_long(seed), most))),
            "no_match": _searching(target.search, agent, list(islice(_unmatched(seed), most))),
            "vector_search": _searching(target.search_vector, agent, vectors),
            f"concurrent_search, {_THREADS} threads": _searching_at_once(target, agent, texts, pool),
        }
        for name, search in searches.items():
            runner.add_benchmark(f"{name} ({count:,} entries)", search, iterations, warm_up=_WARM_UP)


def _searching(
    search: Callable[[str, Any, int], object], agent: str, questions: Sequence[Any]
) -> Callable[[], object]:
    """Return a function that searches for the next question at each call, in a circle."""
    stream = cycle(questions)
    return lambda: search(agent, next(stream), K)


def _searching_at_once(
    target: Target, agent: str, questions: Sequence[str], pool: ThreadPoolExecutor
) -> Callable[[], object]:
    """Return a function that searches for one question per thread at each call, and waits for all."""
    stream = cycle(questions)
    return lambda: list(
        pool.map(lambda question: target.search(agent, question, K), islice(stream, _THREADS))
    )


if __name__ == "__main__":
    from memory.benchmarking.benchmarks._standalone import main

    main("memory_search", GOAL_MS, prepare)
