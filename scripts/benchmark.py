"""The specification's command for Unix: the same as `membench`, also without installation.

python scripts/benchmark.py run --profile quick
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from memory.benchmarking.cli import main

if __name__ == "__main__":
    sys.exit(main())
