"""The built-in targets keep the promises of targets/base.py; a user's target is one file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from membench import LIGHT, write

from memory.benchmarking.bench import Bench
from memory.benchmarking.errors import BrokenBenchmark, InvalidBenchmarkConfig, UnknownName
from memory.benchmarking.targets import _BUILT_IN, load_target
from memory.benchmarking.targets.base import Item
from memory.benchmarking.targets.interpreters import version_here
from memory.benchmarking.workloads import agent_states

DESCRIBED = ("mcp", "http")
"""Targets that need a description of a server; test_described_servers.py tests them."""
HERE = [name for name in _BUILT_IN if name not in DESCRIBED and version_here(load_target(name)) is not None]
"""The built-in targets that this interpreter can run; `make targets` checks all of them."""


# -- loading ----------------------------------------------------------------------------------


def test_a_target_is_named_by_module_and_class_or_by_file_and_class() -> None:
    place = _BUILT_IN["sqlite-baseline"]
    assert load_target(place) is load_target("sqlite-baseline")
    assert load_target(LIGHT).name == "light"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 / 0", "mine.py can't be loaded: ZeroDivisionError"),
        ("def (", "mine.py can't be loaded: SyntaxError"),
        ("import no_such_system", "line 1.*import the system inside the methods of the target"),
        ("raise SystemExit(0)", "mine.py can't be loaded: SystemExit: 0"),
        ("Mine = 3", "is not a class that derives from Target: see docs/new-target.md"),
        ("class Mine: pass", "is not a class that derives from Target: see docs/new-target.md"),
    ],
)
def test_the_error_names_a_file_without_a_target(source: str, message: str, tmp_path: Path) -> None:
    file = write(tmp_path / "mine.py", source)
    with pytest.raises(BrokenBenchmark, match=message) as problem:
        load_target(f"{file}:Mine")
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("postgresql://ann:s3cret@host/db", "leave the password out of the address"),
        ("postgresql://ann@host/db?password=s3cret", "leave the password out of the address"),
        ("postgresql://ann@host/db?sslpassword=s3cret", "leave the password out of the address"),
        ("postgresql://ann@host/db?schema=agents", "leave `schema=` out of the address"),
    ],
)
def test_an_address_that_results_must_not_hold_is_refused(address: str, message: str) -> None:
    with pytest.raises(InvalidBenchmarkConfig, match=message) as problem:
        load_target(f"agentmemory-postgres={address}")
    assert "s3cret" not in str(problem.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine.py", "--target mine.py has no :Class: write mine.py:One or mine.py:Two"),
        ("mine.py:", "--target mine.py has no :Class: write mine.py:One or mine.py:Two"),
        ("mine.py:Three", "mine.py has no class 'Three': write mine.py:One or mine.py:Two"),
        ("none.py", "--target none.py has no :Class: write none.py:Class, with a class that derives from"),
    ],
)
def test_the_error_names_the_classes_of_a_file(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    imported = "from memory.benchmarking.targets import Target"
    write(tmp_path / "mine.py", f"{imported}\nclass One(Target): pass\nclass Two(One): pass\n")
    write(tmp_path / "none.py", "X = 1")
    with pytest.raises(UnknownName, match=re.escape(message)):
        load_target(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("agentmemry", "there is no target 'agentmemry': did you mean 'agentmemory'?"),
        ("", "there is no target '': known: agentmemory, agentmemory-disk, "),
        ("no.such.module:X", "target 'no.such.module:X' can't be loaded: ModuleNotFoundError"),
        (":X", "target ':X' can't be loaded: ValueError: Empty module name"),
        ("os:", "target 'os:' can't be loaded: AttributeError"),
    ],
)
def test_the_error_names_an_unknown_target(name: str, message: str) -> None:
    with pytest.raises((UnknownName, BrokenBenchmark), match=re.escape(message)):
        load_target(name)


# -- opened by a benchmark --------------------------------------------------------------------


@pytest.mark.parametrize("name", [*HERE, LIGHT])
def test_a_settled_target_is_empty_and_its_folder_is_gone_afterwards(name: str, tmp_path: Path) -> None:
    bench = Bench(target=name, scratch=tmp_path)
    sample = [Item("someone", state) for state in agent_states(60)]
    for _ in range(2):
        with bench.target(sample) as target:
            assert sum(target.count().values()) == 0
            (id_,) = target.add([Item("ann", "text")])
            assert target.get("ann", [id_]) == ["text"]
    settled = [path for path in tmp_path.iterdir() if path.name.startswith("membench-settled-")]
    assert list(tmp_path.iterdir()) == settled
    assert len(settled) == bench.capabilities.persistence, "settling is done once, and copied"
    del bench, target
    assert list(tmp_path.iterdir()) == []


def test_a_target_is_closed_if_the_benchmark_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Bench(scratch=tmp_path).target():
        1 / 0  # noqa: B018
    assert list(tmp_path.iterdir()) == []
