"""Measure the refinement by the width of its beam: ``python benchmarks/beam.py`` writes results/beam.csv.

Forests and boosters on German Credit, breast cancer, made-up data, and HELOC where MACEM_DATA names its folder; both
kinds, with the base-value rule and without. Distances are over the nearest that any setting found for the same problem;
`nearer` counts the problems in which a setting is nearer than the default. The search alone stands beside them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.preprocessing import OrdinalEncoder
from xgboost import XGBClassifier

import macem
from macem import datasets, refine

RESULTS = Path(__file__).parent / "results" / "beam.csv"
SETTINGS: dict[str, tuple[int, int]] = {  # width, and outward rounds without gain
    "beam of 4": (4, refine.ON_TABLE.patience),
    "beam of 4, 3 rounds without gain": (4, 3),
    "beam of 4, 8 rounds without gain": (4, 8),
    "beam of 8": (8, refine.ON_TABLE.patience),
    "beam of 24": (24, refine.ON_TABLE.patience),
    "beam of 48": (48, refine.ON_TABLE.patience),
    "search alone": (4, refine.ON_TABLE.patience),
}
DEFAULT = "beam of 4"
N_ROWS = 30
MODELS = {
    "random forest 100": RandomForestClassifier(n_jobs=1, random_state=0),
    "XGBoost 100": XGBClassifier(n_estimators=100, n_jobs=1, random_state=0),
}


def tables() -> Iterator[tuple[str, pd.DataFrame, Any, list[str]]]:
    """Name, table, classes and categorical columns of each data set."""
    X, y = datasets.load_german_credit()
    names = [name for name in X if X[name].dtype.kind not in "if"]
    codes = OrdinalEncoder().fit_transform(X[names])
    yield "German Credit", X.assign(**dict(zip(names, codes.T, strict=True))), (y == "good").astype(int), names
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    yield "breast cancer", X, y, []
    made, y = make_classification(3000, 20, n_informative=10, random_state=0)
    yield "made up", pd.DataFrame(made).rename(columns=str), y, []
    if "MACEM_DATA" in os.environ:
        X, y = datasets.load_heloc()
        yield "HELOC", X, pd.factorize(y, sort=True)[0], []


def explained(setting: str, model: Any, X: pd.DataFrame, rows: pd.DataFrame, names: list[str]) -> np.ndarray:
    """Distances of both kinds, with the rule and without; NaN where none was found."""
    width, patience = SETTINGS[setting]
    refine.ON_TABLE = refine.ON_TABLE._replace(patience=patience)
    distances = []
    for away in (True, False):
        options = macem.SearchOptions(beam_width=width, away_from_base=away, refine=setting != "search alone")
        explainer = macem.Explainer(model, X, categorical=names, options=options)
        distances.append(explainer.explain(rows).summary()["distance"].to_numpy(float))
    return np.concatenate(distances)


def main() -> None:
    """Explain the same rows in every setting, and write what each costs and finds."""
    lines = []
    for dataset, X, y, names in tables():
        rows = X.sample(N_ROWS, random_state=0)
        for model_name, model in MODELS.items():
            model.fit(X, y)
            found, seconds = {}, {}
            for setting in SETTINGS:
                explained(setting, model, X, rows[:1], names)  # compiles, or loads from disk
                began = time.process_time()
                found[setting] = explained(setting, model, X, rows, names)
                seconds[setting] = (time.process_time() - began) / (4 * N_ROWS)
            best = np.fmin.reduce(list(found.values()))
            for setting, distance in found.items():
                line = {
                    "dataset": dataset,
                    "model": model_name,
                    "setting": setting,
                    "found": int(np.isfinite(distance).sum()),
                    "distance_over_best": np.nansum(distance) / best[np.isfinite(distance)].sum(),
                    "nearer": int((np.nan_to_num(distance, nan=np.inf) < found[DEFAULT] * (1 - 1e-9)).sum()),
                    "milliseconds": 1000.0 * seconds[setting],
                }
                print(*line.values(), flush=True)
                lines.append(line)
    pd.DataFrame(lines).to_csv(RESULTS, index=False, float_format="%.4g", lineterminator="\n")


if __name__ == "__main__":
    main()
