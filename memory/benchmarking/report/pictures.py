"""Which pictures a benchmark gets: each answers the question that the benchmark asks.

A benchmark that is not in this list, a user's own, gets those of `generic`.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.benchmarking.model.paths import Place, segments_of
from memory.benchmarking.report.charts import Chart
from memory.benchmarking.report.default_charts import default_charts
from memory.benchmarking.report.gather import Gathered
from memory.benchmarking.report.makers import (
    SHARE,
    Maker,
    Shown,
    against,
    bars,
    numbers,
    over,
    over_leaves,
    percentiles,
    timeline,
)
from memory.benchmarking.text.remarks import PICK, remarks

RATE = "throughput_ops_per_second"
MEDIAN = Shown("median time")
CATEGORIES = {
    "storage": "How quickly memories are written and read back, and what room they take.",
    "compression": "What the codecs save, and what is lost by it.",
    "memory_transition": "What moving down the tiers costs, and what comes through.",
    "retrieval": "How quickly and how well a search finds what it should.",
    "scalability": "What happens with more agents, more memories and more time.",
    "integration": "What the memory adds to the code around it.",
    "agent_execution": "What one message to an agent costs besides the model.",
    "memory_search": "How long an agent waits for what it remembers.",
    "context_build": "How long it takes to build what the model gets to see.",
    "quality": "Whether the passages that answer a question are found.",
}
"""What each category asks."""


@dataclass(frozen=True)
class Story:
    """A benchmark's question, and the pictures that answer it."""

    question: str
    makers: tuple[Maker, ...]


def pictures(gathered: Gathered) -> list[Chart]:
    """The charts of one benchmark; those without anything to show are left out."""
    story = STORIES.get(gathered.name)
    if story is None:
        return default_charts(gathered)
    made = [chart for maker in story.makers if (chart := maker(gathered)) is not None]
    # Someone's own benchmark may have the name of one of ours, and other figures.
    return made or default_charts(gathered)


def question(gathered: Gathered) -> str:
    story = STORIES.get(gathered.name)
    return story.question if story else ""


def _is_codec(place: Place) -> bool:
    return "codecs" in place.part.split("/")


def _picks(gathered: Gathered) -> tuple[str, ...]:
    """Which codec keeps most neighbours within so much room, where the benchmark picked one."""
    return tuple(
        f"Best for {', '.join(segments_of(path)[0] for path in remark.paths)}: {remark.text}."
        for source, result in gathered.results
        for remark in remarks(result.result.results)
        if source == 0 and remark.name == PICK
    )


def _search(title: str, goal: float = 10.0) -> tuple[Maker, ...]:
    """The pictures of a search over several numbers of entries."""
    return (
        over(
            f"{title}, by number of memories", "p50_ms", "entries",
            x_label="memories", shown=Shown("median time", goal=goal), lines=("part",), fit=True,
        ),
        percentiles(f"{title}, with the most memories", lines=("part",), largest="entries", goal=goal),
    )  # fmt: skip


