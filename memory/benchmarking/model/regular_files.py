"""Reads files that somebody else may have made: regular files only, and within limits.

A folder of results may come from elsewhere. A pipe in it would block, a device never ends, and a symbolic
link leads out of it. All of these raise an OSError here, whose `strerror` says what the file is.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from pathlib import Path

LARGEST_FILE = 64_000_000
"""The most bytes of a file that is read whole. A result of the full profile has less than a million."""
_FLAGS = (
    os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
)  # without O_NONBLOCK, opening a pipe waits for its writer


def open_regular(
    path: str | os.PathLike[str], flags: int = os.O_RDONLY, *, directory: int | None = None
) -> int:
    """Open a regular file and return its descriptor; OSError for anything else, also a symbolic link.

    - `flags`: as of `os.open`.
    - `directory`: a descriptor of the folder that a relative `path` starts at.
    """
    try:
        descriptor = os.open(path, flags | _FLAGS, 0o666, dir_fd=directory)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed", path) from None
        if problem.errno == errno.ENXIO:  # a socket, or a pipe to write to
            raise OSError(errno.EINVAL, "it is not a regular file", path) from None
        raise
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return descriptor


def read_regular(
    path: str | os.PathLike[str], most: int = LARGEST_FILE, *, directory: int | None = None
) -> bytes:
    """Return the content of a regular file; OSError for anything else, and beyond `most` bytes."""
    with open(open_regular(path, directory=directory), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        data = b"" if size > most else _read(file.fileno(), most)
        if max(size, len(data)) > most:
            raise OSError(
                errno.EFBIG, f"it has {max(size, len(data)):,} bytes; the limit is {most:,}", path
            )
    return data


def _read(descriptor: int, most: int) -> bytes:
    """Read to the end, but at most one byte more than `most`: the file may grow meanwhile."""
    pieces, left = [], most + 1
    while left > 0 and (piece := os.read(descriptor, min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def read_below(folder: Path, inside: str, most: int = LARGEST_FILE) -> bytes:
    """Return the content of a regular file inside a folder, as `read_regular` does.

    `inside` is the path from the folder, as a file of the folder names it. An absolute path, `..` and
    symbolic links are refused: they lead out of the folder. The folder itself may be a link.
    """
    *parents, name = Path(inside).parts or ("",)
    if not name or Path(inside).is_absolute() or ".." in (*parents, name):
        raise OSError(errno.EINVAL, "it is not inside the folder", str(folder / inside))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for parent in parents:
            descriptor, above = open_folder(parent, descriptor), descriptor
            os.close(above)
        return read_regular(name, most, directory=descriptor)
    finally:
        os.close(descriptor)


def decompress(data: bytes, most: int) -> bytes:
    """Return what gzip compressed; OSError beyond `most` bytes: a small file can hold gigabytes."""
    stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    content = stream.decompress(data, most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes after decompression")
    if not stream.eof:
        raise EOFError("its end is missing")
    return content


def open_folder(path: str | os.PathLike[str], directory: int | None = None) -> int:
    """Open a folder and return its descriptor; OSError for anything else, also a symbolic link."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS, dir_fd=directory)
    except NotADirectoryError:
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder, or a symbolic link", path) from None
