"""What the readings of CFIP in a forest make of one ranking: ``MACEM_DATA=… python benchmarks/readings.py``.

The paper defines CFIP for *the tree*. Of a forest, results/readings.csv shows per data set and kind, in percent: what a
random ranking of the features reaches (`chance`, k over the number of features); what `macem` reaches if the ideal's
features are the k that the most trees ask (`most_asked`, the reading of `macem.metrics`), those of each tree with that
tree's k, averaged over trees (`per_tree`), or those that any tree asks (`union`); and the most that any ranking can
reach tree by tree (`per_tree_most`).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from paper import DATASETS, KINDS, RESULTS, Task

from macem import metrics

N_SPLITS, N_ROWS = 3, 40


def main() -> None:
    """Measure every data set and write the table."""
    warnings.simplefilter("ignore")
    lines = []
    for name, dataset in DATASETS.items():
        for split in range(N_SPLITS):
            lines += [{"dataset": name} | line for line in measure(Task(dataset, "forest", split, N_ROWS))]
    table = pd.DataFrame(lines).groupby(["dataset", "kind"], sort=False).mean().round(1)
    print(table.to_string())
    table.reset_index().to_csv(RESULTS.with_name("readings.csv"), index=False, lineterminator="\n")


def measure(task: Task) -> list[dict[str, Any]]:
    """One line per contrast that was found."""
    explanations = task.refined
    lines = []
    for kind in KINDS:
        for explanation in explanations:
            contrast = getattr(explanation, kind)
            if not contrast.found:
                continue
            # on nearly all rows macem's own contrast is the ideal
            asked = asked_by_tree(task.model, contrast.values.to_numpy(dtype=float)[None, :])
            lines.append({"kind": kind} | scores(asked, metrics.ranked_features(contrast)))
    return lines


def asked_by_tree(forest: Any, row: np.ndarray) -> np.ndarray:
    """Which features each tree asks of a row, shape (n_trees, d)."""
    asked = np.zeros((len(forest.estimators_), row.shape[1]), dtype=bool)
    for at, tree in enumerate(forest.estimators_):
        features = tree.tree_.feature[tree.decision_path(row).indices]
        asked[at, features[features >= 0]] = True
    return asked


def scores(asked: np.ndarray, ranked: np.ndarray) -> dict[str, float]:
    """Percent of the first features that are asked, by reading."""
    sizes = asked.sum(axis=1)
    k = round(float(sizes.mean()))
    most_asked = np.argsort(-asked.sum(axis=0), kind="stable")[:k]
    hits = np.cumsum(asked[:, ranked], axis=1)
    own = hits[np.arange(len(asked)), np.maximum(sizes, 1) - 1] / np.maximum(sizes, 1)
    # of the trees that ask equally many features, the best choice takes those that they ask most
    best = [np.sort(asked[sizes == size].sum(axis=0))[::-1][:size].sum() / max(size, 1) for size in np.unique(sizes)]
    return {
        "k": float(k),
        "chance": 100.0 * k / asked.shape[1],
        "most_asked": 100.0 * np.isin(ranked[:k], most_asked).mean(),
        "per_tree": 100.0 * own.mean(),
        "per_tree_most": 100.0 * float(np.sum(best)) / len(asked),
        "union": 100.0 * asked.any(axis=0)[ranked[:k]].mean(),
    }


if __name__ == "__main__":
    main()
