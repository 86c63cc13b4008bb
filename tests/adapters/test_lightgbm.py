"""LightGBM models read into tables: equal to the library's own answers, to the bit."""

from __future__ import annotations

import pickle
import warnings
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from macem import Explainer, SearchOptions
from macem.adapters.lightgbm import LightGBMAdapter, load
from macem.errors import DataError, MacemWarning, ModelError, UnsupportedModelError
from macem.testing import AdapterConformance, Case

lightgbm = pytest.importorskip("lightgbm")

N_ROWS, N_FEATURES = 600, 6
EDGE = float(np.float32(1e-35))  # what LightGBM takes for zero, and one step either side of it
SPECIAL = [
    np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 1e-36, -1e-36, EDGE, -EDGE,
    np.nextafter(EDGE, 1), np.nextafter(-EDGE, -1), 1e-30, -1e-30, 3.5e38, -1e39, 2.0**24 + 1, 2.0**53 + 2,
    -1.0, -0.5, 0.5, 1.9999, 2.0, 3.0, 63.0, 64.0, 2.0**31 - 1, 2.0**31, -(2.0**31) - 1,
]  # fmt: skip


def fit(y, X, **options):
    options = {"n_estimators": 25, "min_child_samples": 5, "random_state": 0, "n_jobs": 1, "verbose": -1} | options
    categorical = options.pop("categorical_feature", "auto")
    return lightgbm.LGBMClassifier(**options).fit(X, y, categorical_feature=categorical)


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_FEATURES))
    X[:, 3] = rng.integers(0, 70, N_ROWS)  # categories beyond one 64-bit word
    X[:, 4] = np.where(rng.random(N_ROWS) < 0.4, 0.0, np.round(X[:, 4], 1))  # many exact zeros
    return X


@pytest.fixture(scope="module")
def X_missing(X):
    X = X.copy()
    X[np.random.default_rng(1).random(X.shape) < 0.15] = np.nan
    return X


@pytest.fixture(scope="module")
def y(X):
    score = X[:, 0] * X[:, 1] + np.sin(X[:, 3] * 1.7) + (X[:, 4] == 0) + 0.5 * X[:, 2]
    return (score > np.median(score)).astype(int) + (score > np.quantile(score, 0.8))


def hard_rows(oracle, n_rows=2500):
    """Rows of values on thresholds, beside them, and where floating-point numbers are special."""
    rng = np.random.default_rng(7)
    columns = []
    for feature in range(oracle.n_features):
        trees = oracle.members[0].trees
        exact = np.concatenate([tree.threshold[tree.feature == feature] for tree in trees] + [[0.0]])
        single = exact.astype(np.float32)
        above = np.nextafter(single, np.float32(np.inf))
        beside = [
            np.nextafter(exact, np.inf),
            np.nextafter(exact, -np.inf),
            (single.astype(float) + above) / 2,
            single,
            above,
        ]
        values = np.concatenate([SPECIAL, exact, *beside, rng.normal(size=50), rng.integers(-1, 75, 50)])
        columns.append(rng.choice(values, n_rows))
    return np.column_stack(columns)


def assert_equal_to_the_bit(oracle, answers, rows):
    expected = answers(rows)
    assert oracle.ensemble is not None
    np.testing.assert_array_equal(oracle.predict_proba(rows), expected)


MODES = {
    "gbdt": {},
    "dart": {"boosting_type": "dart", "drop_rate": 0.5},
    "rf": {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.6, "feature_fraction": 0.7},
    "goss": {"data_sample_strategy": "goss"},
    "extra trees": {"extra_trees": True},
    "zero as missing": {"zero_as_missing": True},
    "missing values not used": {"use_missing": False},
    "few bins": {"max_bin": 3, "min_data_in_bin": 1},
    "categories": {"categorical_feature": [3], "min_data_per_group": 1, "cat_smooth": 0.1},
    "one category against the rest": {"categorical_feature": [3], "max_cat_to_onehot": 100, "min_data_per_group": 1},
    "zero as missing, categories": {"zero_as_missing": True, "categorical_feature": [3], "min_data_per_group": 1},
    "deep": {"num_leaves": 200, "min_child_samples": 1, "min_child_weight": 0},
    "depth one": {"num_leaves": 2},
    "constant": {"min_child_samples": N_ROWS},
    "cross entropy": {"objective": "cross_entropy"},
    "sigmoid": {"sigmoid": 0.123456789},
    "sigmoid above one": {"sigmoid": 1.23457},
    "small sigmoid": {"sigmoid": 3.1e-5},
    "float32 thresholds": {"feature_pre_filter": False, "path_smooth": 1.0},
}
MULTICLASS = ["gbdt", "dart", "rf", "zero as missing", "categories", "constant"]


