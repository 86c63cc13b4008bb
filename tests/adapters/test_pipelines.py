"""Pipelines fold to the bit: compared with the pipeline itself on the rows where a wrong fold would show."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from sklearn.tree import DecisionTreeClassifier

from macem import Explainer
from macem.adapters import oracle_for
from macem.adapters.check import boundaries, hard_tables
from macem.adapters.composed import ComposedOracle
from macem.adapters.pipelines import PipelineOracle, pipeline_oracle
from macem.errors import DataError, MacemError, UnsupportedModelError
from macem.oracle import BlackBoxOracle, TreeOracle

NUMBERS = ["amount", "rate", "age"]
NAMES = ["city", "job"]
CODES = ["grade"]


def table(n_rows: int = 150, *, missing: bool = True, seed: int = 0) -> pd.DataFrame:
    """Numbers of three types, strings with awkward levels, integers as categories, and a column that nobody needs."""
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
        X["amount"].fillna(2500.0) / 1500.0
        + X["rate"]
        + (X["city"] == "Ulm") * 1.5
        - (X["grade"] == 3)
        + X["age"] / 40.0
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
        [
            ("note", "drop", ["note"]),
            ("names", ONE_HOT, make_column_selector("city|job")),
            ("amount", SimpleImputer(), ["amount"]),
        ],
        remainder="passthrough",
    ),
    "remainder scaled": lambda: ColumnTransformer(
        [("names", ONE_HOT, NAMES), ("drop", "drop", ["note"])],
        remainder=make_pipeline(SimpleImputer(), StandardScaler()),
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
                SimpleImputer(),
                make_union(StandardScaler(), FunctionTransformer(), KBinsDiscretizer(4, encode="ordinal")),
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
    "power": lambda: make_column_transformer(
        (make_pipeline(SimpleImputer(), PowerTransformer()), NUMBERS), (ONE_HOT, NAMES)
    ),
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


def pairs() -> list[tuple[str, str]]:
    """Every encoder before a model of each precision, in turn; those that models read differently, before all."""
    single, double = ["forest", "boosting", "xgboost"], ["histogram boosting", "lightgbm"]
    before_all = {"one-hot, scaled", "one-hot in a sparse table", "as a DataFrame"}
    return [
        (encoder, model)
        for place, encoder in enumerate(ENCODERS)
        for model in (MODELS if encoder in before_all else [single[place % 3], double[place % 2]])
        if (encoder, model) != ("one-hot in a sparse table", "histogram boosting")  # it takes no such table
    ]


@pytest.mark.parametrize(("encoder", "model"), pairs())
def test_folds_to_the_bit(encoder: str, model: str) -> None:
    X = table()
    pipeline = fitted(ENCODERS[encoder](), MODELS[model](), X)
    assert_equal(pipeline, folded(pipeline), X)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_three_classes(model: Callable[[], Any]) -> None:
    X = table()
    encoder = make_column_transformer((TargetEncoder(cv=3), NAMES + CODES), (IMPUTED, NUMBERS))
    pipeline = fitted(encoder, model(), X, n_classes=3)
    assert_equal(pipeline, folded(pipeline), X)


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "int64", "int16", "uint8", "bool", "Int64", "Float64"]
)
@pytest.mark.parametrize("model", [forest, histogram_boosting, xgboost, lightgbm], ids=lambda model: model.__name__)
def test_numbers_of_every_type(dtype: str, model: Callable[[], Any]) -> None:
    """Scalers calculate in the type of the column."""
    random = np.random.default_rng(3)
    X = pd.DataFrame(random.integers(0, 2 if dtype == "bool" else 200, size=(200, 3)), columns=["a", "b", "c"])
    if dtype.lower().startswith("float"):
        X /= 7.0
    X = X.astype(dtype)
    y = (X["a"].astype(float) + X["b"].astype(float) > X["c"].astype(float)).to_numpy().astype(int)
    encoder = make_column_transformer((StandardScaler(), ["a"]), (MinMaxScaler(), ["b"]), remainder="passthrough")
    pipeline = make_pipeline(encoder, model()).fit(X, y)
    oracle = folded(pipeline)
    parts = [X]
    for name, edges in zip(X.columns, boundaries(oracle.for_table(X)), strict=True):
        plain = np.dtype(dtype.lower())
        exact = np.unique(edges.clip(0, 200).astype(plain))
        beside = [exact] if plain.kind == "b" else [exact, *(number.astype(plain) for number in neighbours(exact))]
        values = np.concatenate(beside)
        rows = X.iloc[np.arange(values.size) % len(X)].copy()
        rows[name] = pd.array(values, dtype=dtype) if dtype[0].isupper() else values
        parts.append(rows)
    assert_equal_answers(pipeline, oracle, pd.concat(parts))


def test_each_type_has_a_table_of_its_own() -> None:
    X = table(missing=False)[["rate", "amount"]]
    pipeline = fitted_on(make_pipeline(StandardScaler(), forest()), X)
    oracle = folded(pipeline)
    assert oracle.for_table(X) is not oracle.for_table(X.astype("float32"))
    assert oracle.for_table(X.astype("float64")) is oracle
    assert oracle.for_table(X.astype("float64").astype("int64")) is oracle
    assert_equal_answers(pipeline, oracle, X.astype("float32"))


def test_integers_that_stay_integers_up_to_the_model() -> None:
    """LightGBM reads a table of integers as float32, one of float64 as it is."""
    random = np.random.default_rng(0)
    X = pd.DataFrame({"a": 16777214 + random.integers(0, 8, 300), "b": random.integers(0, 5, 300)})
    y = (X["a"] > 16777217).astype(int)
    pipeline = make_pipeline(ColumnTransformer([("all", "passthrough", ["a", "b"])]), lightgbm()).fit(X, y)
    oracle = folded(pipeline)
    assert oracle.for_table(X) is not oracle.for_table(X.astype(float))
    assert_equal_answers(pipeline, oracle, X)
    assert_equal_answers(pipeline, oracle, X.astype(float))


def fitted_on(pipeline: Any, X: Any) -> Any:
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
    numbers = frame.select_dtypes("number").sum(axis=1)
    return pipeline.fit(X, (numbers > numbers.median()).astype(int))


@pytest.mark.parametrize("missing_value", [0.0, -999.0])
def test_numbers_that_the_model_takes_for_missing(missing_value: float) -> None:
    library = pytest.importorskip("xgboost")
    X = table(missing=False)
    X.loc[X.index % 4 == 0, ["rate", "amount"]] = missing_value
    model = library.XGBClassifier(n_estimators=10, max_depth=4, missing=missing_value, n_jobs=1)
    encoder = make_column_transformer((OrdinalEncoder(), NAMES), (StandardScaler(), ["age"]), remainder="passthrough")
    pipeline = fitted(encoder, model, X.drop(columns="note"))
    assert_equal(pipeline, folded(pipeline), X.drop(columns="note"))


def test_zeros_that_the_model_takes_for_missing() -> None:
    library = pytest.importorskip("lightgbm")
    X = table(missing=False)
    X.loc[X.index % 4 == 0, ["rate", "amount"]] = 0.0
    model = library.LGBMClassifier(n_estimators=10, min_child_samples=5, zero_as_missing=True, verbose=-1, n_jobs=1)
    encoder = make_column_transformer(
        (OrdinalEncoder(), NAMES), (StandardScaler(), ["age"]), ("passthrough", ["rate", "amount"])
    )
    pipeline = fitted(encoder, model, X)
    assert_equal(pipeline, folded(pipeline), X)


def test_a_marker_for_missing_values() -> None:
    X = table(missing=False)
    X.loc[X.index % 5 == 0, "age"] = -1
    X.loc[X.index % 5 == 1, "grade"] = -1
    X.loc[X.index % 5 == 2, "city"] = "?"
    encoder = make_column_transformer(
        (make_pipeline(SimpleImputer(missing_values=-1, add_indicator=True), StandardScaler()), ["age"]),
        (make_pipeline(SimpleImputer(missing_values=-1, strategy="most_frequent"), ONE_HOT), ["grade"]),
        (make_pipeline(SimpleImputer(missing_values="?", strategy="most_frequent"), ONE_HOT), ["city"]),
        (MissingIndicator(missing_values=-1), ["age"]),
    )
    pipeline = fitted(encoder, forest(), X)
    assert_equal(pipeline, folded(pipeline), X)


def test_missing_values_have_a_category_of_their_own() -> None:
    X = table()
    X.loc[X.index % 7 == 0, "city"] = None  # beside NaN
    encoder = make_column_transformer((OneHotEncoder(sparse_output=False), ["city"]), (OrdinalEncoder(), ["job"]))
    pipeline = fitted(encoder, forest(), X)
    assert_equal(pipeline, folded(pipeline), X)


def test_a_function_that_is_monotone() -> None:
    X = table(missing=False)
    X["amount"] = X["amount"].abs()
    encoder = make_column_transformer(
        (FunctionTransformer(np.sqrt), ["amount"]), (FunctionTransformer(np.arctan), ["rate"])
    )
    pipeline = fitted(encoder, forest(), X)
    assert_equal(pipeline, folded(pipeline), X)


def test_a_union_with_weights() -> None:
    X = table(missing=False)[["rate", "age"]]
    union = FeatureUnion(
        [("a", StandardScaler()), ("b", "passthrough"), ("c", "drop")], transformer_weights={"a": -2.0, "b": 3.0}
    )
    pipeline = fitted_on(make_pipeline(union, forest()), X)
    oracle = folded(pipeline)
    for _, rows in hard_rows(oracle, X):
        assert_equal_answers(pipeline, oracle, rows)


@pytest.mark.parametrize("encoder", [ONE_HOT, OrdinalEncoder(encoded_missing_value=-1), TargetEncoder(cv=2)])
def test_integers_that_stand_in_a_column_of_objects(encoder: Any) -> None:
    """As a database gives them where some are missing; scikit-learn's encoders then take no array of integers."""
    X = table()[["grade", "amount"]].astype({"grade": object})
    X.loc[X.index % 5 == 0, "grade"] = None
    y = (X["grade"] == 3) | (X["amount"] > 3500.0)
    pipeline = make_pipeline(make_column_transformer((encoder, ["grade"]), (SimpleImputer(), ["amount"])), forest())
    oracle = folded(pipeline.fit(X, y))
    assert_equal_answers(pipeline, oracle, X)
    assert_equal_answers(pipeline, oracle, X.assign(grade=pd.Series(["other", 9, *X["grade"][2:]], dtype=object)))


