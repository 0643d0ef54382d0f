"""Runs the checks of a target in the target's interpreter: `membench targets check`.

A check that hangs, or ends its process, is reported as broken; the others run in a new process. Whatever
the target starts ends with the process, as in a round.
"""

from __future__ import annotations

import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from memory.benchmarking.conformance.lasting import (
    a_folder_outlives_its_process,
    a_killed_process_loses_nothing,
)
from memory.benchmarking.conformance.records import KEPT, Outcome, Report, checked_digest, save_report
from memory.benchmarking.conformance.suite import CHECKS
from memory.benchmarking.model.records import TargetInfo
from memory.benchmarking.promises.patience import Patience
from memory.benchmarking.run.executors import supervisor
from memory.benchmarking.run.origins import target_info
from memory.benchmarking.targets import is_built_in, load_target
from memory.benchmarking.targets.interpreters import Interpreter, environments_in_use, interpreter_of

CHECK_SECONDS = 60.0
"""How much CPU time one check may use, and how long it may do nothing (promises/patience.py)."""


class _Line(msgspec.Struct, frozen=True):
    """A line of the program: the name of the check that begins, or the outcome of one."""

    began: str = ""
    check: str = ""


def check_target(
    text: str,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
    *,
    seconds: float = CHECK_SECONDS,
) -> Report:
    """Run all checks of a target; store the report beside its environment, and return it.

    Args:
        text: as after `--target`.
        on_outcome: called with each outcome as it comes.
        seconds: how much CPU time one check may use, and how long it may do nothing.
    """
    interpreter = interpreter_of(text)
    outcomes: dict[str, Outcome] = {}
    scratch = Path(tempfile.mkdtemp(prefix="membench-check-"))
    try:
        with environments_in_use([text]):
            while left := [name for name in CHECKS if name not in outcomes]:
                for outcome in _run(text, interpreter, left, scratch, seconds):
                    outcomes[outcome.check] = outcome
                    on_outcome(outcome)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    info = target_info(text)
    report = Report(
        target=text,
        digest=checked_digest(text, info),
        lock=info.lock,
        outcomes=[outcomes[name] for name in CHECKS],
    )
    save_report(text, report)
    return report


def lost_writes(infos: Mapping[str, TargetInfo], *, seconds: float = CHECK_SECONDS) -> dict[str, str]:
    """Return what targets lose although they declare to keep it: a line for each that does.

    A benchmark reads back in the process that stored. That finds no loss in a store that is a variable of
    a module, or that writes its files in `close`. So one process stores three memories and ends, or is
    killed if the target declares that its writes survive this, and another process reads them.

    Built-in targets, and those that `membench targets check` has found to keep their promises, are trusted.

    Args:
        infos: by the name of the target, as after `--target`.
        seconds: as for `check_target`.
    """
    doubtful = [name for name, info in infos.items() if info.conformance != KEPT and not is_built_in(name)]
    found = {name: _lost_by(name, seconds) for name in doubtful}
    return {name: problem for name, problem in found.items() if problem}


def _lost_by(text: str, seconds: float) -> str:
    """Return what a target loses, in one line; empty if nothing."""
    kind = load_target(text)
    if not kind.capabilities.persistence:
        return ""
    killed = kind.capabilities.durability != "ram"
    check = a_killed_process_loses_nothing if killed else a_folder_outlives_its_process
    scratch = Path(tempfile.mkdtemp(prefix="membench-check-"))
    try:
        with environments_in_use([text]):
            (outcome,) = _run(text, interpreter_of(text), [check.__name__], scratch, seconds)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if outcome.state != "broken" or outcome.method not in ("get", "search"):
        return ""  # any other fault shows in the rounds
    return (
        f"{kind.name} declares durability {kind.capabilities.durability}, but it lost memories that it had "
        f"acknowledged ({outcome.reason}): its figures do not count"
    )


def _run(
    text: str, interpreter: Interpreter, names: Sequence[str], scratch: Path, seconds: float
) -> Iterator[Outcome]:
    """Run checks in one process until all are done, or until one ends the process or hangs."""
    current = names[0]
    with (
        tempfile.TemporaryFile() as log,
        _program(text, interpreter, names, scratch, log.fileno()) as lines,
    ):
        for line in lines(seconds):
            event = msgspec.json.decode(line, type=_Line)
            if event.began:
                current = event.began
            else:
                current = ""
                yield msgspec.json.decode(line, type=Outcome)
        if current:
            log.seek(0)
            last = log.read().decode(errors="replace").strip().rpartition("\n")[2][:300]
    if current:
        came = lines.hang or f"the process ended: {last or 'without a word'}"
        yield Outcome(
            check=current,
            promise=CHECKS[current].promise,
            state="broken",
            reason=came,
            expected="an end of the check",
            came=came,
        )


class _Lines:
    """The lines that the program sends."""

    def __init__(self, reader: int, pid: int, scratch: Path) -> None:
        self._reader, self._pid, self._scratch = reader, pid, str(scratch)
        self.hang: str | None = None
        """Why the program hangs, in words."""

    def __call__(self, seconds: float) -> Iterator[bytes]:
        """Yield lines until the program ends, or until it hangs."""
        pending = b""
        patience = Patience(self._pid, self._scratch, seconds, seconds)
        with selectors.DefaultSelector() as selector:
            selector.register(self._reader, selectors.EVENT_READ)
            while True:
                if not selector.select(patience.every):
                    self.hang = patience.look()
                    if self.hang is not None:
                        return
                    continue
                piece = os.read(self._reader, 65536)
                if not piece:
                    return
                *lines, pending = (pending + piece).split(b"\n")
                if lines:
                    patience.start_again()
                yield from lines


@contextmanager
def _program(
    text: str, interpreter: Interpreter, names: Sequence[str], scratch: Path, log: int
) -> Iterator[_Lines]:
    """Start the program below a supervisor; in the end nothing that it started is left."""
    paths = sys.path if interpreter.paths is None else interpreter.paths
    reader, writer = os.pipe()
    control, supervisor_end = socket.socketpair()
    module = "memory.benchmarking.conformance.suite"
    process = subprocess.Popen(
        [
            *(sys.executable, "-I", "-S", supervisor.__file__),
            str(supervisor_end.fileno()),
            str(writer),
            *(interpreter.python, "-P", "-m", module, str(writer), text, str(scratch), *names),
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={
            **os.environ,
            "TMPDIR": str(scratch),
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in paths),
        },
        pass_fds=[supervisor_end.fileno(), writer],
        start_new_session=True,
    )
    supervisor_end.close()
    os.close(writer)
    try:
        yield _Lines(reader, process.pid, scratch)
    finally:
        control.close()
        process.wait()
        os.close(reader)
