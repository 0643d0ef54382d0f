"""The file of answers: what a search returned for every question, beside the raw samples of a result.

Two runs that asked the same questions are compared question by question (`verdicts/paired.py`). The file is
JSON, compressed with gzip: one list for each data set, one entry for each question.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from memory.benchmarking.errors import DamagedResult
from memory.benchmarking.model.files import write_whole
from memory.benchmarking.model.records import FORMAT, AnsweredQuestion, Result, Round
from memory.benchmarking.model.regular_files import decompress, read_below

ANSWERS = "answers"
"""The key in a result's metadata that names its file of answers."""
LARGEST_ANSWERS = 256_000_000
"""The most bytes of answers after decompression."""

Answers = Sequence[Mapping[str, Sequence[AnsweredQuestion]]]
"""For each round: the questions in order, by the path of the group that has their figures."""


class AnswersFile(msgspec.Struct, kw_only=True):
    """The content of the file."""

    rounds: list[dict[str, list[AnsweredQuestion]]]
    format: int = FORMAT


def answers_path(result: Path) -> Path:
    """Return the path of a result's answers."""
    return result.with_suffix(".answers.json.gz")


def write_answers(path: Path, rounds: Iterable[Round]) -> None:
    """Write the answers of all rounds."""
    file = AnswersFile(rounds=[one.answers for one in sorted(rounds, key=lambda each: each.number)])
    # `mtime=0`: the same answers always give the same bytes.
    write_whole(path, gzip.compress(msgspec.json.encode(file), mtime=0))


def read_answers(result: Result, folder: Path) -> Answers | None:
    """Read the answers that belong to a result in this folder; None if it has none.

    Raises DamagedResult if the result names a file that is damaged or gone.
    """
    name = result.metadata.get(ANSWERS)
    if not isinstance(name, str):
        return None
    path = folder / name
    try:
        data = decompress(read_below(folder, name), LARGEST_ANSWERS)
        file = msgspec.json.decode(data, type=AnswersFile)
    except FileNotFoundError:
        raise DamagedResult(
            f"the answers of {result.benchmark} are gone: there is no file {path}"
        ) from None
    except OSError as problem:
        raise DamagedResult(f"{path} can't be read: {problem.strerror or problem}") from problem
    except (EOFError, zlib.error, msgspec.MsgspecError, RecursionError) as problem:
        raise DamagedResult(f"{path} is damaged: {problem}") from problem
    if file.format > FORMAT:
        raise DamagedResult(f"{path} has format {file.format}: install a newer version to read it")
    return file.rounds
