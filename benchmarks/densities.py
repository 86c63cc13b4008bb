"""What an input density buys, and at what price: ``MACEM_DATA=… python benchmarks/densities.py``.

results/densities.csv holds for each data set, density, kind and γ the means over the rows with a contrast: `distance`
from the reference (L1, working coordinates), `changed` features, `nearest`, the distance to the nearest training row
(L1, working coordinates), and `rank`, the share of unseen rows that are less likely than the contrast by the density
that steers, and by the other (`other_rank`), which does not. (Of training rows each stands on a kernel of its own.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import macem
from macem import datasets
from macem.datasets.models import credit_forest
from macem.strategies.densities import density_from

RESULTS = Path(__file__).resolve().parent / "results" / "densities.csv"
DENSITIES = ("kde", "copula")
WEIGHTS = (0.0, 0.3, 1.0, 3.0, 10.0)
N_ROWS = 30


def main() -> None:
    """Measure both data sets and write the table."""
    X, y = datasets.load_german_credit()
    lines = measure("German Credit", X, y, credit_forest)
    X, y = datasets.load_vertebral()
    lines += measure("Vertebral Column", X, y, lambda X, y: RandomForestClassifier(100, random_state=0).fit(X, y))
    table = pd.DataFrame(lines)
    print(table.to_string(index=False))
    table.to_csv(RESULTS, index=False, float_format="%.4g", lineterminator="\n")


def measure(dataset: str, X: pd.DataFrame, y: pd.Series, fit: Any) -> list[dict[str, Any]]:
    """One line per density, kind and γ."""
    X_train, X_test, y_train, _ = train_test_split(X, y, random_state=0, stratify=y)
    model, rows = fit(X_train, y_train), X_test.iloc[:N_ROWS]
    lines = []
    for name in DENSITIES:
        for weight in WEIGHTS:
            options = macem.SearchOptions(density_weight=weight)
            explainer = macem.Explainer(model, X_train, density=name, options=options)
            explanations = explainer.explain(rows)
            for kind in ("positive", "negative"):
                found = [contrast for one in explanations if (contrast := getattr(one, kind)).found]
                line = {"dataset": dataset, "density": name, "kind": kind, "γ": weight, "found": len(found)}
                lines.append(line | plausibility(explainer, name, X_train, X_test, found))
    return lines


def plausibility(
    explainer: macem.Explainer, name: str, X_train: pd.DataFrame, X_test: pd.DataFrame, found: list[Any]
) -> dict[str, float]:
    """Price and plausibility of contrasts."""
    features = explainer.features
    shown = pd.DataFrame([contrast.values for contrast in found]).astype(dict(X_train.dtypes))
    references = pd.DataFrame([contrast.reference for contrast in found]).astype(dict(X_train.dtypes))
    place = explainer.encoding.encode
    points, background = place(features.numbers(shown)), place(features.numbers(X_train))
    ranks = []
    for density in (name, *(other for other in DENSITIES if other != name)):
        fitted = density_from(density).fit(features, features.numbers(X_train), X_train)
        theirs = np.sort(fitted.log_density(X_test))
        ranks.append(float(np.mean(np.searchsorted(theirs, fitted.log_density(shown)) / theirs.size)))
    return {
        "distance": float(np.abs(points - place(features.numbers(references))).sum(axis=1).mean()),
        "changed": float(np.mean([contrast.n_changed for contrast in found])),
        "nearest": float(np.mean([np.abs(background - point).sum(axis=1).min() for point in points])),
        "rank": ranks[0],
        "other_rank": ranks[1],
    }


if __name__ == "__main__":
    main()
