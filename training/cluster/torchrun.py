"""torchrun that keeps the exit code of the rank that failed first.

    python -m training.cluster.torchrun --standalone --nnodes 1 --nproc-per-node 2 \
        -m training.trainers.sft spec.json

Takes every option of torchrun. torchrun ends with 1 whatever its ranks said, so "resume me" (75)
and "never again" (93) would be lost; a rank killed by signal N gives 128 + N, as in a shell.
"""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> int:
    """Run torchrun with `arguments`; returns the exit code for this process."""
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        torchrun.run(torchrun.parse_args(arguments))
    except ChildFailedError as error:
        print(error, file=sys.stderr)
        _, failure = error.get_first_failure()
        code = int(failure.exitcode)
        return code if code >= 0 else 128 - code
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
