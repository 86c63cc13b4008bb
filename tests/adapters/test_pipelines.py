"""Pipelines fold to the bit: compared with the pipeline itself on the rows where a wrong fold would show."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)

from macem.adapters.check import boundaries
from macem.adapters.pipelines import PipelineOracle, pipeline_oracle
from macem.errors import MacemError
from macem.oracle import TreeOracle

NUMBERS = ["amount", "rate", "age"]
NAMES = ["city", "job"]
CODES = ["grade"]


def table(n_rows: int = 150, *, missing: bool = True, seed: int = 0) -> pd.DataFrame:
    """Numbers of three types, strings with awkward levels, integers that are categories, and a column that nobody needs."""
    random = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "city": random.choice(["Ulm", "nan", "", "Åbo", "x<=1"], n_rows, p=[0.4, 0.3, 0.15, 0.1, 0.05]),
            "amount": np.round(random.normal(3000.0, 1500.0, n_rows), 2),
            "grade": random.choice([1, 2, 3, 7], n_rows),
            "rate": random.normal(size=n_rows).astype(np.float32),
            "job": random.choice(["a", "b", "c"], n_rows),
            "age": random.integers(18, 90, n_rows),
            "note": [f"note {row}" for row in range(n_rows)],
        }
    )
    X[["city", "job", "note"]] = X[["city", "job", "note"]].astype(object)
    if missing:
        X.loc[random.random(n_rows) < 0.1, "amount"] = np.nan
        X.loc[random.random(n_rows) < 0.1, "city"] = np.nan
    return X


def labels(X: pd.DataFrame, n_classes: int = 2, seed: int = 1) -> np.ndarray[Any, Any]:
    score = (
        X["amount"].fillna(2500.0) / 1500.0 + X["rate"] + (X["city"] == "Ulm") * 1.5 - (X["grade"] == 3) + X["age"] / 40.0
    )
    score += np.random.default_rng(seed).normal(size=len(X))
    cuts = np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1])
    return np.array(["low", "mid", "top"])[np.searchsorted(cuts, score)]


def forest() -> Any:
    return RandomForestClassifier(15, random_state=0)


def boosting() -> Any:
    return GradientBoostingClassifier(n_estimators=15, random_state=0)


def histogram_boosting() -> Any:
    return HistGradientBoostingClassifier(max_iter=15, min_samples_leaf=5)


def xgboost() -> Any:
    library = pytest.importorskip("xgboost")
    return library.XGBClassifier(n_estimators=15, max_depth=4, n_jobs=1)


def lightgbm() -> Any:
    library = pytest.importorskip("lightgbm")
    return library.LGBMClassifier(n_estimators=15, min_child_samples=5, verbose=-1, n_jobs=1)


MODELS: dict[str, Callable[[], Any]] = {
    "forest": forest,
    "boosting": boosting,
    "histogram boosting": histogram_boosting,
    "xgboost": xgboost,
    "lightgbm": lightgbm,
}

IMPUTED = make_pipeline(SimpleImputer(), StandardScaler())
ONE_HOT = OneHotEncoder(handle_unknown="ignore", sparse_output=False)

# transformers of the categories in one part and of the numbers in another; each leaves no missing values
ENCODERS: dict[str, Callable[[], Any]] = {
    "one-hot, scaled": lambda: make_column_transformer(
        (ONE_HOT, NAMES + CODES), (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), NUMBERS)
    ),
    "one-hot in a sparse table": lambda: make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), NAMES + CODES), (IMPUTED, NUMBERS), sparse_threshold=1.0
    ),
    "first level dropped": lambda: make_column_transformer(
        (OneHotEncoder(drop="first", handle_unknown="ignore"), NAMES), (IMPUTED, NUMBERS), sparse_threshold=0.0
    ),
    "dropped if binary": lambda: make_column_transformer(
        (OneHotEncoder(drop="if_binary"), ["job", "grade"]), (SimpleImputer(), NUMBERS), verbose_feature_names_out=False
    ),
    "infrequent levels": lambda: make_column_transformer(
        (OneHotEncoder(min_frequency=0.2, handle_unknown="infrequent_if_exist", sparse_output=False), NAMES + CODES),
        (make_pipeline(SimpleImputer(), RobustScaler()), NUMBERS),
    ),
    "few levels kept": lambda: make_column_transformer(
        (OneHotEncoder(max_categories=3, handle_unknown="ignore", sparse_output=False), NAMES + CODES),
        (make_pipeline(SimpleImputer(), MaxAbsScaler()), NUMBERS),
    ),
    "imputed, then one-hot": lambda: make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="most_frequent"), ONE_HOT), NAMES),
        (make_pipeline(SimpleImputer(strategy="constant", fill_value="none"), ONE_HOT), ["city"]),
        (make_pipeline(SimpleImputer(add_indicator=True), MinMaxScaler()), NUMBERS),
    ),
    "ordinal": lambda: make_column_transformer(
        (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2), NAMES + CODES),
        (make_pipeline(SimpleImputer(), MinMaxScaler(clip=True)), NUMBERS),
        remainder="drop",
    ),
    "ordinal of integers": lambda: make_column_transformer(
        (OrdinalEncoder(dtype=np.int64), ["job", "grade"]), (SimpleImputer(strategy="most_frequent"), NUMBERS)
    ),
    "infrequent ordinal": lambda: make_column_transformer(
        (
            OrdinalEncoder(
                handle_unknown="use_encoded_value", unknown_value=9, min_frequency=0.2, encoded_missing_value=5
            ),
            NAMES,
        ),
        (SimpleImputer(), NUMBERS),
    ),
    "target": lambda: make_column_transformer(
        (TargetEncoder(cv=3), NAMES + CODES), (make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS)
    ),
    "remainder passed": lambda: ColumnTransformer(
        [("note", "drop", ["note"]), ("names", ONE_HOT, make_column_selector("city|job")), ("amount", SimpleImputer(), ["amount"])],
        remainder="passthrough",
    ),
    "remainder scaled": lambda: ColumnTransformer(
        [("names", ONE_HOT, NAMES), ("drop", "drop", ["note"])], remainder=make_pipeline(SimpleImputer(), StandardScaler())
    ),
    "as a DataFrame": lambda: make_column_transformer(
        (ONE_HOT, ["job"]), (OrdinalEncoder(encoded_missing_value=-2), ["city"]), (IMPUTED, NUMBERS)
    ).set_output(transform="pandas"),
    "selected": lambda: make_pipeline(
        make_column_transformer((ONE_HOT, NAMES), (SimpleImputer(), NUMBERS)), VarianceThreshold(0.1), SelectKBest(k=5)
    ),
    "scaled twice": lambda: make_pipeline(
        make_column_transformer((ONE_HOT, NAMES + CODES), (SimpleImputer(), NUMBERS)), StandardScaler(), MinMaxScaler()
    ),
    "united": lambda: make_column_transformer(
        (
            make_pipeline(
                SimpleImputer(), make_union(StandardScaler(), FunctionTransformer(), KBinsDiscretizer(4, encode="ordinal"))
            ),
            NUMBERS,
        ),
        (ONE_HOT, NAMES),
    ),
    "reversed": lambda: make_column_transformer(
        (make_pipeline(SimpleImputer(), FunctionTransformer(np.negative), StandardScaler()), NUMBERS), (ONE_HOT, NAMES)
    ),
    "binned one-hot": lambda: make_column_transformer(
        (KBinsDiscretizer(5, encode="onehot-dense"), ["rate", "age"]), (ONE_HOT, NAMES)
    ),
    "binarized": lambda: make_column_transformer((Binarizer(threshold=40), ["age"]), (SimpleImputer(), NUMBERS)),
    "power": lambda: make_column_transformer((make_pipeline(SimpleImputer(), PowerTransformer()), NUMBERS), (ONE_HOT, NAMES)),
    "quantile": lambda: make_column_transformer(
        (make_pipeline(SimpleImputer(), QuantileTransformer(n_quantiles=20)), NUMBERS), (ONE_HOT, NAMES)
    ),
    "frozen": lambda: make_column_transformer(
        (FrozenEstimator(StandardScaler().fit(table()[["rate", "age"]])), ["rate", "age"]), (ONE_HOT, NAMES)
    ),
}


def fitted(transformer: Any, model: Any, X: pd.DataFrame, n_classes: int = 2) -> Any:
    y = labels(X, n_classes)
    if type(model).__module__.startswith("xgboost"):  # takes labels 0, 1, … only
        y = np.searchsorted(np.unique(y), y)
    return make_pipeline(transformer, model).fit(X, y)


def folded(pipeline: Any) -> PipelineOracle:
    oracle = pipeline_oracle(pipeline)
    assert isinstance(oracle, PipelineOracle), getattr(oracle, "note", oracle)
    return oracle


def hard_rows(oracle: PipelineOracle, X: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The data; every threshold and its neighbours in the column's type; missing and unseen values in each column."""
    yield "data", X
    parts = []
    for name, edges in zip(X.columns, boundaries(oracle.for_table(X)), strict=True):
        if edges.size:
            exact = edges.astype(X[name].dtype)
            parts.append(X.iloc[np.arange(3 * edges.size) % len(X)].copy())
            parts[-1][name] = np.concatenate([exact, *neighbours(exact)])
    if parts:
        yield "thresholds", pd.concat(parts)
    odd = {name: [None, np.nan, "Atlantis"] if X[name].dtype == object else [np.nan, 5, 1e9, -1e9] for name in X}
    integers = [name for name in X if X[name].dtype.kind in "iu"]
    yield "odd values", with_cells(X, [(name, value) for name in odd if name not in integers for value in odd[name]])
    as_floats = X.astype(dict.fromkeys(integers, np.float64))
    yield "odd integers", with_cells(as_floats, [(name, value) for name in integers for value in odd[name]])


