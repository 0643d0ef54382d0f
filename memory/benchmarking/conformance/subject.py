"""The target that a check works on, and how a check says what is wrong."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory.benchmarking.conformance.records import Outcome
from memory.benchmarking.errors import NotSupported
from memory.benchmarking.model.user_files import cause_of
from memory.benchmarking.targets import load_target, make_target
from memory.benchmarking.targets.base import Capabilities, Found, Target

ANN, BOB = "ann", "bob"
_MOST_CHARACTERS = 160
"""The most characters of a value in a report."""
_PROCESS_SECONDS = 900
"""The last resort: `run/checking.py` ends a check that hangs, with its processes, much earlier."""


class Broken(Exception):
    """A promise is broken: by which method, what was expected, and what came instead."""

    def __init__(self, method: str, expected: str, came: str) -> None:
        super().__init__(f"{method}: expected {expected}, got {came}")
        self.method, self.expected, self.came = method, expected, came


class DoesNotApply(Exception):
    """The target does not declare the capability that a check is about."""


class Subject:
    """A target under check: opens stores in folders of its own, and closes them all in the end."""

    def __init__(self, target: str, folder: Path) -> None:
        self.text = target
        self.kind: type[Target] = load_target(target)
        self.folder = folder
        self._opened: list[Target] = []

    @property
    def capabilities(self) -> Capabilities:
        return self.kind.capabilities

    def open(self, name: str = "store") -> Target:
        """Open a store in a folder of this name."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        target = make_target(self.text)
        target.open(place)
        self._opened.append(target)
        return target

    def close(self, target: Target) -> None:
        self._opened.remove(target)
        target.close()

    def close_all(self) -> None:
        while self._opened:
            self._opened.pop().close()

    def needs(self, capability: str, what: str = "") -> None:
        """Leave the check if the target does not declare a capability."""
        if not getattr(self.capabilities, capability):
            raise DoesNotApply(what or f"it declares no {capability}")

    def k(self, wanted: int) -> int:
        """Return how many hits to ask for: `max_k` if that is less."""
        return min(wanted, self.capabilities.max_k or wanted)

    # -- what is expected ---------------------------------------------------------------------

    def equal(self, method: str, came: Any, expected: Any, what: str = "") -> None:
        """Raise Broken unless a method returned what was expected. `what` describes the call."""
        if came != expected or isinstance(came, bool) is not isinstance(expected, bool):
            raise Broken(method, f"{short(expected)}{f' {what}' if what else ''}", short(came))

    def true(self, method: str, condition: bool, expected: str, came: Any) -> None:
        """Raise Broken unless a condition holds; `expected` describes it."""
        if not condition:
            raise Broken(method, expected, came if isinstance(came, str) else short(came))

    def stored(
        self, target: Target, agent: str, ids: Sequence[str], contents: Sequence[Any], when: str = ""
    ) -> None:
        """Raise Broken unless these memories can be read: by id, or by a search where there is no get."""
        if self.capabilities.get:
            came = target.get(agent, ids)
            self.true("get", len(came) == len(ids), f"{len(ids)} contents{when}", came)
            self._none_missing("get", came, contents, when)
            for answer, content in zip(came, contents, strict=True):
                self._same("get", answer, content, when)
        elif self.capabilities.search:
            target.flush()
            came = []
            for id_, content in zip(ids, contents, strict=True):
                hits = target.search(agent, content, self.k(10))
                came.append(next((hit.content for hit in hits if hit.id == id_), None))
            self._none_missing("search", came, contents, when)
            for answer, content in zip(came, contents, strict=True):
                self._same("search", answer, content, when)

    def _none_missing(self, method: str, came: Sequence[Any], contents: Sequence[Any], when: str) -> None:
        """Raise Broken with the count if a memory is missing."""
        pairs = zip(came, contents, strict=True)
        missing = [content for answer, content in pairs if answer is None and content is not None]
        if missing:
            what = f"None, and so for {len(missing)} of {len(contents)}" if len(contents) > 1 else "None"
            raise Broken(method, f"{short(missing[0])} as it was stored{when}", what)

    def _same(self, method: str, answer: Any, content: Any, when: str) -> None:
        if self.capabilities.exact:
            self.equal(method, answer, content, f"as it was stored{when}")
        else:
            self.true(method, answer is not None, f"a content for {short(content)}{when}", answer)

    def missing(self, target: Target, agent: str, ids: Sequence[str], contents: Sequence[Any]) -> None:
        """Raise Broken if one of these memories can be read by this agent."""
        if self.capabilities.get:
            self.equal("get", target.get(agent, ids), [None] * len(ids), "for ids that the agent has not")
        if self.capabilities.search:
            target.flush()
            for id_, content in zip(ids, contents, strict=True):
                found = [hit.id for hit in target.search(agent, content, self.k(10))]
                self.true("search", id_ not in found, f"no hit with the id {id_!r}", found)

    def refuses(self, method: str, act: Callable[[], object]) -> None:
        """Raise Broken unless a call raises NotSupported with the name of the system."""
        try:
            came = act()
        except NotSupported as problem:
            self.true(
                method, self.kind.name in str(problem), f"a text with {self.kind.name!r}", str(problem)
            )
        else:
            raise Broken(method, "NotSupported, because the capability is not declared", short(came))

    def total(self, target: Target, expected: int, when: str = "") -> None:
        """Raise Broken unless `count` returns so many memories, over all places."""
        counts = target.count()
        self.equal("count", set(counts), set(self.capabilities.places), "as places")
        self.equal("count", sum(counts.values()), expected, f"memories{when}")

    def in_another_process(self, act: str) -> Any:
        """Run `another_process.py` on the folder `store`; return the JSON value that it prints."""
        (self.folder / "store").mkdir(exist_ok=True)
        program = "memory.benchmarking.conformance.another_process"
        done = subprocess.run(
            [sys.executable, "-P", "-m", program, act, self.text, str(self.folder / "store")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROCESS_SECONDS,
        )
        try:
            answer: Any = json.loads(done.stdout.strip().rpartition("\n")[2])
        except ValueError:
            last = (done.stderr.strip() or "nothing").rpartition("\n")[2]
            raise Broken("add", "a process that stores three memories", last) from None
        return answer


def scores_fall(hits: Iterable[Found]) -> bool:
    """Return whether the best hit is the first one."""
    scores = [hit.score for hit in hits]
    return scores == sorted(scores, reverse=True)


def short(value: Any) -> str:
    """Return a value in one line, cut where it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


@dataclass(frozen=True)
class Check:
    """One promise and the function that tests it."""

    function: Callable[[Subject], None]

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def promise(self) -> str:
        """The first line of the function's text."""
        return (self.function.__doc__ or "").strip().partition("\n")[0].rstrip(".")

    def run(self, target: str, folder: Path) -> Outcome:
        """Test the promise in an empty folder; never raises for a fault of the target."""
        folder.mkdir(parents=True, exist_ok=True)
        subject = Subject(target, folder)
        try:
            try:
                self.function(subject)
            finally:
                subject.close_all()
        except DoesNotApply as reason:
            return Outcome(
                check=self.name, promise=self.promise, state="does not apply", reason=str(reason)
            )
        except Broken as fault:
            return Outcome(
                check=self.name,
                promise=self.promise,
                state="broken",
                reason=str(fault),
                method=fault.method,
                place=_definition(subject.kind, fault.method),
                expected=fault.expected,
                came=fault.came,
            )
        except Exception as problem:
            return self._raised(subject.kind, problem)
        return Outcome(check=self.name, promise=self.promise, state="kept")

    def _raised(self, kind: type[Target], problem: Exception) -> Outcome:
        """Return the outcome for an exception that came out of the target."""
        method, place = _where(kind, problem, self.function)
        came = cause_of(problem).partition(" (/")[0]
        return Outcome(
            check=self.name,
            promise=self.promise,
            state="broken",
            reason=f"{method}: raised {came}",
            method=method,
            place=place,
            expected="no exception",
            came=came,
        )


def _where(kind: type[Target], problem: BaseException, function: Callable[..., Any]) -> tuple[str, str]:
    """Return the method that a check called, and the innermost line of the target's own code."""
    frames = traceback.extract_tb(problem.__traceback__)
    files = {inspect.getfile(each) for each in kind.__mro__ if issubclass(each, Target)}
    own = [frame for frame in frames if frame.filename in files]
    if not own:
        last = frames[-1]
        return function.__name__, f"{last.filename}:{last.lineno}"
    specific = [frame for frame in own if frame.filename == inspect.getfile(kind)] or own
    return own[0].name, f"{specific[-1].filename}:{specific[-1].lineno}"


def _definition(kind: type[Target], method: str) -> str:
    """Return where a method is defined, as file:line."""
    code = getattr(inspect.unwrap(getattr(kind, method, kind.__init__)), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else inspect.getfile(kind)
