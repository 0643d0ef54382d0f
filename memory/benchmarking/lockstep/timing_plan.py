"""One plan for both sides of a timing, so that their blocks can be paired.

Turns are short, so that a disturbance of the machine hits both sides. Blocks are shorter: only the least
disturbed block of a turn counts, so a turn needs a few to choose from.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.benchmarking.measure.turn_control import TimingPlan, TimingProposal

BLOCK_NS = 200_000
"""The intended length of a block, in nanoseconds (0.2 ms)."""
TURN_NS = 600_000
"""The intended length of a turn, in nanoseconds: three blocks."""
LEAST_TURNS = 10
"""The fewest turns of a timing, for a good median; a timing with fewer samples has fewer turns."""
MOST_TURNS = 100
"""The most turns of a timing."""
WANTED_TURNS = 80
"""The number of turns to aim for if one call is longer than TURN_NS; then every call is a turn."""
LONGEST_NS = 80_000_000
"""The longest duration of a timing that is extended to reach WANTED_TURNS, in nanoseconds."""


def common_plans(proposals: Sequence[TimingProposal]) -> list[TimingPlan]:
    """Return a plan for each side, with the same turns, blocks and calls a sample.

    The number of samples is the same too, unless the benchmark itself calls the operation more often on
    one side. The figures of such sides are compared by process, not by block.
    """
    per_sample = max(proposal.calls_per_sample for proposal in proposals)
    # Use the shorter of the two times: an interruption in the warm-up only makes a call longer.
    call_ns = min((one.call_ns for one in proposals if one.call_ns is not None), default=None)
    if any(proposal.fixed for proposal in proposals):
        samples = [-(-one.samples * one.calls_per_sample // per_sample) for one in proposals]
    else:
        calls = max(proposal.samples * proposal.calls_per_sample for proposal in proposals)
        if call_ns is not None:
            calls = max(calls, min(WANTED_TURNS, int(LONGEST_NS / call_ns)))
        samples = [-(-calls // per_sample)] * len(proposals)
    fewest = min(samples)
    if call_ns is not None:
        total_ns = fewest * per_sample * call_ns
        blocks = min(max(round(total_ns / BLOCK_NS), LEAST_TURNS), fewest)
        turns = min(max(round(total_ns / TURN_NS), LEAST_TURNS), MOST_TURNS, blocks)
    else:
        blocks = fewest
        turns = min(blocks, MOST_TURNS)
    return [
        TimingPlan(calls_per_sample=per_sample, samples=count, blocks=blocks, turns=turns)
        for count in samples
    ]
