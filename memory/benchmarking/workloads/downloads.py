"""Where public data sets come from, and the digests that tell whether a download is the real one."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from memory.benchmarking.errors import DamagedResult, InvalidBenchmarkConfig, UnknownName, nearest


@dataclass(frozen=True)
class Published:
    """A data set that can be fetched; it is never part of this package."""

    name: str
    url: str
    sha256: str
    """Of the file behind the URL."""
    size: str
    licence: str
    file: str
    """What it becomes in the user's folder: a file, or a folder for an archive."""


PUBLISHED = {
    each.name: each
    for each in (
        Published(
            "locomo",
            "https://raw.githubusercontent.com/snap-research/locomo/"
            "3eb6f2c585f5e1699204e3c3bdf7adc5c28cb376/data/locomo10.json",
            "79fa87e90f04081343b8c8debecb80a9a6842b76a7aa537dc9fdf651ea698ff4",
            "2.8 MB",
            "CC BY-NC 4.0",
            "locomo10.json",
        ),
        Published(
            "scifact",
            "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets/scifact.zip",
            "536e14446a0ba56ed1398ab1055f39fe852686ecad24a6306c80c490fa8e0165",
            "2.8 MB",
            "CC BY 4.0",
            "scifact",
        ),
        Published(
            "longmemeval",
            "https://huggingface.co/datasets/xiaowu0162/longmemeval-cleaned/resolve/main/"
            "longmemeval_s_cleaned.json",
            "d6f21ea9d60a0d56f34a05b609c79c88a451d2ae03597821ea3d5a9678c3a442",
            "277 MB",
            "MIT",
            "longmemeval_s_cleaned.json",
        ),
    )
}


SCIFACT_JUDGEMENTS = "0308565b1fc47585648d044a70ef936a21a3722329057a857f5f9e94bf3c5665"
"""`DataSet.judgements` of the whole of SciFact. Copies differ in files, fields and white space, so that no
digest of the files tells one; and texts that were read wrongly are what the ruler is there to find."""


def data_folder() -> Path:
    """Where fetched data sets are kept: MEMBENCH_DATA, else the user's cache folder."""
    given = os.environ.get("MEMBENCH_DATA")
    if given:
        return Path(given).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("agentmemory") / "data"


def resolve(name_or_path: str, other_names: Iterable[str] = ()) -> Path:
    """Where a data set is: at its path, or where the published one of this name was fetched to.

    `other_names` are what the caller takes beside these, for the error.
    """
    given = Path(name_or_path).expanduser()
    if given.exists():
        # Not `resolve`: who links to a data set gives it a name, and "." has to have one too.
        return Path(os.path.abspath(given))
    if name_or_path in PUBLISHED:
        fetched = data_folder() / PUBLISHED[name_or_path].file
        if fetched.exists():
            return fetched
        raise InvalidBenchmarkConfig(
            f"data set {name_or_path!r} is not here: membench data fetch {name_or_path}, or give its path"
        )
    if given.name == name_or_path and not given.suffix:
        known = nearest(name_or_path, [*PUBLISHED, *other_names])
        raise UnknownName(f"there is no data set {name_or_path!r}, nor such a file or folder: {known}")
    raise InvalidBenchmarkConfig(f"there is no data set {given}: give a folder of BEIR or a JSON file")


def fetch(
    name: str,
    folder: Path | None = None,
    *,
    url: str | None = None,
    tell: Callable[[int], object] | None = None,
) -> Path:
    """Download a published data set, check its digest, and put it in place in one step.

    `url` is a mirror of the same file: the digest must be the same.
    """
    if name not in PUBLISHED:
        raise UnknownName(f"there is no published data set {name!r}: {nearest(name, PUBLISHED)}")
    published = PUBLISHED[name]
    folder = folder or data_folder()
    folder.mkdir(parents=True, exist_ok=True)
    data = _download(url or published.url, tell or (lambda size: None))
    digest = hashlib.sha256(data).hexdigest()
    if digest != published.sha256:
        raise DamagedResult(
            f"{name}: what came has the SHA-256 {digest}, not {published.sha256}; nothing was kept"
        )
    place = folder / published.file
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        new = Path(scratch) / published.file
        if published.file.endswith(".json"):
            new.write_bytes(data)
        else:
            # Python's extractall keeps members inside the folder it is given.
            zipfile.ZipFile(io.BytesIO(data)).extractall(scratch)
        if place.is_dir():
            shutil.rmtree(place)
        os.replace(new, place)
    return place


def _download(url: str, tell: Callable[[int], object]) -> bytes:
    pieces = []
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            while piece := answer.read(1 << 20):
                pieces.append(piece)
                tell(sum(map(len, pieces)))
    except OSError as problem:
        raise InvalidBenchmarkConfig(
            f"{url} can't be fetched: {problem}; fetch it by other means and give its path"
        ) from None
    return b"".join(pieces)
