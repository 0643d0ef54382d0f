"""Changes random bytes of a bundle, one at a time: `results verify` has to find them all (docs/bundles.md).

python scripts/tamper.py                     a bundle of a small new run, 200 bytes
python scripts/tamper.py run.zip --bytes 50  a bundle that exists
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from memory.benchmarking.bundles.verify import verify_bundle
from memory.benchmarking.errors import BenchmarkError

MEMBENCH = (sys.executable, "-m", "memory.benchmarking.cli")


def make_bundle(folder: Path) -> Path:
    """Measure a little and bundle it."""
    results = str(folder / "results")
    subprocess.run(
        [*MEMBENCH, "run", "--profile", "quick", "--benchmark", "storage.read_latency", "--benchmark",
         "quality.retrieval_quality", "--output-dir", results, "--quiet"],
        check=True,
    )  # fmt: skip
    bundle = folder / "run.zip"
    subprocess.run([*MEMBENCH, "results", "bundle", "-o", str(bundle), "--output-dir", results], check=True)
    return bundle


def not_found(bundle: Path, count: int, seed: int = 0) -> tuple[list[int], Counter[str]]:
    """Change `count` random bytes, one at a time.

    Returns the places whose change was not found, and how often each file of the bundle was named.
    """
    data = bundle.read_bytes()
    rng = random.Random(seed)
    missed: list[int] = []
    named: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        changed = Path(scratch) / "changed.zip"
        for place in rng.sample(range(len(data)), min(count, len(data))):
            other = rng.choice([value for value in range(256) if value != data[place]])
            changed.write_bytes(data[:place] + bytes([other]) + data[place + 1 :])
            try:
                problems = verify_bundle(changed).problems
            except BenchmarkError as problem:
                named[f"refused: {type(problem).__name__}"] += 1
                continue
            if not problems:
                missed.append(place)
            named.update({problem.file or "(the archive itself)" for problem in problems})
    return missed, named


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("bundle", nargs="?", type=Path, help="default: one of a small new run")
    parser.add_argument("--bytes", type=int, default=200, metavar="N", help="default: 200")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundle = arguments.bundle or make_bundle(Path(folder))
        size = bundle.stat().st_size
        missed, named = not_found(bundle, arguments.bytes, arguments.seed)
    for name, count in named.most_common():
        print(f"{count:5}  {name}")
    found = arguments.bytes - len(missed)
    print(f"{arguments.bytes} changed bytes of {size:,}: {found} found, {len(missed)} missed")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
