"""Another process that uses the target: it obeys commands, and can be killed at any moment.

`Actor` is the side of the check. `main` is the other process. A command is one JSON line: its number, a
verb and the arguments. The answer is one JSON line, written when the call has returned. So an answer that
has arrived is an acknowledged call. Commands can be sent ahead, without waiting for answers: the process
then works at full speed until it is killed.

Memories are named by references that the check chooses, because the target chooses the ids.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.targets import make_target
from memory.benchmarking.targets.base import Item, Settings, Target

_ANSWER_SECONDS = 120.0
"""How long a check waits for one answer."""


class ActorFailed(BenchmarkError):
    """The other process has ended or answered with an error."""


class ActorEnded(ActorFailed):
    """The other process has ended by itself, or does not answer."""


class Actor:
    """A process with the target open in a folder.

    Args:
        target: as `--target` takes it.
        folder: the folder of the store.
        command: is put before the command of the process, for instance strace with its options.
    """

    def __init__(self, target: str, folder: Path, command: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [
                *command,
                sys.executable,
                "-P",
                "-m",
                "memory.benchmarking.promises.actor",
                target,
                str(folder),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._sent = 0
        self._pending = b""
        self.answers: dict[int, Any] = {}
        """The answers that have arrived, by the number of their command."""

    def send(self, verb: str, *arguments: Any) -> int:
        """Send a command without waiting; return its number."""
        self._sent += 1
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([self._sent, verb, arguments]).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ActorEnded(f"{verb} was not called: {self._ending()}") from None
        return self._sent

    def call(self, verb: str, *arguments: Any) -> Any:
        """Send a command and return its answer; raise ActorFailed if the call raised."""
        number = self.send(verb, *arguments)
        deadline = time.monotonic() + _ANSWER_SECONDS
        while number not in self.answers:
            if not self.receive(max(0.0, deadline - time.monotonic())):
                raise ActorEnded(f"{verb} did not return: {self._ending()}")
        answer = self.answers[number]
        if isinstance(answer, dict) and "error" in answer:
            raise ActorFailed(answer["error"])
        return answer

    def receive(self, seconds: float) -> bool:
        """Take the answers that arrive within a time; return False if none came or the process ended."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        if not select.select([descriptor], [], [], seconds)[0]:
            return False
        piece = os.read(descriptor, 1 << 16)
        *lines, self._pending = (self._pending + piece).split(b"\n")
        for line in lines:
            number, answer = json.loads(line)
            self.answers[number] = answer
        return bool(piece)

    def kill(self) -> None:
        """Kill the process with SIGKILL, and take the answers that it had written."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        while self.receive(0):
            pass
        self._release()

    def close(self) -> None:
        """Let the process close the target and end."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(_ANSWER_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._release()

    def _release(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue  # what was still to be sent is lost with the process

    def _ending(self) -> str:
        try:
            code = self._process.wait(1)  # it may have closed its output just now
        except subprocess.TimeoutExpired:
            return f"no answer within {_ANSWER_SECONDS:g} s"
        if code < 0:
            return f"the process ended with {signal.Signals(-code).name}"
        return f"the process ended with code {code}"

    def __enter__(self) -> Actor:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._process.poll() is None:
            self.close()
        else:
            self._release()


class _Obeying:
    """The verbs of the other process."""

    def __init__(self, target: Target, folder: Path) -> None:
        self._target = target
        self._folder = folder
        self._ids: dict[str, str] = {}
        self.is_open = False

    def open(self, settings: Mapping[str, Any] | None = None) -> float:
        """Open the store and return the seconds that it took."""
        start = time.perf_counter()
        if settings is None:
            self._target.open(self._folder)
        else:
            self._target.open(self._folder, Settings(**settings))
        self.is_open = True
        return time.perf_counter() - start

    def add(self, agent: str, memories: Sequence[tuple[str, Any]]) -> list[str]:
        """Store memories, given as pairs of a reference and a content."""
        items = [Item(agent, content) for _, content in memories]
        ids = [self._target.add_one(items[0])] if len(items) == 1 else self._target.add(items)
        self._ids.update(zip((name for name, _ in memories), ids, strict=True))
        return ids

    def know(self, ids: Mapping[str, str]) -> None:
        """Learn the ids of memories that another process has stored."""
        self._ids.update(ids)

    def get(self, agent: str, ids: Sequence[str]) -> list[Any]:
        return self._target.get(agent, ids)

    def update(self, agent: str, reference: str, content: Any) -> bool:
        return self._target.update(agent, self._ids[reference], content)

    def delete(self, agent: str, references: Sequence[str]) -> int:
        return self._target.delete(agent, [self._ids[name] for name in references])

    def delete_all(self, agent: str) -> int:
        return self._target.delete_all(agent)

    def search(self, agent: str, query: str, k: int) -> list[tuple[str, Any]]:
        return [(hit.id, hit.content) for hit in self._target.search(agent, query, k)]

    def flush(self) -> None:
        self._target.flush()

    def maintain(self) -> None:
        self._target.maintain()

    def count(self) -> int:
        return sum(self._target.count().values())

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._target.close()


def main(target_name: str, folder: str) -> None:
    """Obey the commands on standard input until it ends, then close the target."""
    # What the system prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    obeying = _Obeying(make_target(target_name), Path(folder))
    for line in sys.stdin.buffer:
        number, verb, arguments = json.loads(line)
        try:
            answer = getattr(obeying, verb)(*arguments)
        except Exception as problem:
            answer = {"error": f"{type(problem).__name__}: {problem}"[:500]}
        answers.write(json.dumps([number, answer]).encode() + b"\n")
    obeying.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
