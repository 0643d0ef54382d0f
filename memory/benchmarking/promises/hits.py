"""A search returns k memories, if the agent has k."""

from __future__ import annotations

from memory.benchmarking.promises.model import Outcome, check, judge, not_promised, promise
from memory.benchmarking.promises.trial import ANN, Trial
from memory.benchmarking.targets.base import Item

_K = 10
_MEMORIES = 20
_TEXTS = 25
"""Texts of one memory: more than a system reads for k hits, if it cuts before it makes hits unique."""


with promise("a search returns k memories"):

    @check()
    def lists_of_texts_do_not_crowd_out_others(trial: Trial) -> Outcome:
        """Memories that are lists of similar texts; a search returns k different ones."""
        if not trial.capabilities.search or trial.capabilities.search_by == "words":
            return not_promised("the system can't search, or a hit must have the words of the query")
        target = trial.open()
        k = min(_K, trial.capabilities.max_k or _K)
        for _ in range(_MEMORIES):
            subject = trial.text(6)
            target.add_one(Item(ANN, [f"{subject}, part {part}" for part in range(_TEXTS)]))
        target.flush()
        missing = doubled = searches = 0
        for _ in range(trial.size(5, 20, 100)):
            hits = target.search(ANN, trial.text(6), k)
            different = len({hit.id for hit in hits})
            missing += k - different
            doubled += len(hits) - different
            searches += 1
        return judge(
            missing + doubled == 0,
            f"{searches} searches among {_MEMORIES} memories of {_TEXTS} texts each: {missing} of "
            f"{k * searches} hits missing, {doubled} doubled",
            {"wanted": k * searches, "missing": missing, "doubled": doubled},
            (
                f"for number in range({_MEMORIES}):",
                f'    parts = [f"{{number}}, part {{n}}" for n in range({_TEXTS})]',
                '    target.add_one(Item("ann", parts))',
                f'len(target.search("ann", "a text", {k}))   # expected: {k}',
            ),
        )
