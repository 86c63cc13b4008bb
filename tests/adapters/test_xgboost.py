"""XGBoost models read into tables: equal to the library's own answers, to the bit."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from macem.adapters.xgboost import XGBoostAdapter, load
from macem.errors import DataError, MacemWarning, ModelError, UnsupportedModelError
from macem.oracle import BlackBoxOracle, TreeOracle
from macem.testing import AdapterConformance, Case

xgboost = pytest.importorskip("xgboost")

INSTALLED = tuple(map(int, xgboost.__version__.split(".")[:2]))
stores_categories = pytest.mark.skipif(INSTALLED < (3, 1), reason="XGBoost stores categories from 3.1 on")

N_ROWS, N_FEATURES = 800, 5
SPECIAL = [
    np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-50, -1e-50, 1e-44, -1e-44, 1e-36, -1e-36, 3.5e38, 1e39, -1e39,
    2.0**24 + 1, 2.0**53 + 2, -999.0, -1.0, -0.5, 0.1, 1.0, 1.9999, 2.0, 5.0,
]  # fmt: skip


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_FEATURES))
    X[:, 3] = np.round(X[:, 3])  # zeros and repeated numbers
    X[rng.random(X.shape) < 0.08] = np.nan
    score = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) * np.nan_to_num(X[:, 2]) + (X[:, 3] > 0)
    return X, score


X, SCORE = data()
BINARY = (np.median(SCORE) < SCORE).astype(int)
THREE = np.digitize(SCORE, np.quantile(SCORE, [0.3, 0.7]))
TWELVE = np.digitize(SCORE, np.quantile(SCORE, np.linspace(0, 1, 13)[1:-1]))


def fit(y=BINARY, X=X, kind=xgboost.XGBClassifier, **options):
    with warnings.catch_warnings(action="ignore"):  # XGBoost 3.4 calls some boosters and classes deprecated
        return kind(**({"n_estimators": 12, "n_jobs": 1, "random_state": 0} | options)).fit(X, y)


def early(**options):
    model = xgboost.XGBClassifier(n_estimators=200, early_stopping_rounds=3, learning_rate=0.5, n_jobs=1, **options)
    with warnings.catch_warnings(action="ignore"):
        return model.fit(X[:400], BINARY[:400], eval_set=[(X[400:], BINARY[400:])], verbose=False)


def continued():
    """A model whose best iteration survived a second training."""
    first = early()
    model = xgboost.XGBClassifier(n_estimators=5, n_jobs=1).fit(X, BINARY, xgb_model=first.get_booster())
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    return model


def train(objective, y=BINARY, X=X, rounds=12, **options):
    with warnings.catch_warnings(action="ignore"):
        return xgboost.train({"objective": objective, "nthread": 1, "seed": 0} | options, xgboost.DMatrix(X, y), rounds)


FILLED = np.nan_to_num(X)
CODED = np.nan_to_num(X, nan=-999.0)
MODELS = {
    "binary": lambda: fit(),
    "exact": lambda: fit(tree_method="exact"),
    "approx": lambda: fit(tree_method="approx"),
    "best-first": lambda: fit(grow_policy="lossguide", max_leaves=40, max_depth=0),
    "pruned": lambda: fit(tree_method="exact", gamma=3.0),
    "monotone": lambda: fit(monotone_constraints=(1, 0, 0, 0, -1)),
    "deep": lambda: fit(max_depth=12, min_child_weight=0.0),
    "stumps": lambda: fit(max_depth=1),
    "leaves only": lambda: fit(gamma=1e9),
    "subsampled": lambda: fit(subsample=0.5, colsample_bytree=0.5),
    "base_score": lambda: fit(base_score=0.3),
    "base_score near 0": lambda: fit(base_score=1e-9),
    "base_score of the data": lambda: fit((SCORE > 1.5).astype(int)),
    "weighted": lambda: fit(scale_pos_weight=7.0),
    "reg:logistic": lambda: fit(objective="reg:logistic"),
    "hinge": lambda: fit(objective="binary:hinge"),
    "three classes": lambda: fit(THREE),
    "three classes, base_score": lambda: fit(THREE, base_score=0.3),
    "twelve classes": lambda: fit(TWELVE, n_estimators=4),
    "two classes, softprob": lambda: fit(objective="multi:softprob", num_class=2),
    "softmax": lambda: fit(THREE, objective="multi:softmax"),
    "softmax of twelve": lambda: fit(TWELVE, n_estimators=4, objective="multi:softmax"),
    "vector leaves": lambda: fit(THREE, multi_strategy="multi_output_tree"),
    "vector leaves, base_score": lambda: fit(THREE, multi_strategy="multi_output_tree", base_score=0.3),
    "dart": lambda: fit(booster="dart", rate_drop=0.4, base_score=0.4),
    "dart, three classes": lambda: fit(THREE, booster="dart", rate_drop=0.4),
    "dart, normalised by forest": lambda: fit(booster="dart", rate_drop=0.4, normalize_type="forest"),
    "random forest": lambda: fit(kind=xgboost.XGBRFClassifier),
    "random forest, three classes": lambda: fit(THREE, kind=xgboost.XGBRFClassifier),
    "boosted forests": lambda: fit(num_parallel_tree=3, n_estimators=4, subsample=0.5),
    "missing 0": lambda: fit(X=FILLED, missing=0.0),
    "missing -999": lambda: fit(X=CODED, missing=-999.0),
    "missing 0.1": lambda: fit(X=np.where(np.isnan(X), 0.1, X), missing=0.1),
    "missing inf": lambda: fit(X=FILLED, missing=np.inf),
    "early stopping": early,
    "early stopping, dart": lambda: early(booster="dart", rate_drop=0.2),
    "continued": continued,
    "integers": lambda: fit(X=np.round(FILLED * 5).astype(np.int64)),
    "one class": lambda: fit(np.zeros(N_ROWS, int), base_score=0.5),
    "booster": lambda: train("binary:logistic"),
    "booster, hinge": lambda: train("binary:hinge"),
    "booster, softprob": lambda: train("multi:softprob", THREE, num_class=3),
    "booster, softmax": lambda: train("multi:softmax", THREE, num_class=3),
    "booster, dart": lambda: train("binary:logistic", booster="dart", rate_drop=0.4),
    "booster, early stopping": lambda: early().get_booster(),
}


def probabilities(model):
    """Ask a model as its library's documentation says."""
    if not isinstance(model, xgboost.Booster):
        return model.predict_proba

    def ask(table):
        from scipy.special import softmax

        softmax_objective = json.loads(model.save_config())["learner"]["objective"]["name"] == "multi:softmax"
        answer = model.inplace_predict(table, predict_type="margin" if softmax_objective else "value")
        if softmax_objective:
            return softmax(answer, axis=1)
        return answer if answer.ndim == 2 else np.stack([1 - answer, answer], axis=1)

    return ask