def cases():
    for name, options in MODES.items():
        yield pytest.param(options, 2, id=name)
    for name in MULTICLASS:
        yield pytest.param(MODES[name], 3, id=f"{name}, softmax")
        yield pytest.param(
            MODES[name] | {"objective": "multiclassova", "sigmoid": 1.7}, 3, id=f"{name}, one against all"
        )


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "with missing values"])
@pytest.mark.parametrize(("options", "n_classes"), list(cases()))
def test_every_mode_is_equal_to_the_bit_on_hard_rows(X, X_missing, y, options, n_classes, missing):
    model = fit(np.minimum(y, n_classes - 1), X_missing if missing else X, **options)
    oracle = LightGBMAdapter().oracle(model)
    rows = hard_rows(oracle)
    assert_equal_to_the_bit(oracle, model.predict_proba, rows)
    with np.errstate(over="ignore"):
        assert_equal_to_the_bit(oracle, model.predict_proba, rows.astype(np.float32))
    assert_equal_to_the_bit(oracle, oracle.live.predict_proba, X)
    booster = LightGBMAdapter().oracle(model.booster_)
    np.testing.assert_array_equal(booster.predict_proba(rows), model.predict_proba(rows))
    np.testing.assert_array_equal(booster.live.predict_proba(rows), model.predict_proba(rows))


def test_a_model_with_many_classes(X):
    labels = np.arange(N_ROWS) % 11
    model = fit(labels, X, n_estimators=3)
    oracle = LightGBMAdapter().oracle(model)
    assert_equal_to_the_bit(oracle, model.predict_proba, hard_rows(oracle))


def test_a_threshold_at_infinity_separates_missing_values():
    x = np.r_[np.full(100, np.nan), np.arange(100.0)][:, None]
    model = fit(np.isnan(x[:, 0]).astype(int), x, max_bin=2)
    oracle = LightGBMAdapter().oracle(model)
    assert any(np.isinf(tree.threshold).any() for tree in oracle.members[0].trees)
    rows = np.array([[np.nan], [np.inf], [-np.inf], [1e308], [3.0]])
    assert_equal_to_the_bit(oracle, model.predict_proba, rows)


def test_a_number_beside_zero_is_one_that_lightgbm_reads_as_such():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((300, 3)) * (generator.random((300, 3)) > 0.3)
    model = fit((X < 0.0).sum(axis=1) > 1, X, n_estimators=1, learning_rate=1.0)
    contrasts = [contrast for one in Explainer(model, X).explain(X[:40]) for contrast in one.contrasts]
    # one that failed when LightGBM was asked would be proved by nothing
    assert all(contrast.lower_bound is not None for contrast in contrasts)
    nearest = np.abs([contrast.values.to_numpy(float) for contrast in contrasts])
    assert ((nearest > 0.0) & (nearest < 2e-35)).any()


def test_nothing_is_proved_of_a_tree_whose_zero_goes_another_way():
    generator = np.random.default_rng(1)
    X = generator.integers(-3, 4, (200, 2)).astype(float)
    y = (X[:, 0] * X[:, 1] > 0) ^ (X[:, 0] == 0)
    model = fit(y.astype(int), X, n_estimators=1, learning_rate=1.0, zero_as_missing=True, min_child_samples=3)
    explainer = Explainer(model, X, options=SearchOptions(away_from_base=False))
    assert explainer.describe().startswith("compiled")
    everything = np.array([[first, second] for first in range(-3, 4) for second in range(-3, 4)], float)
    predicted, scale = model.predict(everything), explainer.features.scale
    for row, explanation in zip(X[:30], explainer.explain(X[:30], kinds=["negative"]), strict=True):
        step = np.abs(everything - row) / scale
        nearest = (explainer.options.l1_weight * step + step**2).sum(axis=1)[predicted != explanation.prediction].min()
        assert explanation.negative.found
        assert (explanation.negative.lower_bound or 0.0) <= nearest + 1e-9


