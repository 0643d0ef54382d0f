"""Builds the environment of a target: `membench targets install`.

The steps: resolve all packages and refuse what nobody wants, make a virtual environment, install exactly
what was resolved, start membench's worker in it once, write the lock file. `uv` does it if it is on PATH,
else `venv` and pip. Package indexes and constraints are those of the user's own settings of uv or pip.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from memory.benchmarking.errors import BenchmarkError, InvalidBenchmarkConfig, MissingDependency
from memory.benchmarking.model.user_files import is_file_module
from memory.benchmarking.targets import load_target
from memory.benchmarking.targets.base import Target
from memory.benchmarking.targets.environments import (
    Lock,
    code_folder,
    delete_leftovers,
    distribution_of,
    find_environment,
    held,
    normalised,
    slug_of,
    targets_folder,
    write_lock,
)
from memory.benchmarking.targets.spelling import parse_target
from memory.benchmarking.targets.unneeded import needed_of, uv_overrides

_OWN = "agentmemory-tiers"
_MEASURING = ("bm25s", "psutil")
"""What the worker needs of the extra `bench`: the reference of the quality benchmarks, and RAM."""
_UNWANTED = re.compile(r"nvidia-.*|.*-cu1\d")
"""Gigabytes of drivers and libraries for a graphics card, which come with PyTorch's default build."""
_ENDS_WITH_PARENT = """
import ctypes, os, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda number, frame: os.killpg(0, signal.SIGKILL))
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    sys.exit(abs(subprocess.call(sys.argv[2:], close_fds=False)))
"""
"""Runs a program, and kills it with its children if membench is killed (on Linux)."""
_NO_NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeout|Failed to establish|Name or service|dns error|getaddrinfo|"
    r"Temporary failure in name|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|[Cc]onnection refused|"
    r"error sending request|Network is unreachable"
)


def requirements_of(text: str) -> list[str]:
    """Return what the environment of a target needs; with `@VERSION`, that version of the system."""
    kind, version = load_target(text), parse_target(text).version
    if not kind.requirements and not kind.npm_requirements:
        return []
    return [*_at_version(kind.requirements, version, "=="), *_package_of(kind)]


def _package_of(kind: type[Target]) -> list[str]:
    """Return the installed package that a target comes with, which its environment needs too."""
    from importlib.metadata import distribution, packages_distributions

    top = kind.__module__.partition(".")[0]
    if top == "memory" or is_file_module(kind.__module__):
        return []
    for name in packages_distributions().get(top, ())[:1]:
        installed = distribution(name)
        origin = json.loads(installed.read_text("direct_url.json") or "{}").get("url")
        return [f"{name} @ {origin}" if origin else f"{name}=={installed.version}"]
    return []


def npm_requirements_of(text: str) -> list[str]:
    """Return the same for packages of npm. `@VERSION` is theirs if the system is one of them."""
    kind = load_target(text)
    version = "" if kind.requirements else parse_target(text).version
    return _at_version(kind.npm_requirements, version, "@")


def _at_version(requirements: Sequence[str], version: str, sign: str) -> list[str]:
    if not version or not requirements:
        return list(requirements)
    first = requirements[0]
    if sign == "@":
        name = first[0] + first[1:].partition("@")[0]  # the name itself may begin with @
    else:
        match = re.match(r"\s*[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?", first)
        name = match[0].strip() if match else first
    return [f"{name}{sign}{version}", *requirements[1:]]


