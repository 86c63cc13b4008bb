"""macem's conformance kit on CatBoost models of every kind, and the rules that are CatBoost's own."""

# ruff: noqa: D101, D103  (a test's name says what it shows)

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from macem.errors import DataError, MacemWarning, ModelError, UnsupportedModelError
from macem.testing import AdapterConformance, Case

catboost = pytest.importorskip("catboost")
macem_catboost = pytest.importorskip("macem_catboost")
CatBoostAdapter = macem_catboost.CatBoostAdapter

N_ROWS = 400


def frame(missing=False):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "a": rng.normal(size=N_ROWS),
            "city": rng.choice([f"city {'far ' * (place % 4)}{place}" for place in range(12)], N_ROWS),
            "b": np.round(rng.normal(size=N_ROWS), 1),
            "sex": rng.choice(["f", "m"], N_ROWS),
            "month": rng.integers(1, 13, N_ROWS),
        }
    )
    score = table["a"] + np.sin(3 * table["city"].str.len()) + table["month"] % 3 + (table["sex"] == "f")
    if missing:
        table.loc[rng.random(N_ROWS) < 0.2, "a"] = np.nan
    return table, np.digitize(score, np.quantile(score, [0.5, 0.8]))


def train(table, labels, **options):
    options = {"iterations": 30, "depth": 4, "max_ctr_complexity": 1, "random_seed": 0, "thread_count": 1} | options
    categorical = [name for name in ("city", "sex", "month") if name in table]
    model = catboost.CatBoostClassifier(**options, logging_level="Silent", allow_writing_files=False)
    return model.fit(table, labels, cat_features=categorical)


def case(n_classes=2, missing=False, **options):
    def make():
        table, labels = frame(missing)
        names = np.array(["low", "middle", "high"])[np.minimum(labels, n_classes - 1)]
        model = train(table, names, **options)
        # CatBoost's softmax has an exponential of its own, right to the last digits
        exact = n_classes == 2 or options.get("loss_function") == "MultiClassOneVsAll"
        unseen = {"accepts_nan": True, "accepts_inf": True, "accepts_unseen": True}
        return Case(model, table, bit_equal=exact, tolerance=1e-14, **unseen)

    return make


def numbers():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N_ROWS, 4))
    return Case(train(pd.DataFrame(X), X[:, 0] + X[:, 1] > 0.3), X, accepts_nan=True, accepts_inf=True)


class TestCatBoost(AdapterConformance):
    package = "catboost"
    adapter = CatBoostAdapter
    cases: ClassVar = {
        "numbers": numbers,
        "categories": case(),
        "missing values": case(missing=True),
        "missing values above all": case(missing=True, nan_mode="Max"),
        "three classes": case(3),
        "one against all": case(3, loss_function="MultiClassOneVsAll"),
        "one-hot": case(one_hot_max_size=20),
        "counters": case(one_hot_max_size=1, simple_ctr=["Counter"]),
        "buckets": case(3, one_hot_max_size=1, simple_ctr=["Buckets"]),
        "several label borders": case(3, one_hot_max_size=1, simple_ctr=["Borders:TargetBorderCount=2"]),
        "depthwise": case(missing=True, grow_policy="Depthwise"),
        "lossguide, three classes": case(3, grow_policy="Lossguide"),
    }


# CatBoost's own rules ------------------------------------------------------------------------------------------------


def answers_alike(model, table):
    np.testing.assert_array_equal(CatBoostAdapter().oracle(model).predict_proba(table), model.predict_proba(table))


def test_categories_of_any_length_are_hashed_as_catboost_hashes_them():
    letters = np.random.default_rng(0).choice(list("abcdefghij ü€"), (200, 200))
    words = ["".join(row[:size]) for size, row in enumerate(letters)]
    table = pd.DataFrame({"city": words * 3})
    model = train(
        table, np.tile(np.arange(200) % 2, 3), iterations=250, depth=1, one_hot_max_size=255, learning_rate=0.5
    )
    oracle = CatBoostAdapter().oracle(model)
    assert len(np.unique(oracle.read(table)[:, 0])) > 190  # nearly every word was asked for by some tree
    np.testing.assert_array_equal(oracle.predict_proba(table), model.predict_proba(table))


def test_categories_are_texts_and_whole_numbers():
    table, labels = frame()
    model = train(table, np.minimum(labels, 1))
    answers_alike(model, table.assign(month=table["month"].astype(str)))
    answers_alike(model, table.assign(month=table["month"].astype("Int64"), city=table["city"].astype("category")))
    answers_alike(model, table.assign(month=table["month"] > 6))
    answers_alike(model, table.to_numpy(dtype=object))
    answers_alike(model, table.to_numpy(dtype=object).tolist())
    for value in (1.0, np.nan, None):
        with pytest.raises(DataError, match="Column 3 holds the category"):
            CatBoostAdapter().oracle(model).predict_proba(table.assign(sex=[value] * N_ROWS))


