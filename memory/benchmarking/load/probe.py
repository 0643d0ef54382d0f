"""What one probe measured, merged over all clients, and whether it says anything about the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memory.benchmarking.measure.knee import Outcome
from memory.benchmarking.measure.latencies import Latencies, merged

LATE_SHARE = 0.1
"""A generator is too late if the p99 of its lateness is above this share of the limit."""
BUSY_SHARE = 0.9
"""A generator, or a machine, that uses this share of a core (of all cores) has no CPU left."""
ALLOWED_LATE = 0.01
"""The share of latencies that may be above the limit: it is about the p99."""
CPU_SHARE = 0.7
"""If operations spend this share of their time on the CPU, it is the CPU that they lack."""
_DISK_SHARE = 0.7
"""A disk that was busy for this share of the time can't take much more."""


@dataclass(frozen=True)
class Machine:
    """The machine during a probe."""

    cpu_share: float
    """Busy share of all cores."""
    disk_share: float
    """Busy share of the busiest disk."""
    cores: int


@dataclass(frozen=True)
class Probe:
    """One probe: load at one rate."""

    rate: float
    """Arrivals a second on average, as planned."""
    limit_ms: float
    clients: int
    threads: int
    served: bool
    """Whether the system under test runs outside of the client processes."""
    machine: Machine
    answers: tuple[dict[str, Any], ...]
    """Of the clients, as `client.Client.go` returns them."""

    def total(self, name: str) -> float:
        return float(sum(answer[name] for answer in self.answers))

    @property
    def seconds(self) -> float:
        return float(max(answer["seconds"] for answer in self.answers))

    @property
    def latencies(self) -> Latencies:
        """All latencies, of all clients and kinds."""
        return merged(
            Latencies.from_counts(counts)
            for answer in self.answers
            for counts in answer["latencies"].values()
        )

    @property
    def lateness_p99_ms(self) -> float:
        """The lateness of the worst generator; 0 where none ever waited."""
        parts = [Latencies.from_counts(answer["lateness"]) for answer in self.answers]
        return max((part.percentile_ms(99) for part in parts if part.count), default=0.0)

    @property
    def generator_cpu_share(self) -> float:
        """The CPU of the busiest generator, as a share of one core."""
        return float(
            max(answer["generator_cpu_seconds"] / max(answer["seconds"], 1e-9) for answer in self.answers)
        )

    @property
    def problem(self) -> str:
        """The first exception of an operation; empty without one."""
        return next((str(answer["problem"]) for answer in self.answers if answer["problem"]), "")

    @property
    def sustained(self) -> bool:
        """Whether p99 stayed below the limit, nothing was dropped and nothing failed."""
        if any(answer["dropped"] or answer["failed"] or answer["skipped"] for answer in self.answers):
            return False
        latencies = self.latencies
        return latencies.above(self.limit_ms) <= ALLOWED_LATE * latencies.count

    @property
    def fault_of_generator(self) -> str:
        """Why the generator can have caused a failure; empty if it can't."""
        late = self.lateness_p99_ms
        if self.generator_cpu_share > BUSY_SHARE:
            return f"a generator used {self.generator_cpu_share:.0%} of a core"
        if late > LATE_SHARE * self.limit_ms and not self._target_takes_all_cores:
            return f"a generator was up to {late:.2g} ms late (p99), more than a tenth of the limit"
        return ""

    @property
    def _target_takes_all_cores(self) -> bool:
        """Whether operations in the client processes keep all cores busy; then it is they that delay."""
        if self.served:
            return False
        return self.total("service_cpu_seconds") > CPU_SHARE * self.machine.cores * self.seconds

    @property
    def outcome(self) -> Outcome:
        """How the probe counts for the search.

        Latencies include the generator's lateness, which only makes them longer. So a probe that passed
        counts in any case, and only a failure is void if the generator can have caused it.
        """
        if self.sustained:
            return "passed"
        return "invalid" if self.fault_of_generator else "failed"

    def gave_way(self) -> tuple[str, str]:
        """Return what an overloaded probe lacked (generator, cpu, disk or lock), and how that was seen."""
        if fault := self.fault_of_generator:
            return "generator", fault
        service = max(self.total("service_seconds"), 1e-9)
        on_cpu = self.total("service_cpu_seconds") / service
        of_cores = self.machine.cpu_share
        waits = f"operations spent {1 - on_cpu:.0%} of their time waiting"
        if of_cores >= BUSY_SHARE:
            return "cpu", f"all {self.machine.cores} cores were {of_cores:.0%} busy"
        if on_cpu >= CPU_SHARE:
            return "cpu", f"operations spent {on_cpu:.0%} of their time on the CPU"
        if self.machine.disk_share >= _DISK_SHARE:
            return "disk", f"{waits}, and a disk was {self.machine.disk_share:.0%} busy"
        server_cpu = self.total("cpu_seconds") - self.total("generator_cpu_seconds") if self.served else 0.0
        if server_cpu >= CPU_SHARE * self.seconds:
            return "cpu", f"the server used {server_cpu / self.seconds:.2g} cores"
        disk = self.machine.disk_share
        return "lock", f"{waits}, with the cores {of_cores:.0%} and the disk {disk:.0%} busy"

    def summary(self) -> dict[str, Any]:
        """Return the probe as a row of the result."""
        latencies = self.latencies
        return {
            "rate": round(self.rate, 1),
            "outcome": self.outcome,
            "p99_ms": round(latencies.percentile_ms(99), 3) if latencies.count else None,
            "operations": int(self.total("done")),
            "dropped": int(self.total("dropped")),
            "failed": int(self.total("failed")),
            "cut_short": bool(self.total("skipped")),
            "generator_late_p99_ms": round(self.lateness_p99_ms, 3),
            "generator_cpu_share": round(self.generator_cpu_share, 3),
            **({"reason": self.fault_of_generator} if self.outcome == "invalid" else {}),
        }


def closed_loop(answers: Sequence[dict[str, Any]]) -> tuple[float, Latencies]:
    """Return the operations a second of callers that never wait, and how long these took."""
    rate = sum(answer["done"] / answer["seconds"] for answer in answers)
    return rate, merged(Latencies.from_counts(answer["latencies"]) for answer in answers)
