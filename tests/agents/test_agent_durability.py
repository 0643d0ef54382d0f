"""A killed agent loses no acknowledged message, and stores no tool call without its result."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

from subprocesses import start_python

from memory.agents import ContextBuilder, SessionStore

_AGENT = """
from memory.agents import AgentRuntime, Reply, ScriptedModel, SessionStore, ToolCall, ToolRegistry

path, log = sys.argv[1:]
registry = ToolRegistry()
registry.add(lambda: "found", name="look", description="")
call = lambda context: Reply("", (ToolCall(name="look"), ToolCall(name="look")))
memory = open_memory(path + ".memory")
model = ScriptedModel([call, "done"], repeat=True)
runtime = AgentRuntime("ann", model, sessions=SessionStore(path), memory=memory, tools=registry)
out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
session = None
number = 0
while True:
    done = runtime.invoke(f"question {number}", session)
    number += 1
    session = None if number % 7 == 0 else done.session_id
    os.write(out, (json.dumps([done.session_id, [m.id for m in done.messages], number]) + "\\n").encode())
    if number == 3:
        print("ready", flush=True)
"""


def test_a_killed_agent_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    path, log = tmp_path / "sessions.db", tmp_path / "log"
    rng = random.Random(20_240_607)
    for _ in range(4):
        process = start_python(_AGENT, path, log)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
            size = log.stat().st_size + rng.randrange(1, 6000)
            while log.stat().st_size < size:
                pass
            os.kill(process.pid, signal.SIGKILL)
        finally:
            process.kill()
            process.communicate()
    acknowledged = [json.loads(line) for line in log.read_text().splitlines(True) if line.endswith("\n")]
    assert len(acknowledged) > 12
    with SessionStore(path) as store:
        for session_id, ids, _ in acknowledged:
            assert set(ids) <= {message.id for message in store.messages(session_id)}
        builder = ContextBuilder(store, token_budget=100_000, count_tokens=len)
        for session in store.list(limit=None):
            messages = store.messages(session.id)
            assert len(messages) == session.message_count
            assert messages  # a session and its first message are one transaction
            # A tool call and its results are one transaction, so no pair is incomplete and dropped.
            assert builder.build(session.id).left_out.messages == 0
