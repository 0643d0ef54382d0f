"""A bundle holds all that its figures come from, names nobody, and any change of it is found."""

from __future__ import annotations

import getpass
import gzip
import hashlib
import io
import json
import shutil
import socket
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from membench import LIGHT, membench, once, write
from tamper import not_found

from memory.benchmarking.bundles.archive import pack, unpack
from memory.benchmarking.bundles.schema import RECORDS, make_schema, schema_text
from memory.benchmarking.bundles.verify import Verification, verify_bundle
from memory.benchmarking.bundles.write import make_bundle
from memory.benchmarking.model.files import read_run, run_folders
from memory.benchmarking.model.records import FORMAT
from memory.benchmarking.results import BenchmarkResults

OLD = Path(__file__).parents[1] / "data" / "run-of-format-1.zip"
"""A bundle of a run that version 0.2 wrote."""
SMALL = (
    "--set", "storage.num_samples=50", "--set", "storage.batch_sizes=10",
    "--set", "storage.settle_memories=0", "--set", "quality.conversations=2",
    "--set", "quality.sessions=2", "--rounds", 2, "--profile", "quick",
)  # fmt: skip
FAILING = """
def benchmark_broken(bench=None):
    raise ValueError("this one fails")

def benchmark_counts(bench=None):
    from memory.benchmarking.bench import Score
    share = Score(0.5, 0.4, 0.6)
    return {"upper": bench.time(lambda: "a".upper()), "things": bench.seed % 7, "share": share}
"""


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two real runs: built-in benchmarks, and a user's own with a failure and a target in a file."""

    def fill(folder: Path) -> None:
        chosen = ("--benchmark", "storage.read_latency", "--benchmark", "quality.retrieval_quality")
        done = membench(
            "run", *chosen, "--target", "sqlite-baseline", *SMALL, "--output-dir", folder, cwd=folder
        )
        assert done.code == 0, done.err
        own = write(folder / "own.py", FAILING)
        own_options = (
            "--path",
            own,
            "--category",
            "own",
            "--target",
            LIGHT,
            "--set",
            "seconds=0.001",
            "--rounds",
            2,
        )
        assert membench("run", *own_options, "--output-dir", folder, cwd=folder).code == 1

    return once(tmp_path_factory, "bundled-runs", fill)


