"""Whatever people have in production can be asked as a black box, in the form it was fitted with."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import macem
from macem.adapters import BlackBoxAdapter, oracle_for
from macem.errors import LabelsWarning, ModelError, OracleError, UnsupportedModelError

RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=(80, 3))
LABELS = np.where(NUMBERS[:, 0] > 0.3, "good", "bad")
FRAME = pd.DataFrame({"amount": NUMBERS[:, 0], "months": np.arange(80) % 9, "purpose": ["car", "house"] * 40})

forest = RandomForestClassifier(7, random_state=0)
encoder = make_column_transformer((OneHotEncoder(), ["purpose"]), remainder="passthrough")


def ask(model):
    return BlackBoxAdapter().oracle(model)


class BalancedForest(RandomForestClassifier):
    """As imbalanced-learn derives its forests."""


class Odd:
    """An estimator of no library, with everything that macem asks for and nothing else."""

    classes_ = (1, 2)

    def predict_proba(self, X):
        return np.full((len(X), 2), [0.25, 0.75])


def half(X):
    return np.full(len(X), 0.5)


@pytest.mark.parametrize(
    "model",
    [
        forest,
        BalancedForest(7, random_state=0),
        LogisticRegression(),
        CalibratedClassifierCV(forest, cv=2),
        VotingClassifier([("a", forest), ("b", LogisticRegression())], voting="soft"),
        StackingClassifier([("a", forest)], cv=2),
        BaggingClassifier(forest, n_estimators=3, max_features=0.7, random_state=0),
        AdaBoostClassifier(n_estimators=5),
        GridSearchCV(forest, {"max_depth": [2, 3]}, cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("fitted_on", ["array", "frame"])
def test_estimators_answer_arrays_and_frames_alike(model, fitted_on):
    named = pd.DataFrame(NUMBERS, columns=["a", "b", "c"])
    table = NUMBERS if fitted_on == "array" else named
    oracle = ask(model.fit(table, LABELS))
    expected = model.predict_proba(table)
    for asked in (NUMBERS, named, named[["a", "b", "c"]].astype("Float64")):
        np.testing.assert_array_equal(oracle.predict_proba(asked), expected)
        np.testing.assert_array_equal(oracle.classes[oracle.predict(asked)], model.predict(table))
    if fitted_on == "frame":
        np.testing.assert_array_equal(oracle.predict_proba(named[["c", "a", "b"]]), expected)


@pytest.mark.parametrize("first", [[], [FunctionTransformer()]])
def test_pipelines_get_frames(first):
    model = make_pipeline(*first, encoder, forest)
    oracle = ask(model.fit(FRAME, LABELS))
    for asked in (FRAME, FRAME[["purpose", "months", "amount"]]):
        np.testing.assert_array_equal(oracle.predict_proba(asked), model.predict_proba(FRAME))


def test_missing_values_of_nullable_columns_reach_a_model_fitted_on_an_array():
    oracle = ask(forest.fit(NUMBERS, LABELS))
    table = pd.DataFrame(NUMBERS).convert_dtypes()
    table.iloc[0, 0] = pd.NA
    expected = NUMBERS.copy()
    expected[0, 0] = np.nan
    np.testing.assert_array_equal(oracle.predict_proba(table), forest.predict_proba(expected))


@pytest.mark.parametrize("labels", [LABELS, np.where(LABELS == "good", 1, -1), LABELS == "good", np.arange(80) % 3])
def test_labels_of_any_kind(labels):
    model = RandomForestClassifier(5, random_state=0).fit(NUMBERS, labels)
    oracle = ask(model)
    assert oracle.classes.dtype == model.classes_.dtype
    np.testing.assert_array_equal(oracle.classes[oracle.predict(NUMBERS)], model.predict(NUMBERS))


def test_an_estimator_of_no_library():
    oracle = oracle_for(Odd())
    assert oracle.ensemble is None
    assert list(oracle.classes) == [1, 2]
    np.testing.assert_array_equal(oracle.predict_proba(NUMBERS[:2]), [[0.25, 0.75]] * 2)
    np.testing.assert_array_equal(oracle.predict(NUMBERS[:2]), [1, 1])


class Plain:
    """An estimator whose classes and answers are plain lists."""

    def fit(self, X, y):
        self.classes_ = sorted(set(y))
        return self

    def predict_proba(self, X):
        return [[0.25, 0.75] for _ in X]


class PlainOfSklearn(ClassifierMixin, Plain, BaseEstimator):
    """The same by scikit-learn's own base classes."""


@pytest.mark.parametrize("model", [Plain(), PlainOfSklearn()])
def test_classes_and_answers_may_be_plain_lists(model):
    oracle = oracle_for(model.fit(NUMBERS, LABELS))
    assert list(oracle.classes) == ["bad", "good"]
    np.testing.assert_array_equal(oracle.predict_proba(NUMBERS[:3]), [[0.25, 0.75]] * 3)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost"])