def test_whole_numbers_as_objects_in_a_category_that_the_model_reads() -> None:
    X = table()[["grade", "amount"]]
    levels = pd.Index([1, 2, 3, 7], dtype=object)
    X["grade"] = pd.Categorical(X["grade"].where(X.index % 5 > 0).astype(object), categories=levels)
    keep = make_column_transformer((SimpleImputer(), ["amount"]), ("passthrough", ["grade"]))
    pipeline = make_pipeline(keep.set_output(transform="pandas"), histogram_boosting_of_categories())
    oracle = folded(pipeline.fit(X, X["amount"].fillna(0.0) + 2000.0 * (X["grade"] == 3) > 3500.0))
    assert_equal_answers(pipeline, oracle, X)


@pytest.mark.parametrize("dtype", ["str", "category", "object"])
@pytest.mark.parametrize("n_rows", [1, 20, 500])
def test_strings_of_every_type(dtype: str, n_rows: int) -> None:
    X = table(500)
    X[NAMES] = X[NAMES].astype(dtype)
    pipeline = fitted(ENCODERS["one-hot, scaled"](), forest(), X)
    oracle = folded(pipeline)
    rows = X.head(n_rows).iloc[::-1]
    assert_equal_answers(pipeline, oracle, rows)
    assert_equal_answers(pipeline, oracle, rows.assign(city=pd.Series("Atlantis", rows.index, dtype=dtype)))
    assert_equal_answers(pipeline, oracle, rows.assign(city=pd.Series(np.nan, rows.index, dtype=X["city"].dtype)))


