"""Acknowledged is durable: a process that is killed loses nothing that it was told is stored."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from memory.benchmarking.promises.actor import Actor, ActorFailed
from memory.benchmarking.promises.model import (
    Outcome,
    check,
    judge,
    not_promised,
    not_tried,
    promise,
)
from memory.benchmarking.promises.trial import ANN, Trial
from memory.benchmarking.targets.base import Capabilities

_COMMANDS = 400
"""Commands that are sent ahead to a writer; it is killed before it has carried out all of them."""
_MOST_ANSWERS = 20
"""A writer has a random number of answers, at most so many, before the moment of its kill is drawn. Without
that, a slow system or a busy machine would be killed before it has stored anything."""
_ANSWER_SECONDS = 5.0
"""How long to wait for these answers."""
_LONGEST_WAIT = 0.15
"""Seconds from then until the kill, at most: the moments are spread over this time."""
_LEAST_KILLS = 3
"""So many of a slow system too, whatever time they take."""
_READ_AT_ONCE = 200
_SEARCHED = 10
"""How many memories are searched for after each kill."""
_HITS = 10
_SYNC = r"^\d+ +(?:<\.\.\. )?(?:fsync|fdatasync|msync|sync_file_range)(?:\(| resumed).*\) += 0$"
"""A line of strace about a call that succeeded, in one piece or resumed."""


_LOST: tuple[list[str], str] = ([], 'target.get("ann", [id_])   # expected: ["a text"]')
_CODE: Mapping[str, tuple[list[str], str]] = {
    "wrong": (
        ['target.update("ann", id_, "new")'],
        'target.get("ann", [id_])   # expected: ["new"]',
    ),
    "back": (['target.delete("ann", [id_])'], 'target.get("ann", [id_])   # expected: [None]'),
    "doubled": ([], "target.count()   # expected: 1"),
    "not_found": ([], 'target.search("ann", "a text", 10)   # expected: a hit'),
    "failed_opens": ([], "# expected: no error from `open`"),
}
"""By the kind of the first failure: the calls before the kill, and what is expected after it."""


@dataclass
class _Memory:
    """A memory as the check knows it."""

    id: str
    agent: str
    possible: list[Any]
    """The contents that may be read: one, or two if an update was under way at the kill. None: deleted."""


@dataclass
class _Tally:
    """What went wrong, over all kills."""

    acknowledged: int = 0
    kills: int = 0
    lost: int = 0
    wrong: int = 0
    back: int = 0
    doubled: int = 0
    not_found: int = 0
    failed_opens: int = 0
    reopen_seconds: list[float] = field(default_factory=list)
    first: str = ""
    """The first failure in words."""
    first_kind: str = ""

    def note(self, kind: str, words: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if not self.first:
            self.first, self.first_kind = words, kind

    @property
    def failures(self) -> int:
        return self.lost + self.wrong + self.back + self.doubled + self.not_found + self.failed_opens

    def outcome(self) -> Outcome:
        evidence = (
            f"{self.kills} kills, {self.acknowledged:,} acknowledged calls: {self.lost} lost, "
            f"{self.wrong} wrong, {self.back} deleted ones back, {self.doubled} doubled, "
            f"{self.not_found} not found by a search"
        )
        if self.failed_opens:
            evidence += f"; {self.failed_opens} times the store could not be opened again"
        if self.first:
            evidence += f" (first: {self.first})"
        if not self.acknowledged:
            return not_tried(f"no call was acknowledged before {self.kills} kills")
        figures: dict[str, float] = {
            "kills": self.kills,
            "acknowledged": self.acknowledged,
            "lost": self.lost,
            "wrong": self.wrong,
            "back": self.back,
            "doubled": self.doubled,
            "not_found": self.not_found,
        }
        if self.reopen_seconds:
            figures["reopen_seconds"] = median(self.reopen_seconds)
        calls, expected = _CODE.get(self.first_kind, _LOST)
        code = ["# process 1", "target.open(folder)", 'id_ = target.add_one(Item("ann", "a text"))', *calls]
        code += ["os.kill(os.getpid(), signal.SIGKILL)", "# process 2", "target.open(folder)", expected]
        return judge(self.failures == 0, evidence, figures, code)


class _Writer:
    """A process that adds, updates and deletes the memories of one agent until it is killed."""

    def __init__(self, trial: Trial, folder: Path, agent: str, settings: Mapping[str, Any] | None) -> None:
        self._trial = trial
        self._agent = agent
        self.actor: Actor = trial.actor(folder)
        self.actor.call("open", *([] if settings is None else [settings]))
        # The first write loads the embedder. A kill before the first answer would show nothing.
        self._first = (trial.token(), trial.text())
        (self._first_id,) = self.actor.call("add", agent, [self._first])
        self._plan: dict[int, tuple[str, list[str], list[Any]]] = {}
        """By the number of a command: the verb, the references and the contents."""

    def start(self, known: dict[str, _Memory], *, maintains: bool) -> None:
        """Send all commands ahead. `known` are the memories of earlier writers, by reference."""
        choose = self._trial.random
        name, text = self._first
        known[name] = _Memory(self._first_id, self._agent, [text])
        mine = {name: memory.id for name, memory in known.items() if memory.agent == self._agent}
        self.actor.call("know", mine)
        alive = [name for name in mine if known[name].possible != [None]]
        can_update = self._trial.capabilities.update
        for _ in range(_COMMANDS):
            draw = choose.random()
            if draw < 0.15 and alive and can_update:
                self._send("update", [choose.choice(alive)], [self._trial.text()])
            elif draw < 0.3 and len(alive) > 5:
                name = alive.pop(choose.randrange(len(alive)))
                self._send("delete", [name], [None])
            elif draw < 0.34 and maintains:
                self.actor.send("maintain")
            else:
                names = [self._trial.token() for _ in range(5 if draw > 0.95 else 1)]
                alive += names
                self._send("add", names, [self._trial.text() for _ in names])

    def _send(self, verb: str, names: list[str], contents: list[Any]) -> None:
        if verb == "add":
            number = self.actor.send("add", self._agent, list(zip(names, contents, strict=True)))
        elif verb == "update":
            number = self.actor.send("update", self._agent, names[0], contents[0])
        else:
            number = self.actor.send("delete", self._agent, names)
        self._plan[number] = (verb, names, contents)

    def work_until(self, answers: int, deadline: float) -> None:
        """Wait until so many commands have been answered, the process has ended, or the time is over."""
        while sum(number in self.actor.answers for number in self._plan) < answers:
            if not self.actor.receive(max(0.0, deadline - time.monotonic())):
                return

    def kill(self, known: dict[str, _Memory], tally: _Tally) -> int:
        """Kill the process and update `known`; return how many memories may exist without an answer."""
        self.actor.kill()
        unanswered = 0
        for number, (verb, names, contents) in self._plan.items():
            answer: Any = self.actor.answers.get(number)
            failed = isinstance(answer, dict) and "error" in answer
            if number in self.actor.answers and not failed:
                tally.acknowledged += 1
                for place, (name, content) in enumerate(zip(names, contents, strict=True)):
                    if verb == "add":
                        known[name] = _Memory(answer[place], self._agent, [content])
                    else:
                        known[name].possible = [content]
            else:
                # The call under way may have had its effect, or may not have; so may one that failed.
                unanswered += len(names) if verb == "add" else 0
                for name, content in zip(names, contents, strict=True):
                    if name in known:
                        known[name].possible.append(content)
                if not failed:
                    break
        return unanswered


def _verify(trial: Trial, folder: Path, known: dict[str, _Memory], extra: int, tally: _Tally) -> int:
    """Open the store in another process and compare it with `known`; return the number of memories."""
    with trial.actor(folder) as reader:
        try:
            tally.reopen_seconds.append(reader.call("open"))
        except ActorFailed as problem:
            tally.note("failed_opens", f"open raised {problem}")
            return -1
        memories = list(known.values())
        by_agent: dict[str, list[_Memory]] = {}
        for memory in memories:
            by_agent.setdefault(memory.agent, []).append(memory)
        for agent, own in by_agent.items():
            for start in range(0, len(own), _READ_AT_ONCE):
                part = own[start : start + _READ_AT_ONCE]
                contents = reader.call("get", agent, [memory.id for memory in part])
                for memory, content in zip(part, contents, strict=True):
                    _compare(memory, content, tally)
        total = int(reader.call("count"))
        certain = sum(None not in memory.possible for memory in memories)
        unsure = sum(None in memory.possible and len(memory.possible) > 1 for memory in memories)
        if total > certain + unsure + extra:
            tally.note("doubled", f"{total} memories instead of at most {certain + unsure + extra}")
        elif total < certain:
            tally.note("lost", f"the count is {total}, but {certain} memories were read")
        if trial.capabilities.search:
            reader.call("flush")
            _search(trial, reader, memories, tally)
        return total


def _compare(memory: _Memory, content: Any, tally: _Tally) -> None:
    if content in memory.possible:
        memory.possible = [content]  # now it is known which of the two it is
    elif content is None:
        tally.note("lost", f"{memory.possible[0]!r} was acknowledged and is gone")
        memory.possible = [None]
    elif memory.possible == [None]:
        tally.note("back", f"{content!r} was deleted and is back")
        memory.possible = [content]
    else:
        tally.note("wrong", f"{content!r} instead of {memory.possible[0]!r}")
        memory.possible = [content]


def _search(trial: Trial, reader: Actor, memories: list[_Memory], tally: _Tally) -> None:
    alive = [memory for memory in memories if memory.possible[0] is not None]
    for memory in trial.random.sample(alive, min(_SEARCHED, len(alive))):
        hits = reader.call("search", memory.agent, memory.possible[0], _HITS)
        if memory.id not in [id_ for id_, _ in hits]:
            tally.note("not_found", f"a search for {memory.possible[0]!r} does not find it")


def _kill_writers(
    trial: Trial,
    kills: int,
    writers: int,
    settings: Mapping[str, Any] | None = None,
    *,
    maintains: bool = False,
) -> _Tally:
    folder, tally = trial.folder(), _Tally()
    known: dict[str, _Memory] = {}
    extra = 0  # memories in the store whose calls had no answer, from all kills
    while tally.kills < kills and (tally.kills < _LEAST_KILLS or trial.has_time()):
        running = [_Writer(trial, folder, f"agent {number}", settings) for number in range(writers)]
        for writer in running:
            writer.start(known, maintains=maintains)
        deadline = time.monotonic() + _ANSWER_SECONDS
        for writer in running:
            writer.work_until(trial.random.randint(0, _MOST_ANSWERS), deadline)
        time.sleep(trial.random.uniform(0, _LONGEST_WAIT))  # the moment of the kill
        for writer in running:
            extra += writer.kill(known, tally)
            tally.kills += 1
        total = _verify(trial, folder, known, extra, tally)
        if tally.failures > 20 or total < 0:
            break  # it is clear by now
        extra = max(0, total - sum(memory.possible != [None] for memory in known.values()))
    return tally


_KILL_SECONDS = {"quick": 300.0, "standard": 600.0, "full": 3600.0}


def _survives_a_kill(has: Capabilities) -> bool:
    return has.durability != "ram"


with promise("acknowledged is durable"):

    @check(_KILL_SECONDS, promised=_survives_a_kill)
    def a_killed_process_loses_nothing(trial: Trial) -> Outcome:
        """A process that adds, updates and deletes is killed at random moments."""
        if not trial.capabilities.persistence:
            return not_promised("the system keeps nothing in files")
        if not trial.capabilities.get:
            return not_tried("the system can't read a memory by its id")
        return _kill_writers(trial, trial.size(4, 15, 200), 1).outcome()

    @check(_KILL_SECONDS, promised=lambda has: has.processes and _survives_a_kill(has))
    def three_killed_processes_lose_nothing(trial: Trial) -> Outcome:
        """Three processes write into one store and are all killed."""
        if not (trial.capabilities.processes and trial.capabilities.persistence):
            return not_promised("only one process may open the store at a time")
        return _kill_writers(trial, trial.size(6, 15, 60), 3).outcome()

    @check(_KILL_SECONDS, promised=_survives_a_kill)
    def a_kill_during_a_move_loses_nothing(trial: Trial) -> Outcome:
        """A process is killed while memories move between its tiers."""
        if not trial.capabilities.transitions:
            return not_promised("the system has no tiers between which memories move")
        settings = {"limits": {"stm": 10, "im": 20}}
        return _kill_writers(trial, trial.size(3, 10, 40), 1, settings, maintains=True).outcome()

    @check(promised=lambda has: has.durability == "machine")
    def an_acknowledged_write_reaches_the_disk(trial: Trial) -> Outcome:
        """The kernel counts how often the system waits for the disk."""
        strace = shutil.which("strace")
        if strace is None:
            return not_tried("strace is not installed")
        writes = trial.size(20, 50, 200)
        log = trial.scratch / "syncs"
        command = [
            strace,
            "-f",
            "-qq",
            "-o",
            str(log),
            "-e",
            "trace=fsync,fdatasync,msync,sync_file_range",
        ]
        try:
            with trial.actor(trial.folder(), command) as writer:
                writer.call("open")
                writer.call("add", ANN, [("first", trial.text())])
                before = syncs_in(log)
                for number in range(writes):
                    writer.call("add", ANN, [(str(number), trial.text())])
                # Before `close`, which may sync what was acknowledged long ago.
                a_write = (syncs_in(log) - before) / writes
        except ActorFailed as problem:
            return not_tried(f"strace can't trace a process here: {problem}")
        return judge(
            a_write >= 1,
            f"{a_write:.1f} syncs a write, over {writes} writes one by one",
            {"syncs_per_write": a_write},
            [
                'target.add_one(Item("ann", "a text"))',
                "# strace shows no fsync or fdatasync before it returns",
            ],
        )


def syncs_in(log: Path) -> int:
    """Return how many calls a strace log has that succeeded.

    A call during which another thread was traced has two lines; the second one has the result.
    """
    text = log.read_text(errors="replace") if log.exists() else ""
    return len(re.findall(_SYNC, text, re.MULTILINE))
