"""The bundle as a file: a ZIP archive whose comment has the SHA-256 of everything before it.

    runs/<run id>/…          the files of each run
    targets/<name>.lock.json what is installed in the environment of each target
    manifest.json            the SHA-256 of every file above
    signature.json           optional: an Ed25519 signature of manifest.json
    (comment)                membench bundle 1 sha256:…

The manifest names the file that was changed. The comment also covers the bytes that belong to no file, such
as the times in the archive's own tables: so any changed byte is found.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from memory.benchmarking.errors import DamagedResult, UnknownName
from memory.benchmarking.model.regular_files import read_regular

_MARK = b"membench bundle 1 sha256:"
_COMMENT_BYTES = len(_MARK) + 64
LARGEST_BUNDLE = 512_000_000
"""The most bytes of a bundle."""
LARGEST_CONTENT = 2_000_000_000
"""The most bytes of all files of a bundle after decompression."""
MOST_FILES = 100_000
_OLDEST = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the archive: the same files always give the same bytes."""
_COMPRESSED = (".npz", ".gz")


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the archive of these files, in the order of their names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _OLDEST)
            entry.external_attr = 0o644 << 16
            kind = zipfile.ZIP_STORED if name.endswith(_COMPRESSED) else zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name], kind, 9)
        archive.comment = _MARK + b"0" * 64
    data = buffer.getvalue()[:-_COMMENT_BYTES]
    return data + _comment(data)


def _comment(data: bytes) -> bytes:
    return _MARK + hashlib.sha256(data).hexdigest().encode()


@dataclass
class Unpacked:
    """What could be read of a bundle."""

    files: dict[str, bytes] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)
    """The name of a file, or empty for the archive itself, and what is wrong with it."""


def unpack(path: Path) -> Unpacked:
    """Read a bundle, as much of it as is left.

    Raises UnknownName if there is no such file, and DamagedResult if it is not a ZIP archive at all.
    """
    try:
        data = read_regular(path, LARGEST_BUNDLE)
    except FileNotFoundError:
        raise UnknownName(f"there is no file {path}") from None
    except OSError as problem:
        raise DamagedResult(f"{path} can't be read: {problem.strerror or problem}") from problem
    found = Unpacked()
    if data[-_COMMENT_BYTES:] != _comment(data[:-_COMMENT_BYTES]):
        is_bundle = data[-_COMMENT_BYTES:].startswith(_MARK)
        what = (
            "its bytes are not those that were bundled" if is_bundle else "its end is not that of a bundle"
        )
        found.problems.append(("", what))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _read_members(archive, found)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, EOFError) as problem:
        if not found.problems:
            raise DamagedResult(f"{path} is not a bundle: {problem}") from problem
        found.problems.append(("", f"the archive can't be read: {problem}"))
    return found


def _read_members(archive: zipfile.ZipFile, found: Unpacked) -> None:
    entries = archive.infolist()
    if len(entries) > MOST_FILES:
        raise ValueError(f"it has more than {MOST_FILES:,} files")
    left = LARGEST_CONTENT
    for entry in entries:
        name = entry.filename
        if reason := _unsafe(name) or ("it is there twice" if name in found.files else ""):
            found.problems.append((name, reason))
            continue
        if entry.file_size > left:
            raise ValueError(f"it has more than {LARGEST_CONTENT:,} bytes")
        try:
            with archive.open(entry) as member:
                content = member.read(entry.file_size)  # the table may be wrong: never read to the end
        except Exception as problem:
            found.problems.append((name, f"it can't be read: {problem}"))
            continue
        left -= len(content)
        found.files[name] = content


def _unsafe(name: str) -> str:
    """Return why a name must not become a path; empty if it may."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not name.isprintable():
        return "its name leads out of the bundle"
    return "its name is not that of a file" if not path.name or name.endswith("/") else ""


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of a bundle into a new folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
