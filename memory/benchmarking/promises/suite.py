"""Runs checks, each in a process of its own: a check that hangs or crashes costs only itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from memory.benchmarking.promises import (  # noqa: F401 - importing a module adds its checks, in this order
    bad_input,
    concurrency,
    damage,
    deletion,
    durability,
    exactness,
    freshness,
    hits,
    isolation,
    updates,
)
from memory.benchmarking.promises.actor import ActorFailed
from memory.benchmarking.promises.model import CHECKS, Check, Outcome
from memory.benchmarking.promises.patience import wait_for
from memory.benchmarking.promises.trial import Trial
from memory.benchmarking.targets import load_target
from memory.benchmarking.targets.base import Capabilities

PROMISES = (
    "acknowledged is durable",
    "read your writes",
    "agents are isolated",
    "a search returns k memories",
    "a delete is final",
    "a delete erases",
    "an update replaces",
    "contents are exact",
    "ids are unique",
    "many may use it at once",
    "bad input does no harm",
    "a failing disk is noticed",
)
"""The promises in the order in which they are shown."""


def all_checks() -> dict[str, Check]:
    """Return all checks by name."""
    return CHECKS


def checks_of(promise: str) -> list[Check]:
    """Return the checks of one promise, in order."""
    return [check for check in CHECKS.values() if check.promise == promise]


def run_check(check: Check, target: str, scratch: Path, profile: str, seed: int) -> Outcome:
    """Run one check in its own process, within its time limit, and return its outcome.

    Args:
        check: one of `CHECKS`.
        target: as `--target` takes it.
        scratch: where folders of stores may be created; nothing is left there.
        profile: "quick", "standard" or "full".
        seed: for texts, orders and moments.
    """
    outcome = _run_apart(check, target, scratch, profile, seed)
    return _as_claimed(check, outcome, load_target(target).capabilities)


def run_check_here(check: Check, trial: Trial) -> Outcome:
    """Run one check in this process, without a time limit."""
    try:
        return _as_claimed(check, check.run(trial), trial.capabilities)
    finally:
        trial.end()


def _as_claimed(check: Check, outcome: Outcome, capabilities: Capabilities) -> Outcome:
    """Return the outcome as "not promised" if a target with these capabilities does not claim it."""
    if outcome.status in ("kept", "broken") and not check.promised(capabilities):
        return replace(outcome, status="not promised")
    return outcome


def _run_apart(check: Check, target: str, scratch: Path, profile: str, seed: int) -> Outcome:
    """Run one check in its own process, and judge it as if the target claimed the promise."""
    folder = Path(tempfile.mkdtemp(prefix="promise-", dir=scratch))
    order = json.dumps([check.name, target, str(folder), profile, seed])
    limit = check.seconds[profile]
    with tempfile.TemporaryFile() as answer:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "memory.benchmarking.promises.suite", order],
            stdout=answer,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(folder)},  # what a killed system leaves goes with the folder
            start_new_session=True,
        )
        try:
            hang = wait_for(process, str(folder), limit)
        finally:
            _end_group(process)
            shutil.rmtree(folder, ignore_errors=True)
        answer.seek(0)
        output = answer.read()
    if hang is not None:
        return Outcome("broken", f"hung: {hang}", {"hung": 1}, _command(check, target))
    if process.returncode or not output:
        how = (
            signal.Signals(-process.returncode).name if process.returncode < 0 else "an exit of the process"
        )
        return Outcome("broken", f"crashed with {how}", {"crashed": 1}, _command(check, target))
    status, evidence, figures, code = json.loads(output)
    return Outcome(status, evidence, figures, code)


def _command(check: Check, target: str) -> str:
    """Return the command that shows it again, where there is no single call to blame."""
    return f"# membench check --target {target} \\\n#   --only {check.name}"


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and those that it started, such as a server."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def _run(name: str, target: str, folder: str, profile: str, seed: int) -> Outcome:
    trial = Trial(target, Path(folder), profile, seed)
    again = _command(CHECKS[name], target)
    try:
        return CHECKS[name].run(trial)
    except ActorFailed as problem:
        return Outcome("broken", f"another process failed: {problem}"[:400], {"errors": 1}, again)
    except Exception as problem:
        # The calls of a check are ordinary ones, so an exception that it does not expect is a failure of
        # the system, or of the target's file; the message tells which.
        return Outcome("broken", f"raised {type(problem).__name__}: {problem}"[:400], {"errors": 1}, again)
    finally:
        trial.end()


def main(order: str) -> None:
    """Run the check that `run_check` ordered, and write its outcome to standard output."""
    # What the system prints must not mix with the outcome.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    outcome = _run(*json.loads(order))
    json.dump([outcome.status, outcome.evidence, dict(outcome.figures), outcome.code], answer)
    answer.flush()
    # Not `sys.exit`: a thread that the system left behind would keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
