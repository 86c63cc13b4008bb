"""scikit-learn models read into tables, or asked through the tables of their members: equal to their own answers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_digits
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFE
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from macem.adapters import oracle_for
from macem.adapters.composed import ComposedOracle
from macem.adapters.number_line import largest_on_the_left
from macem.adapters.sklearn import SklearnAdapter, floor_to_single
from macem.adapters.sklearn_composites import SingleMean, VoteShares
from macem.errors import DataError, MacemWarning, ModelError, UnsupportedModelError
from macem.oracle import BlackBoxOracle, TreeOracle
from macem.testing import AdapterConformance, Case

N_ROWS = 240


@cache
def data(missing: bool = False) -> np.ndarray:
    """Six columns: numbers, decimals, whole numbers, many zeros."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 6))
    X[:, 1] = np.round(X[:, 1], 1)
    X[:, 2] = rng.integers(-5, 30, N_ROWS)
    X[:, 3] = np.where(rng.random(N_ROWS) < 0.4, 0.0, X[:, 3])
    if missing:
        X[rng.random(X.shape) < 0.15] = np.nan
    return X


def score() -> np.ndarray:
    X = data()
    return X[:, 0] + X[:, 1] * X[:, 3] + np.sin(X[:, 2]) + 0.5 * X[:, 4]


def binary() -> np.ndarray:
    return np.where(score() > 0.3, "yes", "no")


def signs() -> np.ndarray:
    return np.where(score() > 0.3, 1, -1)


def truth() -> np.ndarray:
    return score() > 0.3


def three() -> np.ndarray:
    return np.digitize(score(), [-0.5, 1.0])


def partly_labelled() -> np.ndarray:
    return np.where(data()[:, 5] > 1.0, -1, three())


def frame() -> pd.DataFrame:
    return pd.DataFrame(data(), columns=list("abcdef"))


def case(model: Any, labels: Callable[[], np.ndarray] = binary, X: Any = None, **expected: Any) -> Callable[[], Case]:
    """What fits a model and expects something of its oracle."""

    def fitted() -> Case:
        table = data() if X is None else X()
        return Case(model.fit(table, labels()), table, **expected)

    return fitted


with_missing = partial(case, accepts_nan=True)
with_all = partial(case, accepts_nan=True, accepts_inf=True)

Tree = partial(DecisionTreeClassifier, max_depth=5, random_state=0)
Forest = partial(RandomForestClassifier, n_estimators=9, max_depth=6, random_state=0)
Boosting = partial(GradientBoostingClassifier, n_estimators=9, random_state=0)
Hist = partial(HistGradientBoostingClassifier, max_iter=9, min_samples_leaf=5, random_state=0)
Ada = partial(AdaBoostClassifier, estimator=Tree(max_depth=2), n_estimators=9, random_state=0)
Bagging = partial(BaggingClassifier, n_estimators=6, random_state=0)
Calibrated = partial(CalibratedClassifierCV, cv=3)


def kind_of(model: Any) -> str:
    return type(model).__name__


def named(*models: Any) -> list[tuple[str, Any]]:
    return [(f"member {place}", model) for place, model in enumerate(models)]


