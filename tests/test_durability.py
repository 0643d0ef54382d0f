"""A killed process loses nothing that it acknowledged, and leaves no call half done."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from small_embedder import small_embedder
from subprocesses import PATIENCE, run_python, start_python

from memory import AgentMemorySystem

OpenMemory = Callable[..., AgentMemorySystem]
Model = dict[str, dict[str, Any]]
"""The expected memories: the fields of each by "agent/id"."""

ROUNDS = 30
SEED = 20_240_607
AGENTS = ("ann", "bob", "cid")

# One process forks a writer for each round: starting Python each time would be slow.
_FORKER = """
for line in sys.stdin:
    path, log, seed = json.loads(line)
    pid = os.fork()
    if pid == 0:
        try:
            write(path, os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), seed)
        finally:
            os._exit(1)
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("gone", flush=True)
"""

_WRITER = """
import random
from memory.storage import _shrinker

# The files are small. With the usual limits no page would be given back, so lower them.
_shrinker._MIN_FREE_PAGES, _shrinker._MIN_FREE_SHARE, _shrinker._RESERVE_SHARE = 0, 10**9, 10**9

def write(path, log, seed):
    "Change the memory until killed; log each call before and after it."
    rng = random.Random(seed)
    memory = open_memory(
        path, stm={"memory_limit": 6}, im={"memory_limit": 6}, maintenance="background", transition_batch=3
    )
    shrink = memory._store.shrink
    def logged_shrink():
        for given in shrink():
            note(log, ["gave back", given])
            yield given
    memory._store.shrink = logged_shrink
    rewrite = memory._store._connections.rewrite
    def logged_rewrite():
        rewrite()
        note(log, ["gave back", "all"])
    memory._store._connections.rewrite = logged_rewrite
    known = {agent: [entry.id for entry in memory.recent(agent, 10_000)] for agent in ("ann", "bob", "cid")}
    note(log, ["opened"])
    # First give back some pages, however far the maintenance thread has come.
    large = [random_memory(rng, "ann", f"{seed}-large-{n}") | {"content": "x" * 3_000} for n in range(10)]
    for call, *arguments in (["put", large], ["delete", "ann", [one["id"] for one in large]], ["maintain"]):
        note(log, ["will", call, *arguments])
        CALLS[call](memory, *arguments)
        note(log, ["did"])
    for number in range(1_000_000):
        agent = rng.choice(list(known))
        call, *arguments = random_call(rng, agent, known, f"{seed}-{number}")
        note(log, ["will", call, *arguments])
        CALLS[call](memory, *arguments)
        note(log, ["did"])
        if known[agent]:
            memory.get(agent, rng.choice(known[agent]))
            if number % 7 == 0:
                memory.search(agent, "word 5")

def note(log, line):
    os.write(log, json.dumps(line).encode() + b"\\n")

def random_call(rng, agent, known, mark):
    kind = rng.choices(["put", "update", "delete", "clear", "move"], [10, 4, 2, 0.15, 2])[0]
    ids = known[agent]
    if kind == "put" or not ids:
        batch = [random_memory(rng, agent, f"{mark}-{n}") for n in range(rng.choice([1, 1, 1, 2, 5]))]
        ids.extend(one["id"] for one in batch)
        return "put", batch
    if kind == "update":
        fields = random_memory(rng, agent, "-")
        changed = rng.sample(["content", "metadata", "importance", "kind", "step"], rng.randint(1, 3))
        return "update", agent, rng.choice(ids), {name: fields[name] for name in changed}
    if kind == "delete":
        gone = rng.sample(ids, min(len(ids), rng.choice([1, 1, 4])))
        known[agent] = [id for id in ids if id not in gone]
        return "delete", agent, gone
    if kind == "clear":
        known[agent] = []
        return "clear", agent
    return "move", agent, rng.choice(["im", "ltm"]), rng.choice([20, 60, 100])

def random_memory(rng, agent, id):
    text = " ".join(f"word {rng.randrange(50)}" for _ in range(rng.randrange(1, 40)))
    return {
        "agent_id": agent,
        "id": id,
        "content": rng.choice([text, {"text": text, "list": [1, 2.5, None, True], "größe": rng.random()}]),
        "kind": rng.choice(["text", "state", "action"]),
        "step": rng.choice([None, rng.randrange(-5, 1000)]),
        "metadata": rng.choice([{}, {"session": rng.randrange(5), "tag": "ü" * rng.randrange(5)}]),
        "importance": rng.random() * 10,
        "timestamp": 1e9 * rng.random(),
        "tier": rng.choice(["stm", "stm", "stm", "im", "ltm"]),
    }

def move(memory, agent, tier, percentage):
    force = memory.force_transition_to_im if tier == "im" else memory.force_transition_to_ltm
    force(percentage, agent_id=agent)