def with_categories() -> pd.DataFrame:
    """Texts and integers as pandas categories; some are missing, and one column has a level that no row has."""
    X = (
        table().drop(columns="note").replace({"Åbo": "Oslo", "x<=1": "Bern", "nan": "Kiel"})
    )  # libraries have their limits
    X = X.astype(dict.fromkeys(NAMES + CODES, "category"))
    X["job"] = X["job"].cat.add_categories("never")
    return X


def histogram_boosting_of_categories() -> Any:
    return HistGradientBoostingClassifier(max_iter=15, min_samples_leaf=5, categorical_features="from_dtype")


def xgboost_of_categories() -> Any:
    library = pytest.importorskip("xgboost")
    return library.XGBClassifier(n_estimators=15, max_depth=4, n_jobs=1, enable_categorical=True)


CATEGORICAL_MODELS: dict[str, Callable[[], Any]] = {
    "histogram boosting": histogram_boosting_of_categories,
    "xgboost": xgboost_of_categories,
    "lightgbm": lightgbm,
}

KEEP = {
    "passed": lambda: make_column_transformer((IMPUTED, NUMBERS), ("passthrough", NAMES + CODES)),
    "selected by type": lambda: make_column_transformer(
        (SimpleImputer(), make_column_selector(dtype_include="number")),
        ("passthrough", make_column_selector(dtype_include="category")),
    ),
    "also encoded": lambda: make_column_transformer((ONE_HOT, ["city"]), ("passthrough", NAMES + CODES + NUMBERS)),
}


