"""Where a result comes from: the user's repository, the target's version, a command that repeats it."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from membench import GOOD, PATIENCE, membench, only_run, surroundings, write

from memory.benchmarking.model.environment import describe
from memory.benchmarking.model.files import read_result, run_folders
from memory.benchmarking.model.records import Run
from memory.benchmarking.report.run_facts import repeat_lines, run_facts
from memory.benchmarking.run.origins import command_to_repeat, source_paths, target_info

REPOSITORY = Path(__file__).parents[3]
MINE = """
import numpy
from memory.benchmarking.targets.base import Capabilities, Target

class Mine(Target):
    name = "mine"
    capabilities = Capabilities(search_by=None, update=False, persistence=False)
    def open(self, folder, settings=None): self.kept = {}
    def close(self): pass
    def add(self, items, place=None):
        ids = [str(len(self.kept) + number) for number in range(len(items))]
        self.kept.update(zip(ids, (item.content for item in items)))
        return ids
    def get(self, agent_id, ids): return [self.kept.get(id_) for id_ in ids]
    def search(self, agent_id, query, k, place=None): return []
    def delete(self, agent_id, ids): return sum(self.kept.pop(id_, None) is not None for id_ in ids)
    def delete_all(self, agent_id): return self.delete(agent_id, list(self.kept))
    def count(self): return {"store": len(self.kept)}
"""


def git(folder: Path, *arguments: str) -> str:
    settings = ("-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *settings, *arguments], cwd=folder, env=surroundings(GIT_DIR=None), check=True,
        capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's repository with a benchmark and a target, everything committed."""
    folder = tmp_path / "my project"
    write(folder / "good.py", GOOD)
    write(folder / "mine.py", MINE)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


RUN = (
    "run", "--path", "good.py", "--category", "good", "--target", "mine.py:Mine", "--rounds", "1", "--set",
    "seconds=0.001",
)  # fmt: skip


def run_in(folder: Path) -> tuple[Path, Run]:
    done = membench(*RUN, "--output-dir", "out", cwd=folder, env=surroundings(GIT_DIR=None))
    assert done.code == 0, done.err
    return only_run(folder / "out")


def test_a_run_in_a_foreign_repository_records_that_repository(project: Path) -> None:
    revision = git(project, "rev-parse", "--short=12", "HEAD")
    _, run = run_in(project)
    sources = run.environment.sources
    assert list(sources) == ["benchmarks", "target mine", "current folder", "membench"]
    for name in ("benchmarks", "target mine", "current folder"):
        assert (sources[name].revision, sources[name].dirty) == (revision, False), name
    assert (run.environment.git_revision, run.environment.git_dirty) == (revision, False)
    assert sources["membench"].revision != revision
    assert Path(sources["membench"].path) == REPOSITORY / "memory" / "benchmarking"
    facts = run_facts(run)
    assert facts["benchmarks"] == f"{revision}, {project / 'good.py'}"
    assert "mine from mine.py:Mine (numpy" in facts["targets"]
    assert facts["targets"].endswith("durability ram, conformance: not checked)")


def test_each_source_has_changes_of_its_own(project: Path) -> None:
    write(project / "mine.py", MINE + "# changed\n")
    paths = {
        "benchmarks": [project / "good.py"],
        "target mine": [project / "mine.py"],
        "current folder": [project],
    }
    found = describe(project / "out", paths)
    assert {name: each.dirty for name, each in found.sources.items()} == {
        "benchmarks": False, "target mine": True, "current folder": True,
    }  # fmt: skip
    assert found.git_dirty


def test_results_are_no_changes_and_new_files_are(project: Path) -> None:
    write(project / "out" / "run.json", "{}")
    paths = {"current folder": [project]}
    assert describe(project / "out", paths).git_dirty is False
    write(project / "new.py", "")
    assert describe(project / "out", paths).git_dirty is True
    assert describe(project / "out", {"benchmarks": [project / "new.py"]}).git_dirty is True


def test_an_installed_copy_inside_a_repository_has_no_revision(project: Path) -> None:
    installed = write(project / ".venv" / "lib" / "site-packages" / "chroma" / "a.py", "").parent
    assert describe(project / "out", {"target chroma": [installed]}).sources["target chroma"].revision == ""


def test_without_git_a_run_has_no_revision(tmp_path: Path) -> None:
    write(tmp_path / "good.py", GOOD)
    write(tmp_path / "mine.py", MINE)
    _, run = run_in(tmp_path)
    assert run.environment.git_revision == ""
    assert run_facts(run)["benchmarks"] == f"not in git, {tmp_path / 'good.py'}"