def hard_rows(oracle, n_rows=1500):
    """Rows of the data, brought to the threshold of a node on their way, beside it, or where numbers are special."""
    rng = np.random.default_rng(7)
    rows = X[rng.integers(0, N_ROWS, n_rows), : oracle.n_features]
    trees = oracle.members[0].trees
    for row in rows:
        special = rng.random(row.size) < 0.1
        row[special] = rng.choice(SPECIAL, special.sum())
        tree = trees[rng.integers(len(trees))]
        way = path(tree, row)
        if way:
            node = way[rng.integers(len(way))]
            row[tree.feature[node]] = rng.choice(around(tree.threshold[node]))
    return rows


def path(tree, row):
    """Return the inner nodes on the way of a row."""
    node, way = 0, []
    while tree.feature[node] >= 0:
        way.append(node)
        number = np.float32(row[tree.feature[node]]) if abs(row[tree.feature[node]]) < 1e38 else row[tree.feature[node]]
        left = tree.missing_left[node] if np.isnan(number) else number <= tree.threshold[node]
        node = tree.left[node] if left else tree.right[node]
    return way


def around(threshold):
    """Return the two float32 that a split tells apart, their neighbours, and numbers that are rounded to either."""
    below, infinity = np.float32(threshold), np.float32(np.inf)
    split = np.nextafter(below, infinity)
    steps = [np.nextafter(below, -infinity), below, split, np.nextafter(split, infinity)]
    exact = [float(step) for step in steps]
    middles = [(exact[0] + exact[1]) / 2, (exact[1] + exact[2]) / 2, (exact[2] + exact[3]) / 2]
    return [*exact, *middles, *(np.nextafter(middles[1], to) for to in (-np.inf, np.inf))]


@pytest.mark.parametrize("name", MODELS)
def test_bit_equal_on_hard_rows(name):
    model = MODELS[name]()
    oracle = XGBoostAdapter().oracle(model)
    assert isinstance(oracle, TreeOracle)
    rows = hard_rows(oracle)
    expected = np.asarray(probabilities(model)(rows), dtype=np.float64)
    np.testing.assert_array_equal(oracle.predict_proba(rows), expected)
    np.testing.assert_array_equal(oracle.live.predict_proba(rows), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(oracle)).predict_proba(rows), expected)
    one_by_one = [oracle.predict_proba(rows[row : row + 1]) for row in range(20)]
    np.testing.assert_array_equal(np.concatenate(one_by_one), expected[:20])