def categories() -> Case:
    """Categorical columns in the middle of the table, in three dtypes, with missing ones."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame(
        {
            "amount": rng.normal(size=N_ROWS),
            "city": rng.choice(["Aba", "Bel", "Cor", "Dax", None], N_ROWS),
            "age": rng.integers(18, 70, N_ROWS),
            "grade": rng.integers(0, 5, N_ROWS),
            "kind": pd.Categorical(rng.choice(["u", "v", "w"], N_ROWS)),
        }
    )
    y = (X.amount + (X.city == "Bel") + (X.kind == "u") * (X.age > 40) + (X.grade == 3) > 1).to_numpy()
    model = Hist(categorical_features=["city", "grade", "kind"]).fit(X, y)
    accepts = dict.fromkeys(["accepts_nan", "accepts_inf", "accepts_unseen", "accepts_missing_category"], True)
    return Case(model, X, **accepts)


class TestTrees(AdapterConformance):
    package = "sklearn"
    adapter = SklearnAdapter
    cases: ClassVar = {
        "tree": with_missing(Tree()),
        "tree, three classes": with_missing(Tree(), three),
        "tree, classes -1 and 1": with_missing(Tree(max_depth=None), signs),
        "tree, classes of bool": with_missing(Tree(), truth),
        "tree, missing": with_missing(Tree(), X=partial(data, missing=True)),
        "tree, DataFrame": with_missing(Tree(), X=frame),
        "tree, one class": with_missing(Tree(), lambda: np.full(N_ROWS, "only")),
        "extra tree": with_missing(ExtraTreeClassifier(random_state=0), three),
        "forest": with_missing(Forest()),
        "forest, three classes": with_missing(Forest(), three),
        "forest, missing": with_missing(Forest(), three, partial(data, missing=True)),
        "forest, one class": case(Forest(), lambda: np.zeros(N_ROWS, int)),
        "forest, entropy and class weights": with_missing(Forest(criterion="entropy", class_weight="balanced"), three),
        "extra trees": with_missing(ExtraTreesClassifier(9, random_state=0), three),
        "extra trees, missing": with_missing(ExtraTreesClassifier(9, random_state=0), X=partial(data, missing=True)),
    }


class TestBoosters(AdapterConformance):
    package = "sklearn"
    adapter = SklearnAdapter
    cases: ClassVar = {
        "gradient boosting": case(Boosting()),
        "gradient boosting, three classes": case(Boosting(), three),
        "gradient boosting, exponential": case(Boosting(loss="exponential"), signs),
        "gradient boosting, init zero": case(Boosting(init="zero"), three),
        "gradient boosting, init uniform": case(Boosting(init=DummyClassifier(strategy="uniform"))),
        "gradient boosting, init tree": case(Boosting(init=Tree(max_depth=3))),
        "gradient boosting, exponential, init tree": case(Boosting(init=Tree(max_depth=3), loss="exponential")),
        "gradient boosting, three classes, init tree": case(Boosting(init=ExtraTreeClassifier(random_state=0)), three),
        "gradient boosting, init forest": case(Boosting(init=Forest()), table=False),
        "gradient boosting, init prior": case(Boosting(init=DummyClassifier(strategy="prior")), three),
        "hist": with_all(Hist()),
        "hist, three classes": with_all(Hist(), three),
        "hist, missing": with_all(Hist(), three, partial(data, missing=True)),
        "hist, DataFrame": with_all(Hist(), X=frame),
        "hist, categories": categories,
        "hist, categories in an array": with_all(Hist(categorical_features=[2]), three, accepts_unseen=True),
        "ada": case(Ada()),
        "ada, three classes": case(Ada(), three),
        "ada, one class": case(Ada(), lambda: np.full(N_ROWS, 7)),
        "ada, perfect at once": case(Ada(estimator=Tree(max_depth=None)), signs),
        "ada of forests": case(AdaBoostClassifier(Forest(), n_estimators=3, random_state=0), three, table=False),
    }


class TestComposites(AdapterConformance):
    package = "sklearn"
    adapter = SklearnAdapter
    cases: ClassVar = {
        "bagging": with_missing(Bagging(Tree()), three),
        "bagging, columns and classes": with_missing(Bagging(Tree(), max_features=0.5, max_samples=5), three),
        "bagging, DataFrame": with_missing(Bagging(Tree(), max_features=0.5), X=frame),
        "bagging of forests": with_missing(Bagging(Forest(), max_features=4), three),
        "bagging of boosters": case(Bagging(Boosting(), max_features=4)),
        "bagging of hist": with_all(Bagging(Hist(), max_features=4)),
        "bagging of linear models": case(Bagging(LogisticRegression()), table=False),
        "bagging of votes": case(Bagging(SVC()), table=False),
        "voting": case(VotingClassifier(named(Tree(), Forest(), Boosting()), voting="soft"), three),
        "voting, weights": case(
            VotingClassifier(named(Tree(), Forest(), Boosting()), voting="soft", weights=[1, 0.3, 2]), X=frame
        ),
        "voting, one dropped": with_missing(
            VotingClassifier([*named(Tree(), Forest()), ("gone", "drop")], voting="soft", weights=[1, 0.3, 2]), three
        ),
        "voting, float32 and float64": case(VotingClassifier(named(Forest(), Hist(), Ada()), voting="soft"), three),
        "voting, with a linear model": case(
            VotingClassifier(named(Forest(), LogisticRegression()), voting="soft"), three, table=False
        ),
        "stacking": case(StackingClassifier(named(Tree(), Forest(), Boosting()), cv=3), table=False),
        "stacking, three classes, passthrough": case(
            StackingClassifier(named(Forest(), Hist()), Forest(), cv=3, passthrough=True), three, frame, table=False
        ),
        "stacking, decision_function": case(
            StackingClassifier(named(Boosting(), Hist()), cv=3, stack_method="decision_function"), three, table=False
        ),
        "stacking, predict": case(
            StackingClassifier(named(Tree(), Ada()), cv=3, stack_method="predict"), three, table=False
        ),
        "one against rest": case(OneVsRestClassifier(Forest()), three, table=False),
        "selected columns": with_missing(RFE(Forest(), n_features_to_select=3), three),
    }


class TestCalibration(AdapterConformance):
    package = "sklearn"
    adapter = SklearnAdapter
    near = partial(case, bit_equal=False, tolerance=1e-14)  # the intercept is added before the trees, not behind them
    apart = partial(case, table=False)
    cases: ClassVar = {
        "sigmoid": near(Calibrated(Forest()), accepts_nan=True),
        "sigmoid, one model": near(Calibrated(Forest(), ensemble=False), accepts_nan=True),
        "sigmoid of boosters": near(Calibrated(Boosting())),
        "sigmoid of hist": near(Calibrated(Hist()), accepts_nan=True, accepts_inf=True),
        "sigmoid of votes": near(Calibrated(Ada())),
        "sigmoid, prefit": lambda: Case(
            CalibratedClassifierCV(FrozenEstimator(Boosting().fit(data(), binary()))).fit(data(), binary()),
            data(),
            bit_equal=False,
            tolerance=1e-14,
        ),
        "sigmoid, three classes": apart(Calibrated(Boosting()), three),
        "isotonic": apart(Calibrated(Forest(), method="isotonic")),
        "isotonic, three classes, one model": apart(Calibrated(Forest(), method="isotonic", ensemble=False), three),
        "isotonic of boosters": apart(Calibrated(Boosting(), method="isotonic")),
        "temperature": apart(Calibrated(Forest(), method="temperature")),
        "temperature of boosters": apart(Calibrated(Boosting(), method="temperature"), three),
        "temperature of votes": apart(Calibrated(Ada(), method="temperature")),
    }


class TestVotes(AdapterConformance):
    """Hard voting has no probabilities: the shares of the votes are asked."""

    package = "sklearn"
    adapter = SklearnAdapter

    @staticmethod
    def votes(
        labels: Callable[[], np.ndarray], *models: Any, weights: list[float] | None = None, **expected: Any
    ) -> Callable[[], Case]:
        def fitted() -> Case:
            model = VotingClassifier(named(*models), voting="hard", weights=weights).fit(data(), labels())
            return Case(model, data(), probabilities=VoteShares(model), **expected)

        return fitted

    cases: ClassVar = {
        "of trees": votes(three, Tree(), Forest(), Tree(max_depth=2), accepts_nan=True),
        "of boosters": votes(binary, Boosting(), Hist(), Ada()),
        "of boosters, three classes": votes(three, Boosting(), Hist(), Ada()),
        "with weights": votes(binary, Tree(), Boosting(), Hist(), weights=[1, 0.5, 0.7]),
        "with a linear model": votes(binary, Tree(), LogisticRegression(), table=False),
    }


class TestDelegates(AdapterConformance):
    package = "sklearn"
    adapter = SklearnAdapter
    cases: ClassVar = {
        "grid search": with_missing(GridSearchCV(Forest(), {"max_depth": [2, 3]}, cv=2), three),
        "random search": with_missing(RandomizedSearchCV(Forest(), {"max_depth": [2]}, n_iter=1, cv=2)),
        "halving search": with_missing(HalvingGridSearchCV(Forest(), {"max_depth": [2, 3]}, cv=2, random_state=0)),
        "frozen": lambda: Case(FrozenEstimator(Forest().fit(data(), three())), data(), accepts_nan=True),
        "self-training": with_missing(SelfTrainingClassifier(Forest()), partly_labelled),
        "fixed threshold": with_missing(FixedThresholdClassifier(Forest(), threshold=0.3, pos_label="yes")),
        "threshold of a booster": case(FixedThresholdClassifier(Boosting(), threshold=0.3, pos_label="no")),
        "threshold of a linear model": case(
            FixedThresholdClassifier(LogisticRegression(), pos_label="yes"), table=False
        ),
        "tuned threshold": with_missing(TunedThresholdClassifierCV(Forest(), cv=2), signs),
        "neighbours": case(KNeighborsClassifier(), three, table=False),
    }


@pytest.mark.parametrize("fitted_on", [data, frame])
def test_votes_are_asked_in_the_form_that_the_model_was_fitted_on(fitted_on):
    model = VotingClassifier(named(Tree(), LogisticRegression()), voting="hard").fit(fitted_on(), binary())
    oracle = oracle_for(model)
    shares = oracle.predict_proba(fitted_on())
    assert set(np.unique(shares)) == {0.0, 0.5, 1.0}
    other = frame() if fitted_on is data else data()
    np.testing.assert_array_equal(oracle.predict_proba(other), shares)
    np.testing.assert_array_equal(oracle.classes[oracle.live.predict(other)], model.predict(fitted_on()))


@pytest.mark.parametrize("last", [Tree(), LogisticRegression()], ids=["table", "black box"])
@pytest.mark.parametrize("sparse", [False, True])
def test_votes_behind_transformers(last, sparse):
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=sparse), ["c"]),
        (StandardScaler(), ["a", "b"]),
        sparse_threshold=float(sparse),
    )
    X = frame()[["a", "b"]].assign(c=np.resize(["u", "v", "w"], N_ROWS))
    model = make_pipeline(encode, VotingClassifier(named(Forest(), last), voting="hard")).fit(X, three())
    oracle = oracle_for(model)
    assert isinstance(oracle, TreeOracle) == isinstance(last, DecisionTreeClassifier)
    votes = model[-1].transform(model[:-1].transform(X))
    shares = (votes[:, :, None] == np.arange(3)).mean(axis=1)
    np.testing.assert_array_equal(oracle.predict_proba(X), shares)
    live = pickle.loads(pickle.dumps(oracle)).live
    np.testing.assert_array_equal(live.predict_proba(X), shares)
    np.testing.assert_array_equal(oracle.classes[live.predict(X)], model.predict(X))


# Precisions ----------------------------------------------------------------------------------------------------------


def test_thresholds_are_floored_to_float32():
    low, high = np.float32(1.0), np.nextafter(np.float32(1.0), np.float32(2.0))
    between = np.array([0.0, 0.25, 0.75, 1.0]) * (float(high) - 1.0) + 1.0
    np.testing.assert_array_equal(floor_to_single(between), [low, low, low, high])
    np.testing.assert_array_equal(floor_to_single(-between), [-low, -high, -high, -high])


def test_a_threshold_between_two_float32_sends_each_to_its_side():
    low = 1e6
    high = float(np.nextafter(np.float32(low), np.float32(np.inf)))
    X = np.array([[low], [high]] * 5)
    model = Tree().fit(X, [0, 1] * 5)
    assert low < model.tree_.threshold[0] < high
    np.testing.assert_array_equal(oracle_for(model).predict_proba(X[:2]), [[1, 0], [0, 1]])


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.float16, np.float32, bool, object])
@pytest.mark.parametrize("model", [Forest(), Boosting(), Hist(), Ada(), Bagging(Tree())], ids=kind_of)
def test_dtypes(model, dtype):
    X = np.abs(np.round(data() * 5)).astype(dtype)
    model = model.fit(X, binary())
    oracle = oracle_for(model)
    for table in (X, pd.DataFrame(X), X.tolist(), np.asfortranarray(X)):
        np.testing.assert_array_equal(oracle.predict_proba(table), model.predict_proba(table))


@pytest.mark.parametrize("model", [Forest(), Bagging(Tree()), Ada(), Hist()], ids=kind_of)
def test_whole_numbers_beyond_float64_are_rounded_once(model):
    """An int64 becomes a float32 in one step; by way of float64 this one would end up one step too low."""
    trap = 2**60 + 2**36 + 1  # halfway between two float32, and a little more
    values = np.array([2**60, 2**60 + 2**37], dtype=np.int64)
    X = np.repeat(values, 20)[:, None]
    model = model.fit(X, X[:, 0] > values[0])
    rows = np.append(values, trap)[:, None]
    np.testing.assert_array_equal(oracle_for(model).predict_proba(rows), model.predict_proba(rows))


def test_members_of_two_precisions_keep_their_own():
    """A float32 member compares what it rounds, also beside a float64 member."""
    model = VotingClassifier(named(Forest(), Hist()), voting="soft").fit(data(), binary())
    oracle = oracle_for(model)
    assert isinstance(oracle, TreeOracle)
    assert not oracle.single
    thresholds = np.concatenate(
        [tree.tree_.threshold[tree.tree_.feature == 0] for tree in model.estimators_[0].estimators_]
    )
    single = thresholds.astype(np.float32)
    halfway = (single.astype(float) + np.nextafter(single, np.float32(np.inf))) / 2
    steps = [np.nextafter(halfway, side) for side in (-np.inf, np.inf)]
    rows = np.resize(data(), (3 * halfway.size, 6))
    rows[:, 0] = np.concatenate([halfway, *steps])
    np.testing.assert_array_equal(oracle.predict_proba(rows), model.predict_proba(rows))


def test_largest_on_the_left_finds_the_last_float():
    thresholds = np.array([-1.5, -1e-40, 0.0, 0.1, 3e38, np.inf])
    found = largest_on_the_left(lambda x: x.astype(np.float32).astype(float), thresholds, 3.4e38)
    for threshold, last in zip(thresholds[:-1], found[:-1], strict=True):
        assert np.float32(last) <= threshold
        assert np.float32(np.nextafter(last, np.inf)) > threshold
    assert found[-1] == np.inf


def test_numbers_that_members_round_in_different_ways_are_refused():
    lightgbm = pytest.importorskip("lightgbm")
    booster = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1)
    model = VotingClassifier(named(Hist(), booster), voting="soft").fit(data(), three())
    oracle = oracle_for(model)
    assert isinstance(oracle, TreeOracle)
    np.testing.assert_array_equal(oracle.predict_proba(data()), model.predict_proba(data()))
    with pytest.raises(DataError, match="do not round the numbers of column 2 alike"):
        oracle.predict_proba(np.array([[0, 0, 2**24 + 1, 0, 0, 0]]))


# Boosters of other libraries inside composites -----------------------------------------------------------------------


def test_composites_of_float32_boosters():
    xgboost = pytest.importorskip("xgboost")
    booster = xgboost.XGBClassifier(n_estimators=5, n_jobs=1)
    other = xgboost.XGBClassifier(n_estimators=5, n_jobs=1, max_depth=2)
    voting = VotingClassifier(named(booster, other), voting="soft")
    models = {
        SingleMean: voting,
        TreeOracle: VotingClassifier(named(booster, Forest(), Hist()), voting="soft", weights=[2, 1, 1]),
        ComposedOracle: Calibrated(booster, method="isotonic"),
    }
    for kind, model in models.items():
        model.fit(data(), truth())
        oracle = oracle_for(model)
        assert type(oracle) is kind
        np.testing.assert_array_equal(oracle.predict_proba(data()), model.predict_proba(data()))


def test_composites_of_lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    booster = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1)
    rows = data().copy()
    rows[:, 3] = np.resize([1e-36, -1e-36, 0.0, 1.0, float(np.float32(1e-35))], N_ROWS)  # LightGBM's zeros
    for model in (
        VotingClassifier(named(booster, Forest(), Hist()), voting="soft"),
        Bagging(booster),
        StackingClassifier(named(booster, Tree()), cv=3),
    ):
        model.fit(data(), three())
        oracle = oracle_for(model)
        assert isinstance(oracle, TreeOracle | ComposedOracle)
        np.testing.assert_array_equal(oracle.predict_proba(rows), model.predict_proba(rows))


def test_lightgbm_models_of_the_same_categories():
    """Models that ask for different categorical features still become one table, where they number categories alike."""
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({name: pd.Categorical(rng.choice(list("uvwxyz"), N_ROWS)) for name in "ab"}).assign(c=data()[:, 0])
    y = (X.a.cat.codes % 2 + X.b.cat.codes % 3 + X.c > 2).to_numpy()
    options = {"n_estimators": 3, "verbose": -1, "n_jobs": 1, "min_child_samples": 3, "cat_smooth": 0, "cat_l2": 0}
    everything = lightgbm.LGBMClassifier(**options)
    shallow = lightgbm.LGBMClassifier(**options, num_leaves=2, feature_fraction=0.4)
    model = VotingClassifier(named(everything, shallow), voting="soft").fit(X, y)
    assert oracle_for(model.estimators_[0]).read.sets != oracle_for(model.estimators_[1]).read.sets
    oracle = oracle_for(model)
    assert isinstance(oracle, TreeOracle)
    X.loc[::7, "a"] = np.nan
    np.testing.assert_array_equal(oracle.predict_proba(X), model.predict_proba(X))


# Pipelines inside composites, composites inside pipelines ------------------------------------------------------------


def preprocessing(**options: Any) -> Any:
    """Strings to columns of zeros and ones, numbers scaled."""
    return make_column_transformer(
        (OneHotEncoder(sparse_output=False, **options), make_column_selector(dtype_exclude="number")),
        (StandardScaler(), make_column_selector(dtype_include="number")),
    )


KNOWN = {"handle_unknown": "ignore"}
RARE = {"handle_unknown": "infrequent_if_exist", "min_frequency": 20}
PIPELINES = named(
    make_pipeline(preprocessing(**RARE), Forest()),
    make_pipeline(preprocessing(**KNOWN), Boosting()),
    make_pipeline(preprocessing(**KNOWN), Hist()),
)


@pytest.mark.parametrize(
    "model",
    [
        VotingClassifier(PIPELINES, voting="soft", weights=[1, 2, 0.5]),
        VotingClassifier(PIPELINES, voting="hard"),
        Calibrated(make_pipeline(preprocessing(**KNOWN), Forest())),
        StackingClassifier(PIPELINES[:2], cv=2),
        make_pipeline(preprocessing(**KNOWN), VotingClassifier(named(Forest(), Boosting(), Hist()), voting="soft")),
        make_pipeline(preprocessing(**KNOWN), Bagging(Tree(), max_features=0.5)),
        make_pipeline(preprocessing(**KNOWN), Calibrated(Forest())),
        make_pipeline(preprocessing(**KNOWN), Ada()),
    ],
    ids=["soft votes", "hard votes", "calibrated", "stacked", "of votes", "of bagging", "of calibration", "of ada"],
)
def test_strings_in_composites(model, german_credit):
    """Members that number the categories of a column differently still become one table, but for stacking."""
    X, y = german_credit
    X, y = X[:300].copy(), y[:300]
    oracle = oracle_for(model.fit(X[:250], y[:250]))
    assert (oracle.ensemble is None) == isinstance(model, StackingClassifier)
    X.loc[X.index[::5], X.columns[0]] = "never seen"
    np.testing.assert_allclose(oracle.predict_proba(X), oracle.live.predict_proba(X), rtol=0, atol=1e-14)
    if "alibr" not in str(model):
        np.testing.assert_array_equal(oracle.predict_proba(X), oracle.live.predict_proba(X))


def test_a_value_that_one_member_refuses_is_refused(german_credit):
    X, y = german_credit
    X, y = X[:300].copy(), y[:300]
    strict = make_pipeline(preprocessing(), Forest())
    model = VotingClassifier([PIPELINES[0], ("strict", strict)], voting="soft").fit(X, y)
    oracle = oracle_for(model)
    np.testing.assert_array_equal(oracle.predict_proba(X), model.predict_proba(X))
    X.iloc[0, 0] = "never seen"
    with pytest.raises(DataError, match="'never seen', which it was not fitted on"):
        oracle.predict_proba(X)


# Details -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [Boosting(), Hist(), Ada(), Boosting(init=Tree(max_depth=4))], ids=str)
def test_ten_classes(model):
    """NumPy sums eight and more classes in pairs, where it does."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:600], y[:600]
    model = model.fit(X, y)
    oracle = oracle_for(model)
    assert isinstance(oracle, TreeOracle)
    np.testing.assert_array_equal(oracle.predict_proba(X), model.predict_proba(X))


