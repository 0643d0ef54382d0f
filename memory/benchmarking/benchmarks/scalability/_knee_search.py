"""`scalability.saturation`: the search for the knee of each client configuration, and its figures."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memory.benchmarking.bench import Bench, Score, not_available
from memory.benchmarking.errors import InvalidBenchmarkConfig, NotSupported
from memory.benchmarking.load.client import K
from memory.benchmarking.load.clients import LoadClients
from memory.benchmarking.load.probe import Probe, closed_loop
from memory.benchmarking.measure.knee import MOST_OPTIMISM, Knee, expected_knee, find_knee, optimism
from memory.benchmarking.measure.latencies import Latencies
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.workloads.mixes import Mix

LOADS = (25, 50, 75, 100, 120)
"""The loads of the curve, in percent of the knee."""
_ENOUGH_OPERATIONS = 3000
"""The operations of a probe, if there is time: 30 of them are slower than its p99."""
_FEWEST_OPERATIONS = 200
"""With fewer operations a probe has no p99: two of them would decide."""
_SHORTEST_SHARE, _LONGEST_SHARE = 1 / 40, 1 / 8
"""The shortest and the longest probe, as shares of all seconds."""
_SEARCH_SHARE = 0.6
"""The share of the seconds after which no probe of the search begins."""
_CONFIRM_SHARE = 0.75
"""The share of the seconds after which no probe begins at all, besides those of the curve."""
_CURVE_SHARE = 1 / 16
"""The longest probe of the curve, as a share of all seconds."""
_LATEST_SHARE = 1.25
"""The share of the seconds after which no probe of the curve begins."""
_CURVE_ORDER = (100, 120, 50, 75, 25)
"""The loads of the curve in the order of their importance: a slow target has no time for the last ones."""
_LIMITS_A_PROBE = 20
"""The shortest probe, in multiples of the limit, if there is time. With an overload of 5 % the latencies
reach the limit after 20 times the limit. A shorter probe would pass."""
_CLOSED_SHARE = 1 / 40
_FIGURES = (
    "knee_per_second", "closed_loop_per_second", "offered_per_second", "achieved_per_second", "p50_ms",
    "p99_ms", "p999_ms", "max_ms", "drop_rate", "error_rate", "cpu_seconds_per_operation",
    "written_bytes_per_operation", "generator_late_p99_ms", "generator_cpu_percent",
)  # fmt: skip
"""What is n/a where no knee was found."""
_MOST_CLOSED = 20_000
"""The most operations of the closed loop."""


@dataclass(frozen=True)
class Load:
    """What all configurations of clients have in common."""

    mix: Mix
    limit_ms: float
    seconds: float
    agents: int
    memories: int


@dataclass(frozen=True)
class Configuration:
    """How many processes send load, and how many threads each has."""

    processes: int
    threads: int

    @property
    def path(self) -> str:
        return f"processes_{self.processes}/threads_{self.threads}"


def configurations_of(texts: Sequence[str], generators: int = 0) -> list[Configuration]:
    """Parse configurations such as `2x4`: two processes with four threads each.

    With generators on other hosts, each of these is one process.
    """
    found = []
    for text in texts:
        match = re.fullmatch(r"([1-9]\d{0,3})x([1-9]\d{0,3})", text.strip())
        if match is None:
            raise InvalidBenchmarkConfig(
                f"clients is {text!r}: use PROCESSESxTHREADS, such as 2x4, with commas between several"
            )
        found.append(Configuration(int(match[1]), int(match[2])))
    if generators:
        found = [Configuration(generators, each.threads) for each in found]
    return list(dict.fromkeys(found))


def check_mix(bench: Bench, mix: Mix) -> None:
    """Raise NotSupported if the target can't do an operation of the mix."""
    reasons = {"search": bench.no_search(K), "read": bench.no_get()}
    for kind in mix.shares:
        if reason := reasons.get(kind):
            raise NotSupported(f"{reason}: choose a mix without {kind}, as in mix=search=70,add=30")