@pytest.mark.parametrize("model", CATEGORICAL_MODELS.values(), ids=CATEGORICAL_MODELS)
@pytest.mark.parametrize("keep", KEEP.values(), ids=KEEP)
def test_categories_that_the_model_reads_itself(keep: Callable[[], Any], model: Callable[[], Any]) -> None:
    X = with_categories()
    transformer = keep().set_output(transform="pandas")
    pipeline = fitted(transformer, model(), X)
    oracle = folded(pipeline)
    assert oracle.ensemble.n_codes[[X.columns.get_loc(name) for name in NAMES + CODES]].any()
    asked = [X, X.iloc[::-1]]
    asked += [X.assign(**{name: X[name].cat.reorder_categories(X[name].cat.categories[::-1])}) for name in NAMES]
    asked += [X.assign(**{name: pd.Series(None, X.index, dtype=X[name].dtype)}) for name in NAMES + CODES]
    hard = dict(hard_tables(oracle.for_table(X), X))
    unseen = hard.pop("unseen level")
    if "xgboost" in type(pipeline[-1]).__module__:  # before 3.4 it takes them for its first category
        for row in range(len(unseen)):
            with pytest.raises(DataError, match="was not fitted on"):
                oracle.predict_proba(unseen[row : row + 1])
    else:
        asked.append(unseen)
    for rows in [*asked, *hard.values()]:
        assert_equal_answers(pipeline, oracle, rows)


@pytest.mark.parametrize("names", [True, False], ids=["DataFrame", "array"])
def test_texts_that_the_model_reads_itself(names: bool) -> None:
    """HistGradientBoosting encodes texts, too, if told which columns hold them."""
    X = table()[["city", "job", "amount", "age"]]
    encoder = make_column_transformer((IMPUTED, [2, 3]), remainder="passthrough")
    model = HistGradientBoostingClassifier(max_iter=15, min_samples_leaf=5, categorical_features=[2, 3])
    y = (X["amount"].fillna(2500.0) + 1000.0 * (X["city"] == "Ulm") > 3000.0).astype(int)
    rows: Any = X if names else X.to_numpy(dtype=object)
    pipeline = make_pipeline(encoder, model).fit(rows, y)
    oracle = folded(pipeline)
    unseen = X.assign(city="Atlantis", job=None)
    for asked in (rows, rows[:1], unseen if names else unseen.to_numpy(dtype=object)):
        assert_equal_answers(pipeline, oracle, asked)