def test_a_tie_is_decided_by_the_model():
    """At a raw score of zero GradientBoosting predicts its second class, the first maximum would be the first."""
    X = np.array([[0.0], [0.0]] * 10)
    model = Boosting(init="zero").fit(X, [0, 1] * 10)
    oracle = oracle_for(model)
    np.testing.assert_array_equal(oracle.predict_proba(X[:1]), [[0.5, 0.5]])
    assert oracle.live.predict(X[:1]) == [1] == model.predict(X[:1])
    votes = VotingClassifier(named(Boosting(init="zero")), voting="hard").fit(X, [0, 1] * 10)
    np.testing.assert_array_equal(oracle_for(votes).predict_proba(X[:1]), [[0.0, 1.0]])


def test_a_random_init_is_a_black_box():
    model = Boosting(init=DummyClassifier(strategy="stratified")).fit(data(), binary())
    assert oracle_for(model).note == "the raw scores of its init, a DummyClassifier, are no sum of trees"


def test_hist_of_one_class():
    """HistGradientBoosting answers with a second column, of no class."""
    model = Hist().fit(data(), np.full(N_ROWS, 7))
    oracle = oracle_for(model)
    np.testing.assert_array_equal(oracle.predict_proba(data()), np.ones((N_ROWS, 1)))
    np.testing.assert_array_equal(oracle.live.predict_proba(data()), model.predict_proba(data())[:, :1])


