"""Builds the compiled core `memory._core` from memory/_native/, with the C compiler that is there.

hatch_build.py calls it for wheels and editable installations. `python build_core.py` builds it in place,
which `make` does when a C file has changed. Without a compiler or Python's headers, the memory runs in pure
Python: slower, with the same results. docs/dependencies.md has the reasons.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SOURCES = Path("memory", "_native")
CORE = Path("memory", "_core.abi3.so")
LIMITED_API = "0x030B0000"  # Python 3.11: one file for all later versions

_FLAGS = (
    "-std=c11",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",  # the same floats on every processor
    "-Wall",
    "-Wextra",
)
_SANITIZE = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


class NoCompiler(Exception):
    """There is no C compiler, or Python's headers are missing. The text is one line."""


class CompileError(Exception):
    """The compiler refused the sources. The text is the compiler's first error."""


def build_core(
    root: Path, *, output: Path | None = None, strict: bool = False, sanitize: bool = False
) -> Path:
    """Build the core of the sources below `root` and return its file.

    Args:
        output: the file; by default the one in the package, where Python finds it.
        strict: treat warnings as errors.
        sanitize: build with AddressSanitizer and UndefinedBehaviorSanitizer.
    """
    output = output or root / CORE
    command = [*_compiler(), *_FLAGS, f"-DPy_LIMITED_API={LIMITED_API}", f"-I{_headers()}"]
    command += ["-Werror"] if strict else []
    command += _SANITIZE if sanitize else []
    command += map(str, sorted((root / SOURCES).glob("*.c")))
    command += ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    # Another process may have the old file loaded, so the new one replaces it and is never written into it.
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".core") as folder:
        built = Path(folder, output.name)
        done = subprocess.run(
            [*command, "-o", str(built), "-lm"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CompileError(_first_error(done.stderr))
        os.replace(built, output)
    return output


def wheel_tag() -> str:
    """Return the tag of a wheel with the core: this platform, Python 3.11 and all later versions."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"cp311-abi3-{platform}"


def _compiler() -> list[str]:
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NoCompiler("a free-threaded Python has no stable interface for C")
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    found = shutil.which(command[0]) or shutil.which("cc")
    if os.name != "posix" or found is None:
        raise NoCompiler(f"there is no C compiler {command[0]!r}")
    return [found, *command[1:]]


def _headers() -> str:
    folder = sysconfig.get_path("include")
    if not Path(folder, "Python.h").is_file():
        raise NoCompiler(f"Python's headers are not in {folder}")
    return folder


def _first_error(output: str) -> str:
    lines = output.strip().splitlines()
    return next((line for line in lines if "error: " in line), lines[-1] if lines else "no message")


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the compiled core in place.")
    parser.add_argument("--root", type=Path, default=Path(__file__).parent, help="folder with memory/")
    parser.add_argument("--output", type=Path, help="the file to write; default: inside the package")
    parser.add_argument("--strict", action="store_true", help="warnings are errors")
    parser.add_argument("--sanitize", action="store_true", help="with Address- and UBSanitizer")
    options = parser.parse_args()
    try:
        build_core(options.root, output=options.output, strict=options.strict, sanitize=options.sanitize)
    except NoCompiler as problem:
        (options.output or options.root / CORE).unlink(missing_ok=True)  # it would be of older sources
        print(f"without the compiled core, in pure Python: {problem}", file=sys.stderr)
    except CompileError as problem:
        print(f"the compiled core can't be built: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