def test_hard_rows_tell_neighbours_apart():
    """So that the test above sees a threshold that is one step off, and ties that are rounded the other way."""
    oracle = XGBoostAdapter().oracle(MODELS["binary"]())
    rows = hard_rows(oracle)
    answer = oracle.predict_proba(rows)
    assert np.unique(answer[:, 1]).size > 300
    with np.errstate(over="ignore"):
        rounded = rows.astype(np.float32)
        for other in (np.nextafter(rounded, np.float32(np.inf)), np.nextafter(rounded, np.float32(-np.inf))):
            assert (oracle.predict_proba(other) != answer).any(axis=1).sum() > 100


# Form of the table


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "longdouble", "int8", "int64", "uint64", "bool", "object"]
)
def test_dtypes_of_arrays(dtype):
    model = fit(X=np.round(FILLED * 3))
    rows = np.abs(np.round(FILLED * 3)).astype(dtype)
    np.testing.assert_array_equal(XGBoostAdapter().oracle(model).predict_proba(rows), model.predict_proba(rows))


def test_int64_is_rounded_to_float32_once():
    """2^60 + 2^36 + 1 is just above the middle of two float32; through float64 it would be the middle, and go down."""
    number = 2**60 + 2**36 + 1
    assert np.float32(np.int64(number)) != np.float32(np.float64(number))
    column = np.repeat([2**60, 2**60 + 2**37], 50)
    model = fit((column > 2**60).astype(int), column[:, None], tree_method="exact", n_estimators=1, min_child_weight=0)
    oracle = XGBoostAdapter().oracle(model)
    rows = np.full((1, 1), number, dtype=np.int64)
    assert oracle.predict_proba(rows)[0, 1] > 0.5
    for table in (rows, pd.DataFrame(rows)):
        np.testing.assert_array_equal(oracle.predict_proba(table), model.predict_proba(table))


@pytest.mark.parametrize("layout", ["fortran", "read-only", "strided", "reversed", "swapped bytes"])
def test_memory_layouts(layout):
    model = fit()
    oracle = XGBoostAdapter().oracle(model)
    table = {
        "fortran": np.asfortranarray(X),
        "read-only": X.copy(),
        "strided": np.repeat(X, 2, axis=1)[:, ::2],
        "reversed": np.ascontiguousarray(X[::-1])[::-1],
        "swapped bytes": X.astype(X.dtype.newbyteorder()),
    }[layout]
    table.flags.writeable = layout != "read-only"
    np.testing.assert_array_equal(oracle.predict_proba(table), model.predict_proba(X))


def test_dtypes_of_frames():
    numbers = np.round(FILLED * 3)
    frame = pd.DataFrame({
        "int64": numbers[:, 0].astype(np.int64),
        "Int64": pd.array(numbers[:, 1], dtype="Int64"),
        "Float32": pd.array(numbers[:, 2], dtype="Float32"),
        "bool": numbers[:, 3] > 0,
        "boolean": pd.array(numbers[:, 4] > 0, dtype="boolean"),
        "float32": X[:, 0].astype(np.float32),
        "float64": X[:, 1],
    })  # fmt: skip
    frame.loc[::7, ["Int64", "Float32", "boolean"]] = pd.NA
    model = fit(X=frame)
    oracle = XGBoostAdapter().oracle(model)
    assert oracle.feature_names == tuple(frame)
    np.testing.assert_array_equal(oracle.predict_proba(frame), model.predict_proba(frame))


FRAME = pd.DataFrame(X, columns=[*"abcde"])


def test_frame_is_read_by_name():
    model = fit(X=FRAME)
    oracle = XGBoostAdapter().oracle(model)
    expected = model.predict_proba(FRAME)
    other = FRAME[[*"ecabd"]].assign(beside=1.0)
    np.testing.assert_array_equal(oracle.predict_proba(other), expected)
    np.testing.assert_array_equal(oracle.live.predict_proba(other), expected)
    with pytest.raises(DataError, match=r"lacks columns that the model was trained on: \['c'\]"):
        oracle.predict_proba(FRAME.drop(columns="c"))


def test_frame_with_numbers_for_names_is_read_by_name():
    frame = pd.DataFrame(X)
    model = fit(X=frame)
    oracle = XGBoostAdapter().oracle(model)
    np.testing.assert_array_equal(oracle.predict_proba(frame[[4, 2, 0, 1, 3]]), model.predict_proba(frame))


