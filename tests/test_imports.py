"""Layers point one way, and what is not needed is not loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import memory

PACKAGE = Path(memory.__file__).parent
MODULES = {
    ".".join(("memory", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imported(module: str, *, at_any_time: bool = True) -> set[str]:
    """Modules of this package that one imports; not those for its types alone."""
    found: set[str] = set()
    tree = ast.parse(MODULES[module].read_text())
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if is_type_checking(node):
            continue
        if not at_any_time and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in MODULES else node.module or "")
        stack.extend(ast.iter_child_nodes(node))
    return {name for name in found if name == "memory" or name.startswith("memory.")}


def layer_of(module: str) -> str:
    """memory.search.index belongs to search, memory._read.reader to _read."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


# What each layer may know of, besides itself. A new module needs a line here: that is the point.
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "entry": {"errors"},
    "config": {"errors"},
    "_base": {"errors"},
    "storage": {"_base", "entry", "errors"},
    "compression": {"_base", "config", "entry", "errors", "storage"},
    "embedding": {"_base", "errors"},
    "search": {"_base", "compression", "embedding", "entry", "errors", "storage"},
    "_write": {"_base", "clock", "compression", "embedding", "entry", "errors", "search", "storage"},
    "_read": {"_base", "compression", "embedding", "entry", "errors", "search", "storage"},
    "_tiers": {"_base", "clock", "compression", "config", "entry", "errors", "storage"},
    "_transfer": {"_base", "_write", "entry", "errors", "storage"},
}
ABOVE = {"agent", "agents", "benchmarking", "hooks", "integrations", "system"}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_from_the_layers_below_it(module: str) -> None:
    layer = layer_of(module)
    known = {layer_of(name) for name in imported(module)} - {layer}
    if layer in BELOW:
        assert known <= BELOW[layer]
    elif layer:
        assert known <= set(BELOW) | ABOVE | {""}, f"{module} is in no layer: add it to BELOW"


def test_every_layer_is_known() -> None:
    assert {layer_of(module) for module in MODULES} - {""} - ABOVE <= set(BELOW)


def test_no_layer_is_below_itself() -> None:
    for layer, below in BELOW.items():
        reached, todo = set[str](), set(below)
        while todo:
            other = todo.pop()
            reached.add(other)
            todo |= BELOW[other] - reached
        assert layer not in reached


def test_no_two_modules_import_each_other_while_loading() -> None:
    needs = {module: imported(module, at_any_time=False) & set(MODULES) for module in MODULES}
    done: set[str] = set()
    while len(done) < len(needs):
        ready = {
            module for module, others in needs.items() if module not in done and others - {module} <= done
        }
        # A package's __init__ and its modules: the parts come first, as Python loads them.
        assert ready, f"a circle among {sorted(set(needs) - done)}"
        done |= ready


def test_nothing_but_the_benchmark_knows_of_the_benchmark() -> None:
    for module in MODULES:
        if layer_of(module) != "benchmarking":
            assert not any(layer_of(name) == "benchmarking" for name in imported(module)), module


def test_nothing_but_the_benchmark_knows_of_the_integrations() -> None:
    for module in MODULES:
        if layer_of(module) not in ("benchmarking", "integrations"):
            assert not any(layer_of(name) == "integrations" for name in imported(module)), module


# The parts of the benchmark, the lowest first. A part knows of itself and of those below its line.
BENCHMARK = (
    {"errors", "metrics"},
    {"measure", "workloads"},
    {"model"},
    {"targets", "text"},
    {"bench", "framework", "verdicts"},
    {"benchmarks", "report"},
    {"config", "results"},
    {"run"},
    {"runner", "view"},
    {"lockstep"},
    {"commands"},
    {"cli"},
)
PARTS = [module for module in MODULES if module.startswith("memory.benchmarking.")]


def part_of(module: str) -> str:
    """memory.benchmarking.measure.timing belongs to measure."""
    return module.split(".")[2]


def parts_known_by(module: str) -> set[str]:
    known = {part_of(name) for name in imported(module) if name.startswith("memory.benchmarking.")}
    return known - {part_of(module)}


@pytest.mark.parametrize("module", sorted(PARTS))
def test_a_part_of_the_benchmark_knows_only_of_those_below_it(module: str) -> None:
    part = part_of(module)
    lines = [number for number, parts in enumerate(BENCHMARK) if part in parts]
    assert lines, f"{module} is on no line: add it to BENCHMARK"
    assert parts_known_by(module) <= set[str]().union(*BENCHMARK[: lines[0]])


@pytest.mark.parametrize("module", sorted(PARTS))
def test_a_memory_system_is_reached_through_targets_and_benchmarks_alone(module: str) -> None:
    if part_of(module) not in ("targets", "benchmarks"):
        others = {name for name in imported(module) if not name.startswith("memory.benchmarking")}
        assert others <= {"memory", "memory.errors"}


def test_a_target_needs_nothing_of_the_benchmark_but_its_interface() -> None:
    for module in PARTS:
        if part_of(module) == "targets":
            assert parts_known_by(module) <= {"errors", "model"}, module


def test_a_benchmark_knows_nothing_of_who_runs_it() -> None:
    for module in PARTS:
        if part_of(module) == "benchmarks":
            assert parts_known_by(module) <= {
                "bench", "errors", "measure", "metrics", "model", "targets", "workloads",
            }, module  # fmt: skip


def test_the_search_knows_neither_finding_nor_system() -> None:
    for module in MODULES:
        if layer_of(module) in ("search", "storage", "compression", "embedding"):
            assert not {"_read", "_write", "_tiers", "system", "agent"} & {
                layer_of(name) for name in imported(module)
            }


def loaded_by(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_the_package_loads_no_library() -> None:
    loaded = loaded_by("import memory; dir(memory)")
    assert not {"numpy", "msgspec", "zstandard", "tokenizers", "simsimd", "Stemmer"} & loaded


def test_importing_the_system_loads_no_model() -> None:
    loaded = loaded_by("import memory.system, memory.agent, memory.hooks")
    assert not {"tokenizers", "safetensors", "autograd", "wordllama", "torch", "psutil"} & loaded


def test_a_memory_with_another_embedder_never_loads_the_default_one() -> None:
    loaded = loaded_by(
        "from memory import *; from memory.embedding import FunctionEmbedder\\n"
        "config = MemoryConfig(maintenance='manual'); config.ltm_config.db_path = ':memory:'\\n"
        "embedder = FunctionEmbedder(lambda texts: [[1.0, 2.0]] * len(texts), name='two', dimensions=2)\\n"
        "with AgentMemorySystem(config, embedder=embedder) as system:\\n"
        "    system.add('ann', 'x'); assert system.search('ann', 'x')".replace("\\n", "\n")
    )
    assert not {"tokenizers", "safetensors", "wordllama", "autograd"} & loaded


def test_every_public_name_is_there_and_no_other() -> None:
    for name in memory.__all__:
        assert getattr(memory, name).__name__ == name
        assert name in dir(memory)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        memory.nothing  # noqa: B018