def test_moves_to_a_zero_that_goes_another_way_are_seen():
    generator = np.random.default_rng(1)
    X = generator.integers(-3, 4, (300, 2)).astype(float)
    y = (X[:, 0] * X[:, 1] > 0) ^ (X[:, 0] == 0)
    model = fit(y.astype(int), X, n_estimators=8, zero_as_missing=True, min_child_samples=3)
    whole = np.arange(-3.0, 4.0)
    n_seen = 0
    for one in Explainer(model, X, options=SearchOptions(away_from_base=False)).explain(X[:30]):
        for contrast in one.contrasts:
            example = contrast.values.to_numpy(float)
            goal = list(model.classes_).index(contrast.prediction)
            for feature in range(2):
                moved = np.repeat(example[None], whole.size, axis=0)
                moved[:, feature] = whole
                change = np.abs(model.predict_proba(moved)[:, goal] - contrast.probabilities.iloc[goal])
                zero_alone = change[3] > np.delete(change, 3).max()
                n_seen += zero_alone
                assert contrast.sensitivity.iloc[feature] == pytest.approx(change.max(), abs=1e-9)
    assert n_seen > 5


def test_early_stopping_cuts_the_trees(X, y):
    y = np.minimum(y, 1)
    noisy = np.where(np.random.default_rng(0).random(N_ROWS) < 0.3, 1 - y, y)
    model = lightgbm.LGBMClassifier(n_estimators=60, verbose=-1, n_jobs=1)
    stop = [lightgbm.early_stopping(3, verbose=False)]
    model.fit(X, y, eval_X=(X,), eval_y=(noisy,), callbacks=stop)
    oracle = LightGBMAdapter().oracle(model)
    assert len(oracle.members[0].trees) == model.best_iteration_ < 60
    assert_equal_to_the_bit(oracle, model.predict_proba, hard_rows(oracle))
    data = lightgbm.Dataset(X, y, free_raw_data=False)
    options = {"objective": "binary", "verbose": -1, "num_threads": 1}
    valid = data.create_valid(X, noisy)
    booster = lightgbm.train(options, data, 60, valid_sets=[valid], callbacks=stop, keep_training_booster=True)
    oracle = LightGBMAdapter().oracle(booster)
    assert len(oracle.members[0].trees) == booster.best_iteration < booster.current_iteration()
    rows = hard_rows(oracle)
    np.testing.assert_array_equal(oracle.predict_proba(rows)[:, 1], booster.predict(rows))


@pytest.mark.parametrize("sigmoid", [0.123456789, 1.1, 2.718281828459045])
@pytest.mark.parametrize("keep", [True, False])
def test_a_booster_that_still_holds_its_training_data_has_every_digit_of_its_sigmoid(X, y, sigmoid, keep):
    data = lightgbm.Dataset(X, np.minimum(y, 1))
    options = {"objective": "binary", "sigmoid": sigmoid, "verbose": -1, "num_threads": 1}
    booster = lightgbm.train(options, data, 20, keep_training_booster=keep)
    oracle = LightGBMAdapter().oracle(booster)
    rows = hard_rows(oracle)
    np.testing.assert_array_equal(oracle.predict_proba(rows)[:, 1], booster.predict(rows))


def test_a_model_file_loads_as_a_booster(X, y, tmp_path):
    model = fit(y, X, categorical_feature=[3], min_data_per_group=1)
    model.booster_.save_model(tmp_path / "model.txt")
    booster = load(tmp_path / "model.txt")
    oracle = LightGBMAdapter().oracle(booster)
    np.testing.assert_array_equal(oracle.classes, [0, 1, 2])
    assert_equal_to_the_bit(oracle, model.predict_proba, hard_rows(oracle))
    (tmp_path / "other.txt").write_text("no model")
    with pytest.raises(ModelError, match=r"other.txt is no LightGBM model"):
        load(tmp_path / "other.txt")
    with pytest.raises(ModelError, match=r"absent.txt is no LightGBM model"):
        load(tmp_path / "absent.txt")


# --- tables as LightGBM takes them


@pytest.fixture(scope="module")
def frame(X):
    colors = pd.Categorical.from_codes((X[:, 3] % 5).astype(int), ["red", "green", "blue", "black", "white"])
    sizes = pd.Categorical.from_codes((X[:, 3] % 3).astype(int), ["small", "medium", "large"], ordered=True)
    return pd.DataFrame(
        {
            "a": X[:, 0],
            "color": colors,
            "b": X[:, 1].astype(np.float32),
            "size": sizes,
            "count": X[:, 3].astype(np.int64),
            "flag": X[:, 2] > 0,
        }
    )