def test_old_runs_without_sources_can_be_read(project: Path) -> None:
    folder, run = run_in(project)
    old = msgspec.to_builtins(run)
    for name in ("folder", "target_info"):
        del old[name]
    del old["environment"]["sources"]
    read = msgspec.convert(old, Run)
    assert run_facts(read)["targets"] == "mine.py:Mine"
    assert repeat_lines(read)[0] == f"git checkout {run.environment.git_revision}"
    assert folder.is_dir()


# -- versions ---------------------------------------------------------------------------------


def test_the_version_of_every_target_is_recorded(project: Path) -> None:
    info = target_info("agentmemory")
    assert (info.name, info.durability, info.sha256) == ("agentmemory", "process", "")
    assert list(info.versions) == ["agentmemory-tiers"]
    assert target_info("agentmemory-disk").durability == "machine"
    assert target_info("sqlite-baseline").durability == "process"
    mine = target_info(f"{project / 'mine.py'}:Mine")
    assert mine.sha256 == hashlib.sha256((project / "mine.py").read_bytes()).hexdigest()
    assert list(mine.versions) == ["numpy"], "what its file imports"


def test_a_change_of_a_base_class_is_another_version_of_the_target(project: Path) -> None:
    derived = write(
        project / "derived.py", "from mine import Mine\nclass Derived(Mine):\n    name = 'derived'\n"
    )
    program = (
        "import sys; from memory.benchmarking.run.origins import target_info; "
        "print(target_info(sys.argv[1]).digest)"
    )

    def digest() -> str:
        command = [sys.executable, "-c", program, f"{derived}:Derived"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    before = digest()
    assert digest() == before
    write(project / "mine.py", MINE + "# changed\n")
    assert digest() != before


def test_another_version_of_a_target_changes_the_fingerprint_of_its_results_only(project: Path) -> None:
    def fingerprints() -> tuple[str, str]:
        folder, run = run_in(project)
        (ref,) = run.results
        assert read_result(folder / ref.file).metadata["target_info"]["name"] == "mine"
        return run.environment.fingerprint, ref.fingerprint

    machine, result = fingerprints()
    (project / "out").rename(project / "before")
    write(project / "mine.py", MINE + "# the next version\n")
    assert fingerprints()[0] == machine
    (project / "out").rename(project / "again")
    assert fingerprints() == (machine, fingerprints_of(project / "again"))
    assert result != fingerprints_of(project / "again")


def fingerprints_of(output_dir: Path) -> str:
    _, run = only_run(output_dir)
    return run.results[0].fingerprint


def test_comparing_two_versions_is_allowed_and_said(project: Path) -> None:
    run_in(project)
    write(project / "mine.py", MINE + "# the next version\n")
    done = membench(*RUN, "--output-dir", "out", cwd=project)
    assert (
        "since the last run another version of the system is measured: mine: its file has changed"
        in done.out
    )
    first, second = (folder.name for folder in run_folders(project / "out"))
    done = membench("compare", "--output-dir", "out", first, second, cwd=project)
    assert "two versions of the system are compared: mine: its file has changed" in done.out, done
    assert "environments differ" not in done.out


# -- the command ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start",
    [
        (sys.executable, "-m", "memory.benchmarking.cli"),
        (sys.executable, str(REPOSITORY / "scripts" / "benchmark.py")),
        (str(Path(sys.executable).parent / "membench"),),
    ],
    ids=["module", "script", "membench"],
)
def test_the_command_to_repeat_a_run_runs(start: tuple[str, ...], project: Path, tmp_path: Path) -> None:
    if not Path(start[0]).exists():
        pytest.skip("membench is not installed here")
    env = surroundings(GIT_DIR=None)
    options = {"env": env, "capture_output": True, "text": True, "timeout": PATIENCE}
    started = [*start, *RUN, "--output-dir", "out", "--quiet"]
    subprocess.run(started, cwd=project, check=True, **options)  # type: ignore[call-overload]
    _, run = only_run(project / "out")
    (project / "out").rename(tmp_path / "first")
    lines = repeat_lines(run)
    revision = git(project, "rev-parse", "--short=12", "HEAD")
    assert lines[:2] == [f"cd {shlex.quote(str(project))}", f"git checkout {revision}"]
    again = subprocess.run(["sh", "-ec", "\n".join(lines)], cwd="/", **options)  # type: ignore[call-overload]
    assert again.returncode == 0, again.stderr
    assert only_run(project / "out")[1].command == run.command


def test_the_settings_file_of_the_environment_is_part_of_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMBENCH_CONFIG", "my settings.toml")
    assert command_to_repeat(["run"]).startswith("MEMBENCH_CONFIG='my settings.toml' ")


def test_the_sources_of_a_run_from_python_are_named(project: Path) -> None:
    assert list(source_paths([], ["agentmemory", "sqlite-baseline"])) == [
        "target agentmemory", "target sqlite-baseline", "current folder", "membench",
    ]  # fmt: skip
