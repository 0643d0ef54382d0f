"""The runs that a league is made of: folders of results, or bundles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memory.benchmarking.bundles.archive import unpack, write_files
from memory.benchmarking.bundles.write import RUNS
from memory.benchmarking.errors import DamagedResult
from memory.benchmarking.league.gather import Source
from memory.benchmarking.model.files import find_run, read_run, run_folders


def sources_of(names: Sequence[str], output_dir: Path, scratch: Path) -> list[Source]:
    """Return the runs that are named.

    Args:
        names: runs, as `results show` takes them, or files of bundles.
        output_dir: the folder of the runs.
        scratch: where bundles are unpacked.
    """
    found: list[Source] = []
    for number, name in enumerate(names):
        if name.endswith(".zip"):
            found += unpacked_runs(Path(name), scratch / str(number))
        else:
            folder = find_run(output_dir, name)
            found.append((folder, read_run(folder)))
    return found


def unpacked_runs(bundle: Path, folder: Path) -> list[Source]:
    """Unpack a bundle into a new folder; DamagedResult if its bytes are not those that were bundled."""
    unpacked = unpack(bundle)
    if unpacked.problems:
        raise DamagedResult(f"{bundle} was changed: run `membench results verify {bundle}`")
    write_files(unpacked.files, folder)
    return [(each, read_run(each)) for each in run_folders(folder / RUNS)]