def test_columns_are_read_by_name():
    table, labels = frame()
    model = train(table, np.minimum(labels, 1))
    answers_alike(model, table.assign(more=1)[["b", "city", "a", "sex", "month", "more"]])
    oracle = CatBoostAdapter().oracle(model)
    with pytest.raises(DataError, match="no column 'sex'"):
        oracle.predict_proba(table.drop(columns="sex"))
    with pytest.raises(DataError, match="4 columns"):
        oracle.predict_proba(table.to_numpy()[:, :4])


def test_a_model_of_an_array_reads_by_position():
    X = np.random.default_rng(1).normal(size=(N_ROWS, 3))
    model = train(X, X[:, 0] > X[:, 1])
    answers_alike(model, pd.DataFrame(X, columns=list("xyz")))
    answers_alike(model, pd.DataFrame(X)[[2, 1, 0]])


@pytest.mark.parametrize("form", [np.array, pd.DataFrame, lambda rows: np.array(rows, dtype=object), list])
@pytest.mark.parametrize("number", [2**24 + 1, 2**54 + 2**30 + 1, 1.0 + 2.0**-24, 1.0 + 2.0**-24 + 2.0**-50])
def test_numbers_are_rounded_once_or_twice_as_catboost_rounds_them(number, form):
    below, above = np.float32(number), np.nextafter(np.float32(number), np.float32(np.inf))
    for low, high in ((below, above), (np.nextafter(below, np.float32(0)), below)):
        X = np.repeat([low, high], 50)[:, None].astype(np.float64)
        answers_alike(train(X, np.repeat([0, 1], 50)), form([[number]]))


def test_a_scale_and_a_bias_set_by_hand():
    table, labels = frame()
    model = train(table, np.minimum(labels, 1))
    model.set_scale_and_bias(0.7, 0.3)
    copy = CatBoostAdapter().oracle(model).predict_proba(table)
    np.testing.assert_allclose(copy, model.predict_proba(table), rtol=0, atol=1e-15)
    model.set_scale_and_bias(1.0, -0.4)
    answers_alike(model, table)


def combined(table, labels):
    return train(table, labels, max_ctr_complexity=3)


def with_text(table, labels):
    table["text"] = table["city"] + " by the sea"
    model = catboost.CatBoostClassifier(iterations=5, logging_level="Silent", allow_writing_files=False)
    return model.fit(table, labels, cat_features=["city", "sex", "month"], text_features=["text"])


def focal(table, labels):
    return train(table, labels, loss_function="Focal:focal_alpha=0.3;focal_gamma=2")


def mean_value(table, labels):
    return train(table, labels, one_hot_max_size=1, simple_ctr=["BinarizedTargetMeanValue"])


def mixed(table, labels):
    parts = [train(table, labels), train(table, labels, iterations=3)]
    return catboost.to_classifier(catboost.sum_models(parts, [0.3, 0.7]))


@pytest.mark.parametrize(
    ("fit", "why"),
    [
        (combined, "combines features"),
        (with_text, "does not save it as JSON"),
        (focal, "Focal, which is not understood"),
        (mean_value, "BinarizedTargetMeanValue are not understood"),
        (mixed, "an unknown loss"),
    ],
)
def test_what_no_table_holds_is_a_black_box(fit, why):
    table, labels = frame()
    model = fit(table, np.minimum(labels, 1))
    with pytest.warns(MacemWarning, match=why):
        oracle = CatBoostAdapter().oracle(model)
    assert oracle.ensemble is None
    assert why in oracle.note
    np.testing.assert_array_equal(oracle.predict_proba(table), model.predict_proba(table))


class SquaredError:
    def calc_ders_range(self, scores, labels, weights):
        return [(labels[row] - scores[row], -1.0) for row in range(len(scores))]


@pytest.mark.filterwarnings("ignore::UserWarning")  # CatBoost tries to compile the objective
def test_models_without_class_probabilities_are_refused():
    X = np.random.default_rng(1).normal(size=(N_ROWS, 3))
    labels = (X[:, 0] > 0).astype(int)
    own = train(X, labels, loss_function=SquaredError(), eval_metric="Logloss")
    several = train(X, np.column_stack([labels, 1 - labels]), loss_function="MultiLogloss")
    regressor = catboost.CatBoostRegressor(iterations=2, logging_level="Silent", allow_writing_files=False).fit(
        X, labels
    )
    for model, why in ((own, "PythonUserDefined"), (several, "MultiLogloss"), (regressor, "CatBoostRegressor")):
        with pytest.raises(UnsupportedModelError, match=why):
            CatBoostAdapter().oracle(model)
    with pytest.raises(UnsupportedModelError, match="one class only"):
        CatBoostAdapter().oracle(train(X, np.zeros(N_ROWS, int), loss_function="Logloss", allow_const_label=True))
    with pytest.raises(ModelError, match="not fitted"):
        CatBoostAdapter().oracle(catboost.CatBoostClassifier())
