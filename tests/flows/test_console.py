"""A flow run whose worker, the reader of its console, is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = """
import logging, sys
from prefect.logging.configuration import setup_logging
setup_logging()
if sys.argv[1] == "as it is":
    import prefect
else:
    from flows._options import flow_options
    flow_options("train", "train")
sys.stdin.readline()
for number in range(3):
    logging.getLogger("prefect.lines").info("line %d", number)
print("went on")
open(sys.argv[2], "w").write("the end")
"""


@pytest.mark.parametrize(("how", "goes_on"), [("as it is", False), ("with our options", True)])
def test_a_run_outlives_the_reader_of_its_lines(how: str, goes_on: bool, tmp_path: Path) -> None:
    told = tmp_path / "told"
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", SOURCE, how, str(told)],
        stdin=subprocess.PIPE,
        stdout=write_end,
        stderr=write_end,
        cwd=REPOSITORY,
        env={**os.environ, "PREFECT_LOGGING_LEVEL": "INFO", "PREFECT_HOME": str(tmp_path)},
    )
    os.close(write_end)
    os.close(read_end)  # as a kill of the worker does
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.close()
    assert (process.wait(120) == 0) is goes_on
    assert told.exists() is goes_on