STORIES: dict[str, Story] = {
    # -- storage ------------------------------------------------------------------------------
    "storage.write_throughput": Story(
        "How many states a second can be stored in each tier, one by one and as one batch?",
        (
            over(
                "Memories written a second, by batch size", RATE, "batch_size",
                x_label="batch size", shown=Shown("throughput"), lines=("tier",),
                panels=("part", "complexity"), note="Higher is better.",
            ),
            percentiles(
                "How long one write takes", lines=("tier",), largest="batch_size",
                keep=lambda place: place.part == "one_by_one",
                what="time of a write",
            ),
        ),
    ),
    "storage.read_latency": Story(
        "How long does one memory, or a batch of them, take to read back by id?",
        (
            percentiles(
                "How long one read takes", lines=("tier",), keep=lambda place: place.part == "single",
                what="time of a read",
            ),
            over(
                "Memories read a second, by batch size", RATE, "batch_size", x_if_none=1,
                x_label="batch size", shown=Shown("throughput"), lines=("tier",), note="Higher is better.",
            ),
        ),
    ),
    "storage.memory_efficiency": Story(
        "What room do the same memories take in each tier?",
        (
            bars(
                "Room that one memory takes", ("disk_bytes_per_memory", "ram_bytes_per_memory"), ("tier",),
                shown=Shown("room a memory"), panels=("complexity",), note="Lower is better.",
                called={"disk bytes per memory": "on disk", "ram bytes per memory": "in RAM"},
            ),
        ),
    ),
    # -- compression --------------------------------------------------------------------------
    "compression.embedding_quality": Story(
        "What does a vector lose in each codec, and how many of its neighbours are still found?",
        (
            against(
                "Neighbours that are still found, against the bytes of a vector",
                "bytes_per_vector", "neighbour_recall_at_10",
                x_label="bytes a vector", shown=Shown("neighbours found", SHARE), names=("part2",),
                panels=("part0",), keep=_is_codec, findings=_picks,
                note="Up and to the left is better.",
            ),
        ),
    ),
    "compression.compression_ratio": Story(
        "How much smaller are memories in each tier than their JSON and float32 vectors?",
        (
            over(
                "How many times smaller than raw, by number of memories", "raw_to_kept_ratio", "size",
                x_label="memories", shown=Shown("times smaller"), lines=("tier",), note="Higher is better.",
            ),
            bars(
                "Coding speed of the tiers",
                ("encode_vectors_ops_per_second", "decode_vectors_ops_per_second",
                 "encode_content_ops_per_second", "decode_content_ops_per_second"),
                ("tier",), shown=Shown("operations"), note="Higher is better.",
            ),
        ),
    ),
    "compression.training_efficiency": Story(
        "What does it cost to train the autoencoder, beside the fits of pq and pca?",
        (
            numbers("Loss of the autoencoder", "loss_per_epoch", "epoch", Shown("loss"),
                    note="The second half trains on with further data."),
            over(
                "Time to train, by number of vectors", "training_time_seconds", "size",
                x_label="vectors", shown=Shown("time to train"), lines=("part",), fit=True,
            ),
        ),
    ),
    # -- memory_transition --------------------------------------------------------------------
    "memory_transition.transition_accuracy": Story(
        "What of a memory is still right after it has moved from stm to im and on to ltm?",
        (
            over(
                "Memories that came through, by importance", "preservation_rate", "importance",
                x_label="importance", shown=Shown("preserved", SHARE), lines=("tier",),
                note="1 means that every memory of that importance is still found by its content.",
            ),
            over(
                "How near a search finds them again", "avg_similarity", "importance",
                x_label="importance", shown=Shown("similarity", SHARE), lines=("tier",),
            ),
        ),
    ),
    "memory_transition.transition_overhead": Story(
        "What does moving many memories at once cost, and what do others feel of it?",
        (
            over(
                "Time to move them all, by number of memories", "transition_duration_seconds", "batch_size",
                x_label="memories moved", shown=Shown("time"), fit=True,
            ),
            over(
                "What a reader waits, before and meanwhile",
                ("read_p50_before_ms", "read_p50_during_ms", "read_p99_before_ms", "read_p99_during_ms"),
                "batch_size", x_label="memories moved", shown=Shown("time of a read"),
            ),
        ),
    ),
    "memory_transition.importance_scoring": Story(
        "What stays, and how high up, when there is not enough room for all memories?",
        (
            over(
                "Which tier holds memories of which importance", "retention_rate", "importance",
                x_label="importance", shown=Shown("share held", SHARE), lines=("tier",), panels=("part",),
                note="The upper tier should hold what matters most, whatever the order of arrival.",
            ),
        ),
    ),
    # -- retrieval ----------------------------------------------------------------------------
    "retrieval.vector_search_latency": Story(
        "How long does it take to find the nearest memories to a vector?",
        (
            over(
                "Time of a vector search, by number of memories", "p50_ms", "size",
                x_label="memories", shown=MEDIAN, lines=("tier", "part"), fit=True,
            ),
            percentiles("Time of a vector search, with the most memories", largest="size"),
        ),
    ),
    "retrieval.search_accuracy": Story(
        "Does a search with one memory of a kind find the others of its kind?",
        (
            over(
                "Precision and recall, by similarity threshold", ("precision", "recall", "f1"), "threshold",
                x_label="similarity threshold", shown=Shown("share", SHARE), note="Higher is better.",
            ),
        ),
    ),
    "retrieval.cross_tier_retrieval": Story(
        "Does one question find what belongs together when it lies in three tiers, and how fast?",
        (
            percentiles("Time of a search, over all tiers and in each"),
            bars(
                "Related memories that were found",
                ("stm_related_found_rate", "im_related_found_rate", "ltm_related_found_rate"),
                ("metric",), shown=Shown("share found", SHARE),
                called={f"{tier} related found rate": tier for tier in ("stm", "im", "ltm")},
            ),
        ),
    ),
    # -- scalability --------------------------------------------------------------------------
    "scalability.agent_scaling": Story(
        "How many agents can share one store?",
        (
            over(
                "Operations a second, by number of agents", "operations_per_second", "agents",
                x_label="agents", shown=Shown("operations"), lines=("parallel",), panels=("part0",),
                note="Lines: how many work at the same time. Higher is better.",
            ),
            over(
                "Scaling efficiency, by number of agents", "scaling_efficiency", "agents",
                x_label="agents", shown=Shown("efficiency"), lines=("parallel",), panels=("part0",),
                note="1 means that an agent gets as much done as one that is alone.",
            ),
        ),
    ),
    "scalability.memory_size_scaling": Story(
        "How do storing, reading and searching slow down as one agent remembers more?",
        (
            over(
                "Time of an operation, by number of memories", "p50_ms", "size",
                x_label="memories", shown=MEDIAN, lines=("tier", "part"), fit=True,
                keep=lambda place: place.tier in (None, "store") and place.part != "first_search",
            ),
            over(
                "Room that one memory takes", ("disk_bytes_per_memory", "rss_bytes_per_memory"), "size",
                x_label="memories", shown=Shown("room a memory"), note="Lower is better.",
            ),
        ),
    ),
    "scalability.resource_utilization": Story(
        "What do callers wait for, and what does the process use, when operations arrive at a steady rate?",
        (
            over_leaves(
                "Latency from the intended start", r"p(\d+)_ms", x_label="share of operations",
                shown=Shown("latency"), lines=("part1", "tier"), scale="nines",
                keep=lambda place: place.part.startswith("latency"),
                note="Waiting in the queue is included.",
            ),
            timeline(
                "Memory of the process over time", "timeline", "rss_mb", "RSS", "MB", from_zero=False
            ),
            timeline(
                "CPU of the process over time", "timeline", "cpu_percent", "CPU", "%", from_zero=True
            ),
        ),
    ),
    # -- integration --------------------------------------------------------------------------
    "integration.api_overhead": Story(
        "What does a call through the public facade cost more than the work below it?",
        (
            bars(
                "Time that the facade adds to a call", "overhead_us", ("part", "tier"),
                shown=Shown("added"), note="Lower is better; below 0 the facade was quicker.",
            ),
        ),
    ),
    "integration.hook_implementation": Story(
        "What do memory hooks add to an agent's observe and act?",
        (
            bars(
                "Time of a step", "p50_ms", ("part0",), lines=("part1", "tier"), shown=MEDIAN,
                note="store is the storing alone, hooked the agent with the hook.",
            ),
        ),
    ),
    "integration.framework_integration": Story(
        "What does a memory add to an iteration of a real framework?",
        (
            bars(
                "Time of an iteration", "p50_ms", ("part0",), lines=("part1",), shown=MEDIAN,
                note="Lower is better.",
            ),
        ),
    ),
    # -- the agent loop -----------------------------------------------------------------------
    "agent_execution.simple_invocation": Story(
        "What does one message to an agent cost besides the model?",
        (
            percentiles("Time of one message", lines=("part",), goal=50.0),
            bars(
                "Messages a second", "invocations_per_second", ("part",), shown=Shown("messages"),
                note="Higher is better.",
            ),
        ),
    ),
    "agent_execution.session_creation": Story(
        "How long does it take to begin a session, until it is on disk?",
        (percentiles("Time to begin a session", lines=("part",), goal=50.0),),
    ),
    "memory_search.short_query": Story(
        "How long does a search by a few words take?", _search("Search by a few words")
    ),
    "memory_search.long_query": Story(
        "How long does a search by a paragraph take?", _search("Search by a paragraph")
    ),
    "memory_search.no_match": Story(
        "How long does a search take whose words are in no memory?",
        _search("Search without a match"),
    ),
    "memory_search.vector_search": Story(
        "How long does a search by a ready-made vector take, beside the same question as a text?",
        _search("Search by vector and by text"),
    ),
    "memory_search.concurrent_search": Story(
        "How many searches a second do several threads get out of one open store?",
        (
            over(
                "Searches a second, by number of threads", "searches_per_second", "threads",
                x_label="threads", shown=Shown("searches"), lines=("entries",), note="Higher is better.",
            ),
            over(
                "What each search waits", "p50_ms", "threads", x_label="threads",
                shown=Shown("median time", goal=10.0), lines=("entries",),
            ),
        ),
    ),
    "context_build.baseline": Story(
        "How long does it take to build a model's context for an agent with a few sessions and tools?",
        (percentiles("Time to build a context", lines=("part",), goal=100.0),),
    ),
    "context_build.large_session_count": Story(
        "How does the time to build a context grow with the number of sessions?",
        (
            over(
                "Time to build a context, by number of sessions", "p50_ms", "sessions",
                x_label="sessions", shown=Shown("median time", goal=100.0), lines=("part",), fit=True,
            ),
        ),
    ),
    "context_build.large_tool_count": Story(
        "How does the time to build a context grow with the number of tools?",
        (
            over(
                "Time to build a context, by number of tools", "p50_ms", "tools",
                x_label="tools", shown=Shown("median time", goal=100.0), lines=("part",),
                panels=("sessions",),
            ),
        ),
    ),
    # -- quality ------------------------------------------------------------------------------
    "quality.retrieval_quality": Story(
        "How many of the passages that answer a question are among the first that are found?",
        (
            over_leaves(
                "Recall of all questions, by how many passages may be shown", r"recall_at_(\d+)",
                x_label="passages shown", shown=Shown("recall", SHARE), lines=("part1",), panels=("part0",),
                keep=lambda place: place.part.endswith("all_questions"), note="Higher is better.",
            ),
            bars(
                "Recall at 5, by kind of question", "recall_at_5", ("part2",), lines=("part1",),
                panels=("part0",), shown=Shown("recall at 5", SHARE), note="Higher is better.",
            ),
        ),
    ),
}  # fmt: skip
