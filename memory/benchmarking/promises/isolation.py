"""Isolation: nobody reads, finds or deletes what belongs to another agent."""

from __future__ import annotations

from memory.benchmarking.promises.model import Outcome, check, judge, not_promised, promise
from memory.benchmarking.promises.trial import ANN, BOB, Trial
from memory.benchmarking.targets.base import Item, Target

_SYNTAX = (
    "ann", "ann/", "ann/notes", "ann:notes", "ann.notes", "ann|notes", "ann,bob", "ann;", "ann#1", "ann*",
    "ann%", "ann_", "ann?", "*", "%", "_", "a' OR '1'='1", "ann'; DROP TABLE memories; --", 'ann" OR ""="',
    '{"$ne": null}', "ann == 'bob'", "ann AND bob", "NOT ann", "../ann", "ann\\", "ann\n", " ann", "ann ",
    "0", "1", "null", "None", "true", "[]",
)  # fmt: skip
_TWINS = (
    "ann", "Ann", "ANN", "a", "an", "annn", "é", "e\u0301", "K", "\u212a", "ﬁ", "fi", "ß", "ss", "а",
    "a\u200b", "ann\u0000b", "日本", "日本語", "🎈", "İ", "i\u0307",
)  # fmt: skip
_LONG = 10_000
_K = 10


def _store_for_each(
    trial: Trial, target: Target, agents: tuple[str, ...]
) -> tuple[dict[str, tuple[str, str]], int]:
    """Store one memory for every agent; return agent to (id, text), and how many agents were refused."""
    stored: dict[str, tuple[str, str]] = {}
    refused = 0
    for agent in agents:
        try:
            stored[agent] = _store_one(trial, target, agent)
        except Exception:
            refused += 1  # a clear refusal keeps agents apart too
    target.flush()
    return stored, refused


def _store_one(trial: Trial, target: Target, agent: str) -> tuple[str, str]:
    """Store a memory and return its id and text.

    A write that is lost at once is tried again: other checks find lost writes, this one finds mixed up
    agents."""
    for _ in range(3):
        text = trial.text()
        id_ = target.add_one(Item(agent, text))
        if not trial.capabilities.get or target.get(agent, [id_]) == [text]:
            break
    return id_, text


def _crossings(trial: Trial, target: Target, agents: tuple[str, ...]) -> Outcome:
    stored, refused = _store_for_each(trial, target, agents)
    foreign, missing, first = 0, 0, ""
    code: list[str] = []

    def note(words: str, owner: str, *reads: str) -> None:
        """Keep the first failure, in words and as code."""
        nonlocal first
        if not first:
            first = words
            code.append(f'id_ = target.add_one(Item({_as_code(owner)}, "a text"))')
            code.extend(reads)

    for agent, (id_, text) in stored.items():
        name = _as_code(agent)
        others = {other_text: other for other, (_, other_text) in stored.items() if other != agent}
        contents = list(target.get(agent, [id_])) if trial.capabilities.get else []
        if contents and contents != [text]:
            missing += 1
            note(
                f"{_shown(agent)} does not read its own memory",
                agent,
                *(f'target.add_one(Item({_as_code(other)}, "another"))' for other in others.values()),
                f'target.get({name}, [id_])   # expected: ["a text"]',
            )
        read, found = [], []
        if trial.capabilities.get:
            for other, (other_id, _) in stored.items():
                if other != agent and other_id != id_:
                    read += [content for content in target.get(agent, [other_id]) if content in others]
        if trial.capabilities.search:
            hits = [hit.content for hit in target.search(agent, text, _K)]
            found = [content for content in hits if content in others]
            if text not in hits:
                missing += 1
                note(
                    f"{_shown(agent)} does not find its own memory",
                    agent,
                    f'target.search({name}, "a text", {_K})   # expected: it is a hit',
                )
        foreign += len(read) + len(found)
        for content in read[:1]:
            other = others[content]
            note(
                f"{_shown(agent)} reads the memory of {_shown(other)}",
                other,
                f"target.get({name}, [id_])   # expected: [None]",
            )
        for content in found[:1]:
            other = others[content]
            note(
                f"{_shown(agent)} finds the memory of {_shown(other)}",
                other,
                f'target.search({name}, "a text", {_K})   # expected: []',
            )
    figures = {"agents": len(stored), "refused": refused, "foreign": foreign, "missing": missing}
    evidence = (
        f"{len(stored)} agents, {refused} refused: {foreign} memories of others seen, "
        f"{missing} own ones not found" + (f" (first: {first})" if first else "")
    )
    return judge(foreign + missing == 0, evidence, figures, code)


