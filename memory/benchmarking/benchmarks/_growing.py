"""How a cost grows with size: the figure and the sentence that benchmarks return for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.benchmarking.bench import Score, Sentence
from memory.benchmarking.measure.growth import growth


def growth_leaves(what: str, costs: Mapping[float, float]) -> dict[str, Any]:
    """Return the exponent, and `search p50 grows like n^0.31 (0.25 to 0.37) between 1,000 and 100,000`.

    Return nothing for a single size.
    """
    fit = growth(costs)
    if fit is None:
        return {}
    sizes = f"between {fit.smallest:,.0f} and {fit.largest:,.0f}"
    return {
        "growth_exponent": Score(fit.exponent, fit.low, fit.high),
        "growth": Sentence(f"{what} grows like n^{{growth_exponent}} {sizes}", growth_exponent=str(fit)),
    }
