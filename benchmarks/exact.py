"""Contrasts of depth-5 trees against the exact optimum: ``python benchmarks/exact.py [--quick]``.

Writes ``benchmarks/results/exact.csv``: for each data set, encoding (both where there are categories, else there is one
coordinate per number in either), kind and method ("refined", or the paper's "search" alone)
how many of the rows have an example (`exist`) and for how many one was found, the mean cost and number of changed
features over those of the exact optimum on the rows found, and the shares that the model itself confirms as shown, that
it confirms after float32, CSV and JSON, and that obey every rule (base values, ranges, grid).
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import macem
from macem import Status, datasets

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results"
sys.path.insert(0, str(REPOSITORY))

from tests.exact import Column, ExactTree, exact_for  # noqa: E402  (the solver of the tests)

DATASETS = ("german_credit", "heloc", "vertebral", "breast_cancer", "wine", "sdss")
SPECIAL_VALUES = {"heloc": {"*": [-9, -8, -7]}}
CATEGORICAL = {"heloc": ["MaxDelq2PublicRecLast12M", "MaxDelqEver"]}  # codes of what happened, by their documentation
METHODS = {"refined": macem.SearchOptions(), "search": macem.SearchOptions(refine=False)}


def main() -> None:
    """Measure every data set and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10 rows of two data sets, printed and not written")
    quick = parser.parse_args().quick
    lines = []
    for dataset in DATASETS[:3:2] if quick else DATASETS:
        lines.extend(measure(dataset, 10 if quick else 100))
    table = pd.DataFrame(lines)
    print(table.to_string(index=False))
    if not quick:
        RESULTS.mkdir(exist_ok=True)
        table.to_csv(RESULTS / "exact.csv", index=False, float_format="%.6g")


def measure(dataset: str, n_rows: int) -> list[dict[str, Any]]:
    """One line per encoding, kind and method."""
    X, y = getattr(datasets, f"load_{dataset}")()
    X_train, X_test, y_train, _ = train_test_split(X, y, test_size=max(100, len(X) // 4), random_state=0, stratify=y)
    X_test = X_test.iloc[:n_rows]
    model = fitted_tree(X_train, y_train)
    rows = [tuple(row) for row in X_test.astype(object).itertuples(index=False)]
    given = {"special_values": SPECIAL_VALUES.get(dataset), "categorical": CATEGORICAL.get(dataset)}
    lines = []
    for encoding in ("fma", "ssa"):
        explainers = {
            method: macem.Explainer(model, X_train, encoding=encoding, options=options, **given)
            for method, options in METHODS.items()
        }
        features = explainers["refined"].features
        if encoding == "ssa" and "categorical" not in features.kinds:
            continue
        exact = exact_for(explainers["refined"], model[-1], tree_columns(model, X_train))
        optima = {kind: [exact.solve(row, kind) for row in rows] for kind in ("positive", "negative")}
        for method, explainer in explainers.items():
            explanations = explainer.explain(X_test)
            for kind, theirs in optima.items():
                contrasts = [getattr(explanation, kind) for explanation in explanations]
                line = {"dataset": dataset, "encoding": encoding, "kind": kind, "method": method, "rows": len(rows)}
                lines.append(line | compare(model, exact, kind, X_test, rows, theirs, contrasts))
    return lines


def compare(
    model: Any, exact: ExactTree, kind: str, X: pd.DataFrame, rows: list[Any], optima: list[Any], contrasts: list[Any]
) -> dict[str, Any]:
    """What was found against what exists."""
    found = [at for at, contrast in enumerate(contrasts) if contrast.status is Status.FOUND]
    assert all(optima[at] is not None for at in found), "an example was found where the exact solver knows of none"
    shown = X.iloc[found].copy()
    examples = [tuple(contrasts[at].values) for at in found]
    for place, name in enumerate(X.columns):
        shown[name] = pd.array([example[place] for example in examples], dtype=X.dtypes.iloc[place])
    obeyed = [
        all(exact.feasible(f, rows[at][f], value, kind) for f, value in enumerate(example))
        for at, example in zip(found, examples, strict=True)
    ]
    costs = [exact.total(rows[at], example, kind) for at, example in zip(found, examples, strict=True)]
    least = [optima[at].cost for at in found]
    return {
        "exist": sum(optimum is not None for optimum in optima),
        "found": len(found),
        "cost_over_exact": ratio(costs, least),
        "changed_over_exact": ratio([contrasts[at].n_changed for at in found], [optima[at].n_changed for at in found]),
        "valid": float(np.mean(is_valid(model, kind, X.iloc[found], shown))),
        "valid_after_round_trips": float(
            np.mean([is_valid(model, kind, X.iloc[found], same) for same in round_trips(shown)])
        ),
        "rules_held": float(np.mean(obeyed)),
    }


def is_valid(model: Any, kind: str, X: pd.DataFrame, shown: pd.DataFrame) -> np.ndarray:
    """Whether the model's own predict keeps (positive) or leaves (negative) the class of each row."""
    same = model.predict(X) == model.predict(shown)
    return same if kind == "positive" else ~same


def round_trips(shown: pd.DataFrame) -> list[pd.DataFrame]:
    """The same table after float32, CSV and JSON."""
    numeric = shown.select_dtypes("number").columns
    csv, lines = shown.to_csv(index=False), shown.to_json(orient="records", lines=True, double_precision=15)
    return [
        shown.astype(dict.fromkeys(numeric, np.float32)),
        pd.read_csv(io.StringIO(csv), keep_default_na=False, dtype=dict(shown.dtypes)),
        pd.read_json(io.StringIO(lines), orient="records", lines=True, dtype=dict(shown.dtypes)),
    ]


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Mean over mean; 1 where both are zero."""
    return float(np.sum(ours) / np.sum(theirs)) if np.sum(theirs) else float(1.0 if not np.sum(ours) else np.inf)


def fitted_tree(X: pd.DataFrame, y: pd.Series) -> Any:
    """A CART of depth 5; strings are one-hot encoded in a Pipeline."""
    texts = make_column_selector(dtype_exclude="number")
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), texts), remainder="passthrough")
    return make_pipeline(columns, DecisionTreeClassifier(max_depth=5, random_state=0)).fit(X, y)


def tree_columns(model: Any, X: pd.DataFrame) -> list[Column]:
    """What the columns of the tree show of the features."""
    places = {name: at for at, name in enumerate(X.columns)}
    texts = list(X.select_dtypes(exclude="number").columns)
    columns = []
    if texts:
        levels = model[0].named_transformers_["onehotencoder"].categories_
        columns = [Column(places[name], level) for name, theirs in zip(texts, levels, strict=True) for level in theirs]
    return columns + [Column(places[name]) for name in X.columns if name not in texts]


if __name__ == "__main__":
    main()