def test_numbers_that_the_model_takes_for_categories_are_a_black_box_with_a_reason() -> None:
    library = pytest.importorskip("lightgbm")
    X = table(missing=False)[["grade", "amount"]]
    model = library.LGBMClassifier(
        n_estimators=5, min_child_samples=5, verbose=-1, min_data_per_group=5, categorical_feature=[0]
    )
    pipeline = make_pipeline(make_column_transformer(("passthrough", ["grade", "amount"])), model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LightGBM speaks of its aliases
        pipeline.fit(X, (X["grade"] == 3) | (X["amount"] > 4000.0))
    oracle = pipeline_oracle(pipeline)
    assert isinstance(oracle, BlackBoxOracle)
    assert "takes the numbers of column 'grade' for codes of categories" in oracle.note
    np.testing.assert_array_equal(oracle.predict_proba(X), pipeline.predict_proba(X))


def test_transformers_and_model_that_know_different_categories_are_a_black_box_with_a_reason() -> None:
    X = with_categories()[["city", "age"]]
    known = [[*X["city"].cat.categories, "Rome"]]
    encoder = make_column_transformer(
        (OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False), ["city"]),
        ("passthrough", ["city", "age"]),
    )
    pipeline = make_pipeline(encoder.set_output(transform="pandas"), xgboost_of_categories())
    pipeline.fit(X, X["age"] > 40 + 10 * (X["city"] == "Ulm"))
    oracle = pipeline_oracle(pipeline)
    assert isinstance(oracle, BlackBoxOracle)
    assert re.search("refuses values that it should take: .* holds the category 'Rome'", oracle.note)
    np.testing.assert_array_equal(oracle.predict_proba(X), pipeline.predict_proba(X))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_arrays(dtype: Any) -> None:
    """Columns by position; a table of one type."""
    random = np.random.default_rng(0)
    X = np.round(random.normal(size=(200, 4)) * 3).astype(np.float64)
    X[:, 3] = random.integers(0, 4, 200)
    X = X.astype(dtype)
    encoder = make_column_transformer((ONE_HOT, [3]), (StandardScaler(), slice(0, 2)), remainder="passthrough")
    pipeline = make_pipeline(encoder, forest()).fit(X, (X[:, 0] + X[:, 3] > X[:, 1]).astype(int))
    oracle = folded(pipeline)
    assert oracle.feature_names is None
    for rows in (X, np.asfortranarray(X), X[:0], np.vstack([X[:5], X[:5] + 7])):
        if len(rows):
            assert_equal_answers(pipeline, oracle, rows)
        else:
            assert oracle.predict_proba(rows).shape == (0, 2)


def test_arrays_with_strings() -> None:
    X = table(missing=False)[["city", "rate", "grade", "amount"]].to_numpy(dtype=object)
    encoder = make_column_transformer((ONE_HOT, [0]), (OrdinalEncoder(), [2]), (StandardScaler(), [1, 3]))
    pipeline = make_pipeline(encoder, forest()).fit(X, (X[:, 1] + X[:, 2] > 1).astype(int))
    oracle = folded(pipeline)
    assert_equal_answers(pipeline, oracle, X)
    unknown = X[:4].copy()
    unknown[:, 0] = "Atlantis"
    assert_equal_answers(pipeline, oracle, unknown)


def test_columns_are_matched_by_name() -> None:
    X = table()
    pipeline = fitted(ENCODERS["one-hot, scaled"](), forest(), X)
    oracle = folded(pipeline)
    expected = pipeline.predict_proba(X)
    np.testing.assert_array_equal(oracle.predict_proba(X[X.columns[::-1]].assign(other=1)), expected)
    np.testing.assert_array_equal(oracle.predict_proba(X.drop(columns="note")), expected)  # a column that is dropped
    np.testing.assert_array_equal(oracle.predict_proba(X.assign(note=[[]] * len(X))), expected)
    with pytest.raises(DataError, match=r"lacks columns.*\['age'\]"):
        oracle.predict_proba(X.drop(columns="age"))


def test_what_the_pipeline_refuses_is_named() -> None:
    X = table(missing=False)
    encoder = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), NUMBERS))
    oracle = folded(fitted(encoder, forest(), X))
    with pytest.raises(DataError, match=r"'city' holds the value 'Atlantis'"):
        oracle.predict_proba(X.assign(city="Atlantis"))
    with pytest.raises(DataError, match=r"'city' holds a missing value"):
        oracle.predict_proba(X.assign(city=None))
    with pytest.raises(DataError, match=r"'amount' holds no numbers"):
        oracle.predict_proba(X.assign(amount="much"))
    with pytest.raises(DataError, match=r"'amount' holds no numbers: it holds datetime64"):
        oracle.predict_proba(X.assign(amount=pd.Timestamp("2020-01-01")))
    with pytest.raises(DataError, match=r"'city' holds no categories: unhashable"):
        oracle.predict_proba(X.assign(city=[["Ulm"]] * len(X)))


def test_pipelines_within_pipelines() -> None:
    X = table()
    encoder = make_column_transformer((ONE_HOT, NAMES), (IMPUTED, NUMBERS))
    inner = make_pipeline(MinMaxScaler(), make_pipeline(StandardScaler(), forest()))
    pipeline = fitted(make_pipeline(encoder, "passthrough"), inner, X)
    assert_equal(pipeline, folded(pipeline), X)