@pytest.fixture(scope="module")
def framed(frame, y):
    return fit(y, frame, min_data_per_group=1, cat_smooth=0.1)


def test_pandas_categories_are_numbered_as_in_training(frame, framed):
    oracle = LightGBMAdapter().oracle(framed)
    assert oracle.feature_names == tuple(frame.columns)
    assert oracle.ensemble.n_codes.tolist()[1] > 0
    assert_equal_to_the_bit(oracle, framed.predict_proba, frame)
    shuffled = frame.assign(color=frame["color"].cat.set_categories(["white", "blue", "pink", "red", "green", "black"]))
    np.testing.assert_array_equal(oracle.predict_proba(shuffled), oracle.predict_proba(frame))
    unseen = shuffled.assign(color=pd.Categorical(["pink", None] * (N_ROWS // 2), shuffled["color"].cat.categories))
    assert np.isnan(oracle.read(unseen)[:, 1]).all()
    assert_equal_to_the_bit(oracle, framed.predict_proba, unseen)


def test_nullable_columns_and_missing_numbers(frame, framed):
    oracle = LightGBMAdapter().oracle(framed)
    nullable = frame.assign(
        a=pd.array([None, 1.5] * (N_ROWS // 2), dtype="Float64"), count=frame["count"].astype("Int64")
    )
    nullable.loc[3, "count"] = pd.NA
    assert_equal_to_the_bit(oracle, framed.predict_proba, nullable)


def test_columns_are_taken_by_name_where_all_are_known(frame, framed):
    oracle = LightGBMAdapter().oracle(framed)
    reordered = frame[frame.columns[::-1]]
    np.testing.assert_array_equal(oracle.predict_proba(reordered), framed.predict_proba(frame))
    np.testing.assert_array_equal(oracle.live.predict_proba(reordered), framed.predict_proba(frame))
    booster = LightGBMAdapter().oracle(framed.booster_)
    np.testing.assert_array_equal(booster.live.predict_proba(reordered), framed.predict_proba(frame))


def test_spaces_in_names_are_what_lightgbm_makes_of_them(frame, y):
    spaced = frame.rename(columns=lambda name: f"the {name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LightGBM tells of the spaces
        model = fit(y, spaced)
    expected = model.predict_proba(spaced)
    np.testing.assert_array_equal(LightGBMAdapter().oracle(model).predict_proba(spaced), expected)
    oracle = LightGBMAdapter().oracle(model.booster_)
    for part in (oracle, oracle.live):
        np.testing.assert_array_equal(part.predict_proba(spaced[spaced.columns[::-1]]), expected)


def test_a_booster_without_names_does_not_guess_the_columns_of_a_frame(X, y):
    model = fit(y, X)
    named = pd.DataFrame(X, columns=list("abcdefgh")[: X.shape[1]])
    expected = model.predict_proba(X)
    oracle = LightGBMAdapter().oracle(model.booster_)
    assert oracle.feature_names is None
    for part in (oracle, oracle.live):
        with pytest.raises(DataError, match="cannot be told apart"):
            part.predict_proba(named[named.columns[::-1]])
        np.testing.assert_array_equal(part.predict_proba(pd.DataFrame(X)), expected)
        own = named.set_axis(model.booster_.feature_name(), axis=1)
        np.testing.assert_array_equal(part.predict_proba(own[own.columns[::-1]]), expected)
    np.testing.assert_array_equal(LightGBMAdapter().oracle(model).predict_proba(named), model.predict_proba(named))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda X: X.astype(np.float32), id="float32"),
        pytest.param(lambda X: np.asfortranarray(X), id="Fortran order"),
        pytest.param(lambda X: X[:, ::-1][:, ::-1], id="strided"),
        pytest.param(lambda X: X.tolist(), id="list of floats"),
        pytest.param(lambda X: X.astype(object), id="objects"),
        pytest.param(lambda X: (X * 1e9).astype(np.int64), id="int64"),
        pytest.param(lambda X: (X * 1e9).astype(np.int64).tolist(), id="list of integers"),
        pytest.param(lambda X: (X * 10).astype(np.int8), id="int8"),
        pytest.param(lambda X: X > 0, id="bool"),
        pytest.param(lambda X: X.astype(np.float16), id="float16"),
        pytest.param(lambda X: pd.DataFrame(X), id="DataFrame"),
        pytest.param(lambda X: pd.DataFrame((X * 1e9).astype(np.int64)), id="DataFrame of int64"),
        pytest.param(lambda X: pd.DataFrame(X.astype(np.float32)), id="DataFrame of float32"),
    ],
)
def test_every_form_of_table_is_cast_as_lightgbm_casts_it(X, y, change):
    rows = change(X)
    for model in (fit(y, X, num_leaves=100), fit(y, (X * 1e9).astype(np.int64).astype(float), num_leaves=100)):
        oracle = LightGBMAdapter().oracle(model)
        assert_equal_to_the_bit(oracle, model.predict_proba, rows)
        booster = LightGBMAdapter().oracle(model.booster_)
        assert_equal_to_the_bit(booster, model.booster_.predict, rows)


@pytest.mark.parametrize("read_as_float32", [True, False])
def test_a_large_integer_beside_its_threshold(read_as_float32):
    x = np.repeat([16777216.0, 16777217.0], 100)[:, None]
    model = fit((x[:, 0] > 16777216).astype(int), x)
    oracle = LightGBMAdapter().oracle(model)
    rows = np.array([[16777217]])
    classes = oracle.predict_proba(rows if read_as_float32 else pd.DataFrame(rows)).argmax(axis=1)
    assert classes == (0 if read_as_float32 else 1)
    for table in (rows, rows.tolist(), pd.DataFrame(rows), rows.astype(float)):
        assert_equal_to_the_bit(oracle, model.predict_proba, table)


def test_read_only_rows_are_left_untouched(X, y):
    oracle = LightGBMAdapter().oracle(fit(y, X, categorical_feature=[3]))
    rows = np.where(X == 0, 1e-40, X) - 0.25
    before = rows.copy()
    rows.flags.writeable = False
    oracle.predict_proba(rows)
    np.testing.assert_array_equal(rows, before)


def test_a_row_is_answered_alone_as_in_a_batch(X, y):
    oracle = LightGBMAdapter().oracle(fit(y, X))
    together = oracle.predict_proba(X[:40])
    np.testing.assert_array_equal(together, np.vstack([oracle.predict_proba(X[[row]]) for row in range(40)]))
    assert oracle.predict_proba(X[:0]).shape == (0, 3)


def test_oracles_pickle(frame, framed, X, y):
    for model, rows in ((framed, frame), (framed.booster_, frame), (fit(y, X).booster_, X)):
        oracle = LightGBMAdapter().oracle(model)
        copy = pickle.loads(pickle.dumps(oracle))
        np.testing.assert_array_equal(copy.predict_proba(rows), oracle.predict_proba(rows))
        np.testing.assert_array_equal(copy.live.predict_proba(rows), oracle.predict_proba(rows))


def test_classes_are_the_labels_of_the_model(X, y):
    labels = np.array(["no", "yes", "perhaps"])[y]
    np.testing.assert_array_equal(LightGBMAdapter().oracle(fit(labels, X)).classes, ["no", "perhaps", "yes"])
    signs = np.where(y > 0, 1, -1)
    np.testing.assert_array_equal(LightGBMAdapter().oracle(fit(signs, X)).classes, [-1, 1])


def test_tables_that_lightgbm_does_not_take(frame, framed, X):
    oracle = LightGBMAdapter().oracle(framed)
    with pytest.raises(DataError, match="6 columns"):
        oracle.predict_proba(X[:, :5])
    with pytest.raises(DataError, match="'a' has dtype"):
        oracle.predict_proba(frame.assign(a=["text"] * N_ROWS))
    with pytest.raises(DataError, match="1 columns of dtype category, and the model was trained with 2"):
        oracle.predict_proba(frame.assign(color=1))
    with pytest.raises(DataError, match="Give numbers"):
        oracle.predict_proba(X.astype(str))
    with pytest.raises(DataError, match=r"no number: .*'a'\. Give numbers"):
        oracle.predict_proba(np.full(X.shape, "a", dtype=object))


# --- models that are no table


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"linear_tree": True}, "linear"),
        ({"pred_early_stop": True, "pred_early_stop_margin": 0.1, "pred_early_stop_freq": 1}, "pred_early_stop"),
    ],
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_model_that_no_table_holds_is_a_black_box(X, y, options, why, n_classes):
    model = fit(np.minimum(y, n_classes - 1), X, **options)
    with pytest.warns(MacemWarning, match=why):
        oracle = LightGBMAdapter().oracle(model)
    assert oracle.ensemble is None
    assert why in oracle.note
    np.testing.assert_array_equal(oracle.predict_proba(X), model.predict_proba(X))


