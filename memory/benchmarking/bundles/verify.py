"""Checks a bundle: its bytes, the form of its files, and its figures, which are computed again."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from memory.benchmarking.bundles.archive import unpack, write_files
from memory.benchmarking.bundles.manifest import (
    BUNDLE_FORMAT,
    MANIFEST_FILE,
    SIGNATURE_FILE,
    Manifest,
    Signature,
)
from memory.benchmarking.bundles.recompute import Recomputed, recompute
from memory.benchmarking.bundles.signing import can_check, check_signature, key_name
from memory.benchmarking.bundles.write import RUNS, TARGETS
from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.model.aggregate import params_digest
from memory.benchmarking.model.environment import fingerprint_of, lasting_fields
from memory.benchmarking.model.files import RUN_FILE, read_result_of, read_run
from memory.benchmarking.model.records import Case, Run
from memory.benchmarking.run.execution import result_fingerprint
from memory.benchmarking.targets.environments import Lock


@dataclass(frozen=True)
class Problem:
    """Something in a bundle that is not as it should be."""

    file: str
    """The file inside the bundle; empty for the bundle itself."""
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}" if self.file else self.what


@dataclass
class Verification:
    """What was checked, and what is wrong."""

    problems: list[Problem] = field(default_factory=list)
    manifest: Manifest | None = None
    files: int = 0
    """Files whose SHA-256 is that of the manifest."""
    counts: Recomputed = field(default_factory=Recomputed)
    signed_by: str = ""
    """The fingerprint of the key, if the signature fits; else empty."""
    notes: list[str] = field(default_factory=list)
    """What could not be checked, in words."""

    @property
    def is_right(self) -> bool:
        return not self.problems


def verify_bundle(path: Path, trusted: Collection[str] | None = None) -> Verification:
    """Check a bundle and return everything that is wrong with it.

    Args:
        path: the file.
        trusted: fingerprints of keys; one of them has to have signed it. None asks for no signature.
    """
    found = Verification()
    unpacked = unpack(path)
    found.problems += [Problem(name, what) for name, what in unpacked.problems]
    files = unpacked.files
    _check_manifest(files, found)
    _check_signature(files, found, trusted)
    with tempfile.TemporaryDirectory(prefix="membench-verify-") as folder:
        write_files(files, Path(folder))
        for run_id in sorted({name.split("/")[1] for name in files if name.startswith(f"{RUNS}/")}):
            _check_run(Path(folder) / RUNS / run_id, found)
    _check_locks(files, found)
    return found


def _check_manifest(files: Mapping[str, bytes], found: Verification) -> None:
    if MANIFEST_FILE not in files:
        found.problems.append(Problem(MANIFEST_FILE, "it is missing"))
        return
    try:
        manifest = msgspec.json.decode(files[MANIFEST_FILE], type=Manifest)
    except msgspec.MsgspecError as problem:
        found.problems.append(Problem(MANIFEST_FILE, f"it is damaged: {problem}"))
        return
    if manifest.bundle_format > BUNDLE_FORMAT:
        what = f"it has bundle format {manifest.bundle_format}: install a newer version to verify it"
        found.problems.append(Problem(MANIFEST_FILE, what))
    found.manifest = manifest
    listed = {entry.name: entry for entry in manifest.files}
    for name, entry in listed.items():
        if name not in files:
            found.problems.append(Problem(name, "it is in the manifest, but not in the bundle"))
        elif hashlib.sha256(files[name]).hexdigest() != entry.sha256 or len(files[name]) != entry.bytes:
            found.problems.append(Problem(name, "its bytes are not those of the manifest"))
        else:
            found.files += 1
    for name in files.keys() - listed.keys() - {MANIFEST_FILE, SIGNATURE_FILE}:
        found.problems.append(Problem(name, "it is not in the manifest"))
    ids = {name.split("/")[1] for name in files if name.startswith(f"{RUNS}/")}
    if ids != {run.id for run in manifest.runs}:
        found.problems.append(Problem(MANIFEST_FILE, "its runs are not those of the bundle"))


def _check_signature(
    files: Mapping[str, bytes], found: Verification, trusted: Collection[str] | None
) -> None:
    if SIGNATURE_FILE not in files:
        if trusted is not None:
            found.problems.append(Problem("", "it is not signed"))
        return
    try:
        signature = msgspec.json.decode(files[SIGNATURE_FILE], type=Signature)
    except msgspec.MsgspecError as problem:
        found.problems.append(Problem(SIGNATURE_FILE, f"it is damaged: {problem}"))
        return
    if trusted is None and not can_check():
        found.notes.append("the signature was not checked: pip install 'agentmemory-tiers[sign]'")
        return
    wrong = check_signature(files.get(MANIFEST_FILE, b""), signature)
    name = key_name(signature.public_key)
    if wrong:
        found.problems.append(Problem(SIGNATURE_FILE, wrong))
    elif trusted is not None and name not in trusted:
        found.problems.append(Problem(SIGNATURE_FILE, f"it is by {name}, which is none of the given keys"))
    else:
        found.signed_by = name


def _check_run(folder: Path, found: Verification) -> None:
    inside = f"{RUNS}/{folder.name}"
    try:
        run = read_run(folder)
    except BenchmarkError as problem:
        found.problems.append(Problem(f"{inside}/{RUN_FILE}", _without_folder(problem, folder)))
        return
    found.problems += [Problem(f"{inside}/{RUN_FILE}", what) for what in _run_problems(folder, run)]
    cases = {(case.category, case.benchmark, case.target): case for case in run.cases}
    for ref in run.results:
        name = f"{inside}/{ref.file}"
        case: Case | None = cases.get((ref.category, ref.benchmark, ref.target))
        try:
            result = read_result_of(folder, ref)
        except BenchmarkError as problem:
            found.problems.append(Problem(name, _without_folder(problem, folder)))
            continue
        if case is None or (result.category, result.benchmark) != (ref.category, ref.benchmark):
            found.problems.append(Problem(name, "it is not a result of the case that the run names"))
            continue
        if (result.metadata.get("headline") or "") != ref.headline:
            found.problems.append(Problem(name, f"its headline is not that of {RUN_FILE}"))
        again = recompute(folder / ref.file, result, case)
        found.counts.add(again)
        found.problems += [Problem(name, _without_folder(text, folder)) for text in again.differences]


def _run_problems(folder: Path, run: Run) -> Iterator[str]:
    """Yield what is wrong inside the record of a run."""
    if run.id != folder.name:
        yield f"its id is {run.id}, but its folder is {folder.name}"
    where = run.environment
    if run.format > 1 and fingerprint_of(lasting_fields(where)) != where.fingerprint:
        yield "its fingerprint does not follow from the machine and the versions"
    cases = {(case.category, case.benchmark, case.target): case for case in run.cases}
    for ref in run.results:
        case = cases.get((ref.category, ref.benchmark, ref.target))
        if case is not None and params_digest(case) != ref.params_digest:
            yield f"the digest of the parameters of {case.name} does not follow from them"
        if case is not None and ref.fingerprint and result_fingerprint(run, case) != ref.fingerprint:
            yield f"the fingerprint of {case.key} does not follow from the machine and the target's version"


def _check_locks(files: Mapping[str, bytes], found: Verification) -> None:
    for name, data in files.items():
        if name.startswith(f"{TARGETS}/"):
            try:
                msgspec.json.decode(data, type=Lock)
            except msgspec.MsgspecError as problem:
                found.problems.append(Problem(name, f"it is damaged: {problem}"))


def _without_folder(problem: object, folder: Path) -> str:
    return str(problem).replace(f"{folder}/", "")