def with_cells(X: pd.DataFrame, cells: list[tuple[str, Any]]) -> pd.DataFrame:
    """Put each value into a row of its own."""
    rows = X.head(len(cells)).copy()
    for name in X:
        column = rows[name].to_numpy().copy()
        for row, (where, value) in enumerate(cells):
            if where == name:
                column[row] = value
        rows[name] = pd.Series(column, index=rows.index, dtype=X[name].dtype)
    return rows


def neighbours(numbers: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    if numbers.dtype.kind != "f":
        return [numbers - 1, numbers + 1]
    return [np.nextafter(numbers, numbers.dtype.type(limit)) for limit in (-np.inf, np.inf)]


def assert_equal(pipeline: Any, oracle: PipelineOracle, X: pd.DataFrame) -> None:
    for kind, rows in hard_rows(oracle, X):
        before = rows.copy()
        assert_equal_answers(pipeline, oracle, rows, kind)
        pd.testing.assert_frame_equal(rows, before)


def assert_equal_answers(pipeline: Any, oracle: TreeOracle, rows: Any, kind: str = "") -> None:
    """Equal to the bit; and what the pipeline refuses, the oracle refuses."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of unknown categories, and of overflows
            live = pipeline.predict_proba(rows)
    except (ValueError, TypeError):
        if len(rows) > 1:
            for row in range(len(rows)):
                assert_equal_answers(pipeline, oracle, rows[row : row + 1], f"{kind}, row {row}")
            return
        with pytest.raises(MacemError):
            oracle.predict_proba(rows)
        return
    np.testing.assert_array_equal(oracle.predict_proba(rows), live, err_msg=kind)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS)
def test_folds_to_the_bit(encoder: Callable[[], Any], model: Callable[[], Any]) -> None:
    X = table()
    try:
        pipeline = fitted(encoder(), model(), X)
    except TypeError as error:
        pytest.skip(f"the model takes no sparse tables: {error}")
    assert_equal(pipeline, folded(pipeline), X)