def test_boosters_answer_by_name_too(library):
    module = pytest.importorskip(library)
    model = {
        "xgboost": lambda: module.XGBClassifier(n_estimators=5),
        "lightgbm": lambda: module.LGBMClassifier(n_estimators=5, verbose=-1),
        "catboost": lambda: module.CatBoostClassifier(iterations=5, verbose=0, allow_writing_files=False),
    }[library]()
    table = FRAME[["amount", "months"]].assign(rate=NUMBERS[:, 1])
    model.fit(table, (LABELS == "good").astype(int))
    oracle = ask(model)
    np.testing.assert_array_equal(oracle.predict_proba(table), model.predict_proba(table))
    np.testing.assert_array_equal(oracle.classes[oracle.predict(table)], np.ravel(model.predict(table)))
    if library != "catboost":  # which keeps no feature_names_in_, and refuses another order by itself
        reordered = table[["rate", "months", "amount"]]
        np.testing.assert_array_equal(oracle.predict_proba(reordered), model.predict_proba(table))


# Refused


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(),
        LogisticRegression(),
        make_pipeline(OneHotEncoder(), RandomForestClassifier()),
        GridSearchCV(RandomForestClassifier(), {}),
        VotingClassifier([("a", LogisticRegression())], voting="soft"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_that_is_not_fitted(model):
    with pytest.raises(ModelError, match=r"is not fitted\. Call its fit"):
        ask(model)


def test_a_model_whose_own_rule_finds_it_not_fitted_only_when_asked():
    class Late(Odd):
        def predict_proba(self, X):
            return LogisticRegression().predict_proba(X)

    with pytest.raises(ModelError, match=r"Late\) is not fitted.*Fit it before"):
        ask(Late()).predict_proba(NUMBERS)


@pytest.mark.parametrize(
    "model", [LinearRegression(), LinearSVC(), VotingClassifier([("a", LinearSVC())], voting="hard")]
)
def test_models_without_probabilities(model):
    model.fit(NUMBERS, (LABELS == "good").astype(int))
    with pytest.raises(UnsupportedModelError, match=r"no predict_proba.*Give a classifier"):
        ask(model)


def test_several_outputs():
    both = np.column_stack([LABELS == "good", NUMBERS[:, 1] > 0])
    with pytest.raises(UnsupportedModelError, match="several outputs"):
        ask(RandomForestClassifier(3).fit(NUMBERS, both))
    with pytest.raises(UnsupportedModelError, match="several outputs"):
        ask(OneVsRestClassifier(LogisticRegression()).fit(NUMBERS, both.astype(int)))
    with pytest.raises(OracleError, match=r"the answer to 80 rows has shape \(2, 80, 2\), not \(80, n_classes\)"):
        ask(lambda X: [np.full((len(X), 2), 0.5)] * 2).predict_proba(NUMBERS)


def test_a_table_that_the_model_refuses_is_told_with_the_models_words():
    with pytest.raises(OracleError, match=r"RandomForestClassifier\) failed .* has 2 features, but RandomForest.* 3"):
        ask(forest.fit(NUMBERS, LABELS)).predict_proba(NUMBERS[:, :2])


def test_pickles():
    oracle = ask(forest.fit(NUMBERS, LABELS))
    copy = pickle.loads(pickle.dumps(oracle))
    np.testing.assert_array_equal(copy.predict_proba(NUMBERS), oracle.predict_proba(NUMBERS))
    assert pickle.loads(pickle.dumps(ask(half))).note == "a function, asked as a black box"


# Labels that pass as probabilities


class Hard:
    """A classifier that is always sure, and has a predict for its labels."""

    def predict_proba(self, X):
        return labels(X)

    predict = predict_proba


def labels(X):
    return (np.asarray(X)[:, 0] > 0.3).astype(int)


@pytest.mark.parametrize("model", [labels, lambda X: labels(X)[:, None], lambda X: labels(X) == 1], ids=range(3))
def test_a_function_that_answers_with_labels_is_told_once(model):
    with pytest.warns(LabelsWarning, match="each of 80 background rows with exactly 0 or 1") as told:
        explainer = macem.Explainer(model, NUMBERS)
    assert len(told) == 1
    assert told[0].filename == __file__
    explainer.explain(NUMBERS[:1])


@pytest.mark.parametrize(
    "model",
    [
        Hard(),
        lambda X: np.eye(2)[labels(X)],
        lambda X: labels(X) * 0.999,
        lambda X: np.where(np.arange(len(X)) == 7, 0.5, labels(X)),
        DecisionTreeClassifier(random_state=0).fit(NUMBERS, labels(NUMBERS)),
    ],
    ids=["predict", "a column each", "unsure of one", "unsure of a row", "tree"],
)
def test_other_sure_classifiers_are_taken_at_their_word(model):
    macem.Explainer(model, NUMBERS)  # a warning is an error


def test_one_number_that_is_no_probability_is_shown_as_it_was_answered():
    with pytest.raises(OracleError, match=r"row 1 got 2\.0 for class 1"):
        ask(lambda X: np.arange(1, len(X) + 1)).predict_proba(NUMBERS)
