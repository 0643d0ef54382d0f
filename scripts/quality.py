"""Measures the quality of the memory's text search with default settings, on four public data sets.

    python scripts/quality.py --data ../shared/data                    all sets and categories
    python scripts/quality.py --save a.json                            keep the figures of every question
    python scripts/quality.py --against a.json                         paired differences to kept figures
    python scripts/quality.py --loso                                   constants, leave-one-set-out

Each turn is one memory with its speaker, session and time. A question is searched in its own conversation.
R@k is the share of its evidence among the first k hits, averaged over questions; SciFact (BEIR) has
nDCG@10. "tokens" is what the first ten hits cost in a context. Of the questions the memory only sees their
text. LoCoMo's adversarial questions, which name the wrong person, are not in "all".

With --loso, each constant of the ranking is varied alone. For each set, the value with the best mean over
the other three sets is chosen (R@10; nDCG@10 for SciFact), and its figure on the left out set is shown.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _quality_sets import AGENT, DEPTH, load_sets, memory_of

from memory import AgentMemorySystem
from memory.benchmarking.measure.ranking import clustered_mean, ranking_figures
from memory.benchmarking.workloads.collections import Collection
from memory.embedding import count_tokens
from memory.search import conversations, lexical, ranking, turn_links

ADVERSARIAL = "adversarial"
Figures = dict[str, float]
Asked = list[tuple[str, str, Figures]]
"""Conversation, category and figures of each question."""
Loaded = dict[str, list[tuple[Collection, AgentMemorySystem]]]


def ask(collection: Collection, memory: AgentMemorySystem) -> Asked:
    asked = []
    for question in collection.questions:
        if not question.grades:
            continue
        hits = memory.search(AGENT, question.text, k=DEPTH)
        figures = ranking_figures([hit.id for hit in hits], question.grades)
        figures["tokens"] = float(sum(count_tokens(hit.entry.content) for hit in hits))
        asked.append((collection.id, question.category, figures))
    return asked


def ask_all(loaded: Loaded) -> dict[str, Asked]:
    return {
        name: [one for collection, memory in pairs for one in ask(collection, memory)]
        for name, pairs in loaded.items()
    }


def mean(asked: Asked, figure: str) -> float:
    return sum(figures[figure] for _, _, figures in asked) / len(asked)


def print_sets(found: dict[str, Asked], kept: dict[str, Asked] | None) -> None:
    print(
        f"{'set':10} {'category':26} questions   R@5  R@10  nDCG@10  tokens"
        + ("   R@10 − kept" if kept else "")
    )
    for name, asked in found.items():
        groups: dict[str, list[int]] = defaultdict(list)
        for number, (_, category, _) in enumerate(asked):
            for group in {category, "all"} if category != ADVERSARIAL else {category}:
                groups[group].append(number)
        if ADVERSARIAL in groups:
            groups["all and adversarial"] = list(range(len(asked)))
        for group in sorted(groups, key=lambda each: (not each.startswith("all"), each)):
            chosen = [asked[number] for number in groups[group]]
            recall = "  ".join(f"{mean(chosen, f'recall_at_{depth}'):.3f}" for depth in (5, 10))
            rest = f"{mean(chosen, 'ndcg_at_10'):.3f}   {mean(chosen, 'tokens'):6.0f}"
            line = f"{name:10} {group:26} {len(chosen):9}  {recall}    {rest}"
            print(line + (difference(chosen, [kept[name][each] for each in groups[group]]) if kept else ""))


def summary(found: dict[str, Asked]) -> list[dict[str, Any]]:
    """Return the figures of each set, as `scripts/figures.py` reads them."""
    summaries = []
    for name, asked in found.items():
        chosen = [one for one in asked if one[1] != ADVERSARIAL]
        names = (
            {"nDCG@10": "ndcg_at_10"}
            if name == "scifact"
            else {"R@5": "recall_at_5", "R@10": "recall_at_10"}
        )
        for title, questions in ((name, chosen), (f"{name} with adversarial questions", asked)):
            if questions is chosen or len(asked) > len(chosen):
                figures = {short: mean(questions, figure) for short, figure in names.items()}
                summaries.append({"set": title, "questions": len(questions), "figures": figures})
    return summaries


def difference(now: Asked, before: Asked) -> str:
    """Return the mean paired difference of R@10, with its interval clustered by conversation."""
    changes = [
        new[2]["recall_at_10"] - old[2]["recall_at_10"] for new, old in zip(now, before, strict=True)
    ]
    # `clustered_mean` is for shares: move the differences from −1 … 1 to 0 … 1, and back.
    estimate = clustered_mean([(each + 1) / 2 for each in changes], [one[0] for one in now])
    low, high = (2 * (estimate.value if end is None else end) - 1 for end in (estimate.low, estimate.high))
    return f"   {2 * estimate.value - 1:+.3f} ({low:+.3f} to {high:+.3f})"


# -- leave one set out ----------------------------------------------------------------------------

CONSTANTS: dict[str, dict[str, dict[str, Any]]] = {
    "shares of neighbours": {
        f"× {factor}": {
            "NEIGHBOUR_SHARES": (0.25 * factor, 0.125 * factor),
            "PEAK_SHARE": 0.5 * factor,
        }
        for factor in (0.0, 0.5, 1.0, 2.0)
    },
    "share of the session": {str(share): {"SESSION_SHARE": share} for share in (0.0, 0.25, 0.5, 1.0)},
    "bonus": {str(bonus): {"BONUS": np.float32(bonus)} for bonus in (0.0, 0.75, 1.5, 3.0)},
    "b of long memories": {str(b): {"LONG_B": b} for b in (0.4, 0.75)},
}
MODULES = (turn_links, conversations, ranking, lexical)


@contextmanager
def constants(values: dict[str, Any], loaded: Loaded) -> Iterator[None]:
    """Set constants of the ranking for a while; the links of turns depend on them, so drop the indexes."""
    before = [
        (module, name, getattr(module, name))
        for module in MODULES
        for name in vars(module)
        if name.isupper()
    ]
    given = {"NEIGHBOUR_SHARES": turn_links.NEIGHBOUR_SHARES, "PEAK_SHARE": turn_links.PEAK_SHARE}
    given |= {"SESSION_SHARE": turn_links.SESSION_SHARE} | values
    missing = 2 * sum(given["NEIGHBOUR_SHARES"]) * turn_links.MISSING
    given["OWN_SHARE"] = np.float32(missing + given["PEAK_SHARE"] + given["SESSION_SHARE"])
    for module in MODULES:
        for name in set(given) & set(vars(module)):
            setattr(module, name, given[name])
    try:
        reset(loaded)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        reset(loaded)


def reset(loaded: Loaded) -> None:
    for pairs in loaded.values():
        for _, memory in pairs:
            memory._searcher._indexes.index(AGENT).reset()


def leave_one_out(loaded: Loaded) -> None:
    def figure(name: str, asked: Asked) -> float:
        chosen = [one for one in asked if one[1] != ADVERSARIAL]
        return mean(chosen, "ndcg_at_10" if name == "scifact" else "recall_at_10")

    names = list(loaded)
    print(f"{'constant':22} {'value':8} " + " ".join(f"{name:>9}" for name in names))
    for constant, values in CONSTANTS.items():
        found: dict[str, dict[str, float]] = {}
        for value, settings in values.items():
            with constants(settings, loaded):
                found[value] = {name: figure(name, asked) for name, asked in ask_all(loaded).items()}
            print(
                f"{constant:22} {value:8} " + " ".join(f"{found[value][name]:9.3f}" for name in names),
                flush=True,
            )
        chosen = {left: choose(found, [name for name in names if name != left]) for left in names}
        print(f"{'':22} {'chosen':8} " + " ".join(f"{chosen[name]:>9}" for name in names))
        print(f"{'':22} {'gives':8} " + " ".join(f"{found[chosen[name]][name]:9.3f}" for name in names))


def choose(found: dict[str, dict[str, float]], names: Sequence[str]) -> str:
    return max(found, key=lambda value: sum(found[value][name] for name in names))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder of the sets")
    parser.add_argument("--save", type=Path, help="write the figures of every question to this file")
    parser.add_argument("--against", type=Path, help="a file of --save to compare with")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to a JSON file")
    parser.add_argument("--loso", action="store_true", help="vary the constants, leave one set out")
    given = parser.parse_args()
    kept = json.loads(given.against.read_text()) if given.against else None
    with ExitStack() as stack:
        loaded = {
            name: [(each, stack.enter_context(memory_of(each.passages))) for each in collections]
            for name, collections in load_sets(given.data).items()
        }
        if given.loso:
            leave_one_out(loaded)
            return 0
        found = ask_all(loaded)
    print_sets(found, kept)
    if given.json:
        given.json.write_text(json.dumps(summary(found)))
    if given.save:
        given.save.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
