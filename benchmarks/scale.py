"""How cost grows: ``python benchmarks/scale.py`` draws docs/images/scale.png and writes results/scale.csv.

One of rows explained, features, trees and background rows grows, the others held; each point is a fresh process, on one
thread, so that its peak memory is its own. Rows are explained a thousand at a time and let go, as a night's batch does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results" / "scale.csv"
PICTURE = REPOSITORY / "docs" / "images" / "scale.png"
HELD = {"rows": 20, "features": 20, "trees": 100, "background rows": 1000}
HELD_FOR = {"rows": {"trees": 10}}  # else 100,000 rows take an hour
GROWING = {
    "rows": (100, 1000, 10_000, 100_000),
    "features": (10, 50, 200, 1000, 5000),
    "trees": (10, 30, 100, 300, 1000, 2000),
    "background rows": (1000, 10_000, 100_000, 1_000_000),
}
POINT = """
import sys, time
import numpy as np
from sklearn.ensemble import RandomForestClassifier
import macem
def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024
n_rows, n_features, n_trees, n_background = map(int, sys.argv[1:])
random = np.random.default_rng(0)
X = random.standard_normal((n_background, n_features))
y = X[:1000, :5].sum(axis=1) > 0
model = RandomForestClassifier(n_trees, max_depth=8, random_state=0).fit(X[:1000], y)
warm = macem.Explainer(model, X[:1000])
warm.explain(X[:1])
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak so far is forgotten, as ru_maxrss never does
before = memory("VmRSS")
began = time.process_time()
explainer = macem.Explainer(model, X)
fit = time.process_time() - began
began = time.process_time()
for first in range(0, n_rows, 1000):
    explainer.explain(random.standard_normal((min(1000, n_rows - first), n_features)))
explain = time.process_time() - began
print(fit, explain, memory("VmHWM") - before)
"""


def point(sizes: dict[str, int]) -> list[float]:
    """CPU seconds of the fit and of the explanations, and what both took of memory at the peak, in MiB."""
    answer = subprocess.run(
        [sys.executable, "-c", POINT, *(str(size) for size in sizes.values())],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    return [float(number) for number in answer.stdout.split()]


def draw(results: pd.DataFrame) -> Figure:
    """Time and memory against each size."""
    figure = Figure(figsize=(11, 3.3), layout="constrained")
    panels: Any = figure.subplots(1, len(GROWING))
    for panel, (grows, lines) in zip(panels, results.groupby("grows", sort=False), strict=True):
        panel.loglog(lines["size"], lines["fit"], "o-", label="fit, CPU s")
        panel.loglog(lines["size"], lines["explain"], "o-", label="explain, CPU s")
        added = lines["memory"].clip(lower=1.0)
        panel.loglog(lines["size"], added, "o:", color="gray", label="memory added at the peak, MiB")
        panel.set_title(grows)
        panel.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def main() -> None:
    """Measure, draw and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the two smallest points of each; writes nothing")
    quick = parser.parse_args().quick
    lines = []
    for grows, sizes in GROWING.items():
        for size in sizes[:2] if quick else sizes:
            lines.append((grows, size, *point({**HELD, **HELD_FOR.get(grows, {}), grows: size})))
            print(*lines[-1], flush=True)
    results = pd.DataFrame(lines, columns=["grows", "size", "fit", "explain", "memory"])
    figure = draw(results)
    if not quick:
        RESULTS.parent.mkdir(exist_ok=True)
        results.to_csv(RESULTS, index=False, float_format="%.4g", lineterminator="\n")
        figure.savefig(PICTURE, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