def voted() -> Any:
    """A model that is several pipelines."""
    members = [(str(n), make_pipeline(MinMaxScaler(), RandomForestClassifier(n, random_state=n))) for n in (5, 9)]
    return VotingClassifier(members, voting="soft")


@pytest.mark.parametrize("inner", [lambda: make_pipeline(MinMaxScaler(), forest()), voted], ids=["pipeline", "voting"])
def test_the_inner_of_two_pipelines_calculates_in_the_type_that_the_outer_gives(inner: Callable[[], Any]) -> None:
    X = np.random.default_rng(0).normal(size=(150, 3)).astype(np.float32)
    pipeline = make_pipeline(StandardScaler(), inner()).fit(X, X[:, 0] + X[:, 1] ** 2 > 0.5)
    oracle = folded(pipeline).for_table(X)
    for kind, rows in hard_tables(oracle, X):
        assert_equal_answers(pipeline, oracle, rows, kind)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_pipelines_whose_mean_is_taken_in_float32(dtype: Any) -> None:
    X = np.random.default_rng(0).normal(size=(150, 3)).astype(dtype)
    members = [
        (str(depth), make_pipeline(StandardScaler(), xgboost().set_params(max_depth=depth))) for depth in (2, 3, 4)
    ]
    model = VotingClassifier(members, voting="soft").fit(X, X[:, 0] + X[:, 1] ** 2 > 0.5)
    oracle = oracle_for(model)
    assert isinstance(oracle, TreeOracle)
    np.testing.assert_array_equal(oracle.predict_proba(X), model.predict_proba(X))


def test_samplers_do_nothing_when_the_pipeline_is_asked() -> None:
    pytest.importorskip("imblearn")
    from imblearn.over_sampling import RandomOverSampler
    from imblearn.pipeline import make_pipeline as make_sampling_pipeline

    X = table()
    pipeline = make_sampling_pipeline(ENCODERS["one-hot, scaled"](), RandomOverSampler(random_state=0), forest())
    pipeline.fit(X, labels(X))
    assert_equal(pipeline, folded(pipeline), X)


@pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting' is deprecated")  # read by category_encoders
@pytest.mark.parametrize("encoder", ["TargetEncoder", "CountEncoder", "OrdinalEncoder"])
def test_category_encoders(encoder: str) -> None:
    library = pytest.importorskip("category_encoders")
    X = table().drop(columns="note")
    first = getattr(library, encoder)(cols=["city", "job"])
    pipeline = make_pipeline(first, SimpleImputer(), forest()).fit(X, np.searchsorted(["low", "mid"], labels(X)))
    assert_equal(pipeline, folded(pipeline), X)


class Doubler(TransformerMixin, BaseEstimator):
    """A transformer of somebody else."""

    def fit(self, X: Any, y: Any = None) -> Doubler:
        self.fitted_ = True
        return self

    def transform(self, X: Any) -> Any:
        return 2 * X


class OwnScaler(StandardScaler):
    """A subclass, which may do anything."""


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([PCA(2), forest()], "PCA"),
        ([PolynomialFeatures(), forest()], "PolynomialFeatures"),
        ([Doubler(), forest()], "Doubler"),
        ([OwnScaler(), forest()], "OwnScaler"),
        ([FunctionTransformer(lambda X: X[:, ::-1]), forest()], r"FunctionTransformer\(<lambda>\)"),
        (
            [StandardScaler(), OneHotEncoder(handle_unknown="ignore", sparse_output=False), forest()],
            "OneHotEncoder looks for",
        ),
        ([StandardScaler(), LogisticRegression()], "LogisticRegression"),
        (
            [make_union(OrdinalEncoder(), StandardScaler()), DecisionTreeClassifier(random_state=0)],
            "both as a number and encoded",
        ),
    ],
)
def test_what_does_not_fold_is_a_black_box_that_says_why(steps: list[Any], reason: str) -> None:
    random = np.random.default_rng(0)
    X = random.integers(0, 9, size=(90, 3)).astype(float)
    pipeline = make_pipeline(*steps).fit(X, X[:, 0] + X[:, 1] > 8)
    oracle = pipeline_oracle(pipeline)
    assert isinstance(oracle, BlackBoxOracle)
    assert oracle.ensemble is None
    assert re.search(reason, oracle.note), oracle.note
    np.testing.assert_array_equal(oracle.predict_proba(X), pipeline.predict_proba(X))