def test_booster_of_a_frame_reads_arrays_by_position():
    booster = train("binary:logistic", X=FRAME)
    oracle = XGBoostAdapter().oracle(booster)
    np.testing.assert_array_equal(oracle.predict_proba(X), oracle.predict_proba(FRAME))
    np.testing.assert_array_equal(oracle.live.predict_proba(X), probabilities(booster)(X))
    np.testing.assert_array_equal(oracle.live.predict_proba(FRAME[[*"ecabd"]]), oracle.predict_proba(FRAME))


def test_booster_without_names_does_not_guess_the_columns_of_a_frame():
    oracle = XGBoostAdapter().oracle(train("binary:logistic"))
    for ask in (oracle.predict_proba, oracle.live.predict_proba):
        with pytest.raises(DataError, match=r"knows no feature names.*feature_names.*or give an array"):
            ask(FRAME[[*"ecabd"]])
    unnamed = pd.DataFrame(X)
    np.testing.assert_array_equal(oracle.predict_proba(unnamed), oracle.live.predict_proba(X))
    with pytest.raises(DataError, match="knows no feature names"):
        oracle.predict_proba(unnamed[[1, 0, 2, 3, 4]])


def test_classifier_without_names_reads_frames_by_position_as_it_does_itself():
    model = fit()
    np.testing.assert_array_equal(XGBoostAdapter().oracle(model).predict_proba(FRAME), model.predict_proba(FRAME))


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (X[:, :4], r"shape \(800, 4\), but the model takes \(n, 5\)"),
        (X[0], r"shape \(5,\)"),
        (np.full((1, 5), "high"), "no number"),
        (np.array([["high", 0, None, 1.0, 2]], dtype=object), "no number"),
        (pd.DataFrame([["high"] * 5]), r"Column 0 holds (str|object), but .* trained on a number"),
        (pd.DataFrame([[pd.Timestamp(2020, 1, 1)] * 5]), "Column 0 holds datetime64"),
        (pd.DataFrame([["high"] * 5], dtype="category"), "stores no categories"),
    ],
)
def test_unreadable_tables_are_refused(table, reason):
    with pytest.raises(DataError, match=reason):
        XGBoostAdapter().oracle(fit()).predict_proba(table)


# Categories


def categories():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({
        "number": X[:, 0],
        "letter": pd.Categorical(rng.choice([*"abcdefgh"], N_ROWS)),
        "code": pd.Categorical(rng.choice([3, 5, 9, 100], N_ROWS)),
        "count": rng.integers(0, 9, N_ROWS),
    })  # fmt: skip
    frame.loc[rng.random(N_ROWS) < 0.1, "letter"] = None
    frame.loc[rng.random(N_ROWS) < 0.1, "code"] = None
    score = frame["letter"].cat.codes * 37 % 5 + X[:, 1] + frame["code"].cat.codes * 7 % 3 + frame["count"] % 2
    return frame, np.nan_to_num(score, nan=1.0)


CATEGORIES, CATEGORY_SCORE = categories()
CATEGORICAL = {
    "partitions": {"max_cat_to_onehot": 1},
    "one-hot": {"max_cat_to_onehot": 100},
    "dart": {"booster": "dart", "rate_drop": 0.3, "max_cat_to_onehot": 4},
    "missing 0": {"missing": 0.0},
    "missing 2": {"missing": 2.0},
    "missing beyond the codes": {"missing": 8.0},
    "missing -999": {"missing": -999.0},
}


def fit_categories(y=None, **options):
    y = (np.median(CATEGORY_SCORE) < CATEGORY_SCORE).astype(int) if y is None else y
    return fit(y, CATEGORIES, enable_categorical=True, **options)


def recoded(**columns):
    return CATEGORIES.assign(**columns)


