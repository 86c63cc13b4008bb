"""Trees walked by AVX-512 where there is; what no vector can hold is in `tests/kernel/test_trees.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import numpy as np
from macem import kernel
from macem.trees import Link, Member, Tree, pack
from numba import njit

stump = Tree(
    feature=np.array([0, -1, 1, -1, -1]),
    threshold=np.array([2.0, 0.0, 3.0, 0.0, 0.0]),
    left=np.array([1, 0, 3, 0, 0]),
    right=np.array([2, 0, 4, 0, 0]),
    value=np.array([[0.0], [1.0], [0.0], [10.0], [100.0]]),
    missing_left=np.ones(5, bool),
)
table = pack([Member([stump] * 9, 1, Link.SIGMOID, np.zeros(1), (0, 1))], n_features=2, n_classes=2, single=True)
codes = np.array([[x, y] for x in range(6) for y in range(6)], dtype=float)
raw = np.empty((36, 1))
kernel.raw_scores(table, codes, raw)
expected = np.where(codes[:, 0] <= 2, 1.0, np.where(codes[:, 1] <= 3, 10.0, 100.0)) * 9
assert (raw[:, 0] == expected).all(), raw
has_vectors = kernel.has_vectors
print(njit(lambda: has_vectors())())
"""


def asked(folder: Path, **environment: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "NUMBA_DISABLE_JIT": "0", "NUMBA_CACHE_DIR": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def test_processors_with_and_without_vectors_agree(tmp_path: Path) -> None:
    from llvmlite import binding

    assert asked(tmp_path, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="") == "False"
    assert asked(tmp_path) == str(bool(binding.get_host_cpu_features().get("avx512f")))