def test_options_that_change_no_answer_keep_the_table(X, y):
    model = fit(y, X, pred_early_stop=False, pred_early_stop_freq=1)
    assert_equal_to_the_bit(LightGBMAdapter().oracle(model), model.predict_proba, X)


def test_a_feature_that_is_number_and_category_is_a_black_box(X, y):
    options = {"objective": "binary", "verbose": -1, "num_threads": 1, "min_data_per_group": 1}
    data = lightgbm.Dataset(X, np.minimum(y, 1), free_raw_data=False)
    first = lightgbm.train(options, data, 5)
    as_category = lightgbm.Dataset(X, np.minimum(y, 1), categorical_feature=[3])
    booster = lightgbm.train(options, as_category, 5, init_model=first)
    with pytest.warns(MacemWarning, match="feature 3 as a number in some trees and as a category in others"):
        oracle = LightGBMAdapter().oracle(booster)
    np.testing.assert_array_equal(oracle.predict_proba(X)[:, 1], booster.predict(X))


class Stranger(lightgbm.LGBMClassifier):
    def predict_proba(self, X):
        return super().predict_proba(X)[:, ::-1]


def test_a_class_that_answers_otherwise_is_a_black_box(X, y):
    model = Stranger(n_estimators=3, verbose=-1).fit(X, np.minimum(y, 1))
    with pytest.warns(MacemWarning, match="Stranger has a predict_proba of its own"):
        oracle = LightGBMAdapter().oracle(model)
    np.testing.assert_array_equal(oracle.predict_proba(X), model.predict_proba(X))