CALLS = {
    "put": lambda memory, batch: memory.add_many(batch) if len(batch) > 1 else memory.add(**batch[0]),
    "update": lambda memory, agent, id, fields: memory.update(agent, id, **fields),
    "delete": lambda memory, agent, ids: memory.delete_many(agent, ids),
    "clear": lambda memory, agent: memory.delete_all(agent),
    "move": move,
    "maintain": lambda memory: memory.maintain(),
}
"""


@pytest.fixture
def open_small(open_memory: OpenMemory) -> OpenMemory:
    return lambda **settings: open_memory(embedder=small_embedder(), **settings)


@pytest.fixture
def forker() -> Iterator[subprocess.Popen[str]]:
    process = start_python(_WRITER + _FORKER)
    yield process
    process.kill()
    process.communicate()


class Killer:
    """Starts a writer on a file and kills it when a condition is true."""

    def __init__(self, forker: subprocess.Popen[str], path: Path) -> None:
        self._forker = forker
        self._path = path
        self._log = path.with_name("log")

    def after_lines(self, seed: int, lines: int) -> list[Any]:
        """Kill the writer when its log has this many lines; return the log."""
        return self.when(lambda: self._log.read_bytes().count(b"\n") >= lines, seed)

    def when(self, happened: Callable[[], bool], seed: int) -> list[Any]:
        self._log.write_bytes(b"")
        self._send([str(self._path), str(self._log), seed])
        pid = int(self._receive())
        deadline = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < deadline, "the writer hangs, or has stopped"
        os.kill(pid, signal.SIGKILL)
        assert self._receive() == "gone"
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def _send(self, message: Any) -> None:
        self._forker.stdin.write(json.dumps(message) + "\n")
        self._forker.stdin.flush()

    def _receive(self) -> str:
        line = self._forker.stdout.readline().strip()
        assert line, self._forker.stderr.read()
        return line


def apply(model: Model, call: str, *arguments: Any) -> Model:
    """Return the model after one call of the writer."""
    model = {key: dict(fields) for key, fields in model.items()}
    if call == "put":
        for one in arguments[0]:
            fields = {name: value for name, value in one.items() if name != "tier"}
            fields["created_at"] = fields.pop("timestamp")
            model[f"{one['agent_id']}/{one['id']}"] = fields
    elif call == "update":
        agent, id, fields = arguments
        model[f"{agent}/{id}"] |= fields
    elif call == "delete":
        for id in arguments[1]:
            del model[f"{arguments[0]}/{id}"]
    elif call == "clear":
        model = {key: fields for key, fields in model.items() if fields["agent_id"] != arguments[0]}
    return model


def possible_models(model: Model, noted: list[Any]) -> list[Model]:
    """Return what may be stored after a kill: all acknowledged calls, with or without the last one."""
    intent: list[Any] | None = None
    for line in noted:
        if line[0] == "will":
            intent = line[1:]
        elif line[0] == "did":
            model = apply(model, *intent)
            intent = None
    return [model] if intent is None else [model, apply(model, *intent)]


def stored(memory: AgentMemorySystem, export: Path) -> Model:
    """Return all memories; check that every way of reading returns the same."""
    memory.export_jsonl(export)
    lines = [json.loads(line) for line in export.read_text().splitlines()[1:-1]]
    exported = {f"{line['agent_id']}/{line['id']}": _fields(line) for line in lines}
    assert len(exported) == len(lines), "a memory was exported twice"
    by_time = [entry for agent in AGENTS for entry in memory.recent(agent, 100_000)]
    by_id = [
        memory.get(agent, line["id"]) for agent in AGENTS for line in lines if line["agent_id"] == agent
    ]
    for entries in (by_time, by_id):
        assert len(entries) == len(lines)
        assert {f"{entry.agent_id}/{entry.id}": _fields(_as_dict(entry)) for entry in entries} == exported
    assert memory.get_memory_statistics()["total"] == len(lines)
    for agent in AGENTS:
        mine = {line["id"] for line in lines if line["agent_id"] == agent}
        hits = [hit.id for hit in memory.retrieve_similar_states(agent, "word 1", k=len(mine) + 10)]
        assert sorted(hits) == sorted(mine), "the search returns other memories"
    return exported


def _as_dict(entry: Any) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__struct_fields__}


def _fields(line: dict[str, Any]) -> dict[str, Any]:
    names = ("agent_id", "id", "content", "kind", "step", "metadata", "importance", "created_at")
    return {name: line[name] for name in names}


def is_intact(path: Path) -> bool:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()


def test_a_killed_writer_loses_nothing_it_acknowledged(
    open_small: OpenMemory, forker: subprocess.Popen[str], tmp_path: Path
) -> None:
    path = tmp_path / "memory.db"
    killer = Killer(forker, path)
    rng = random.Random(SEED)
    model: Model = {}
    acknowledged, given_back, tiers = 0, 0, set()
    for number in range(ROUNDS):
        noted = killer.after_lines(SEED + number, rng.choice([2, 5, 20, 60, 150]) + rng.randrange(10))
        assert is_intact(path), f"round {number} of seed {SEED}"
        with open_small(path=path) as memory:
            found = stored(memory, tmp_path / "export.jsonl")
            tiers |= {tier for tier, count in memory.get_memory_statistics()["tiers"].items() if count}
        allowed = possible_models(model, noted)
        assert found in allowed, f"round {number} of seed {SEED}: {_difference(found, allowed[0])}"
        model = found
        acknowledged += noted.count(["did"])
        given_back += sum(line[0] == "gave back" for line in noted)
    assert acknowledged > 500
    assert given_back > 0
    assert tiers == {"stm", "im", "ltm"}


def _difference(found: Model, wanted: Model) -> str:
    lost, extra = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    other = [key for key in wanted.keys() & found.keys() if wanted[key] != found[key]]
    return f"lost {sorted(lost)}, too many {sorted(extra)}, changed {sorted(other)}"


def test_a_process_killed_while_it_creates_the_file_leaves_a_complete_one_or_none(
    open_small: OpenMemory, forker: subprocess.Popen[str], tmp_path: Path
) -> None:
    conditions: list[Callable[[Path], bool]] = [
        lambda path: True,
        lambda path: any(file.name != "log" for file in path.parent.iterdir()),
        lambda path: path.exists(),
        lambda path: Path(f"{path}-wal").exists(),
        lambda path: Path(f"{path}-pulse").exists(),
    ]
    for number in range(15):
        path = tmp_path / f"{number}" / "memory.db"
        path.parent.mkdir()
        happened = partial(conditions[number % len(conditions)], path)
        Killer(forker, path).when(happened, seed=number)
        assert not path.exists() or is_intact(path)
        with open_small(path=path) as memory:
            memory.add("ann", "after", id="after")
            assert memory.get("ann", "after").content == "after"


def test_a_kill_in_the_middle_of_a_batch_stores_all_of_it_or_nothing(
    open_small: OpenMemory, tmp_path: Path
) -> None:
    """The process kills itself inside the store, after some steps of one batch."""
    script = """