@pytest.mark.parametrize(
    "composite",
    [
        StackingClassifier([("a", RandomForestClassifier(10, random_state=0))], cv=2),
        CalibratedClassifierCV(RandomForestClassifier(10, random_state=0), cv=2, method="isotonic"),
    ],
)
def test_before_a_composite_its_members_tables_are_asked(composite: Any) -> None:
    X = table()
    pipeline = fitted(ENCODERS["one-hot, scaled"](), composite, X)
    oracle = pickle.loads(pickle.dumps(pipeline_oracle(pipeline)))
    assert isinstance(oracle, ComposedOracle)
    assert oracle.note == getattr(oracle_for(pipeline[-1]), "note", "")
    np.testing.assert_array_equal(oracle.predict_proba(X), pipeline.predict_proba(X))
    np.testing.assert_array_equal(oracle.live.predict_proba(X), pipeline.predict_proba(X))


def test_without_transformers_the_model_itself_is_read() -> None:
    X = table(missing=False)[["rate", "age"]]
    pipeline = fitted_on(make_pipeline("passthrough", forest()), X)
    oracle = pipeline_oracle(pipeline)
    assert isinstance(oracle, TreeOracle)
    assert oracle.live.model is pipeline  # type: ignore[attr-defined]
    assert_equal_answers(pipeline, oracle, X)


def test_pickles_and_serves_threads() -> None:
    X = table()
    pipeline = fitted(ENCODERS["one-hot, scaled"](), forest(), X)
    oracle = folded(pipeline)
    expected = pipeline.predict_proba(X)
    again = pickle.loads(pickle.dumps(oracle))
    np.testing.assert_array_equal(again.predict_proba(X), expected)
    fresh = folded(pipeline)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: fresh.predict_proba(X.astype({"amount": "float32"})), range(8)))
    for answer in answers:
        np.testing.assert_array_equal(answer, answers[0])


def test_folds_at_every_tree_of_german_credit(german_credit: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = german_credit
    names = list(X.select_dtypes(exclude="number"))
    encoder = make_column_transformer((ONE_HOT, names), remainder=StandardScaler())
    pipeline = make_pipeline(encoder, ExtraTreesClassifier(30, random_state=0)).fit(X[:700], y[:700])
    oracle = folded(pipeline)
    assert oracle.ensemble.n_codes[[X.columns.get_loc(name) for name in names]].all()
    np.testing.assert_array_equal(oracle.predict_proba(X), pipeline.predict_proba(X))
    codes = oracle.read(X)
    assert ((codes >= 0) & (codes == np.floor(codes))).all()


TEXTS = [f"{word} {animal}" for word in ("good", "bad", "fine") for animal in ("dog", "cat")] * 10


@pytest.mark.parametrize("vectorizer", [CountVectorizer(), TfidfVectorizer(), HashingVectorizer(n_features=32)])
@pytest.mark.parametrize("model", [LogisticRegression(), RandomForestClassifier(5, random_state=0)])
def test_a_pipeline_of_texts_is_refused_and_the_remedy_works(vectorizer: Any, model: Any) -> None:
    pipeline = make_pipeline("passthrough", vectorizer, MaxAbsScaler(), model).fit(TEXTS, [0, 1, 1] * 20)
    searched = GridSearchCV(make_pipeline(vectorizer, model), {}, cv=2).fit(TEXTS, [0, 1, 1] * 20)
    for refused in (pipeline, searched):
        with pytest.raises(UnsupportedModelError, match=rf"begins with {type(vectorizer).__name__}, .* list of texts"):
            oracle_for(refused)
    words = pipeline[1].transform(TEXTS).toarray()
    np.testing.assert_array_equal(oracle_for(pipeline[2:]).predict_proba(words), pipeline.predict_proba(TEXTS))


def test_a_table_that_is_not_used_is_not_told_of() -> None:
    X = pd.DataFrame({"n": np.tile([0, 1, 2, 3], 10), "c": np.tile(["a", "b"], 20)})
    model = make_pipeline(OrdinalEncoder(), DecisionTreeClassifier(random_state=0)).fit(X, X["n"] > 1)
    told = Explainer(model, X).describe()
    assert told.endswith("because the model takes the numbers of 'n' as categories; declare it categorical.")
    told = Explainer(model, X, categorical=["n", "c"]).describe()
    assert told.endswith("The pipeline is folded into the table of its DecisionTreeClassifier.")