@pytest.fixture(scope="session")
def bundle(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "runs.zip"
    path.write_bytes(make_bundle(run_folders(results)))
    return path


# -- the schema -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDS)
def test_the_shipped_schema_is_that_of_the_records(name: str) -> None:
    assert json.loads(schema_text(name)) == make_schema(name), "run scripts/schemas.py"


def documents(bundle: Path) -> list[tuple[str, Any]]:
    """Return the name of the schema and the content of each file of a bundle."""
    found = []
    for name, data in unpack(bundle).files.items():
        kind = (
            name.removesuffix(".json") if name in ("manifest.json", "signature.json")
            else "run" if name.endswith("/run.json")
            else "lock" if name.endswith(".lock.json")
            else "rounds" if name.endswith(".rounds.json.gz")
            else "answers" if name.endswith(".answers.json.gz")
            else "result" if name.endswith(".json")
            else ""
        )  # fmt: skip
        if kind:
            found.append((kind, json.loads(gzip.decompress(data) if name.endswith(".gz") else data)))
    return found


def test_every_file_of_a_real_run_fits_the_schema(bundle: Path) -> None:
    seen = set()
    for kind, document in documents(bundle):
        Draft202012Validator(json.loads(schema_text(kind))).validate(document)
        assert kind == "manifest" or document["format"] == FORMAT
        seen.add(kind)
    assert seen == {"run", "result", "rounds", "answers", "manifest"}


def test_files_of_format_1_fit_their_schema_and_can_be_read_and_verified(tmp_path: Path) -> None:
    for kind, document in documents(OLD):
        if kind != "manifest":
            assert document.get("format", 1) == 1
            Draft202012Validator(json.loads(schema_text(kind, 1))).validate(document)
    found = verify_bundle(OLD)
    assert found.problems == []
    assert found.counts.from_samples
    assert found.counts.from_answers
    with zipfile.ZipFile(OLD) as archive:
        archive.extractall(tmp_path)
    manager = BenchmarkResults(tmp_path / "runs")
    assert len(manager.load_results(["latest"])) == 3
    assert manager.problems == []


def test_a_schema_of_a_format_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert (
        "the newest format is" in membench("results", "schema", "run", "--format", 99, cwd=tmp_path).error
    )
    assert json.loads(membench("results", "schema", "run", cwd=tmp_path).out)["$id"].endswith("/run")


# -- what is in it ----------------------------------------------------------------------------


def test_a_bundle_of_real_runs_is_verified(bundle: Path) -> None:
    found = verify_bundle(bundle)
    assert found.problems == []
    assert found.manifest is not None
    assert len(found.manifest.runs) == 2
    counts = found.counts
    assert min(counts.from_samples, counts.from_answers, counts.from_rounds) > 0


def test_the_same_runs_give_the_same_bytes(results: Path, bundle: Path) -> None:
    assert make_bundle(run_folders(results)) == bundle.read_bytes()


def private_names(results: Path) -> list[str]:
    names = [
        str(results),
        str(Path(LIGHT.partition(":")[0]).parent),
        str(Path.home()),
        socket.gethostname(),
    ]
    return [*names, *([getpass.getuser()] if getpass.getuser() != "root" else [])]


def texts_of(bundle: Path) -> str:
    found = []
    for name, data in unpack(bundle).files.items():
        plain = gzip.decompress(data) if name.endswith(".gz") else b"" if name.endswith(".npz") else data
        found += [name, plain.decode()]
    return "\n".join(found)


def test_names_of_user_host_and_folders_are_left_out(results: Path, bundle: Path) -> None:
    text = texts_of(bundle)
    assert [name for name in private_names(results) if name in text] == []
    assert "…/light_target.py:LightTarget" in text
    assert "this one fails" in text


def test_names_are_kept_on_request(results: Path, tmp_path: Path) -> None:
    path = tmp_path / "named.zip"
    path.write_bytes(make_bundle(run_folders(results), with_names=True))
    assert str(results) in texts_of(path)
    assert verify_bundle(path).problems == []


def test_a_run_in_progress_is_not_bundled(results: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_folders(results)[0], tmp_path / "results" / "run"))
    text = (folder / "run.json").read_text().replace('"status": "complete"', '"status": "running"')
    (folder / "run.json").write_text(text)
    error = membench("results", "bundle", folder, "-o", "x.zip", cwd=tmp_path).error
    assert "is in progress" in error
    assert not (tmp_path / "x.zip").exists()


# -- what is found ----------------------------------------------------------------------------


def test_any_changed_byte_is_found(bundle: Path) -> None:
    """`scripts/tamper.py` changes 200; here are a few."""
    missed, _ = not_found(bundle, 12, seed=1)
    assert missed == []


def forged(bundle: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], None]) -> Verification:
    """Change a bundle as somebody would who knows its format: the manifest fits again."""
    files = unpack(bundle).files
    change(files)
    manifest = json.loads(files["manifest.json"])
    for entry in manifest["files"]:
        data = files[entry["name"]]
        entry.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    files["manifest.json"] = json.dumps(manifest).encode()
    path = tmp_path / "forged.zip"
    path.write_bytes(pack(files))
    return verify_bundle(path)


def name_of(files: dict[str, bytes], part: str, ending: str) -> str:
    return next(name for name in files if part in name and name.endswith(ending))


def test_a_forged_figure_is_named(bundle: Path, tmp_path: Path) -> None:
    def faster(files: dict[str, bytes]) -> None:
        name = next(n for n in files if "read_latency" in n and n.endswith(".json"))
        result = json.loads(files[name])
        result["metrics"]["texts/store/single/p50_ms"]["value"] *= 0.9
        files[name] = json.dumps(result).encode()

    (problem,) = forged(bundle, tmp_path, faster).problems
    assert problem.file.endswith(".json")
    assert "figure texts/store/single/p50_ms/value" in problem.what


def test_a_forged_sample_is_named_by_its_figures(bundle: Path, tmp_path: Path) -> None:
    def faster(files: dict[str, bytes]) -> None:
        name = name_of(files, "read_latency", ".npz")
        arrays = dict(np.load(io.BytesIO(files[name])))
        arrays["0/texts/store/single/wall_ns"][:] //= 2
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        files[name] = buffer.getvalue()

    problems = forged(bundle, tmp_path, faster).problems
    assert any("round 0, texts/store/single/p50_ms" in problem.what for problem in problems)


