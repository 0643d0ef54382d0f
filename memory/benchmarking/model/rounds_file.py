"""The file of rounds: what each round returned, unrounded, beside the raw samples of a result.

With the samples and the answers, it is all that a result is computed from. So anybody can compute the
result again and compare (`bundles/recompute.py`). The file is JSON, compressed with gzip.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from memory.benchmarking.errors import DamagedResult
from memory.benchmarking.metrics import Declaration, Metric
from memory.benchmarking.model.files import write_whole
from memory.benchmarking.model.paths import leaf_of
from memory.benchmarking.model.records import FORMAT, Round
from memory.benchmarking.model.regular_files import decompress, read_regular

LARGEST_ROUNDS = 256_000_000
"""The most bytes of this file after decompression."""


class RoundsFile(msgspec.Struct, kw_only=True):
    """The content of the file."""

    rounds: list[Round]
    """Sorted by number, without samples and answers, which have files of their own."""
    headline: str = ""
    """The patterns that choose the headline figure, as the benchmark declares them."""
    metrics: dict[str, Metric] = {}
    """Unit, direction and range of each metric, by name."""
    format: int = FORMAT

    @property
    def declaration(self) -> Declaration:
        """The part of the benchmark's declaration that the figures depend on."""
        return Declaration(headline=self.headline, metrics=self.metrics)


def rounds_path(result: Path) -> Path:
    """Return the path of a result's rounds."""
    return result.with_suffix(".rounds.json.gz")


def write_rounds(path: Path, rounds: Sequence[Round], declaration: Declaration) -> None:
    """Write the values of all rounds of one result."""
    ordered = sorted(rounds, key=lambda each: each.number)
    bare = [msgspec.structs.replace(each, samples={}, answers={}) for each in ordered]
    leaves = dict.fromkeys(leaf_of(figure) for each in ordered for figure in each.figures)
    metrics = {leaf: declaration.metric(leaf) for leaf in leaves}
    write_whole(
        path, encode_rounds(RoundsFile(rounds=bare, headline=declaration.headline, metrics=metrics))
    )


def encode_rounds(file: RoundsFile) -> bytes:
    """Return the bytes of the file; the same values always give the same bytes."""
    return gzip.compress(msgspec.json.encode(file), mtime=0)


def read_rounds(path: Path) -> RoundsFile:
    """Read the values of all rounds; DamagedResult if the file is damaged or gone."""
    try:
        data = decompress(read_regular(path), LARGEST_ROUNDS)
        file = msgspec.json.decode(data, type=RoundsFile)
    except FileNotFoundError:
        raise DamagedResult(f"there is no file {path}") from None
    except OSError as problem:
        raise DamagedResult(f"{path} can't be read: {problem.strerror or problem}") from problem
    except (EOFError, zlib.error, msgspec.MsgspecError, RecursionError) as problem:
        raise DamagedResult(f"{path} is damaged: {problem}") from problem
    if file.format > FORMAT:
        raise DamagedResult(f"{path} has format {file.format}: install a newer version to read it")
    return file