@stores_categories
@pytest.mark.parametrize("name", CATEGORICAL)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_categories(name, n_classes):
    inner = np.linspace(0, 1, n_classes + 1)[1:-1]
    y = np.digitize(CATEGORY_SCORE, np.quantile(CATEGORY_SCORE, inner))
    model = fit_categories(y, **CATEGORICAL[name])
    oracle = XGBoostAdapter().oracle(model)
    assert (oracle.ensemble.n_codes[[1, 2]] > 0).all()
    letters, codes = CATEGORIES["letter"].cat, CATEGORIES["code"].cat
    reversed_order = recoded(
        letter=letters.reorder_categories([*"hgfedcba"]), code=codes.reorder_categories([100, 3, 9, 5])
    )
    subset = recoded(letter=pd.Categorical(np.where(X[:, 0] > 0, "c", "f")))
    for frame in (CATEGORIES, reversed_order, subset, CATEGORIES[:0]):
        expected = model.predict_proba(frame) if len(frame) else np.empty((0, n_classes))
        np.testing.assert_array_equal(oracle.predict_proba(frame), expected)
        np.testing.assert_array_equal(oracle.live.predict_proba(frame), expected)

    rng = np.random.default_rng(5)
    array = np.column_stack([
        X[:, 0],
        rng.choice([-1, -0.5, -0.0, 0.5, 1.9999, 2, 7.99, 8, 9, 2**24 - 1, 2**24, np.nan, np.inf, -np.inf], N_ROWS),
        rng.choice([-1, -0.5, 0, 1, 2, 3, 3.99, 4, 5, 8, np.nan], N_ROWS),
        CATEGORIES["count"],
    ])  # fmt: skip
    np.testing.assert_array_equal(oracle.predict_proba(array), model.predict_proba(array))


def test_codes_without_stored_categories():
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 70, (N_ROWS, 2)).astype(float)  # more than one word of bits
    y = ((codes[:, 0] * 37 % 11 > 5) ^ (codes[:, 1] * 17 % 7 > 3)).astype(int)
    table = xgboost.DMatrix(codes, y, feature_types=["c", "c"])
    booster = xgboost.train({"objective": "binary:logistic", "nthread": 1, "max_cat_to_onehot": 1}, table, 8)
    oracle = XGBoostAdapter().oracle(booster)
    rows = rng.choice([-1, -0.5, 0, 1.9999, 31, 63, 64, 69, 70, 71, 1e6, 2**24, np.nan], (N_ROWS, 2))
    for array in (codes, rows):
        np.testing.assert_array_equal(oracle.predict_proba(array), probabilities(booster)(array))
    with pytest.raises(DataError, match="stores no categories"):
        oracle.predict_proba(pd.DataFrame(codes.astype(int)).astype("category"))


@stores_categories
@pytest.mark.parametrize("kind", ["classifier", "booster"])
def test_unseen_category_is_refused(kind):
    """XGBoost before 3.4 takes it for the first category, or raises, depending on the names."""
    model = fit_categories()
    oracle = XGBoostAdapter().oracle(model if kind == "classifier" else model.get_booster())
    letters = CATEGORIES["letter"].cat.add_categories(["z"])
    np.testing.assert_array_equal(oracle.predict_proba(recoded(letter=letters)), model.predict_proba(CATEGORIES))
    letters[7] = "z"
    for ask in (oracle.predict_proba, oracle.live.predict_proba):
        with pytest.raises(DataError, match=r"'letter' holds the category 'z', which the model never saw.*'a', 'b'"):
            ask(recoded(letter=letters))
        with pytest.raises(DataError, match="'code' holds the category '3'"):
            ask(recoded(code=CATEGORIES["code"].cat.rename_categories(str)))
        with pytest.raises(DataError, match="'letter' holds int8, but the model was trained on a pandas category"):
            ask(recoded(letter=CATEGORIES["letter"].cat.codes))


@stores_categories
def test_categories_that_the_library_garbles_are_left_to_it():
    frame = recoded(letter=CATEGORIES["letter"].cat.rename_categories({"a": "ä", "b": "ö"}))
    model = fit((np.median(CATEGORY_SCORE) < CATEGORY_SCORE).astype(int), frame, enable_categorical=True)
    if tuple(map(int, xgboost.__version__.split(".")[:2])) >= (3, 4):
        np.testing.assert_array_equal(XGBoostAdapter().oracle(model).predict_proba(frame), model.predict_proba(frame))
        return
    with pytest.warns(MacemWarning, match="letters beyond ASCII"):
        oracle = XGBoostAdapter().oracle(model)
    assert oracle.ensemble is None
    np.testing.assert_array_equal(oracle.predict_proba(frame), model.predict_proba(frame))


# Trees of an unusual make


def edited(model, change):
    """Load a model after a change to its JSON."""
    dump = json.loads(model.get_booster().save_raw("json"))
    change(dump)
    return xgboost.Booster(model_file=bytearray(json.dumps(dump).encode()))


LARGEST = float(np.finfo(np.float32).max)


def trees_of(dump):
    return dump["learner"]["gradient_booster"]["model"]["trees"]


