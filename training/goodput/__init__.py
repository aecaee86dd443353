"""Where the time of a run's machines went, what it cost, and what other settings would change.

    python -m training.goodput RUN_DIR [--json] [--prices FILE]

    account = account_run(Path("workspace/runs/dsm-1"))
    account.goodput, account.ettr, account.device_seconds[Bucket.RECOMPUTE]

In: the attempts' records, `metrics.jsonl`, `phases.jsonl` and `events.jsonl` of a run's folder.
Each second of each device (GPU, or CPU core of a job without GPUs) that a job held goes into one
bucket, and the buckets add up to what was allocated exactly.
"""

from training.goodput.account import RunAccount, account_run
from training.goodput.buckets import Bucket
from training.goodput.prices import PriceTable, read_prices

__all__ = ["Bucket", "PriceTable", "RunAccount", "account_run", "read_prices"]
