"""The compiled core: which one is loaded, how it is built, and what it refuses."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import memory
from memory._base import native
from memory._base.native import core

ROOT = Path(__file__).parents[2]
PURE = os.environ.get("AGENTMEMORY_PURE", "0") not in ("", "0")
compiled_only = pytest.mark.skipif(core is None, reason="there is no compiled core")


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_core", ROOT / "build_core.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


# -- which one is loaded ------------------------------------------------------------------------


def test_the_core_is_compiled_where_there_is_a_compiler(builder: ModuleType) -> None:
    try:
        builder._compiler()
        builder._headers()
    except builder.NoCompiler as problem:
        pytest.skip(str(problem))
    assert (native.CORE_KIND == "pure") == PURE, "run `python build_core.py`"
    folder = os.environ.get("AGENTMEMORY_EXPECT_CORE")  # scripts/sanitize.py
    assert folder is None or Path(memory.__file__).parent == Path(folder)


def test_an_environment_variable_selects_pure_python() -> None:
    program = "from memory._base import native; print(native.CORE_KIND, native.core)"
    assert run(program, AGENTMEMORY_PURE="1").stdout == "pure None\n"


@compiled_only
def test_a_core_of_another_interface_is_not_used_and_the_log_says_so(tmp_path: Path) -> None:
    program = (
        "import sys, types, logging; logging.basicConfig()\n"
        "other = types.ModuleType('core'); other.INTERFACE = -1; sys.modules['memory._core'] = other\n"
        "from memory._base.native import CORE_KIND; print(CORE_KIND)"
    )
    done = run(program)
    assert done.stdout == "pure\n"
    assert "another version, pure Python is used: install" in done.stderr


@compiled_only
def test_a_damaged_core_is_not_used_and_the_log_says_so(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "memory" / "_base", tmp_path / "memory" / "_base")
    (tmp_path / "memory" / "__init__.py").touch()
    shutil.copy(ROOT / "memory" / "errors.py", tmp_path / "memory")
    (tmp_path / "memory" / "_core.abi3.so").write_bytes(b"\x7fELF and no more")
    done = run(
        "import logging; logging.basicConfig(); from memory._base import native; print(native.CORE_KIND)",
        PYTHONPATH=str(tmp_path),
        PYTHONSAFEPATH="1",  # else the current folder comes first
    )
    assert done.stdout == "pure\n"
    assert "can't be loaded, pure Python is used" in done.stderr


@compiled_only
def test_the_core_has_the_functions_that_python_declares_and_no_others() -> None:
    declared = {name for name in vars(native.Core) if not name.startswith("_")}
    assert {name for name in dir(core) if not name.startswith("_")} == declared | {"INTERFACE"}


# -- how it is built ----------------------------------------------------------------------------


def test_the_sources_compile_without_a_warning(builder: ModuleType, tmp_path: Path) -> None:
    try:
        built = builder.build_core(ROOT, output=tmp_path / "_core.abi3.so", strict=True)
    except builder.NoCompiler as problem:
        pytest.skip(str(problem))
    assert built.stat().st_size > 0
    assert list(tmp_path.iterdir()) == [built]


def test_without_a_compiler_the_build_says_in_one_line_that_pure_python_is_used(tmp_path: Path) -> None:
    output = tmp_path / "_core.abi3.so"
    output.write_bytes(b"of older sources")
    done = subprocess.run(
        [sys.executable, str(ROOT / "build_core.py"), "--output", str(output)],
        env={**os.environ, "CC": "no-such-compiler", "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == (
        "without the compiled core, in pure Python: there is no C compiler 'no-such-compiler'\n"
    )
    assert not output.exists()


def test_an_error_in_the_sources_is_one_line_and_exit_1(builder: ModuleType, tmp_path: Path) -> None:
    try:
        builder._compiler()
    except builder.NoCompiler as problem:
        pytest.skip(str(problem))
    folder = tmp_path / "memory" / "_native"
    folder.mkdir(parents=True)
    (folder / "broken.c").write_text("int broken(void) { return nothing; }\n")
    done = subprocess.run(
        [sys.executable, str(ROOT / "build_core.py"), "--root", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("the compiled core can't be built: ")
    assert "nothing" in done.stderr
    assert done.stderr.count("\n") == 1


# -- what every function refuses ----------------------------------------------------------------

FLOATS, CODES = np.ones((2, 4), np.float32), np.zeros((2, 4), np.int8)
REFUSED: list[tuple[Any, ...]] = [
    (),
    (FLOATS, CODES),
    (FLOATS, CODES, 4, 4),
    (None, CODES, 4),
    ("text", CODES, 4),
    (FLOATS.astype(np.float64), CODES, 4),
    (FLOATS.astype(">f4"), CODES, 4),
    (FLOATS.astype(np.int32), CODES, 4),
    (FLOATS[:, ::2], CODES[:, :2].copy(), 2),
    (FLOATS, CODES.view(np.uint8), 4),
    (FLOATS, CODES.tobytes(), 4),
    (FLOATS, CODES[:1], 4),
    (FLOATS, np.zeros(9, np.int8), 4),
    (FLOATS, CODES, 3),
    (FLOATS, CODES, 0),
    (FLOATS, CODES, -4),
    (FLOATS, CODES, 2**70),
    (FLOATS, CODES, 4.0),
]


@compiled_only
@pytest.mark.parametrize("arguments", REFUSED)
def test_wrong_arguments_of_to_int8_are_refused(arguments: tuple[Any, ...]) -> None:
    assert core is not None
    with pytest.raises((TypeError, ValueError, BufferError, OverflowError)):
        core.to_int8(*arguments)