@pytest.mark.parametrize("threshold", [-np.inf, -LARGEST, -1e-45, 0.0, 1e-45, LARGEST, np.inf])
def test_extreme_thresholds(threshold):
    def change(dump):
        for tree in trees_of(dump):
            tree["split_conditions"][0] = threshold

    booster = edited(fit(n_estimators=4), change)
    oracle = XGBoostAdapter().oracle(booster)
    rows = np.repeat(X[:200], 2, axis=0)
    rows[: len(SPECIAL) * 5] = np.repeat(SPECIAL, 5)[:, None]
    rows[1::2] = np.nextafter(np.float32(threshold), np.float32(-1))
    np.testing.assert_array_equal(oracle.predict_proba(rows), probabilities(booster)(rows))
    if np.isfinite(threshold):
        with np.errstate(over="ignore"):
            below = np.nextafter(np.float32(threshold), np.float32(-np.inf))
        assert {tree.threshold[0] for tree in oracle.members[0].trees} == {below}


def test_nodes_that_no_row_reaches():
    model = MODELS["pruned"]()
    trees = trees_of(json.loads(model.get_booster().save_raw("json")))
    assert any(int(tree["tree_param"]["num_deleted"]) > 0 for tree in trees)
    oracle = XGBoostAdapter().oracle(model)
    assert oracle.ensemble.values.shape[0] < sum(len(tree["left_children"]) for tree in trees)


def test_early_stopping_reads_the_best_iteration_and_a_booster_all():
    model = early()
    n_best, n_all = model.best_iteration + 1, model.get_booster().num_boosted_rounds()
    assert n_best < n_all
    assert len(XGBoostAdapter().oracle(model).members[0].trees) == n_best
    assert len(XGBoostAdapter().oracle(model.get_booster()).members[0].trees) == n_all


def test_table_is_summed_in_single_precision():
    oracle = XGBoostAdapter().oracle(fit(n_estimators=100))
    raw = oracle.raw_scores(X)
    assert (raw == raw.astype(np.float32)).all()
    assert (np.float32(raw) != np.float32(sum_in_double(oracle))).any()


def sum_in_double(oracle):
    from dataclasses import replace

    members = [replace(member, single=False) for member in oracle.members]
    return replace(oracle, members=members).raw_scores(X)


# Refused, or asked as a black box


class OwnProbabilities(xgboost.XGBClassifier):
    def predict_proba(self, X, **options):
        return np.full((len(X), 2), 0.5)


def logistic(y_true, y_pred):
    p = 1 / (1 + np.exp(-y_pred))
    return p - y_true, p * (1 - p)


REFUSED = {
    "regressor": (lambda: fit(kind=xgboost.XGBRegressor), "XGBRegressor.*is no classifier"),
    "forest of a regression": (lambda: fit(kind=xgboost.XGBRFRegressor), "is no classifier"),
    "ranker": (
        lambda: xgboost.XGBRanker(n_estimators=2).fit(X, BINARY, qid=np.zeros(N_ROWS, int)),
        "XGBRanker.*is no classifier",
    ),
    "booster of a regression": (lambda: train("reg:squarederror"), "'reg:squarederror', which gives no class prob"),
    "booster, reg:logistic": (lambda: train("reg:logistic"), r"'reg:logistic', which gives no(?!.*one of.*reg:)"),
    "booster, logitraw": (lambda: train("binary:logitraw"), "raw scores"),
    "booster of a ranking": (lambda: train("rank:pairwise"), "'rank:pairwise'"),
    "booster, counts": (lambda: train("count:poisson"), "'count:poisson'"),
    "booster with an objective of its own": (
        lambda: xgboost.train({}, xgboost.DMatrix(X, BINARY), 2, obj=lambda raw, d: logistic(d.get_label(), raw)),
        "for an objective of your own give a function",
    ),
    "logitraw": (lambda: fit(objective="binary:logitraw"), r"raw scores \(binary:logitraw\).*binary:logistic"),
    "custom objective": (lambda: fit(objective=logistic), r"custom objective \(logistic\).*Give a function"),
    "multi-label": (lambda: fit(np.column_stack([BINARY, 1 - BINARY])), "2 targets"),
    "multi-label, vector leaves": (
        lambda: fit(np.column_stack([BINARY, 1 - BINARY]), multi_strategy="multi_output_tree"),
        "2 targets",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, reason = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=reason):
        XGBoostAdapter().oracle(make())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: xgboost.XGBClassifier(), "XGBClassifier.*not fitted"),
        (lambda: xgboost.Booster(), "not trained"),
        (lambda: train("binary:logistic", rounds=0), "no trees"),
    ],
)
def test_untrained_models_are_refused(make, reason):
    with pytest.raises(ModelError, match=reason):
        XGBoostAdapter().oracle(make())


