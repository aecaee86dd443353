"""What this machine's processor is good at."""

from __future__ import annotations

from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
# x86's two, and Arm's: without them PyTorch computes in bfloat16 number by number.
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def multiplies_bf16() -> bool:
    """Whether products of bfloat16 matrices are faster here than those of float32.

    Where they are not, they are 20 to 60 times slower: on an EPYC without `avx512_bf16` one core
    did 1 to 4 GFLOP/s in a backward pass, and 80 in float32 (torch 2.13).
    """
    try:
        text = _CPUINFO.read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return False
    return not _BF16_FLAGS.isdisjoint(text.split())