def test_columns_are_read_by_name():
    model = Forest().fit(frame(), binary())
    shuffled = frame()[list("fedcba")].assign(more=1.0)
    np.testing.assert_array_equal(oracle_for(model).predict_proba(shuffled), model.predict_proba(frame()))
    with pytest.raises(DataError, match=r"lacks columns .*\['c'\]"):
        oracle_for(model).predict_proba(frame().drop(columns="c"))


@pytest.mark.parametrize("model", [Forest(), Hist(categorical_features=[2])], ids=kind_of)
def test_a_table_of_another_width_is_refused(model):
    oracle = oracle_for(model.fit(data(), binary()))
    with pytest.raises(DataError, match=r"has 5 columns, .* fitted on 6"):
        oracle.predict_proba(data()[:, :5])


def test_an_array_of_another_width_is_refused_where_columns_have_names():
    X = frame().assign(c=pd.Categorical(np.resize(list("uvw"), N_ROWS)))
    oracle = oracle_for(Hist(categorical_features="from_dtype").fit(X, binary()))
    with pytest.raises(DataError, match=r"has 5 columns, .* fitted on 6"):
        oracle.predict_proba(data()[:, :5])


@pytest.mark.parametrize(
    ("model", "column", "cell"),
    [
        (Forest(), "a", pd.NA),
        (Forest(), "a", pd.Timestamp("2020-01-01")),
        (Hist(categorical_features=["c"]), "a", pd.Timestamp("2020-01-01")),
        (Hist(categorical_features=["c"]), "c", ["a list"]),
    ],
)
def test_cells_that_are_no_numbers_are_refused(model, column, cell):
    oracle = oracle_for(model.fit(frame(), binary()))
    rows = frame().assign(**{column: pd.Series([cell] * N_ROWS, dtype=object)})
    with pytest.raises(DataError, match=r"cannot read this table: .* Give it"):
        oracle.predict_proba(rows)


