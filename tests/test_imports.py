"""Modules import only from lower layers, CONTRIBUTING.md draws these layers, and imports stay light."""

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
    """Return the modules of this package that one imports, not counting `if TYPE_CHECKING`.

    Without `at_any_time`, imports inside functions do not count either.
    """
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
    """Return the folder or root module: memory.search.index belongs to search."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


# -- the drawing in CONTRIBUTING.md -----------------------------------------------------------


def drawn_layers() -> dict[str, list[set[str]]]:
    """Return the drawn lines below "memory/" and "memory/benchmarking/", lowest layer first.

    A line of the drawing has names, at least two spaces, and a description; a folder ends with a slash.
    """
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text()
    block = text.split("## The house")[1].split("```")[1]
    layers: dict[str, list[set[str]]] = {}
    for line in block.strip().splitlines():
        names = line.strip().split("  ")[0]
        if not line.startswith(" "):
            root = layers.setdefault(names, [])
        else:
            root.append(set(names.split(", ")))
    return layers


DRAWN = drawn_layers()
LAYERS, BENCHMARK = (
    [{name.removesuffix("/") for name in line} for line in DRAWN[root]]
    for root in ("memory/", "memory/benchmarking/")
)


def contents_of(folder: Path) -> tuple[set[str], set[str]]:
    """Return the root modules and the packages of a folder."""
    modules = {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    folders = {
        path.parent.name for main in ("__init__.py", "module.c") for path in folder.glob(f"*/{main}")
    }
    return modules, folders


@pytest.mark.parametrize("root", ["memory/", "memory/benchmarking/"])
def test_the_drawing_has_every_folder_and_root_module_once(root: str) -> None:
    modules, folders = contents_of(PACKAGE.parent / root)
    drawn = [name for line in DRAWN[root] for name in line]
    expected = modules | {f"{name}/" for name in folders - {"benchmarking"}}
    assert sorted(drawn) == sorted(expected), "change the drawing in CONTRIBUTING.md"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_from_the_lines_above_it_in_the_drawing(module: str) -> None:
    layer = layer_of(module)
    if layer not in ("", "benchmarking"):
        number = next(number for number, line in enumerate(LAYERS) if layer in line)
        above = set[str]().union(*LAYERS[:number], {"", layer})
        assert {layer_of(name) for name in imported(module, at_any_time=False)} <= above


@pytest.mark.parametrize("root", ["memory/", "memory/benchmarking/"])
def test_the_root_of_a_package_has_at_most_nine_modules_and_all_are_public(root: str) -> None:
    modules, _ = contents_of(PACKAGE.parent / root)
    assert len(modules | {"__init__"}) <= 9
    assert not [name for name in modules if name.startswith("_")]


# -- the layers of the memory -----------------------------------------------------------------

# The layers that each layer may import, besides itself. This is stricter than the drawing: a new folder
# needs a line here.
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "entry": {"errors"},
    "config": {"errors"},
    "_base": {"errors"},
    "storage": {"_base", "config", "entry", "errors"},
    "compression": {"_base", "config", "entry", "errors", "storage"},
    "embedding": {"_base", "errors"},
    "search": {"_base", "compression", "embedding", "entry", "errors", "storage"},
    "_write": {"_base", "clock", "compression", "embedding", "entry", "errors", "search", "storage"},
    "_read": {"_base", "compression", "embedding", "entry", "errors", "search", "storage"},
    "_tiers": {"_base", "clock", "compression", "config", "entry", "errors", "storage"},
    "_transfer": {"_base", "_write", "entry", "errors", "storage"},
}
ABOVE = {"agent", "agents", "benchmarking", "cli", "hooks", "integrations", "system"}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_from_the_layers_below_it(module: str) -> None:
    layer = layer_of(module)
    known = {layer_of(name) for name in imported(module)} - {layer}
    if layer in BELOW:
        assert known <= BELOW[layer]
    elif layer:
        assert known <= set(BELOW) | ABOVE | {""}, f"{module} is in no layer: add it to BELOW"


def test_every_folder_has_a_layer() -> None:
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
        assert ready, f"an import cycle among {sorted(set(needs) - done)}"
        done |= ready


def test_only_the_benchmark_imports_the_benchmark() -> None:
    for module in MODULES:
        if layer_of(module) != "benchmarking":
            assert not any(layer_of(name) == "benchmarking" for name in imported(module)), module


def test_only_the_benchmark_imports_the_integrations() -> None:
    for module in MODULES:
        if layer_of(module) not in ("benchmarking", "integrations"):
            assert not any(layer_of(name) == "integrations" for name in imported(module)), module


def test_storage_and_search_do_not_import_the_layers_that_use_them() -> None:
    for module in MODULES:
        if layer_of(module) in ("search", "storage", "compression", "embedding"):
            assert not {"_read", "_write", "_tiers", "system", "agent"} & {
                layer_of(name) for name in imported(module)
            }


# -- the layers of the benchmark --------------------------------------------------------------

PARTS = [module for module in MODULES if module.startswith("memory.benchmarking.")]


def part_of(module: str) -> str:
    """Return the folder or root module: memory.benchmarking.measure.timing belongs to measure."""
    return module.split(".")[2]


def parts_imported_by(module: str) -> set[str]:
    parts = {part_of(name) for name in imported(module) if name.startswith("memory.benchmarking.")}
    return parts - {part_of(module)}


@pytest.mark.parametrize("module", sorted(PARTS))
def test_a_part_of_the_benchmark_imports_only_from_the_lines_above_it(module: str) -> None:
    number = next(number for number, line in enumerate(BENCHMARK) if part_of(module) in line)
    assert parts_imported_by(module) <= set[str]().union(*BENCHMARK[:number])


@pytest.mark.parametrize("module", sorted(PARTS))
def test_only_targets_and_benchmarks_import_a_memory_system(module: str) -> None:
    if part_of(module) not in ("targets", "benchmarks"):
        others = {name for name in imported(module) if not name.startswith("memory.benchmarking")}
        assert others <= {"memory", "memory.errors", "memory._base.native"}


def test_targets_import_only_errors_and_the_model() -> None:
    for module in PARTS:
        if part_of(module) == "targets":
            assert parts_imported_by(module) <= {"errors", "model"}, module


def test_benchmarks_do_not_import_the_runner() -> None:
    for module in PARTS:
        if part_of(module) == "benchmarks":
            assert parts_imported_by(module) <= {
                "bench", "errors", "load", "measure", "metrics", "model", "promises", "targets",
                "workloads",
            }, module  # fmt: skip


# -- what an import loads ---------------------------------------------------------------------


def loaded_by(program: str) -> set[str]:
    """Run a program and return the top-level packages that it has loaded."""
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


def test_the_package_has_its_public_names_and_no_others() -> None:
    for name in memory.__all__:
        assert getattr(memory, name).__name__ == name
        assert name in dir(memory)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        memory.nothing  # noqa: B018