def test_a_model_of_one_class(X):
    model = fit(np.zeros(N_ROWS, int), X)
    with pytest.warns(MacemWarning, match="one class"):
        oracle = LightGBMAdapter().oracle(model)
    np.testing.assert_array_equal(oracle.classes, [0])
    np.testing.assert_allclose(oracle.predict_proba(X), 1.0, rtol=1e-12)


def squared_error(labels, scores):
    return scores - labels, np.ones_like(scores)


def test_models_without_class_probabilities_are_refused(X, y):
    y = np.minimum(y, 1)
    with pytest.raises(UnsupportedModelError, match="objective function of its own"):
        LightGBMAdapter().oracle(fit(y, X, objective=squared_error))
    with pytest.raises(UnsupportedModelError, match="regression"):
        LightGBMAdapter().oracle(fit(y, X, objective="regression"))
    with pytest.raises(UnsupportedModelError, match="cross_entropy_lambda"):
        LightGBMAdapter().oracle(fit(y, X, objective="cross_entropy_lambda"))
    regressor = lightgbm.LGBMRegressor(n_estimators=2, verbose=-1).fit(X, y)
    with pytest.raises(UnsupportedModelError, match="LGBMRegressor"):
        LightGBMAdapter().oracle(regressor)
    with pytest.raises(UnsupportedModelError, match="regression"):
        LightGBMAdapter().oracle(regressor.booster_)
    ranker = lightgbm.LGBMRanker(n_estimators=2, verbose=-1).fit(X, y, group=[N_ROWS])
    with pytest.raises(UnsupportedModelError, match="LGBMRanker"):
        LightGBMAdapter().oracle(ranker)
    with pytest.raises(ModelError, match="not fitted"):
        LightGBMAdapter().oracle(lightgbm.LGBMClassifier())


# --- the conformance kit, on what the other cases of it (test_conformance.py) do not have


def numbers_and_labels():
    rng = np.random.default_rng(5)
    X = np.round(rng.normal(size=(300, 5)), 2)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, 4] = rng.integers(0, 9, len(X))
    score = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2 + X[:, 4] % 3
    return X, np.digitize(score, np.quantile(score, [0.4, 0.8]))


def integer_categories():
    X, labels = numbers_and_labels()
    model = fit(labels, X, categorical_feature=[4], min_data_per_group=1)
    return Case(model, X, accepts_nan=True, accepts_inf=True, accepts_unseen=True)


def booster():
    X, labels = numbers_and_labels()
    model = fit(labels, X).booster_
    return Case(model, X, accepts_nan=True, accepts_inf=True, probabilities=model.predict)


class TestConformance(AdapterConformance):
    package = "lightgbm"
    adapter = LightGBMAdapter
    cases: ClassVar = {"integer categories": integer_categories, "booster": booster}