@pytest.mark.parametrize("number", [np.inf, -np.inf, 1e39, np.nan])
def test_numbers_that_the_model_refuses_are_refused(number):
    rows = data()[:2].copy()
    rows[0, 0] = number
    for model in (Boosting(), Ada()):
        with pytest.raises(DataError, match=r"cannot read this table: .* Give it numbers"):
            oracle_for(model.fit(data(), binary())).predict_proba(rows)


# Subclasses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("BalancedRandomForestClassifier", {"sampling_strategy": "all", "replacement": True, "bootstrap": False}),
        ("BalancedBaggingClassifier", {}),
        ("EasyEnsembleClassifier", {}),
        ("RUSBoostClassifier", {}),
    ],
)
def test_imbalanced_learn(name, options):
    ensemble = pytest.importorskip("imblearn.ensemble")
    model = getattr(ensemble, name)(n_estimators=5, random_state=0, **options).fit(data(), three())
    oracle = oracle_for(model)
    assert not (isinstance(oracle, BlackBoxOracle) and not isinstance(oracle, ComposedOracle)), oracle.note
    np.testing.assert_array_equal(oracle.predict_proba(data()), model.predict_proba(data()))


class Inherited(RandomForestClassifier):
    def fit(self, X, y):
        return super().fit(X, y)


