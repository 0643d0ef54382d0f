"""Wheels made by hand, so that environments can be built without a network.

`make_packages` fills a folder with a tiny memory system in two versions, with a package that has its
target, and with what membench's worker needs: the wheels of that are packed again from what is installed.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path

from membench import surroundings
from packaging.requirements import Requirement

from memory.benchmarking.targets.building import worker_requirements

TARGET = """
from memory.benchmarking.targets.base import Capabilities
from memory.benchmarking.targets.sqlite_baseline import SQLiteBaselineTarget


class Tiny(SQLiteBaselineTarget):
    name = "tiny"
    requirements = ("tinystore>=1.0",)
    distributions = ()
    limits = "It is small."

    def open(self, folder, settings=None):
        import tinystore

        self.version = tinystore.VERSION
        super().open(folder, settings)
"""
ENTRY_POINT = "[agentmemory.targets]\ntiny = tiny_target:Tiny\n"
BENCHMARK = """
import os
import sys

def benchmark_version(bench=None):
    "Returns the version of tinystore, and which interpreter and modules this is."
    ours = os.environ.get("OURS", "/nowhere")
    with bench.target() as target:
        return {
            "version": float(target.version),
            "own": float("tiny" in sys.prefix),
            "ours": float(any(path.startswith(ours) for path in sys.path)),
            "add": bench.time(lambda: target.count()),
        }
"""


def make_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], requires: Iterable[str] = ()
) -> Path:
    """Write a wheel of pure Python."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    whole = {
        **{path: text for path, text in files.items() if not path.startswith("/")},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **{f"{info}{path}": text for path, text in files.items() if path.startswith("/")},
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in whole.items():
            wheel.writestr(file, text)
        wheel.writestr(f"{info}/RECORD", _record([*whole, f"{info}/RECORD"]))
    return path


def _record(files: Iterable[str]) -> str:
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows((file, "", "") for file in files)
    return lines.getvalue()


def make_packages(folder: Path) -> None:
    """Fill a folder with all wheels."""
    (folder / "uv.toml").write_text("no-index = true\n")  # uv has no variable for it
    for version in ("1.0", "2.0"):
        make_wheel(folder, "tinystore", version, {"tinystore/__init__.py": f"VERSION = '{version}'\n"})
    files = {"tiny_target.py": TARGET, "/entry_points.txt": ENTRY_POINT}
    make_wheel(folder, "tiny_target", "1.0", files)
    for package in _closure(worker_requirements()):
        _pack_again(folder, package)


def _closure(requirements: Iterable[str]) -> list[Distribution]:
    """Return the installed distributions that the requirements need, and what those need."""
    found: dict[str, Distribution] = {}
    todo = [Requirement(each) for each in requirements]
    while todo:
        needed = todo.pop()
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        package = distribution(needed.name)
        if package.metadata["Name"] not in found:
            found[package.metadata["Name"]] = package
            todo += [Requirement(each) for each in package.requires or ()]
    return list(found.values())


def _pack_again(folder: Path, package: Distribution) -> None:
    lines = (package.read_text("WHEEL") or "").splitlines()
    tag = [line.partition(":")[2].strip() for line in lines if line.startswith("Tag:")][-1]
    name = package.metadata["Name"].replace("-", "_")
    with zipfile.ZipFile(folder / f"{name}-{package.version}-{tag}.whl", "w") as wheel:
        kept = [
            file
            for file in package.files or ()
            if ".." not in file.parts and "__pycache__" not in file.parts and file.name != "RECORD"
        ]
        for file in kept:
            wheel.write(str(file.locate()), str(file))
        info = next(file.parts[0] for file in kept if file.parts[0].endswith(".dist-info"))
        wheel.writestr(f"{info}/RECORD", _record([*map(str, kept), f"{info}/RECORD"]))


def offline(packages: Path, targets: Path, **more: str | None) -> dict[str, str]:
    """Return the environment of a command that installs from a folder of wheels, and from there only."""
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(packages), "PIP_NO_COMPILE": "1"}
    index |= {"PIP_CONFIG_FILE": os.devnull}
    index |= {"UV_CONFIG_FILE": str(packages / "uv.toml"), "UV_FIND_LINKS": str(packages)}
    return surroundings(**index, MEMBENCH_TARGETS=str(targets), **more)
