"""Counterfactuals against those of other packages: ``python benchmarks/peers.py`` writes results/peers.csv.

Pertinent negatives without the base-value rule are counterfactuals. The same rows are given to treecf (exact and
genetic), NICE, DiCE and macem itself with a wide beam; each answer is checked with the model and measured alike: L1 in
units of each feature's range, and the number of changed features. Categories are ordinal codes, whole numbers to all.
`best` is, per row, the nearest answer of all. The other packages are those of ``pip install treecf NICEx`` and, because
its pins are older than what macem needs, of ``pip install --no-deps dice-ml raiutils jsonschema`` with what that asks
for; one that is not installed is left out. HELOC is read from the folder that MACEM_DATA names.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier

import macem

RESULTS = Path(__file__).resolve().parent / "results" / "peers.csv"
LONG_RUN = 192  # beam width
TIE = 1e-6  # a probability this close to a half may be decided either way
DATASETS = {
    "German Credit": macem.datasets.load_german_credit,
    "breast cancer": macem.datasets.load_breast_cancer,
    "HELOC": macem.datasets.load_heloc,
}
MODELS: dict[str, Callable[[], Any]] = {
    "random forest 100": lambda: RandomForestClassifier(n_jobs=1, random_state=0),
    "XGBoost 100": lambda: XGBClassifier(n_jobs=1, random_state=0),
    "LightGBM 100": lambda: LGBMClassifier(n_jobs=1, random_state=0, verbosity=-1),
}
Counterfactual = Callable[[np.ndarray, int], Any]
"""The nearest row of the other class that a method finds for a row of class 0 or 1, or None."""


class Task:
    """A model, its background, and what its features may be."""

    def __init__(self, X: pd.DataFrame, y: np.ndarray, model: Any) -> None:
        self.X, self.y, self.model = X, y, model.fit(X, y)
        self.options = macem.SearchOptions(away_from_base=False, category_cost=1.0)
        self.features = macem.Explainer(self.model, X).features
        self.low, self.high = X.min().to_numpy(float), X.max().to_numpy(float)
        self.range = np.where(self.high > self.low, self.high - self.low, 1.0)

    def frame(self, rows: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame(np.atleast_2d(rows), columns=self.X.columns).astype(self.X.dtypes)

    def probabilities(self, rows: np.ndarray) -> np.ndarray:
        return np.array(self.model.predict_proba(self.frame(rows)), dtype=float)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict(self.frame(rows)))


def macem_method(task: Task, beam_width: int) -> Counterfactual:
    options = macem.SearchOptions(away_from_base=False, category_cost=1.0, beam_width=beam_width)
    explainer = macem.Explainer(task.model, task.X, options=options)

    def find(row: np.ndarray, label: int) -> Any:
        values = explainer.explain(task.frame(row), kinds=("negative",))[0].negative.values
        return None if values is None else values.to_numpy(float)

    return find


def treecf_method(task: Task, backend: str, seconds: float) -> Counterfactual:
    import treecf

    decimals = dict(zip(task.X.columns, task.features.decimals, strict=True))
    explainer = treecf.Explainer(
        task.model,
        normalizers=dict(zip(task.X.columns, task.range, strict=True)),
        constraints=[
            treecf.Range(name, low, high) for name, low, high in zip(task.X.columns, task.low, task.high, strict=True)
        ],
        value_policy={
            name: "integer" if places == 0 else treecf.Grid(10.0**-places)
            for name, places in decimals.items()
            if places >= 0
        },
    )
    # a forest's raw output is its probability already, and treecf wants it called raw
    space = treecf.Target.raw if isinstance(task.model, RandomForestClassifier) else treecf.Target.probability
    targets = [space(op=op, value=0.5 + gap) for op, gap in ((">=", TIE), ("<=", -TIE))]

    def find(row: np.ndarray, label: int) -> Any:
        answer = explainer.explain(row, targets[label], backend=backend, time_budget_s=seconds, seed=0)
        return getattr(answer, "x_cf", None)

    return find


def nice_method(task: Task) -> Counterfactual:
    from nice import NICE

    explainer = NICE(task.probabilities, np.array(task.X, float), [], y_train=task.y, optimization="proximity")
    return lambda row, label: explainer.explain(row[None].copy(), target_class="other")[0]


def dice_method(task: Task) -> Counterfactual:
    import dice_ml

    data = dice_ml.Data(
        dataframe=task.X.astype(float).assign(label=task.y), continuous_features=list(task.X), outcome_name="label"
    )
    explainer = dice_ml.Dice(data, dice_ml.Model(model=task.model, backend="sklearn"), method="random")

    def find(row: np.ndarray, label: int) -> Any:
        query = pd.DataFrame(row[None], columns=task.X.columns)
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            answer = explainer.generate_counterfactuals(query, 4, desired_class=1 - label, random_seed=0)
        found = answer.cf_examples_list[0].final_cfs_df[list(task.X)].to_numpy(float)
        valid = found[task.predict(found) != label]
        return None if not len(valid) else valid[(np.abs(valid - row) / task.range).sum(axis=1).argmin()]

    return find


def methods(task: Task, seconds: float) -> Iterator[tuple[str, Counterfactual]]:
    yield "macem", macem_method(task, macem.SearchOptions().beam_width)
    yield f"macem, beam of {LONG_RUN}", macem_method(task, LONG_RUN)
    if find_spec("treecf"):
        yield f"treecf exact, {seconds:g} s", treecf_method(task, "exact", seconds)
        yield f"treecf genetic, {seconds:g} s", treecf_method(task, "genetic", seconds)
    if find_spec("nice"):
        yield "NICE", nice_method(task)
    if find_spec("dice_ml"):
        yield "DiCE", dice_method(task)


def measure(task: Task, rows: np.ndarray, seconds: float) -> pd.DataFrame:
    """Every method on every row: L1, changed features, seconds."""
    lines = []
    labels = task.predict(rows)
    for method, find in methods(task, seconds):
        for at, (row, label) in enumerate(zip(rows, labels, strict=True)):
            began = time.perf_counter()
            try:
                found = find(row, int(label))
            except Exception as error:  # another package's failure is its result
                print(f"{method}, row {at}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                found = None
            taken = time.perf_counter() - began
            found = None if found is None or task.predict(found)[0] == label else np.asarray(found, float)
            gap = np.full(row.size, np.nan) if found is None else np.abs(found - row) / task.range
            lines.append((method, at, gap.sum(), (gap > 0).sum() if found is not None else np.nan, taken))
    return pd.DataFrame(lines, columns=["method", "row", "l1", "changed", "seconds"])


def summary(answers: pd.DataFrame) -> pd.DataFrame:
    """Per method, the sums over the rows it answered over those of the best answers to the same rows."""
    best = answers.loc[answers.groupby("row")["l1"].idxmin().dropna()].set_index("row")
    lines = []
    for method, own in answers.groupby("method", sort=False):
        found = own.dropna()
        theirs = best.loc[found["row"]]
        lines.append(
            {
                "method": method,
                "rows": len(own),
                "found": len(found),
                "l1": found["l1"].mean(),
                "l1_over_best": found["l1"].sum() / theirs["l1"].sum(),
                "changed": found["changed"].mean(),
                "changed_over_best": found["changed"].sum() / theirs["changed"].sum(),
                "seconds": own["seconds"].median(),
            }
        )
    return pd.DataFrame(lines)


def ordinal(X: pd.DataFrame) -> pd.DataFrame:
    """Text becomes its level's number, most frequent first; columns are named by position, as all packages accept."""
    columns = {}
    for at, name in enumerate(X):
        column = X[name]
        if not pd.api.types.is_numeric_dtype(column):
            order = {level: code for code, level in enumerate(column.value_counts().index)}
            column = column.map(order).astype(np.int64)
        columns[f"f{at}"] = column.to_numpy()
    return pd.DataFrame(columns)


def main() -> None:
    """Measure, print and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5, help="budget of treecf for one row")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    results = []
    for dataset, load in DATASETS.items():
        X, y = load()
        X, y = ordinal(X), np.unique(y, return_inverse=True)[1]
        X_train, X_test, y_train, _ = train_test_split(X, y, random_state=0, stratify=y)
        X_train = X_train.reset_index(drop=True)
        inside = (X_test >= X_train.min()).all(axis=1) & (X_test <= X_train.max()).all(axis=1)
        rows = X_test[inside].head(arguments.rows).to_numpy(float)
        for name, make in MODELS.items():
            answers = measure(Task(X_train, y_train, make()), rows, arguments.seconds)
            lines = summary(answers)
            lines.insert(0, "model", name)
            lines.insert(0, "dataset", dataset)
            print(lines.to_string(index=False), flush=True)
            results.append(lines)
            RESULTS.parent.mkdir(exist_ok=True)
            pd.concat(results).to_csv(RESULTS, index=False, float_format="%.4g", lineterminator="\n")


if __name__ == "__main__":
    main()
