"""FMA and SSA, the paper's two encodings of categories, in quality and cost: ``python benchmarks/encodings.py``.

results/encodings.csv holds for each data set, model, kind, method ("refined", or the paper's "search" alone) and
encoding, over rows for which both found a contrast: how many were `found`, the mean distance `l1` (a number by its
range, a category 1 if changed, which is neither encoding's own), mean `changed` features and categories, the corners
sampled per value of the objective, and the seconds per row of one table, both kinds together.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pandas as pd
from exact import CATEGORICAL, METHODS, SPECIAL_VALUES, fitted_tree
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import macem
from macem import datasets
from macem.datasets.models import credit_forest
from macem.strategies.encodings import SimplexSampling

RESULTS = Path(__file__).resolve().parent / "results" / "encodings.csv"
ENCODINGS: dict[str, Any] = {"fma": "fma", "ssa": SimplexSampling(10)}
MODELS: dict[tuple[str, str], Any] = {
    ("german_credit", "tree"): fitted_tree,
    ("german_credit", "forest"): credit_forest,
    ("heloc", "forest"): lambda X, y: RandomForestClassifier(100, random_state=0).fit(X, y),
}
N_ROWS = 30


def main() -> None:
    """Measure every model and write the table."""
    table = pd.DataFrame([line for case in MODELS for line in measure(*case)])
    print(table.to_string(index=False))
    table.to_csv(RESULTS, index=False, float_format="%.4g", lineterminator="\n")


def measure(dataset: str, model_name: str) -> list[dict[str, Any]]:
    """One line per kind, method and encoding."""
    X, y = getattr(datasets, f"load_{dataset}")()
    X_train, X_test, y_train, _ = train_test_split(X, y, random_state=0, stratify=y)
    model, rows = MODELS[dataset, model_name](X_train, y_train), X_test.iloc[:N_ROWS]
    given = {"special_values": SPECIAL_VALUES.get(dataset), "categorical": CATEGORICAL.get(dataset)}
    lines = []
    for method, options in METHODS.items():
        explained, seconds = {}, {}
        for name, encoding in ENCODINGS.items():
            explainer = macem.Explainer(model, X_train, encoding=encoding, options=options, **given)
            explainer.explain(rows.iloc[:1])  # compiles
            began = time.perf_counter()
            explained[name] = explainer.explain(rows)
            seconds[name] = (time.perf_counter() - began) / N_ROWS
        for kind in ("positive", "negative"):
            contrasts = {name: [getattr(one, kind) for one in theirs] for name, theirs in explained.items()}
            both = [all(contrast.found for contrast in pair) for pair in zip(*contrasts.values(), strict=True)]
            for name, theirs in contrasts.items():
                line = {"dataset": dataset, "model": model_name, "kind": kind, "method": method, "encoding": name}
                steps = [lengths(explainer, contrast) for contrast, kept in zip(theirs, both, strict=True) if kept]
                lines.append(
                    line
                    | {"rows": N_ROWS, "found": sum(contrast.found for contrast in theirs)}
                    | pd.DataFrame(steps).mean().to_dict()
                    | {"corners": 10 if name == "ssa" else 1, "seconds": seconds[name]}
                )
    return lines


def lengths(explainer: macem.Explainer, contrast: Any) -> dict[str, float]:
    """How far a contrast is from its reference."""
    features = explainer.features
    steps = []
    for name, (start, end) in contrast.changes.items():
        at = features.position(name)
        categorical = features.kinds[at] == "categorical"
        steps.append((1.0 if categorical else abs(end - start) / features.scale[at], categorical))
    return {
        "l1": float(sum(step for step, _ in steps)),
        "changed": float(len(steps)),
        "categories": float(sum(categorical for _, categorical in steps)),
    }


if __name__ == "__main__":
    main()
