"""Many at once: threads and processes that share a store lose nothing and never hang."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from memory.benchmarking.promises.actor import Actor, ActorFailed
from memory.benchmarking.promises.model import Outcome, check, judge, not_promised, promise
from memory.benchmarking.promises.trial import Trial
from memory.benchmarking.targets.base import Item

_THREADS = 8
_PROCESSES = 4
_SHARED = "shared"


def _report(who: str, operations: int, lost: int, wrong: int, errors: list[str]) -> Outcome:
    evidence = f"{who}, {operations:,} operations: {lost} lost, {wrong} wrong, {len(errors)} errors"
    if errors:
        evidence += f" (first: {errors[0]})"
    return judge(
        lost + wrong + len(errors) == 0,
        evidence,
        {"operations": operations, "lost": lost, "wrong": wrong, "errors": len(errors)},
        (
            f"# in {who} at once",
            'id_ = target.add_one(Item("shared", text))',
            'target.get("shared", [id_])   # expected: [text]',
        ),
    )


with promise("many may use it at once"):

    @check()
    def threads_lose_nothing(trial: Trial) -> Outcome:
        """Eight threads add, update, delete, read and search; each compares with its own model."""
        if not (trial.capabilities.threads and trial.capabilities.get):
            return not_promised("only one thread may use an open store")
        target = trial.open()
        steps = trial.size(40, 100, 500)
        models: list[dict[str, Any]] = [{} for _ in range(_THREADS)]
        errors: list[str] = []
        texts = [[trial.text() for _ in range(steps)] for _ in range(_THREADS)]
        wrong = [0] * _THREADS

        def work(number: int) -> None:
            mine = models[number]
            own = f"agent {number}"
            try:
                for step, text in enumerate(texts[number]):
                    agent = _SHARED if step % 3 == 0 else own
                    id_ = target.add_one(Item(agent, text))
                    mine[id_] = (agent, text)
                    if step % 4 == 1 and trial.capabilities.update:
                        target.update(agent, id_, f"{text} again")
                        mine[id_] = (agent, f"{text} again")
                    if step % 5 == 4:
                        target.delete(agent, [id_])
                        del mine[id_]
                        wrong[number] += target.get(agent, [id_]) != [None]
                    elif target.get(agent, [id_]) != [mine[id_][1]]:
                        wrong[number] += 1
                    if step % 10 == 9 and trial.capabilities.search:
                        target.search(agent, text, 5)
            except Exception as problem:
                errors.append(f"{type(problem).__name__}: {problem}"[:200])

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lost = 0
        for mine in models:
            for id_, (agent, text) in mine.items():
                content = target.get(agent, [id_])[0]
                lost += content is None
                wrong[0] += content is not None and content != text
        return _report(f"{_THREADS} threads", _THREADS * steps, lost, sum(wrong), errors)

    @check(promised=lambda has: has.processes)
    def processes_lose_nothing(trial: Trial) -> Outcome:
        """Four processes add, update and delete, for one agent and for their own, and search."""
        if not (trial.capabilities.persistence and trial.capabilities.get):
            return not_promised("no other process can read the memories")
        folder = trial.folder()
        steps = trial.size(30, 100, 300)
        actors = [trial.actor(folder) for _ in range(_PROCESSES)]
        plans: list[list[_Command]] = []
        errors: list[str] = []
        lost = wrong = 0
        try:
            for actor in actors:
                actor.call("open")  # all of them, before the first one writes
            for number, actor in enumerate(actors):
                plans.append(_send_operations(trial, actor, number, steps))
            model: dict[str, dict[str, str | None]] = {}
            for actor, plan in zip(actors, plans, strict=True):
                actor.call("count")  # all commands before it have been answered
                errors += _apply(plan, actor.answers, model)
            unseen: set[str] = set()
            changed: set[str] = set()
            for actor in actors:  # every process sees what all of them have done
                for agent, expected in model.items():
                    contents = actor.call("get", agent, list(expected))
                    for (id_, text), content in zip(expected.items(), contents, strict=True):
                        if content != text:
                            (unseen if content is None else changed).add(id_)
            lost, wrong = len(unseen), len(changed)
        except ActorFailed as problem:
            errors.append(str(problem))
        finally:
            for actor in actors:
                actor.close()
        operations = sum(len(plan) for plan in plans)
        return _report(f"{_PROCESSES} processes", operations, lost, wrong, errors)


class _Command(NamedTuple):
    """A command that was sent to another process."""

    number: int
    verb: str
    agent: str
    reference: str
    text: str | None


def _send_operations(trial: Trial, actor: Actor, process: int, steps: int) -> list[_Command]:
    """Send mixed operations ahead; return them."""
    sent: list[_Command] = []

    def send(verb: str, text: str | None, *arguments: Any) -> None:
        sent.append(_Command(actor.send(verb, agent, *arguments), verb, agent, reference, text))

    for step in range(steps):
        agent, text = _SHARED if step % 2 else f"agent {process}", trial.text()
        reference = f"{process}/{step}"
        send("add", text, [(reference, text)])
        if step % 4 == 1 and trial.capabilities.update:
            send("update", f"{text} again", reference, f"{text} again")
        if step % 5 == 4:
            send("delete", None, [reference])
        if step % 10 == 9 and trial.capabilities.search:
            send("search", text, text, 5)
    return sent


def _apply(
    plan: list[_Command], answers: Mapping[int, Any], model: dict[str, dict[str, str | None]]
) -> list[str]:
    """Apply the acknowledged operations of one process to the model; return the errors.

    Args:
        plan: the operations, in order.
        answers: what the process answered, by the number of the command.
        model: by agent and id the content that must be read; None for a deleted memory.
    """
    ids: dict[str, str] = {}
    errors: list[str] = []
    for command in plan:
        answer = answers[command.number]
        if isinstance(answer, dict):
            errors.append(str(answer.get("error", answer)))
            continue
        if command.verb == "add":
            ids[command.reference] = answer[0]
        # An update or a delete that found nothing changes nothing: the memory counts as lost.
        if command.verb == "add" or (command.verb != "search" and answer):
            model.setdefault(command.agent, {})[ids[command.reference]] = command.text
    return errors