class Overridden(RandomForestClassifier):
    def predict_proba(self, X):
        return super().predict_proba(X)[:, ::-1]


class Threshold(RandomForestClassifier):
    def predict(self, X):
        return self.classes_[(self.predict_proba(X)[:, 1] > 0.3).astype(int)]


def test_a_subclass_that_answers_as_its_base_is_a_table():
    assert isinstance(oracle_for(Inherited(5).fit(data(), binary())), TreeOracle)


@pytest.mark.parametrize("kind", [Overridden, Threshold])
def test_a_subclass_with_answers_of_its_own_is_a_black_box(kind):
    model = kind(5, random_state=0).fit(data(), binary())
    with pytest.warns(MacemWarning, match=f"{kind.__name__} answers with methods of its own"):
        oracle = oracle_for(model)
    assert oracle.ensemble is None
    assert kind.__name__ in oracle.note
    np.testing.assert_array_equal(oracle.predict_proba(data()), model.predict_proba(data()))


def test_an_instance_with_answers_of_its_own_is_a_black_box():
    model = Forest().fit(data(), binary())
    own = model.predict_proba
    model.predict_proba = lambda X: own(X)[:, ::-1]
    with pytest.warns(MacemWarning, match="methods of its own"):
        assert oracle_for(model).ensemble is None


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [Tree(), Forest(), Boosting(), Hist(), Ada(), GridSearchCV(Forest(), {})], ids=str)
def test_a_model_that_is_not_fitted_is_refused(model):
    with pytest.raises(ModelError, match=r"is not fitted\. Call its fit"):
        SklearnAdapter().oracle(model)