def _as_code(agent: str) -> str:
    """Return a name as code; characters that look alike are escaped."""
    return f"'x' * {_LONG - 1} + {agent[-1]!a}" if len(agent) == _LONG else ascii(agent)


def _shown(agent: str) -> str:
    return f"the agent of {_LONG:,} characters with {agent[-1]!a}" if len(agent) == _LONG else ascii(agent)


with promise("agents are isolated"):

    @check()
    def names_with_syntax_stay_apart(trial: Trial) -> Outcome:
        """Agents whose names hold separators, wildcards, SQL or filter syntax."""
        return _crossings(trial, trial.open(), _SYNTAX)

    @check()
    def similar_names_stay_apart(trial: Trial) -> Outcome:
        """Agents whose names are prefixes, other cases or Unicode twins of each other."""
        return _crossings(trial, trial.open(), _TWINS)

    @check()
    def long_names_stay_apart(trial: Trial) -> Outcome:
        """Agents with names of 10,000 characters that differ in the last one."""
        return _crossings(trial, trial.open(), tuple("x" * (_LONG - 1) + end for end in "abc"))

    @check()
    def contents_that_name_others_stay_apart(trial: Trial) -> Outcome:
        """Contents that name another agent, or look like a query for its memories."""
        if not trial.capabilities.search:
            return not_promised("the system can't search")
        target = trial.open()
        secret = f"the code of ann is {trial.token()}"
        trial.store(target, ANN, [secret])
        trial.store(target, BOB, ["ann", "agent_id: ann", "user_id = 'ann'", '{"agent": "ann"}'])
        queries = (
            secret,
            "ann",
            "agent_id: ann",
            "user_id:ann",
            '* OR agent == "ann"',
            "what is the code of ann?",
        )
        found = [
            query for query in queries if secret in [hit.content for hit in target.search(BOB, query, _K)]
        ]
        return judge(
            not found,
            f"{len(queries)} queries of bob, {len(found)} found the secret of ann",
            {"queries": len(queries), "foreign": len(found)},
            [
                line
                for query in found[:1]
                for line in (
                    f"secret = {secret!r}",
                    'target.add_one(Item("ann", secret))',
                    'target.add_one(Item("bob", "ann"))',
                    f"query = {'secret' if query == secret else repr(query)}",
                    f'target.search("bob", query, {_K})   # no hit may be the secret',
                )
            ],
        )

    @check({"standard": 900.0, "full": 3600.0})
    def a_small_agent_gets_its_k_hits(trial: Trial) -> Outcome:
        """One agent owns 99 % of the rows; the others still get k of k hits."""
        if not trial.capabilities.search:
            return not_promised("the system can't search")
        target = trial.open()
        k = min(_K, trial.capabilities.max_k or _K)
        texts: dict[str, list[str]] = {}
        # All texts have the word of the query, for systems that search by words. The small agents' memories
        # come last, as in a store that has been in use for long.
        for number in range(trial.size(2, 20, 100)):
            if number and not trial.has_time():
                break
            trial.store(target, "large", [f"note {trial.text()}" for _ in range(99 * k)])
            texts[f"small {number}"] = [f"note {trial.text()}" for _ in range(k)]
        for agent, own in texts.items():
            trial.store(target, agent, own)
        small = len(texts)
        missing = foreign = 0
        for agent, own in texts.items():
            hits = target.search(agent, "note", k)
            foreign += sum(hit.content not in own for hit in hits)
            missing += k - len({hit.id for hit in hits if hit.content in own})
        wanted = small * k
        return judge(
            missing + foreign == 0,
            f"small agents: {small}, each with {k} of {100 * wanted:,} rows: "
            f"{missing} of {wanted} hits missing, {foreign} of others",
            {"wanted": wanted, "missing": missing, "foreign": foreign},
            (
                f'for agent, number in (("large", {99 * wanted}), ("small", {k})):',
                '    texts = [f"note {agent} {n}" for n in range(number)]',
                "    target.add([Item(agent, text) for text in texts])",
                f'len(target.search("small", "note", {k}))   # expected: {k}',
            ),
        )