def worker_requirements() -> list[str]:
    """Return the packages that membench's worker needs, as our own distribution declares them."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        declared = requires(_OWN) or []
    except PackageNotFoundError:
        raise MissingDependency(
            f"membench is not installed as a package, so its requirements are unknown: pip install {_OWN}"
        ) from None
    found = [each for each in declared if "extra ==" not in each]
    for each in declared:
        needed, _, marker = each.partition(";")
        if re.fullmatch(r"\s*extra == ['\"]bench['\"]\s*", marker) and distribution_of(each) in _MEASURING:
            found.append(needed.strip())
    return found


def install(
    text: str, *, upgrade: bool = False, report: Callable[[str], None] = lambda line: None
) -> tuple[Lock, bool]:
    """Build the environment of a target; return its lock, and whether it was built now.

    Args:
        text: as after `--target`; an address has no effect.
        upgrade: build it again if there is one, with the newest versions that fit.
        report: called with a line before each step that takes long.
    """
    wanted, npm_wanted = requirements_of(text), npm_requirements_of(text)
    unneeded = list(load_target(text).unneeded)
    name = parse_target(text).environment
    if not wanted and not npm_wanted:
        if parse_target(text).version:
            raise InvalidBenchmarkConfig(f"{name}: the target has no requirements, so it has no versions")
        raise InvalidBenchmarkConfig(f"{name} needs no environment: it runs where membench runs")
    slug = slug_of(text)

    def waits() -> None:
        report(f"{name}: waiting for another membench that installs or uses it")

    with held(slug, exclusive=True, waits=waits) as descriptor:
        delete_leftovers(slug)
        before = find_environment(text)
        if before is not None and not upgrade:
            asked = (before.requirements, before.unneeded, before.npm_requirements)
            if asked == (wanted, unneeded, npm_wanted):
                return before, False
            report(f"{name}: its requirements have changed")
        folder = targets_folder() / f"{slug}.{secrets.token_hex(4)}"
        build = _Build(name, folder, wanted, unneeded, npm_wanted, descriptor, report)
        try:
            lock = build.run(_absolute(text))
            write_lock(lock, slug)
        except OSError as problem:
            shutil.rmtree(folder, ignore_errors=True)
            raise BenchmarkError(
                f"{name} can't be installed: {problem.strerror or problem}; nothing was changed"
            ) from problem
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        delete_leftovers(slug)
    return lock, True


def _absolute(text: str) -> str:
    name = parse_target(text).environment
    source, colon, kind = name.rpartition(":")
    return f"{Path(source).resolve()}:{kind}" if colon and source.endswith(".py") else name


class _Failed(Exception):
    """A program ended with an error; the text is all that it printed."""


@dataclass
class _Build:
    """One environment being built."""

    name: str
    folder: Path
    wanted: Sequence[str]
    unneeded: Sequence[str]
    npm_wanted: Sequence[str]
    descriptor: int
    """Holds the lock of the environment; the programs inherit it."""
    report: Callable[[str], None]

    def run(self, target: str) -> Lock:
        """Build everything; return what the lock file has to say."""
        requirements = [*self.wanted, *worker_requirements()]
        try:
            self._make_environment()
            self.report(f"{self.name}: resolving {', '.join((*self.wanted, *self.npm_wanted))}")
            resolved = self._resolve(requirements)
            self._refuse_unwanted(resolved)
            self.report(f"{self.name}: installing {len(resolved)} packages")
            self._install(resolved)
            npm_packages = self._install_npm() if self.npm_wanted else {}
            self._start_worker()
        except _Failed as problem:
            raise BenchmarkError(
                f"{self.name} can't be installed for Python {_python_version()}: "
                f"{reason_of(str(problem), self.folder.parent)}; nothing was changed"
            ) from None
        return Lock(
            target=target,
            folder=self.folder.name,
            python=_python_version(),
            requirements=list(self.wanted),
            unneeded=list(self.unneeded),
            packages=self._packages(),
            npm_requirements=list(self.npm_wanted),
            npm_packages=npm_packages,
            built_with=self._tool,
        )

    @cached_property
    def _uv(self) -> str | None:
        return shutil.which("uv")

    @cached_property
    def _own_pip(self) -> bool:
        """Whether the pip of this process can install into another environment."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return tuple(map(int, version("pip").split(".")[:2])) >= (22, 3)
        except (PackageNotFoundError, ValueError):
            return False

    @property
    def _pip(self) -> list[str]:
        if self._own_pip:
            return [sys.executable, "-I", "-m", "pip", "--python", self._python]
        return [self._python, "-I", "-m", "pip"]

    @cached_property
    def _tool(self) -> str:
        command = [self._uv, "--version"] if self._uv else [*self._pip, "--version"]
        return " ".join(self._call(command).split()[:2])

    @property
    def _python(self) -> str:
        return str(self.folder / "bin" / "python")

    def _make_environment(self) -> None:
        if self._uv:
            self._call([self._uv, "venv", "--quiet", "--python", sys.executable, self.folder])
        else:
            without_pip = ["--without-pip"] if self._own_pip else []
            self._call([sys.executable, "-I", "-m", "venv", *without_pip, self.folder])

    def _resolve(self, requirements: Sequence[str]) -> list[str]:
        """Return all packages to install, each with its exact version or address."""
        file = self.folder / "requirements.txt"
        file.write_text("".join(f"{each}\n" for each in requirements))
        if self._uv:
            command = [self._uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
            if self.unneeded:  # else a UV_OVERRIDE of the user counts
                overrides = self.folder / "overrides.txt"
                overrides.write_text(uv_overrides(self.unneeded))
                command += ["--override", str(overrides)]
            lines = self._call([*command, "--python", self._python, file]).splitlines()
            return [line for line in lines if line and not line.lstrip().startswith(("#", "-"))]
        answer = self.folder / "resolved.json"
        options = ["--quiet", "--prefer-binary", "--ignore-installed", "--dry-run", "--report", str(answer)]
        self._call([*self._pip, "install", *options, "-r", file])
        return [
            f"{each['metadata']['name']} @ {each['download_info']['url']}"
            if each["is_direct"]
            else f"{each['metadata']['name']}=={each['metadata']['version']}"
            for each in needed_of(json.loads(answer.read_text()), requirements, self.unneeded)
        ]

    def _refuse_unwanted(self, resolved: Sequence[str]) -> None:
        unwanted = sorted(name for name in map(distribution_of, resolved) if _UNWANTED.fullmatch(name))
        if unwanted:
            raise BenchmarkError(
                f"{self.name} would install PyTorch for graphics cards ({unwanted[0]} and "
                f"{len(unwanted) - 1} more, gigabytes): name an index with its CPU build in "
                "PIP_EXTRA_INDEX_URL, and pin that build in a file "
                "that PIP_CONSTRAINT names; for uv UV_EXTRA_INDEX_URL and UV_CONSTRAINT"
            )

    def _install(self, resolved: Sequence[str]) -> None:
        file = self.folder / "resolved.txt"
        file.write_text("".join(f"{each}\n" for each in resolved))
        if self._uv:
            command = [self._uv, "pip", "install", "--quiet", "--python", self._python]
        else:
            command = [*self._pip, "install", "--quiet", "--prefer-binary"]
        self._call([*command, "--no-deps", "-r", file])

    def _install_npm(self) -> dict[str, str]:
        npm = shutil.which("npm")
        if npm is None:
            raise BenchmarkError(f"{self.name} needs npm: install Node.js; nothing was changed")
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        self._call([npm, "install", "--prefix", self.folder, *quiet, *self.npm_wanted])
        tree = json.loads((self.folder / "node_modules" / ".package-lock.json").read_text())
        asked = [each[0] + each[1:].partition("@")[0] for each in self.npm_wanted]
        found = {
            path.rpartition("node_modules/")[2]: str(each.get("version", ""))
            for path, each in tree["packages"].items()
        }
        return {name: found[name] for name in (*asked, *sorted(found)) if name in found}

    def _start_worker(self) -> None:
        """Import what every round imports, so that a broken environment is found now."""
        program = "import memory.benchmarking.run.worker, memory.embedding, numpy, psutil"
        self._call([self._python, "-P", "-c", program], PYTHONPATH=str(code_folder()))

    def _packages(self) -> dict[str, str]:
        program = (
            "import importlib.metadata as m, json\n"
            "print(json.dumps([[d.metadata['Name'], d.version] for d in m.distributions()]))"
        )
        found = json.loads(self._call([self._python, "-I", "-c", program]))
        return dict(sorted((normalised(name), version) for name, version in found))

    def _call(self, command: Iterable[str | Path | None], **variables: str) -> str:
        """Run a program; return its standard output. It ends when this process ends."""
        environment = {name: value for name, value in os.environ.items() if name not in _OURS}
        environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
        environment.setdefault("PIP_RETRIES", "1")
        program = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_PARENT, str(os.getpid())]
        process = subprocess.Popen(
            [*program, *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment | variables,
            text=True,
            errors="replace",
            pass_fds=[self.descriptor],
            start_new_session=True,  # Ctrl-C reaches this process only, which then ends the program
        )
        try:
            out, err = process.communicate()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if process.returncode:
            raise _Failed(f"{out}\n{err}" if err.strip() else out)
        return out


_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables that would lead the programs to this process's packages."""


def _python_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def reason_of(output: str, folder: Path) -> str:
    """Return in one line why uv, pip, venv or npm failed."""
    if "No space left on device" in output or "ENOSPC" in output:
        return f"the disk is full ({folder})"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [
        cleaned
        for line in lines
        if re.match(r"(ERROR|error|×|╰─▶|npm error|Caused by|[A-Za-z.]*Error)\b|×|╰─▶", line)
        and (cleaned := re.sub(r"^(ERROR|error|npm error|×|╰─▶)[:\s]*", "", line))
    ]
    if _NO_NETWORK.search(output):
        asked = re.search(r"https?://[^\s'\"`]+", output)
        where = f" ({_without_secrets(asked[0])})" if asked else ""
        return f"the package index can't be reached{where}"
    shown = errors[:1] or lines[-1:] or ["it ended without a message"]
    if shown[0].endswith(":") or "No solution found" in shown[0]:
        start = lines.index(next(line for line in lines if shown[0] in line))
        shown = [" ".join(lines[start : start + 8]).removeprefix("× ")]
    text = " ".join(_without_secrets(shown[0]).split()).rstrip(".")
    return text if len(text) <= 400 else f"{text[:399]}…"


def _without_secrets(text: str) -> str:
    return re.sub(r"(https?://)[^/\s@]+@", r"\1", text)


def as_document(lock: Lock) -> dict[str, Any]:
    """Return a lock for JSON output, with its digest."""
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(lock)
    return document | {"digest": lock.digest, "path": str(lock.path)}
