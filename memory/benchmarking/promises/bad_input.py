"""Bad input gets a clear error or a sensible answer: never a crash, never silent nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memory.benchmarking.promises.model import Outcome, check, judge, not_promised, promise
from memory.benchmarking.promises.trial import ANN, Trial
from memory.benchmarking.targets.base import Item, Target

Try = tuple[Callable[[Target], Any], Callable[[Any], bool], str]
"""A call, whether its answer is sensible, and the call as code."""


def _tried(trial: Trial, tries: dict[str, Try]) -> Outcome:
    """Carry out calls; each must raise, or return something for which its predicate holds."""
    target = trial.open()
    trial.store(target, ANN, [trial.text() for _ in range(12)])
    nonsense: dict[str, str] = {}
    raised = 0
    for name, (act, is_sensible, _) in tries.items():
        try:
            answer = act(target)
        except Exception:
            raised += 1
            continue
        if not is_sensible(answer):
            nonsense[name] = repr(answer)[:80]
    # The store must still work, whatever the calls have done.
    text = trial.text()
    id_ = target.add_one(Item(ANN, text))
    works = not trial.capabilities.get or target.get(ANN, [id_]) == [text]
    evidence = f"{len(tries)} calls: {raised} raised an error, {len(nonsense)} gave nonsense"
    if nonsense:
        name, answer = next(iter(nonsense.items()))
        evidence += f" (first: {name} returned {answer})"
    code = [tries[name][2] for name in list(nonsense)[:1]]
    if not works:
        evidence += "; afterwards the store no longer works"
        code += ['id_ = target.add_one(Item("ann", "x"))', 'target.get("ann", [id_])   # expected: ["x"]']
    return judge(
        not nonsense and works,
        evidence,
        {"calls": len(tries), "raised": raised, "nonsense": len(nonsense)},
        code,
    )


def _seen_by_ann(target: Target, id_: str) -> bool:
    """Return whether ann reads a memory. A store may take None for an agent, if it is nobody else."""
    if target.capabilities.get:
        return target.get(ANN, [id_]) != [None]
    return id_ in [hit.id for hit in target.search(ANN, "x", 20)]


_SYNTAX = "\"' OR * NEAR( ) AND NOT -x: ^~ {}[]\\"


def _get(id_: str) -> Callable[[Target], Any]:
    return lambda target: target.get(ANN, [id_])


def _search(query: str) -> Callable[[Target], Any]:
    return lambda target: target.search(ANN, query, 5)


def _no_hits(answer: Any) -> bool:
    return len(answer) == 0


with promise("bad input does no harm"):

    @check()
    def unknown_ids_are_no_error(trial: Trial) -> Outcome:
        """Reading, updating and deleting ids that do not exist."""
        tries: dict[str, Try] = {
            "delete of an unknown id": (
                lambda t: t.delete(ANN, ["no such id"]),
                lambda n: n == 0,
                'target.delete("ann", ["no such id"])   # expected: 0',
            ),
            "delete_all of an unknown agent": (
                lambda t: t.delete_all("nobody"),
                lambda n: n == 0,
                'target.delete_all("nobody")   # expected: 0',
            ),
        }
        if trial.capabilities.get:
            for words, id_ in (
                ("unknown id", "no such id"),
                ("id with syntax", "' OR 1=1 --"),
                ("empty id", ""),
            ):
                tries[f"get of an {words}"] = (
                    _get(id_),
                    lambda a: a == [None],
                    f'target.get("ann", [{id_!r}])   # expected: [None]',
                )
        if trial.capabilities.update:
            tries["update of an unknown id"] = (
                lambda t: t.update(ANN, "no such id", "x"),
                lambda a: not a,
                'target.update("ann", "no such id", "x")   # expected: False',
            )
        if trial.capabilities.search:
            tries["search of an unknown agent"] = (
                lambda t: t.search("nobody", "x", 5),
                _no_hits,
                'target.search("nobody", "x", 5)   # expected: []',
            )
        return _tried(trial, tries)

    @check()
    def odd_searches_are_answered(trial: Trial) -> Outcome:
        """k of 0, k above the size, an empty query, a very long one, one with syntax."""
        if not trial.capabilities.search:
            return not_promised("the system can't search")
        most = 12
        at_most_five: Callable[[Any], bool] = lambda answer: len(answer) <= 5  # noqa: E731 - a predicate
        tries: dict[str, Try] = {
            "k = 0": (
                lambda t: t.search(ANN, "harbour", 0),
                _no_hits,
                'target.search("ann", "harbour", 0)   # expected: []',
            ),
            # Some systems take it as "no limit".
            "k = -1": (
                lambda t: t.search(ANN, "harbour", -1),
                lambda a: len(a) in (0, most),
                'target.search("ann", "harbour", -1)   # expected: [] or all',
            ),
            "k above the size": (
                lambda t: t.search(ANN, "harbour", 1000),
                lambda a: len(a) <= most,
                f'target.search("ann", "harbour", 1000)   # at most {most}',
            ),
        }
        for words, query, code in (
            ("an empty query", "", '""'),
            ("a query of 100,000 characters", "harbour " * 12_500, '"harbour " * 12_500'),
            ("a query with syntax", _SYNTAX, repr(_SYNTAX)),
            ("a query of control characters", "\x00\x01\n\t", r'"\x00\x01\n\t"'),
        ):
            tries[words] = (
                _search(query),
                at_most_five,
                f'target.search("ann", {code}, 5)   # at most 5',
            )
        return _tried(trial, tries)

    @check()
    def wrong_vectors_are_refused(trial: Trial) -> Outcome:
        """A vector of the wrong length, with NaN, with infinity, of zeros."""
        if not trial.capabilities.vector_queries:
            return not_promised("the system can't be searched by a vector")
        import numpy as np

        target = trial.open()
        size = target.dimensions
        trial.close(target)
        good = np.ones(size, np.float32) / np.float32(size**0.5)
        with_nan, infinite = good.copy(), good.copy()
        with_nan[3], infinite[3] = np.nan, np.inf
        vector = f"vector = numpy.full({size}, 0.1, 'float32')"
        call = 'target.search_vector("ann", vector, 5)   # an error'
        return _tried(
            trial,
            {
                "a vector that is too short": (
                    lambda t: t.search_vector(ANN, good[:-1], 5),
                    _no_hits,
                    f"vector = numpy.full({size - 1}, 0.1, 'float32')\n{call}",
                ),
                "a vector that is too long": (
                    lambda t: t.search_vector(ANN, np.append(good, good), 5),
                    _no_hits,
                    f"vector = numpy.full({2 * size}, 0.1, 'float32')\n{call}",
                ),
                "a vector with NaN": (
                    lambda t: t.search_vector(ANN, with_nan, 5),
                    _no_hits,
                    f"{vector}\nvector[3] = numpy.nan\n{call}",
                ),
                "a vector with infinity": (
                    lambda t: t.search_vector(ANN, infinite, 5),
                    _no_hits,
                    f"{vector}\nvector[3] = numpy.inf\n{call}",
                ),
                # Every memory is equally far from it, so any hits are sensible.
                "a vector of zeros": (
                    lambda t: t.search_vector(ANN, 0 * good, 5),
                    lambda a: len(a) <= 5,
                    f"vector = numpy.zeros({size}, 'float32')\n{call}",
                ),
            },
        )

    @check()
    def wrong_types_are_refused(trial: Trial) -> Outcome:
        """Arguments of wrong types."""
        never: Callable[[Any], bool] = lambda answer: False  # noqa: E731 - a predicate among predicates
        wrong: Any = object()
        return _tried(
            trial,
            {
                "a content that is not JSON": (
                    lambda t: t.add_one(Item(ANN, wrong)),
                    never,
                    'target.add_one(Item("ann", object()))   # an error',
                ),
                "an agent that is None": (
                    lambda t: _seen_by_ann(t, t.add_one(Item(None, "x"))),  # type: ignore[arg-type]
                    lambda is_seen: not is_seen,
                    'target.add_one(Item(None, "x"))   # ann must not read it',
                ),
                "ids that are a number": (
                    lambda t: t.delete(ANN, 5),  # type: ignore[arg-type]
                    never,
                    'target.delete("ann", 5)   # expected: an error',
                ),
                "k as text": (
                    lambda t: t.search(ANN, "harbour", "five"),  # type: ignore[arg-type]
                    _no_hits,
                    'target.search("ann", "harbour", "five")   # an error',
                )
                if trial.capabilities.search
                else (
                    lambda t: t.delete(ANN, None),  # type: ignore[arg-type]
                    never,
                    'target.delete("ann", None)   # expected: an error',
                ),
            },
        )

    @check()
    def a_closed_store_refuses_calls(trial: Trial) -> Outcome:
        """Calls after `close` raise; nothing is acknowledged into nowhere."""
        folder = trial.folder()
        target = trial.open(folder)
        (id_,) = target.add([Item(ANN, "before")])
        trial.close(target)
        accepted = []
        calls: dict[str, Callable[[], Any]] = {
            "add": lambda: target.add_one(Item(ANN, "after")),
            "delete": lambda: target.delete(ANN, [id_]),
        }
        for name, act in calls.items():
            try:
                act()
            except Exception:
                continue
            accepted.append(name)
        lost = 0
        if accepted and trial.capabilities.persistence:
            # A system that opens itself again is fine, if what it accepted is there.
            again = trial.open(folder)
            lost = sum(again.count().values()) != 1 - ("delete" in accepted) + ("add" in accepted)
        return judge(
            not accepted or (trial.capabilities.persistence and not lost),
            f"accepted after close: {', '.join(accepted) or 'nothing'}" + ("; it was lost" if lost else ""),
            {"calls": len(calls), "accepted": len(accepted), "lost": int(lost)},
            ("target.close()", 'target.add_one(Item("ann", "after"))   # expected: an error'),
        )