LINEAR = {
    "classifier": lambda: fit(FILLED[:, 0] > 0, FILLED, booster="gblinear"),
    "booster": lambda: train("binary:logistic", X=FILLED, booster="gblinear", rounds=3),
    "booster, softmax": lambda: train("multi:softmax", THREE, FILLED, booster="gblinear", rounds=3, num_class=3),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_booster_is_a_black_box(name):
    model = LINEAR[name]()
    oracle = XGBoostAdapter().oracle(model)
    assert isinstance(oracle, BlackBoxOracle)
    assert "linear" in oracle.note
    answer = oracle.predict_proba(FILLED)
    assert answer.shape == (N_ROWS, len(oracle.classes))
    if name == "classifier":
        np.testing.assert_array_equal(answer, model.predict_proba(FILLED))
    elif name == "booster":
        np.testing.assert_array_equal(answer[:, 1], model.predict(xgboost.DMatrix(FILLED)))
    else:
        np.testing.assert_array_equal(answer.argmax(axis=1), model.predict(xgboost.DMatrix(FILLED)))


def changed_objective():
    model = fit(THREE)
    model.objective = "multi:softmax"
    return model


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: fit(kind=OwnProbabilities), "predict_proba of its own"),
        (changed_objective, "'multi:softmax' is not the one it was trained with, 'multi:softprob'"),
    ],
)
def test_what_may_not_be_the_model_is_asked_as_a_black_box(make, reason):
    model = make()
    with pytest.warns(MacemWarning, match=reason):
        oracle = XGBoostAdapter().oracle(model)
    assert oracle.ensemble is None
    assert reason in oracle.note
    np.testing.assert_array_equal(oracle.predict_proba(X), model.predict_proba(X))


# Stored models


class Stored(xgboost.Booster):
    """A booster that says of itself what was stored, in the layout in which it was stored."""

    def __init__(self, dump):
        empty = json.loads(json.dumps(dump))
        booster = empty["learner"]["gradient_booster"]
        model = booster.get("gbtree", booster)["model"]
        model.update(trees=[], tree_info=[], iteration_indptr=[0])
        model["gbtree_model_param"]["num_trees"] = "0"
        booster.pop("weight_drop", None)
        model.pop("weight_drop", None)
        if booster["name"] == "dart":
            booster["weight_drop"] = []
        super().__init__(model_file=bytearray(json.dumps(empty).encode()))
        self.dump = dump

    def save_raw(self, raw_format="json"):
        return bytearray(json.dumps(self.dump).encode())


STORED = {
    (path.stem.removeprefix("xgboost-"), name): case
    for path in sorted((Path(__file__).parent / "data").glob("xgboost-*.json"))
    for name, case in json.loads(path.read_text()).items()
}


def version(text):
    return tuple(map(int, text.split(".")[:2]))


def check_stored(oracle, case):
    rows = np.array(case["rows"], dtype=np.float64)
    np.testing.assert_array_equal(oracle.raw_scores(rows), case["margins"])
    # one step, since the C library that computed the exponentials there may not be the one here
    answer = oracle.predict_proba(rows).astype(np.float32)
    np.testing.assert_array_max_ulp(answer, np.array(case["probabilities"], dtype=np.float32), maxulp=1)


@pytest.mark.parametrize("saved", STORED, ids=" ".join)
def test_stored_model_answers_as_the_version_that_wrote_it(saved, tmp_path):
    case = STORED[saved]
    if version(saved[0]) > INSTALLED:
        pytest.skip(f"XGBoost {xgboost.__version__} is older than the model")
    path = tmp_path / "model.json"
    path.write_text(json.dumps(case["model"]))
    if saved[1] == "vector leaves" and version(saved[0]) < (3, 2) <= INSTALLED:
        with pytest.raises(ModelError, match=r"layout before XGBoost 3\.2"):
            load(path)
        return
    model = xgboost.XGBClassifier()
    model.load_model(path)
    if saved[1] == "dart" and version(saved[0]) < (3, 4) <= INSTALLED:
        rows = np.array(case["rows"], dtype=np.float64)  # 3.4 rounds once less, and so answers older models otherwise
        case = case | {"margins": model.predict(rows, output_margin=True)[:, None]}
    check_stored(XGBoostAdapter().oracle(model), case)


