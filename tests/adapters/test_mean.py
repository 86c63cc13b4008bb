"""Any models as one: their weighted mean, in one table where all are tables."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import macem
from macem.adapters import check_table
from macem.errors import ModelError, OptionError
from macem.oracle import BlackBoxOracle, TreeOracle

X = np.random.default_rng(0).normal(size=(150, 3))
SCORE = X[:, 0] + X[:, 1] * X[:, 2]
LABELS = np.where(SCORE > 0.0, "good", "bad")

FOREST = RandomForestClassifier(9, random_state=0).fit(X, LABELS)
TREES = ExtraTreesClassifier(5, random_state=0).fit(X, LABELS)
HISTOGRAM = HistGradientBoostingClassifier(max_iter=9).fit(X, LABELS)
LINEAR = LogisticRegression().fit(X, LABELS)


def half(X):
    return np.full(len(X), 0.5)


def mean(*pairs):
    return sum(weight * model.predict_proba(X) for model, weight in pairs) / sum(weight for _, weight in pairs)


@pytest.mark.parametrize(
    ("pairs", "is_table"),
    [
        ([(FOREST, 1.0), (TREES, 3.0)], True),
        ([(FOREST, 1.0), (HISTOGRAM, 0.5)], True),  # float32 beside float64
        ([(FOREST, 1.0), (LINEAR, 2.0)], False),
        ([(LINEAR, 1)], False),
    ],
)
def test_probabilities_are_the_weighted_mean(pairs, is_table):
    model = macem.ensemble(pairs)
    np.testing.assert_array_equal(model.predict_proba(X), mean(*pairs))
    np.testing.assert_array_equal(model.predict(X), model.classes_[mean(*pairs).argmax(axis=1)])
    oracle = macem.oracle_for(model)
    assert (oracle.ensemble is not None) == is_table
    np.testing.assert_array_equal(oracle.predict_proba(X), model.predict_proba(X))
    assert check_table(oracle, X) is None
    assert list(oracle.classes) == ["bad", "good"]


def test_note_says_which_way_was_taken():
    joined = macem.oracle_for(macem.ensemble([(FOREST, 1), (TREES, 1)]))
    assert joined.live.note == "a mean of 2 models as one table"
    apart = macem.oracle_for(macem.ensemble([(FOREST, 1), (LINEAR, 1)]))
    assert apart.note == "a mean of 2 models, each asked in turn: a LogisticRegression is not made of trees"


def test_other_libraries_join_the_table():
    xgboost, lightgbm = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")
    codes = (LABELS == "good").astype(int)
    booster = xgboost.XGBClassifier(n_estimators=9).fit(X, codes)
    leaves = lightgbm.LGBMClassifier(n_estimators=9, verbose=-1).fit(X, codes)
    model = macem.ensemble([(FOREST, 1.0), (booster, 2.0), (leaves, 0.5)], classes=["bad", "good"])
    oracle = macem.oracle_for(model)
    assert isinstance(oracle, TreeOracle)
    assert check_table(oracle, X) is None
    np.testing.assert_allclose(oracle.predict_proba(X), model.predict_proba(X), rtol=0, atol=1e-6)


def test_classes_are_matched_by_value():
    reversed_labels = RandomForestClassifier(9, random_state=0).fit(X, np.where(SCORE > 0.0, "a good one", "bad"))
    high = X[SCORE > 0.5]
    some = RandomForestClassifier(9, random_state=1).fit(high, np.where(high[:, 0] > 1.0, "best", "good"))
    model = macem.ensemble([(FOREST, 1.0), (some, 1.0)])
    assert list(model.classes_) == ["bad", "good", "best"]
    expected = np.zeros((len(X), 3))
    expected[:, :2] += FOREST.predict_proba(X)
    expected[:, [2, 1]] += some.predict_proba(X)
    np.testing.assert_array_equal(model.predict_proba(X), expected / 2)
    np.testing.assert_array_equal(macem.oracle_for(model).predict_proba(X), expected / 2)
    assert list(macem.ensemble([(FOREST, 1.0), (reversed_labels, 1.0)]).classes_) == ["bad", "good", "a good one"]


def test_functions_have_the_classes_of_the_first_that_names_them():
    model = macem.ensemble([(half, 1.0), (FOREST, 1.0)])
    np.testing.assert_array_equal(model.predict_proba(X), (FOREST.predict_proba(X) + 0.5) / 2)
    assert list(macem.ensemble([(half, 1.0)], classes=["no", "yes"]).classes_) == ["no", "yes"]


def test_zero_weight_counts_for_nothing():
    model = macem.ensemble([(FOREST, 0.0), (TREES, 2.0)])
    np.testing.assert_array_equal(model.predict_proba(X), TREES.predict_proba(X))
    assert check_table(macem.oracle_for(model), X) is None


def test_means_nest():
    inner = macem.ensemble([(FOREST, 1.0), (TREES, 3.0)])
    model = macem.ensemble([(inner, 1.0), (HISTOGRAM, 1.0)])
    oracle = macem.oracle_for(model)
    assert isinstance(oracle, TreeOracle)
    np.testing.assert_allclose(oracle.predict_proba(X), model.predict_proba(X), rtol=0, atol=1e-15)


def test_members_on_other_columns_stay_apart():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = RandomForestClassifier(5, random_state=0).fit(frame, LABELS)
    swapped = RandomForestClassifier(5, random_state=0).fit(frame[["b", "a", "c"]], LABELS)
    model = macem.ensemble([(named, 1.0), (swapped, 1.0)])
    oracle = macem.oracle_for(model)
    assert isinstance(oracle, BlackBoxOracle)
    assert "different columns" in oracle.note
    expected = (named.predict_proba(frame) + swapped.predict_proba(frame[["b", "a", "c"]])) / 2
    np.testing.assert_array_equal(oracle.predict_proba(frame), expected)


def test_pickles():
    model = macem.ensemble([(FOREST, 1.0), (half, 1.0)])
    for thing in (model, macem.oracle_for(model)):
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(thing)).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([], "no models"),
        ([FOREST], r"Give pairs \(model, weight\)"),
        ([(FOREST, "heavy")], r"Give pairs \(model, weight\)"),
        ([(FOREST, -1.0)], r"RandomForestClassifier has weight -1\.0"),
        ([(FOREST, np.nan)], "has weight nan"),
        ([(FOREST, np.inf)], "has weight inf"),
        ([(FOREST, 0.0)], "all zero"),
        ([(FOREST, 1), (RandomForestClassifier(2).fit(X, LABELS == "good"), 1)], "share no class.*classes="),
    ],
)
def test_impossible_members(members, message):
    with pytest.raises(OptionError, match=message):
        macem.ensemble(members)


def test_classes_that_do_not_fit():
    with pytest.raises(OptionError, match=r"knows the class 'bad', but classes=\['no', 'good'\]"):
        macem.ensemble([(FOREST, 1.0)], classes=["no", "good"])
    with pytest.raises(ModelError, match="No member of the ensemble names its classes"):
        macem.ensemble([(half, 1.0)])
    with pytest.raises(ModelError, match="not fitted"):
        macem.ensemble([(RandomForestClassifier(), 1.0)])