def saturate(bench: Bench, configuration: Configuration, load: Load) -> dict[str, Any] | NotAvailable:
    """Return the figures of one configuration of clients."""
    remote = bench.generators
    capabilities = bench.capabilities
    if configuration.threads > 1 and not capabilities.threads:
        return not_available(f"{bench.system} can't be shared by threads")
    clients = len(remote) or configuration.processes
    if clients > 1 and not remote and not (capabilities.processes and capabilities.persistence):
        return not_available(f"{bench.system} can't be shared by processes")
    with (
        bench.target_folder() as folder,
        LoadClients(
            bench.target_name,
            bench.embedder_name,
            processes=configuration.processes,
            threads=configuration.threads,
            remote=remote,
        ) as load_clients,
    ):
        search = _Search(load_clients, load, configuration, bench.seed)
        load_clients.open(folder, load.mix, str(bench.seed), agents=load.agents, memories=load.memories)
        figures = search.run()
        load_clients.close()
    return figures


class _Search:
    """The search for one knee, and the curve of latencies around it."""

    def __init__(self, clients: LoadClients, load: Load, configuration: Configuration, seed: int) -> None:
        self._clients = clients
        self._load = load
        self._configuration = configuration
        self._seed = seed
        self._begin = time.perf_counter()
        self._cleaning = 0.0
        """Seconds that deleting takes after a second of load."""
        self.probes: list[Probe] = []

    def run(self) -> dict[str, Any]:
        """Return the figures; without a knee, the reason stands in place of each of them.

        The time begins here: filling the store does not count.
        """
        self._begin = time.perf_counter()
        capacity, service = self._closed_loop()
        if service.count:
            figures = self._search(capacity, service.percentile_ms(50))
        else:
            figures = not_available("no operation ended in the time of a probe: raise seconds")
        if isinstance(figures, NotAvailable):
            # Not even the rate of the closed loop is left: it would look like the answer.
            return dict.fromkeys(_FIGURES, figures) | {"probes": self._summaries()}
        return figures | {"closed_loop_per_second": capacity}

    def _search(self, capacity: float, unloaded: float) -> dict[str, Any] | NotAvailable:
        load = self._load
        if unloaded >= load.limit_ms:
            return not_available(
                f"half of the operations take {unloaded:.3g} ms without any load, more than the limit of "
                f"{load.limit_ms:g} ms: raise limit_ms"
            )
        guess = expected_knee(capacity, unloaded, load.limit_ms, self._workers)
        if guess * load.seconds * _LONGEST_SHARE < _FEWEST_OPERATIONS:
            return not_available(
                f"about {guess:.3g} operations a second are too few for a p99 of a probe: raise seconds to "
                f"{math.ceil(_FEWEST_OPERATIONS / guess / _LONGEST_SHARE)}, or raise limit_ms"
            )
        seconds = self._probe_seconds(guess, _LONGEST_SHARE)
        operations = max(round(guess * seconds), _FEWEST_OPERATIONS)
        above = optimism(capacity, unloaded, load.limit_ms, operations)
        if above > MOST_OPTIMISM:
            needed = load.seconds * (above - 1) / (MOST_OPTIMISM - 1)
            return not_available(
                f"probes of {seconds:.2g} s with {operations:,} operations are too short for a limit of "
                f"{load.limit_ms:g} ms: they pass also far above the knee; raise seconds to "
                f"{math.ceil(needed)}, or lower limit_ms"
            )
        knee = find_knee(
            lambda rate: self._probe(rate).outcome,
            guess,
            may_continue=lambda: self._elapsed < _SEARCH_SHARE * load.seconds,
            must_stop=lambda: self._elapsed > _CONFIRM_SHARE * load.seconds,
            optimism=above,
        )
        if problem := next((probe.problem for probe in self.probes if probe.problem), ""):
            raise AssertionError(f"an operation failed under load: {problem}")
        if not knee.found:
            return not_available(self._why_nothing(knee))
        curve: dict[int, Probe] = {}
        for share in _CURVE_ORDER:
            if share == _CURVE_ORDER[0] or self._elapsed < _LATEST_SHARE * load.seconds:
                curve[share] = self._curve_probe(share, knee.estimate.rate)
        return self._figures(knee, curve)

    @property
    def _workers(self) -> int:
        return len(self._clients.hosts) * self._configuration.threads

    @property
    def _elapsed(self) -> float:
        return time.perf_counter() - self._begin

    def _closed_loop(self) -> tuple[float, Latencies]:
        """Measure the operations a second of callers that never wait, after a warm-up."""
        seconds = self._load.seconds * _CLOSED_SHARE
        for attempt in ("warm-up", "closed loop"):
            answers = self._clients.closed_loop(seconds, _MOST_CLOSED, f"{self._seed} {attempt}")
            self._clean(seconds)
        return closed_loop(answers)

    def _clean(self, seconds: float) -> None:
        """Delete what the last load added, and note how long that takes after so many seconds of load."""
        begin = time.perf_counter()
        self._clients.clean()
        self._cleaning = (time.perf_counter() - begin) / seconds

    def _probe_seconds(self, rate: float, longest_share: float) -> float:
        """Return how long a probe takes: shorter where deleting takes long, so that the sum is the same."""
        longest, shortest = (self._load.seconds * share for share in (longest_share, _SHORTEST_SHARE))
        shortest = max(shortest, _LIMITS_A_PROBE * self._load.limit_ms / 1e3)
        return min(max(_ENOUGH_OPERATIONS / rate, shortest), longest) / (1 + self._cleaning)

    def _probe(self, rate: float) -> Probe:
        seconds = self._probe_seconds(rate, _LONGEST_SHARE)
        probe = self._clients.probe(rate, seconds, self._load.limit_ms, str(self._seed))
        self._clean(seconds)
        self.probes.append(probe)
        return probe

    def _curve_probe(self, share: int, knee: float) -> Probe:
        rate = share / 100 * knee
        seconds = self._probe_seconds(rate, _CURVE_SHARE)
        probe = self._clients.probe(
            rate, seconds, self._load.limit_ms, f"{self._seed} curve", to_the_end=True
        )
        self._clean(seconds)
        return probe

    def _why_nothing(self, knee: Knee) -> str:
        last = next((probe for probe in reversed(self.probes) if probe.outcome == "invalid"), None)
        if last is not None and knee.invalid >= knee.failed:
            return f"the load generator gave way first: {last.fault_of_generator}"
        limit = f"p99 below {self._load.limit_ms:g} ms"
        tried = sorted(probe.rate for probe in self.probes)
        if not tried:
            return "there was no time for a probe: raise seconds"
        if not knee.passed:
            return f"no rate from {tried[0]:,.0f} a second up had a {limit}: raise limit_ms"
        return f"every rate up to {tried[-1]:,.0f} a second had a {limit}, and none failed: raise seconds"

    def _summaries(self) -> list[dict[str, Any]]:
        return [probe.summary() for probe in self.probes]

    def _figures(self, knee: Knee, curve: dict[int, Probe]) -> dict[str, Any]:
        estimate = knee.estimate
        at_knee, above = curve[100], curve.get(120)
        late = not_available("the target is too slow for more probes in this time: raise seconds")
        gave_way, because = above.gave_way() if above else ("unknown", late.reason)
        written = [answer["written_bytes"] for answer in at_knee.answers]
        done = at_knee.total("done")
        return {
            "knee_per_second": Score(estimate.rate, estimate.low, estimate.high),
            "confirmed": "yes" if knee.confirmed else "no",
            **{f"load_{share}": _loaded(curve[share]) if share in curve else late for share in LOADS},
            "cpu_seconds_per_operation": at_knee.total("cpu_seconds") / done,
            "written_bytes_per_operation": not_available("this system does not show written bytes")
            if None in written
            else sum(written) / done,
            "gave_way_first": gave_way,
            "how_it_was_seen": f"at 120 % of the knee {because}" if above else because,
            "generator_late_p99_ms": at_knee.lateness_p99_ms,
            "generator_cpu_percent": 100 * at_knee.generator_cpu_share,
            "probes": self._summaries(),
            "hosts": [
                {
                    "name": host.name,
                    "clock_offset_ms": round(host.offset_seconds * 1e3, 3),
                    "clock_offset_error_ms": round(host.offset_error_seconds * 1e3, 3),
                    "start_late_ms": round(answer["start_late_ms"], 3),
                    "generator_late_p99_ms": round(_late_p99(answer), 3),
                }
                for host, answer in zip(self._clients.hosts, at_knee.answers, strict=True)
            ],
        }


def _late_p99(answer: dict[str, Any]) -> float:
    lateness = Latencies.from_counts(answer["lateness"])
    return lateness.percentile_ms(99) if lateness.count else 0.0


def _loaded(probe: Probe) -> dict[str, Any]:
    """Return the figures of one point of the curve."""
    return {
        "offered_per_second": probe.rate,
        "achieved_per_second": probe.total("done") / probe.seconds,
        **probe.latencies.figures(),
        "drop_rate": probe.total("dropped") / probe.total("arrivals"),
        "error_rate": probe.total("failed") / probe.total("arrivals"),
    }