@pytest.mark.parametrize("saved", STORED, ids=" ".join)
def test_stored_layout_is_read_as_it_stands(saved):
    if INSTALLED < (3, 1) <= version(saved[0]):
        pytest.skip("XGBoost before 3.1 knows no base score per class")
    stored = Stored(STORED[saved]["model"])
    if version(saved[0]) < (2, 0):
        with pytest.raises(UnsupportedModelError, match=r"XGBoost 1\.7\.6 is too old to be read"):
            XGBoostAdapter().oracle(stored)
        return
    check_stored(XGBoostAdapter().oracle(stored), STORED[saved])


def test_unknown_formats_are_asked_as_black_boxes():
    dump = json.loads(fit().get_booster().save_raw("json"))
    dump["version"] = [4, 0, 0]
    stored = Stored(dump)
    with pytest.warns(MacemWarning, match=r"model format of XGBoost 4\.0\.0 is newer"):
        oracle = XGBoostAdapter().oracle(stored)
    assert oracle.ensemble is None


def test_column_split_both_ways_is_asked_as_a_black_box():
    dump = json.loads(fit_categories(max_cat_to_onehot=1).get_booster().save_raw("json"))
    for tree in trees_of(dump):
        tree["split_indices"] = [1] * len(tree["split_indices"])
    with pytest.warns(MacemWarning, match="column 1 is split both by number and by category"):
        assert XGBoostAdapter().oracle(Stored(dump)).ensemble is None


# Files


@pytest.mark.parametrize("suffix", [".json", ".ubj"])
def test_load_classifier(tmp_path, suffix):
    model = early()
    path = tmp_path / f"model{suffix}"
    model.save_model(path)
    loaded = load(path)
    assert isinstance(loaded, xgboost.XGBClassifier)
    np.testing.assert_array_equal(XGBoostAdapter().oracle(loaded).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("suffix", [".json", ".ubj"])
def test_load_booster(tmp_path, suffix):
    booster = train("multi:softprob", THREE, num_class=3)
    path = str(tmp_path / f"model{suffix}")
    booster.save_model(path)
    loaded = load(path)
    assert isinstance(loaded, xgboost.Booster)
    np.testing.assert_array_equal(XGBoostAdapter().oracle(loaded).predict_proba(X), probabilities(booster)(X))


def test_loaded_regressor_is_refused(tmp_path):
    fit(kind=xgboost.XGBRegressor).save_model(tmp_path / "model.ubj")
    with pytest.raises(UnsupportedModelError, match="reg:squarederror"):
        XGBoostAdapter().oracle(load(tmp_path / "model.ubj"))


@pytest.mark.parametrize("content", [b"", b"{", b'{"learner": 1}', pickle.dumps("a pickle")])
def test_load_refuses_other_files(tmp_path, content):
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"cannot read the model file .*model\.json.*save_model"):
        load(path)
    with pytest.raises(ModelError, match="no model file"):
        load(tmp_path / "absent.ubj")


@pytest.mark.skipif(INSTALLED < (3, 2), reason="older versions load the file")
def test_load_refuses_the_binary_file_that_crashes_the_library(tmp_path):
    path = tmp_path / "model.ubj"
    fit(THREE, multi_strategy="multi_output_tree").save_model(path)
    assert isinstance(load(path), xgboost.XGBClassifier)
    path.write_bytes(path.read_bytes().replace(b"leaf_weights", b"leaf_wEights"))
    with pytest.raises(ModelError, match=r"layout before XGBoost 3\.2"):
        load(path)


# Conformance


def built(make, rows=X, **expected):
    def build():
        model = make()
        alone = isinstance(model, xgboost.Booster)
        return Case(model, rows, probabilities=probabilities(model) if alone else None, **expected)

    return build


NUMBERS = {"accepts_nan": True, "accepts_inf": True}


class TestConformance(AdapterConformance):
    package = "xgboost"
    adapter = XGBoostAdapter
    cases: ClassVar = {
        **{name: built(MODELS[name], **NUMBERS) for name in (
            "binary", "three classes", "softmax", "hinge", "dart", "vector leaves", "random forest", "missing -999",
            "early stopping", "booster", "booster, softmax",
        )},
        "frame": built(lambda: fit(X=FRAME), FRAME, **NUMBERS),
    }  # fmt: skip
    if INSTALLED < (3, 4):  # which warns when a linear booster is pickled
        cases["linear"] = built(LINEAR["classifier"], FILLED, table=False)
    if INSTALLED >= (3, 1):
        cases |= {
            "categories": built(fit_categories, CATEGORIES, **NUMBERS, accepts_missing_category=True),
            "booster of categories": built(
                lambda: fit_categories().get_booster(), CATEGORIES, **NUMBERS, accepts_missing_category=True
            ),
        }
