"""Print a constraints file that pins every dependency of this project to its lower bound.

    python scripts/lowest.py > lowest.txt
    pip install -c lowest.txt -e '.[agents]'

`make test-lowest` uses it. The bounds come from pyproject.toml: the dependencies and all extras except
`dev`, whose tools do not run with the memory. Where the same package has several bounds, the highest one
that applies to this Python counts.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
_TOOLS = "dev"
"""The extra whose packages are not pinned: test runners and checkers."""


def lower_bounds(pyproject: Path = ROOT / "pyproject.toml") -> dict[str, Version]:
    """Return the lower bound of each dependency that applies to this Python, by its canonical name."""
    project = tomllib.loads(pyproject.read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [
        *project["dependencies"],
        *(line for name in extras if name != _TOOLS for line in extras[name]),
    ]
    bounds: dict[str, Version] = {}
    for line in lines:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name == canonicalize_name(project["name"]):
            continue  # an extra that consists of other extras
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        lowest = [Version(bound.version) for bound in requirement.specifier if bound.operator == ">="]
        if len(lowest) != 1:
            sys.exit(
                f"pyproject.toml: {line!r} needs one lower bound: write it as {requirement.name}>=VERSION"
            )
        bounds[name] = max(lowest[0], bounds.get(name, lowest[0]))
    return bounds


def main() -> int:
    for name, version in sorted(lower_bounds().items()):
        print(f"{name}=={version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
