"""Makes a bundle of runs: reads their files, leaves out what is private, and adds the manifest."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from memory.benchmarking.bundles.archive import pack
from memory.benchmarking.bundles.manifest import (
    MANIFEST_FILE,
    SIGNATURE_FILE,
    BundledFile,
    BundledRun,
    Manifest,
)
from memory.benchmarking.bundles.redaction import LEFT_OUT, Redaction
from memory.benchmarking.bundles.signing import sign
from memory.benchmarking.errors import DamagedResult, InvalidBenchmarkConfig
from memory.benchmarking.model.aggregate import params_digest
from memory.benchmarking.model.answers import AnswersFile, answers_path, read_answers
from memory.benchmarking.model.files import (
    RUN_FILE,
    encode_json,
    read_result_of,
    read_run,
    samples_path,
)
from memory.benchmarking.model.paths import segments_of
from memory.benchmarking.model.records import AnsweredQuestion, Case, Result, Run
from memory.benchmarking.model.regular_files import read_below
from memory.benchmarking.model.rounds_file import encode_rounds, read_rounds, rounds_path
from memory.benchmarking.targets.environments import find_environment, slug_of

RUNS = "runs"
TARGETS = "targets"
TEXTS = "texts of questions"
_LARGEST_SAMPLES = 256_000_000
_PUBLIC_DATA = "synthetic"
"""The data set that is made by this package; the texts of the others belong to somebody else."""


def make_bundle(
    folders: Sequence[Path],
    *,
    with_names: bool = False,
    with_texts: bool = False,
    key_file: Path | None = None,
    ask: Callable[[str], str] | None = None,
) -> bytes:
    """Return a bundle of runs.

    Args:
        folders: the folders of the runs.
        with_names: keep the names of the user, the host and the folders.
        with_texts: keep the texts of the questions of data sets; else their digests replace them.
        key_file: a private Ed25519 key that signs the manifest; None for no signature.
        ask: returns the passphrase of the key.
    """
    from memory import __version__

    runs = [(folder, read_run(folder)) for folder in folders]
    for folder, run in runs:
        if run.status == "running":
            raise InvalidBenchmarkConfig(f"run {run.id} is in progress: bundle it when it has ended")
        if not run.results:
            raise InvalidBenchmarkConfig(
                f"run {run.id} in {folder} has no results: there is nothing to bundle"
            )
    if len({run.id for _, run in runs}) < len(runs):
        raise InvalidBenchmarkConfig("two runs have the same id: name each run once")
    files: dict[str, bytes] = {}
    bundled: list[BundledRun] = []
    data_sets: dict[str, str] = {}
    for folder, run in runs:
        source = _Source(folder, run, with_names=with_names, with_texts=with_texts)
        files |= source.files()
        bundled.append(_summary(source.shown(run)))
        data_sets |= source.data_sets
    listed = [
        BundledFile(name=name, bytes=len(files[name]), sha256=hashlib.sha256(files[name]).hexdigest())
        for name in sorted(files)
    ]
    manifest = encode_json(
        Manifest(
            membench=__version__,
            created_at=max(run.finished_at or run.started_at for _, run in runs),
            left_out=[*([] if with_names else LEFT_OUT), *([] if with_texts else [TEXTS])],
            runs=bundled,
            data_sets=data_sets,
            files=listed,
        )
    )
    files[MANIFEST_FILE] = manifest
    if key_file is not None:
        files[SIGNATURE_FILE] = encode_json(sign(manifest, key_file, ask or input))
    return pack(files)


def _summary(run: Run) -> BundledRun:
    where = run.environment
    return BundledRun(
        id=run.id,
        profile=run.profile,
        status=run.status,
        started_at=run.started_at,
        command=run.command,
        targets=run.targets,
        machine=f"{where.cpu}, {where.cores} cores, {where.memory_gb:g} GB, {where.os}, {where.python}",
        fingerprint=where.fingerprint,
        suite=run.suite,
    )


class _Source:
    """One run on its way into a bundle."""

    def __init__(self, folder: Path, run: Run, *, with_names: bool, with_texts: bool) -> None:
        self._folder, self._run = folder, run
        self._with_texts = with_texts
        self._redaction = None if with_names else Redaction(_folders_of(folder, run))
        self._keys = {case.key: self._case(case).key for case in run.cases}
        """The new key of each case; another one if the target's name had a folder in it."""
        self.data_sets: dict[str, str] = {}

    def files(self) -> dict[str, bytes]:
        """Return the run's files by their names in the bundle."""
        root = f"{RUNS}/{self._run.id}"
        found = {f"{root}/{RUN_FILE}": encode_json(self.shown(self._run))}
        for ref in self._run.results:
            found |= {f"{root}/{name}": data for name, data in self._result_files(ref.file).items()}
        for failure in self._run.failures:
            if failure.log:
                text = read_below(self._folder, failure.log).decode("utf-8", "replace")
                found[f"{root}/{self._renamed(failure.log)}"] = self._text(text).encode()
        for target in self._run.targets:
            lock = find_environment(target)
            if lock is not None and lock.digest == self._run.target_info[target].lock:
                name = self._renamed(slug_of(target))
                found[f"{TARGETS}/{name}.lock.json"] = encode_json(self._tree(lock))
        return found

    def shown(self, run: Run) -> Run:
        """Return the record of the run as it is published."""
        if self._redaction is None:
            return run
        tree = self._renamed_tree(self._tree(run))
        tree["folder"] = ""
        tree["executor"] = tree["executor"].partition("=")[0]  # without the address of the cluster
        hosts = dict.fromkeys(moment["host"] for moment in tree["moments"] if moment["host"])
        numbered = {host: f"host {number}" for number, host in enumerate(hosts, 1)}
        for moment in tree["moments"]:
            moment["host"] = numbered.get(moment["host"], "")
        for source in tree["environment"].get("sources", {}).values():
            source["path"] = Path(source["path"]).name
        shown = msgspec.convert(tree, Run)
        digests = {
            (case.category, case.benchmark, case.target): params_digest(case) for case in shown.cases
        }
        shown.results = [
            msgspec.structs.replace(
                ref, params_digest=digests.get((ref.category, ref.benchmark, ref.target), ref.params_digest)
            )
            for ref in shown.results
        ]
        return shown

    def _result_files(self, name: str) -> dict[str, bytes]:
        ref = next(each for each in self._run.results if each.file == name)
        result = read_result_of(self._folder, ref)
        for data_set, digest in _data_sets(result):
            self.data_sets[self._text(data_set)] = digest
        new = self._renamed(name)
        tree = self._renamed_tree(self._tree(result))
        found = {new: encode_json(msgspec.convert(tree, Result))}
        path = self._folder / name
        answers = read_answers(result, path.parent)
        if answers is not None:
            rounds = [
                {self._text(place): self._answers(place, asked) for place, asked in each.items()}
                for each in answers
            ]
            data = gzip.compress(
                msgspec.json.encode(AnswersFile(rounds=rounds, format=result.format)), mtime=0
            )
            found[str(answers_path(Path(new)))] = data
        if rounds_path(path).exists():
            file = read_rounds(rounds_path(path))
            file.rounds = [
                msgspec.structs.replace(
                    each, other=self._tree(each.other), not_available=self._tree(each.not_available)
                )
                for each in file.rounds
            ]
            found[str(rounds_path(Path(new)))] = encode_rounds(file)
        inside = str(samples_path(Path(name)))
        if (self._folder / inside).exists():
            try:
                found[str(samples_path(Path(new)))] = read_below(self._folder, inside, _LARGEST_SAMPLES)
            except OSError as problem:
                raise DamagedResult(
                    f"{self._folder / inside} can't be read: {problem.strerror or problem}"
                ) from problem
        return found

    def _answers(self, place: str, asked: Sequence[AnsweredQuestion]) -> list[AnsweredQuestion]:
        if self._with_texts or segments_of(place)[0] == _PUBLIC_DATA:
            return list(asked)
        return [
            msgspec.structs.replace(each, text=hashlib.sha256(each.text.encode()).hexdigest()[:16])
            for each in asked
        ]

    def _case(self, case: Case) -> Case:
        return msgspec.convert(self._tree(case), Case)

    def _text(self, text: str) -> str:
        return text if self._redaction is None else self._redaction.text(text)

    def _tree(self, record: object) -> Any:
        plain = msgspec.to_builtins(record)
        return plain if self._redaction is None else self._redaction.tree(plain)

    def _renamed(self, text: str) -> str:
        """Return a text in which the old keys of cases, and their targets, are the new ones."""
        for old, new in self._keys.items():
            text = text.replace(old, new).replace(old.partition("@")[2], new.partition("@")[2])
        return text

    def _renamed_tree(self, value: Any) -> Any:
        """Return JSON values with all texts renamed, if a key has changed at all."""
        if all(old == new for old, new in self._keys.items()):
            return value
        if isinstance(value, str):
            return self._renamed(value)
        if isinstance(value, Mapping):
            return {self._renamed(key): self._renamed_tree(inner) for key, inner in value.items()}
        return [self._renamed_tree(each) for each in value] if isinstance(value, list) else value


def _folders_of(folder: Path, run: Run) -> Iterable[str]:
    """Return the folders that a run names."""
    yield run.folder
    yield str(folder.resolve().parent)
    for source in run.environment.sources.values():
        # A file keeps its own name.
        yield str(Path(source.path).parent) if Path(source.path).suffix else source.path


def _data_sets(result: Result) -> Iterable[tuple[str, str]]:
    """Yield name and SHA-256 of each data set that a result used."""
    for name, group in result.results.items():
        digest = group.get("sha256") if isinstance(group, dict) else None
        if isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{64}", digest):
            yield name, digest