def test_other_tasks_are_refused():
    X, y = data(), np.column_stack([truth(), signs() > 0])
    with pytest.raises(UnsupportedModelError, match="RandomForestRegressor is not a classifier"):
        oracle_for(RandomForestRegressor(3).fit(X, score()))
    for model in (Tree(), Forest(), KNeighborsClassifier(), MultiOutputClassifier(Tree()), OneVsRestClassifier(Tree())):
        with pytest.raises(UnsupportedModelError, match="predicts several outputs"):
            oracle_for(model.fit(X, y))


def test_a_classifier_without_probabilities_is_refused():
    with pytest.raises(UnsupportedModelError, match="has no predict_proba"):
        oracle_for(SVC().fit(data(), binary()))


def test_a_network_of_several_outputs_units_is_a_black_box():
    model = MLPClassifier((4,), max_iter=2000, random_state=0, tol=1e-1).fit(data(), three())
    oracle = oracle_for(model)
    assert oracle.note == "a MLPClassifier is not made of trees"


def test_a_search_without_a_best_estimator_is_refused():
    model = GridSearchCV(Forest(), {"max_depth": [2]}, cv=2, refit=False).fit(data(), binary())
    with pytest.raises(ModelError, match="refit=True"):
        SklearnAdapter().oracle(model)


def test_a_table_belongs_to_no_model_any_more():
    """Trees are copied, so that a change of the model cannot change the table unnoticed."""
    model = Tree().fit(data(), binary())
    oracle = pickle.loads(pickle.dumps(oracle_for(model)))
    before = oracle_for(model)
    model.tree_.value[:] = 0.5
    np.testing.assert_array_equal(before.predict_proba(data()), oracle.predict_proba(data()))
