"""Memory search: how long a question takes, short or long, with and without a match, by many at once."""

from __future__ import annotations

import random
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
from memory.benchmarking.errors import NotSupported
from memory.benchmarking.measure.interleaved import time_interleaved, turn_medians_us
from memory.benchmarking.measure.resources import traced_peak_bytes
from memory.benchmarking.measure.timing import Timing, wall_ns
from memory.benchmarking.metrics import Metric, declare
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.texts import DID, MEMORIES, QUERIES, WHAT, WHERE, WHO, sentences

if TYPE_CHECKING:
    from memory.benchmarking.benchmarks import BenchmarkRunner

GOAL_MS = 10.0
K = 10
"""How many answers are asked for."""
_LONG = 5
"""Sentences of a long question: about a hundred words."""
_WARM_UP = 3
_COUNT = Metric("", "neither")
_GROWTH = Metric("", "lower")


# -- questions --------------------------------------------------------------------------------


def _short(seed: int) -> Iterator[str]:
    """Two to four words that the memories hold."""
    rng = random.Random(seed)
    while True:
        yield f"{rng.choice(WHO)} {rng.choice(WHAT)}"


def _long(seed: int) -> Iterator[str]:
    """A few questions in one, with what led to them."""
    told, asked = sentences(MEMORIES, seed), sentences(QUERIES, seed)
    while True:
        yield " ".join([*islice(told, _LONG - 1), next(asked)])


def _unmatched(seed: int) -> Iterator[str]:
    """As long as short ones, of words that no memory holds: made of syllables, none twice."""
    rng = random.Random(seed)
    known = set(" ".join((*WHO, *DID, *WHAT, *WHERE)).split())
    seen: set[str] = set()
    while True:
        words = ["".join(rng.choices(("zu", "vox", "qui", "jep", "wug", "xan"), k=3)) for _ in range(3)]
        question = " ".join(words)
        if question not in seen and not known & set(words):
            seen.add(question)
            yield question


# -- one at a time ----------------------------------------------------------------------------


