"""Download public data sets, check their digests, and find downloaded ones."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from memory.benchmarking.errors import DamagedResult, InvalidBenchmarkConfig, UnknownName, nearest


@dataclass(frozen=True)
class PublishedDataSet:
    """A data set that can be downloaded."""

    name: str
    url: str
    sha256: str
    """Digest of the file at the URL."""
    size: str
    licence: str
    file: str
    """Name of the file in `data_folder()`; for an archive, name of the folder with its files."""


PUBLISHED = {
    data_set.name: data_set
    for data_set in (
        PublishedDataSet(
            "locomo",
            "https://raw.githubusercontent.com/snap-research/locomo/"
            "3eb6f2c585f5e1699204e3c3bdf7adc5c28cb376/data/locomo10.json",
            "79fa87e90f04081343b8c8debecb80a9a6842b76a7aa537dc9fdf651ea698ff4",
            "2.8 MB",
            "CC BY-NC 4.0",
            "locomo10.json",
        ),
        PublishedDataSet(
            "scifact",
            "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets/scifact.zip",
            "536e14446a0ba56ed1398ab1055f39fe852686ecad24a6306c80c490fa8e0165",
            "2.8 MB",
            "CC BY 4.0",
            "scifact",
        ),
        PublishedDataSet(
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
"""`DataSet.judgements` of the complete SciFact. Copies of SciFact differ in file names, fields and white
space, so a digest of the files would not identify it."""


def data_folder() -> Path:
    """Return where downloaded data sets are kept: MEMBENCH_DATA, else the user's cache folder."""
    given = os.environ.get("MEMBENCH_DATA")
    if given:
        return Path(given).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("agentmemory") / "data"


def resolve(name_or_path: str, other_names: Iterable[str] = ()) -> Path:
    """Return the path of a data set, given its path or the name of a downloaded data set.

    `other_names` are further names that the caller accepts; only the error message uses them.
    """
    given = Path(name_or_path).expanduser()
    if given.exists():
        # Do not use `Path.resolve`: the name of a link is the data set's name. "." has no name, so make the
        # path absolute.
        return Path(os.path.abspath(given))
    if name_or_path in PUBLISHED:
        fetched = data_folder() / PUBLISHED[name_or_path].file
        if fetched.exists():
            return fetched
        raise InvalidBenchmarkConfig(
            f"data set {name_or_path!r} is not downloaded: run `membench data fetch {name_or_path}`, "
            "or pass its path"
        )
    if given.name == name_or_path and not given.suffix:
        known = nearest(name_or_path, [*PUBLISHED, *other_names])
        raise UnknownName(f"there is no data set {name_or_path!r}, nor such a file or folder: {known}")
    raise InvalidBenchmarkConfig(f"there is no data set {given}: pass a folder of BEIR or a JSON file")


def fetch(name: str, folder: Path | None = None, *, url: str | None = None) -> Path:
    """Download a published data set, check its digest, and move it into place atomically.

    Args:
        name: one of PUBLISHED.
        folder: where to keep it; `data_folder()` by default.
        url: a mirror of the same file; the digest must be the same.
    """
    if name not in PUBLISHED:
        raise UnknownName(f"there is no published data set {name!r}: {nearest(name, PUBLISHED)}")
    published = PUBLISHED[name]
    folder = folder or data_folder()
    folder.mkdir(parents=True, exist_ok=True)
    data = _download(url or published.url)
    digest = hashlib.sha256(data).hexdigest()
    if digest != published.sha256:
        raise DamagedResult(
            f"{name}: the download has the SHA-256 {digest}, not {published.sha256}; it was deleted"
        )
    place = folder / published.file
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        new = Path(scratch) / published.file
        if published.file.endswith(".json"):
            new.write_bytes(data)
        else:
            # `extractall` never writes outside of the folder.
            zipfile.ZipFile(io.BytesIO(data)).extractall(scratch)
        if place.is_dir():
            shutil.rmtree(place)
        os.replace(new, place)
    return place


def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            data: bytes = answer.read()
    except OSError as problem:
        raise InvalidBenchmarkConfig(
            f"{url} can't be downloaded: {problem}; download it by other means and pass its path"
        ) from None
    return data