import signal, sqlite3
path, after = sys.argv[1], int(sys.argv[2])
memory = open_memory(path)
memory.add("ann", "before", id="before")
connection = memory._store._connections.write(lambda connection: connection)
left = after
def count():
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
connection.set_progress_handler(count, 300)
memory.add_many({"agent_id": "ann", "content": f"{n} " + "x" * 2000, "id": str(n)} for n in range(200))
connection.set_progress_handler(None, 0)
print("stored")
"""
    outcomes = set()
    for after in (0, 5, 30, 10_000):
        path = tmp_path / f"{after}.db"
        process = start_python(script, path, after)
        output, stderr = process.communicate(timeout=PATIENCE)
        assert stderr == ""
        assert is_intact(path)
        with open_small(path=path) as memory:
            ids = {entry.id for entry in memory.recent("ann", 1_000)}
        assert ids in ({"before"}, {"before", *map(str, range(200))})
        assert ("stored" in output) == (len(ids) == 201)
        outcomes.add(len(ids))
    assert outcomes == {1, 201}


@pytest.mark.parametrize(("durability", "level"), [("process", 1), ("disk", 2)])
def test_durability_disk_waits_for_the_disk_at_every_commit(
    open_small: OpenMemory, durability: str, level: int
) -> None:
    memory = open_small(durability=durability)
    memory.add("ann", "first", id="1")
    connection = memory._store._connections.write(lambda connection: connection)
    assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    memory.close()
    assert open_small(durability=durability).get("ann", "1").content == "first"


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "sys.exit(0)",
        "del memory",
        "import gc; circle = [memory]; circle.append(circle); del memory, circle; gc.collect()",
    ],
    ids=["end of the script", "sys.exit", "dropped", "dropped in a circle"],
)
def test_a_memory_that_is_never_closed_loses_nothing_and_prints_nothing(
    open_small: OpenMemory, tmp_path: Path, ending: str
) -> None:
    script = """
memory = open_memory(sys.argv[1], stm={"memory_limit": 5}, maintenance="background", transition_batch=2)
for number in range(100):
    memory.add("ann", f"memory {number}", id=str(number))
    memory.get("ann", str(number // 2))
memory.search("ann", "memory 7")
"""
    path = tmp_path / "memory.db"
    run_python(script + ending, path)
    assert is_intact(path)
    with open_small(path=path) as memory:
        assert {entry.id for entry in memory.recent("ann", 1_000)} == set(map(str, range(100)))


def test_an_exception_that_ends_the_process_loses_nothing(open_small: OpenMemory, tmp_path: Path) -> None:
    script = """
memory = open_memory(sys.argv[1], maintenance="background")
memory.add("ann", "acknowledged", id="1")
raise SystemError("the program has a bug")
"""
    process = start_python(script, tmp_path / "memory.db")
    _, stderr = process.communicate(timeout=PATIENCE)
    assert stderr.splitlines()[-1] == "SystemError: the program has a bug"
    assert open_small(path=tmp_path / "memory.db").get("ann", "1").content == "acknowledged"