@declare(
    headline="entries_*/search/p50_ms",
    reports=[*TIMED_WITH_SPREAD, "peak_traced_bytes"],
    entries_created=_COUNT,
    answers=_COUNT,
    growth_exponent=_GROWTH,
)
def benchmark_short_query(
    entries: Sequence[int] = (10, 1000, 10000),
    iterations: int = 100,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long a search by a few words takes, with so many memories.

    Read it as what an agent waits before it can answer; embedding the question is part of it.
    `growth_exponent` says how that grows: 1.0 is ten times slower for ten times as many memories.
    `peak_traced_bytes` is what one search allocates at most, measured apart.

    Args:
        entries: how many memories the agent has
        iterations: how many searches are timed at least, each with another question
    """
    return _searches(bench or Bench(), entries, iterations, _short)


@declare(
    headline="entries_*/search/p50_ms",
    reports=[*TIMED_WITH_SPREAD, "peak_traced_bytes"],
    entries_created=_COUNT,
    answers=_COUNT,
    growth_exponent=_GROWTH,
)
def benchmark_long_query(
    entries: Sequence[int] = (10, 1000, 10000),
    iterations: int = 100,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long a search by a paragraph of about a hundred words takes, with so many memories.

    Read it beside `short_query`: the difference is what the length of a question costs (more to embed,
    more words to look up). A loop that searches by a whole message pays this one.

    Args:
        entries: how many memories the agent has
        iterations: how many searches are timed at least, each with another question
    """
    return _searches(bench or Bench(), entries, iterations, _long)


def _searches(
    bench: Bench, entries: Sequence[int], iterations: int, questions: Callable[[int], Iterator[str]]
) -> dict[str, Any]:
    asked = list(islice(questions(bench.seed + 1), iterations))

    def measure(target: Target, agent: str) -> dict[str, Any]:
        timing = bench.time(lambda question: target.search(agent, question, K), asked, label=agent)
        return {"search": with_spread(timing)}

    found = _for_each_size(bench, entries, asked[0], measure)
    return {**found, **_growth(found, "search")}


def _for_each_size(
    bench: Bench,
    entries: Sequence[int],
    question: str,
    measure: Callable[[Target, str], dict[str, Any]],
) -> dict[str, Any]:
    """What is measured on an agent of each size, with what every size tells of itself."""
    if not bench.capabilities.search:
        raise NotSupported(f"{bench.target_name} has no search")
    found: dict[str, Any] = {}
    with bench.target() as target:
        for count in sorted(set(entries)):
            agent = fill(target, count, bench.seed)
            search = partial(target.search, agent, question, K)
            answers = len(search())
            if answers != min(K, count):
                raise AssertionError(f"{target.name} gave {answers} answers out of {count} memories")
            found[f"entries_{count}"] = {
                **measure(target, agent),
                "entries_created": count,
                "answers": answers,
                "peak_traced_bytes": traced_peak_bytes(search),
            }
    return found


def fill(target: Target, count: int, seed: int) -> str:
    """An agent with so many memories."""
    agent = f"agent with {count}"
    texts = sentences(MEMORIES, seed)
    for start in range(0, count, 1000):
        target.add([Item(agent, text) for text in islice(texts, min(1000, count - start))])
    target.flush()
    return agent


def _growth(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    costs = {each["entries_created"]: each[name]["p50_ms"] for each in found.values()}
    return growth_leaves(f"{name} p50", costs)


# -- two ways beside each other ---------------------------------------------------------------


@declare(
    headline="entries_*/no_match/p50_ms",
    reports=[*TIMED_WITH_SPREAD, "peak_traced_bytes"],
    entries_created=_COUNT,
    answers=_COUNT,
    no_match_to_match=Metric("×", "lower"),
    growth_exponent=_GROWTH,
)
def benchmark_no_match(
    entries: Sequence[int] = (10, 1000, 10000),
    iterations: int = 100,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long a search takes whose words are in no memory, beside one whose words are.

    Read `no_match_to_match`: above 1, a question about something unknown is slower to answer. A search by
    meaning still gives the nearest memories (`answers`), however far away they are. Both kinds are timed
    in turns.

    Args:
        entries: how many memories the agent has
        iterations: how many searches of either kind are timed, each with another question
    """
    bench = bench or Bench()
    count = _WARM_UP + iterations
    items = {
        "no_match": list(islice(_unmatched(bench.seed + 1), count)),
        "match": list(islice(_short(bench.seed + 1), count)),
    }

    def measure(target: Target, agent: str) -> dict[str, Any]:
        def search(question: str) -> object:
            return target.search(agent, question, K)

        both = time_interleaved(dict.fromkeys(items, search), items, warm_up=_WARM_UP)
        return {
            **{name: with_spread(timing) for name, timing in both.items()},
            "no_match_to_match": _ratio(both["no_match"], both["match"]),
        }

    found = _for_each_size(bench, entries, items["match"][0], measure)
    return {**found, **_growth(found, "no_match")}


def _ratio(one: Timing, other: Timing) -> float:
    """Of two timings in turns: the median of what each turn says."""
    pairs = zip(turn_medians_us(one), turn_medians_us(other), strict=True)
    return statistics.median(left / right for left, right in pairs)


@declare(
    headline="entries_*/by_vector/p50_ms",
    reports=[*TIMED_WITH_SPREAD, "peak_traced_bytes"],
    entries_created=_COUNT,
    answers=_COUNT,
    vector_to_text=Metric("×", "lower"),
    growth_exponent=_GROWTH,
)
def benchmark_vector_search(
    entries: Sequence[int] = (10, 1000, 10000),
    iterations: int = 100,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long a search by a ready-made vector takes, beside the same question as a text.

    Read `vector_to_text` as the part of a plain search that looking for near vectors takes; the rest is
    embedding the question and looking up its words. Worth a look for those who keep the vectors of their
    questions. Both kinds are timed in turns.

    Args:
        entries: how many memories the agent has
        iterations: how many searches of either kind are timed, each with another question
    """
    bench = bench or Bench()
    if not bench.capabilities.vector_queries:
        raise NotSupported(f"{bench.target_name} can't be searched by a vector")
    from memory.benchmarking.benchmarks.retrieval import _embedded

    questions = list(islice(sentences(QUERIES, bench.seed + 1), _WARM_UP + iterations))
    items: dict[str, Sequence[Any]] = {"by_vector": list(_embedded(questions)), "by_text": questions}

    def measure(target: Target, agent: str) -> dict[str, Any]:
        both = time_interleaved(
            {
                "by_vector": lambda vector: target.search_vector(agent, vector, K),
                "by_text": lambda text: target.search(agent, text, K),
            },
            items,
            warm_up=_WARM_UP,
        )
        return {
            **{name: with_spread(timing) for name, timing in both.items()},
            "vector_to_text": _ratio(both["by_vector"], both["by_text"]),
        }

    found = _for_each_size(bench, entries, questions[0], measure)
    return {**found, **_growth(found, "by_vector")}


# -- many at once -----------------------------------------------------------------------------


@declare(
    headline="entries_*/threads_*/searches_per_second",
    reports=[*SPREAD, "searches_per_second"],
    scaling=Metric("×", "higher"),
)
def benchmark_concurrent_search(
    entries: Sequence[int] = (10, 1000, 10000),
    iterations: int = 100,
    threads: Sequence[int] = (1, 2, 4, 8),
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How many searches a second several threads get out of one open store, and what each of them waits.

    Read `scaling` as the throughput against one thread: it can't pass the number of cores, and below 1 the
    threads are in each other's way. The latencies are what a single thread sees while the others search.

    Args:
        entries: how many memories the agent has
        iterations: how many searches each thread makes
        threads: how many threads search at once
    """
    bench = bench or Bench()
    if not bench.capabilities.search:
        raise NotSupported(f"{bench.target_name} has no search")
    found: dict[str, Any] = {}
    with bench.target() as target:
        for count in sorted(set(entries)):
            agent = fill(target, count, bench.seed)
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
        questions = list(islice(sentences(QUERIES, seed + 1 + number), _WARM_UP + iterations))
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
    begun = ended = 0
    try:
        start_line.wait()
        begun = wall_ns()
        finish_line.wait()
        ended = wall_ns()
    except threading.BrokenBarrierError:
        pass
    for worker in workers:
        worker.join()
    if problems:
        raise problems[0]
    took = [sample / 1e6 for each in samples for sample in each]
    return {"searches_per_second": len(took) / (ended - begun) * 1e9, **spread_of(took)}


# -- by itself --------------------------------------------------------------------------------

_SIZES = (10, 1000, 10000)
_THREADS = 4


def prepare(runner: BenchmarkRunner, iterations: int, stack: ExitStack) -> None:
    """The document's three benchmarks for its small interface at three sizes, by vector, and by threads."""
    from memory.benchmarking.benchmarks.retrieval import _embedded

    bench = Bench()
    seed, most = bench.seed + 1, max(1, iterations)
    texts = list(islice(sentences(QUERIES, seed), most))
    vectors = list(_embedded(texts))
    target = stack.enter_context(bench.target())
    pool = stack.enter_context(ThreadPoolExecutor(_THREADS))
    for count in _SIZES:
        agent = fill(target, count, bench.seed)
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
    """Each call asks the next question; after the last one comes the first."""
    stream = cycle(questions)
    return lambda: search(agent, next(stream), K)


def _searching_at_once(
    target: Target, agent: str, questions: Sequence[str], pool: ThreadPoolExecutor
) -> Callable[[], object]:
    """Each call asks one question a thread, and waits for all."""
    stream = cycle(questions)
    return lambda: list(
        pool.map(lambda question: target.search(agent, question, K), islice(stream, _THREADS))
    )


if __name__ == "__main__":
    from memory.benchmarking.benchmarks._standalone import main

    main("memory_search", GOAL_MS, prepare)
