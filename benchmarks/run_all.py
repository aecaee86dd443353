"""Run the short form of every benchmark: `python -m benchmarks.run_all [AREA]`.

Exit code 1 when one of them misses a target or fails; the rest is still run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent


def modules(area: str = "") -> Iterator[str]:
    """Every benchmark, sorted: the modules of each area that are run by name.

    An area with a `__main__` is run as one, by its own target (`make chaos` needs Slurm and root).
    """
    for path in sorted(HERE.glob(f"{area or '*'}/*.py")):
        if path.with_name("__main__.py").exists():
            continue
        if not path.name.startswith("_") and 'if __name__ == "__main__"' in path.read_text():
            yield f"benchmarks.{path.parent.name}.{path.stem}"


def main() -> int:
    failed = []
    for module in modules(*sys.argv[1:2]):
        print(f"== {module} --short", flush=True)
        if subprocess.run([sys.executable, "-m", module, "--short"], cwd=HERE.parent).returncode:
            failed.append(module)
    for module in failed:
        print(f"missed a target or failed: {module}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