def test_a_forged_answer_is_named_by_its_figures(bundle: Path, tmp_path: Path) -> None:
    def better(files: dict[str, bytes]) -> None:
        name = name_of(files, "retrieval_quality", ".answers.json.gz")
        answers = json.loads(gzip.decompress(files[name]))
        for asked in answers["rounds"][0]["synthetic/target"]:
            asked[3] = [number + 1 for number in range(len(asked[3]))]
        files[name] = gzip.compress(json.dumps(answers).encode())

    problems = forged(bundle, tmp_path, better).problems
    assert any("synthetic/target/all_questions/recall_at_5" in problem.what for problem in problems)


def test_a_forged_machine_is_named(bundle: Path, tmp_path: Path) -> None:
    def larger(files: dict[str, bytes]) -> None:
        name = next(each for each in files if each.endswith("/run.json"))
        run = json.loads(files[name])
        run["environment"]["cores"] += 1
        files[name] = json.dumps(run).encode()

    problems = forged(bundle, tmp_path, larger).problems
    assert any("fingerprint does not follow" in problem.what for problem in problems)


def test_missing_added_and_unsafe_files_are_named(bundle: Path, tmp_path: Path) -> None:
    files = unpack(bundle).files
    gone = name_of(files, "read_latency", ".npz")
    del files[gone]
    files |= {"more.txt": b"more", "../outside.txt": b"out"}
    path = tmp_path / "changed.zip"
    path.write_bytes(pack(files))
    named = {problem.file: problem.what for problem in verify_bundle(path).problems}
    assert named[gone] == "it is in the manifest, but not in the bundle"
    assert named["more.txt"] == "it is not in the manifest"
    assert "leads out" in named["../outside.txt"]


def test_the_command_says_what_was_checked_and_exits_with_2_for_a_changed_bundle(
    bundle: Path, tmp_path: Path
) -> None:
    right = membench("results", "verify", bundle, cwd=tmp_path)
    assert right.code == 0
    assert "verified, not signed" in right.out
    data = bytearray(bundle.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "changed.zip").write_bytes(data)
    wrong = membench("results", "verify", "changed.zip", "--json", cwd=tmp_path)
    assert wrong.code == 2
    assert json.loads(wrong.out)["changed.zip"]["problems"]
    assert membench("results", "verify", "nothing.zip", cwd=tmp_path).error.endswith(
        "there is no file nothing.zip"
    )
    write(tmp_path / "text.zip", "no archive")
    assert membench("results", "verify", "text.zip", cwd=tmp_path).code == 2


# -- signatures -------------------------------------------------------------------------------


def ssh_key(folder: Path, name: str) -> Path:
    """Make a key as users do, or as `cryptography` does where there is no ssh-keygen."""
    path = folder / name
    if shutil.which("ssh-keygen"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        return path
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption())
    path.write_bytes(private)
    public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public)
    return path


def test_a_signature_says_whose_bundle_it_is(results: Path, bundle: Path, tmp_path: Path) -> None:
    own, other = ssh_key(tmp_path, "own"), ssh_key(tmp_path, "other")
    folder = run_folders(results)[0]
    signed = membench("results", "bundle", folder, "--sign", own, "-o", "signed.zip", cwd=tmp_path)
    assert signed.code == 0, signed.err
    right = membench("results", "verify", "signed.zip", "--key", f"{own}.pub", cwd=tmp_path)
    assert right.code == 0, right.err
    assert "signed by SHA256:" in right.out
    wrong = membench("results", "verify", "signed.zip", "--key", f"{other}.pub", cwd=tmp_path)
    assert wrong.code == 2
    assert "none of the given keys" in wrong.err
    unsigned = membench("results", "verify", bundle, "--key", f"{own}.pub", cwd=tmp_path)
    assert unsigned.code == 2
    assert "it is not signed" in unsigned.err
    # Whoever changes the manifest can't sign it again with the same key.
    found = forged(tmp_path / "signed.zip", tmp_path, lambda files: None)
    assert [each.what for each in found.problems] == [
        "it does not fit the manifest: one of the two was changed"
    ]


def test_a_key_of_another_kind_is_refused(results: Path, tmp_path: Path) -> None:
    write(tmp_path / "key", "not a key")
    folder = run_folders(results)[0]
    error = membench("results", "bundle", folder, "--sign", "key", "-o", "x.zip", cwd=tmp_path).error
    assert "is not a private key" in error
    assert read_run(folder).status == "complete"
