"""The code under test as an archive, to be sent to other machines and named by its hash.

    package/memory/…                       membench and the memory, as they are here
    package/agentmemory_embedder_files/…   the default embedder
    trees/0/…                              the user's own code: benchmarks, targets, descriptions of servers

A user's file brings its working tree: the files of its git repository that are not ignored. Outside of a
repository it brings the Python files beside it. Paths in jobs are rewritten to those on the other machine.
"""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.model.records import Case
from memory.benchmarking.targets.environments import code_folder
from memory.benchmarking.targets.spelling import parse_target

PACKAGE, TREES = "package", "trees"
_LARGEST_BYTES = 200_000_000
"""The largest archive; a working tree with data sets does not belong into it."""


@dataclass(frozen=True)
class Archive:
    """A tar file, its hash, and where the user's folders are in it."""

    data: bytes
    digest: str
    folders: dict[str, str]
    """By the folder here: its place in the archive, such as `trees/0`."""

    def moved_back(self, text: str) -> str:
        """Return a text of another machine in which the places of the user's folders are those here."""
        for folder, place in self.folders.items():
            text = re.sub(rf"[^\s\"'(]*/{self.digest}/{place}(?=/)", lambda _, folder=folder: folder, text)  # type: ignore[misc]
        return text

    def moved(self, text: str, root: str) -> str:
        """Return a text in which the user's folders are replaced by their places below `root`."""
        for folder in sorted(self.folders, key=len, reverse=True):
            if folder in text:
                return text.replace(folder, f"{root}/{self.folders[folder]}")
        return text


def make_archive(cases: Sequence[Case], embedder: str = "") -> Archive:
    """Return the code that the cases need."""
    packages = [link.resolve() for link in code_folder().iterdir()]
    members = [
        (f"{PACKAGE}/{package.name}/{name}", package / name)
        for package in packages
        for name in _package_files(package)
    ]
    folders: dict[str, str] = {}
    for file in _user_files(cases, embedder):
        top, names = _working_tree(file)
        if str(top) not in folders:
            folders[str(top)] = f"{TREES}/{len(folders)}"
            members += [(f"{folders[str(top)]}/{name}", top / name) for name in names]
    size = sum(path.stat().st_size for _, path in members)
    if size > _LARGEST_BYTES:
        raise InvalidBenchmarkConfig(
            f"the code to send has {size / 1e6:,.0f} MB: "
            "keep data out of the folder of your benchmarks, or have git ignore it"
        )
    return _packed(members, folders)


def _packed(members: Iterable[tuple[str, Path]], folders: dict[str, str]) -> Archive:
    """Pack files without times and owners: equal code has an equal hash."""
    packed, hashed = io.BytesIO(), hashlib.sha256()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, path in sorted(members):
            data = path.read_bytes()
            hashed.update(f"{name}\0{len(data)}\0".encode())
            hashed.update(data)
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            tar.addfile(entry, io.BytesIO(data))
    return Archive(packed.getvalue(), hashed.hexdigest()[:16], folders)


def _package_files(package: Path) -> Iterator[str]:
    for path in sorted(package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(path.relative_to(package))


def _user_files(cases: Sequence[Case], embedder: str) -> list[Path]:
    """Return the user's files that cases name: benchmarks, targets, descriptions of servers, embedders."""
    found = [case.source for case in cases if case.source]
    for text in [*(case.target for case in cases), embedder]:
        spelling = parse_target(text) if text else None
        if spelling is not None:
            found += [spelling.name.rpartition(":")[0], spelling.address]
    paths = [Path(each).resolve() for each in dict.fromkeys(found) if each and "://" not in each]
    return [path for path in paths if path.is_file()]


def _working_tree(file: Path) -> tuple[Path, list[str]]:
    """Return the folder that a file belongs to, and the names of the files to send."""
    git = ("git", "-C", str(file.parent))
    try:
        top = subprocess.run(
            [*git, "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
        listed = subprocess.run(
            ["git", "-C", top, "ls-files", "-coz", "--exclude-standard"],
            capture_output=True, check=True, timeout=60,
        ).stdout.decode().split("\0")  # fmt: skip
    except (OSError, subprocess.SubprocessError):  # not in a repository, or there is no git
        beside = [path.name for path in sorted(file.parent.glob("*.py"))]
        return file.parent, sorted({*beside, file.name})
    names = [name for name in listed if name and (Path(top) / name).is_file()]
    return Path(top), sorted({*names, str(file.relative_to(Path(top).resolve()))})
