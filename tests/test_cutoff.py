"""Models of two classes that are told apart by a cutoff: the model's own, or the user's."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from macem import Explainer, SearchOptions, metrics, oracle_for
from macem.adapters.composed import ComposedOracle
from macem.errors import ModelChangedError, OptionError
from macem.oracle import BlackBoxOracle, Cutoff, TreeOracle

QUICK = SearchOptions(n_steps=4, n_directions=6, away_from_base=False)


def data() -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers from 0 to 5 in three columns, and a label with noise, so that leaves hold all kinds of shares."""
    rng = np.random.default_rng(5)
    X = rng.integers(0, 6, (200, 3)).astype(float)
    risk = X @ [0.9, -0.7, 0.4] - 2.0 + rng.logistic(size=200)
    return X, np.where(risk > 0.0, "bad", "good")


def forest(n_trees: int = 10) -> RandomForestClassifier:
    """Ten trees of pure leaves answer with tenths, which a cutoff of a tenth often ties with."""
    return RandomForestClassifier(n_trees, random_state=0).fit(*data())


def by_cutoff(model: Any, cutoff: float, label: str = "bad") -> FixedThresholdClassifier:
    return FixedThresholdClassifier(FrozenEstimator(model), threshold=cutoff, pos_label=label)


@pytest.mark.parametrize("label", ["bad", "good"])
@pytest.mark.parametrize("cutoff", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("score", ["log", "probability"])
@pytest.mark.parametrize("kind", ["tree", "forest", "black box"])
def test_every_example_that_there_is_is_found_and_is_the_models(
    kind: str, score: str, cutoff: float, label: str
) -> None:
    X, y = data()
    model = DecisionTreeClassifier(min_samples_leaf=10, random_state=0).fit(X, y) if kind == "tree" else forest()
    decides = by_cutoff(model, cutoff, label)
    asked = model.predict_proba if kind == "black box" else model
    given = {label if kind != "black box" else list(model.classes_).index(label): cutoff}
    options = SearchOptions(n_steps=4, n_directions=6, away_from_base=False, score=score)
    explainer = Explainer(asked, X, options=options, cutoff=given)
    assert explainer.describe().startswith("lockstep" if kind == "black box" else "compiled")
    grid = np.array(list(itertools.product(range(6), repeat=3)), float)
    classes, share = decides.predict(grid), model.predict_proba(grid)[:, list(model.classes_).index(label)]
    assert kind == "tree" or (share == cutoff).any()  # ties
    rows = grid[::11]
    for row, explanation in zip(rows, explainer.explain(rows), strict=True):
        own = decides.predict(row[None])[0]
        assert own == (explanation.prediction if kind != "black box" else model.classes_[explanation.prediction])
        others = grid[classes != own]
        assert explanation.negative.found == bool(len(others))
        assert decides.predict(explanation.negative.values.to_numpy(float)[None])[0] != own
        assert decides.predict(explanation.positive.values.to_numpy(float)[None])[0] == own
        if kind == "tree":  # solved exactly
            away = np.abs(others - row) / 5.0
            nearest = (options.l1_weight * away.sum(axis=1) + (away**2).sum(axis=1)).min()
            assert explanation.negative.distance == pytest.approx(nearest)


def test_a_models_own_threshold_is_the_same_as_the_users() -> None:
    X, _ = data()
    model = forest()
    own = Explainer(by_cutoff(model, 0.2), X, options=QUICK)
    users = Explainer(model, X, options=QUICK, cutoff={"bad": 0.2})
    assert own.cutoff == users.cutoff == {"bad": 0.2}
    assert "'bad' from a probability of 0.2 on" in own.describe()
    pd.testing.assert_frame_equal(own.explain(X[:20]).to_frame(), users.explain(X[:20]).to_frame())
    again = pickle.loads(pickle.dumps(own)).explain(X[:20])
    pd.testing.assert_frame_equal(again.to_frame(), own.explain(X[:20]).to_frame())
    assert again.provenance["cutoff"] == {"bad": 0.2}
    assert Explainer(model, X).cutoff is None


def test_a_threshold_that_was_changed_is_noticed() -> None:
    X, _ = data()
    model = by_cutoff(forest(), 0.2)
    explainer = Explainer(model, X, options=QUICK)
    model.threshold = 0.7
    with pytest.raises(ModelChangedError):
        explainer.explain(X)


def test_a_threshold_that_was_tuned_anew_is_noticed() -> None:
    X, y = data()
    model = TunedThresholdClassifierCV(RandomForestClassifier(10, random_state=0), cv=2, scoring="f1", random_state=0)
    explainer = Explainer(model.fit(X, y == "bad"), X, options=QUICK)
    before = model.predict_proba(X), model.best_threshold_
    model.set_params(scoring="precision").fit(X, y == "bad")
    assert_array_equal(model.predict_proba(X), before[0])
    assert model.best_threshold_ != before[1]
    with pytest.raises(ModelChangedError):
        explainer.explain(X)


def test_the_last_bit_at_a_cutoff_is_the_live_models() -> None:
    X, y = data()
    boosting = GradientBoostingClassifier(n_estimators=20, random_state=0)
    model = CalibratedClassifierCV(boosting, cv=3).fit(X, y == "bad")
    exact, copied = model.predict_proba(X)[:, 1], oracle_for(model).predict_proba(X)[:, 1]
    (apart,) = np.nonzero((exact > copied) & (exact > exact.min()))  # by their last bits
    assert len(apart) > 3
    assert_allclose(copied, exact, rtol=1e-12)
    for at in apart[:4]:
        explanation = Explainer(model, X, options=QUICK, cutoff={True: exact[at]}).explain(X[at])[0]
        assert explanation.prediction
        assert model.predict_proba(explanation.negative.values.to_numpy(float)[None])[0, 1] < exact[at]


def test_a_users_cutoff_goes_before_the_models() -> None:
    X, _ = data()
    explainer = Explainer(by_cutoff(forest(), 0.2), X, options=QUICK, cutoff={"good": 0.2})
    assert explainer.cutoff == {"good": 0.2}
    share = forest().predict_proba(X)[:, 1]
    assert_array_equal([one.prediction for one in explainer.explain(X)], np.where(share >= 0.2, "good", "bad"))


def test_a_margin_is_measured_from_the_cutoff() -> None:
    X, _ = data()
    model = forest(100)
    options = SearchOptions(n_steps=4, n_directions=6, away_from_base=False, score="probability", margin=0.2)
    explanations = Explainer(model, X, options=options, cutoff={"bad": 0.3}).explain(X[:40])
    led = {"good": [], "bad": []}
    for one in explanations:
        if one.negative.found:
            led[one.negative.prediction].append(one.negative.probabilities["bad"] - 0.3)
    assert len(led["bad"]) > 3
    assert min(led["bad"]) >= 0.1 - 1e-9  # both sides of the lead, so half of the margin in a probability
    assert max(led["good"]) <= -0.1 + 1e-9
    assert min(led["bad"]) < 0.2


class Careful:
    """A model with a rule of its own, which nobody can read."""

    def __init__(self, model: Any) -> None:
        self.model, self.classes_ = model, model.classes_

    def predict_proba(self, X: Any) -> Any:
        return self.model.predict_proba(X)

    def predict(self, X: Any) -> Any:
        return np.where(self.predict_proba(X)[:, 0] > 0.2, "bad", "good")


def test_a_rule_that_cannot_be_read_is_told_and_believed() -> None:
    X, _ = data()
    model = Careful(forest())
    explainer = Explainer(model, X, options=QUICK)
    assert "does not take the largest probability" in explainer.describe()
    assert "give it as cutoff=" in explainer.describe()
    assert "largest probability" not in Explainer(forest(), X).describe()
    assert "largest probability" not in Explainer(model, X, cutoff={"bad": 0.25}).describe()
    for row, one in zip(X[:10], explainer.explain(X[:10]), strict=True):
        assert one.prediction == model.predict(row[None])[0]
        assert one.negative.found
        assert model.predict(one.negative.values.to_numpy(float)[None])[0] == one.negative.prediction != one.prediction


@pytest.mark.parametrize(
    ("cutoff", "message"),
    [
        (0.3, "is not one class with its cutoff"),
        ({"bad": 0.3, "good": 0.7}, "is not one class with its cutoff"),
        ({}, "is not one class with its cutoff"),
        ({"worse": 0.3}, "names 'worse', which is no class of the model; they are ['bad', 'good']"),
        ({"bad": 0.0}, "0.0 is not a number between 0 and 1"),
        ({"bad": 1}, "1 is not a number between 0 and 1"),
        ({"bad": float("nan")}, "nan is not a number"),
        ({"bad": True}, "True is not a number"),
        ({"bad": "0.3"}, "'0.3' is not a number"),
    ],
)
def test_impossible_cutoffs_are_refused(cutoff: Any, message: str) -> None:
    with pytest.raises(OptionError, match="cutoff=") as refused:
        Explainer(forest(), data()[0], cutoff=cutoff)
    assert message in str(refused.value)


def test_a_cutoff_is_for_two_classes() -> None:
    X, _ = data()
    with pytest.raises(OptionError, match="two classes"):
        Explainer(DecisionTreeClassifier().fit(X, X[:, 0]), X, cutoff={1.0: 0.3})


def test_attributions_are_judged_by_the_cutoff() -> None:
    X, _ = data()
    explainer = Explainer(forest(), X, options=QUICK, cutoff={"bad": 0.1})
    explanations = metrics.attribution_contrasts(explainer, X[:30], np.ones((30, 3)))
    assert_array_equal([one.prediction for one in explanations], by_cutoff(forest(), 0.1).predict(X[:30]))


# What adapters read --------------------------------------------------------------------------------------------------


def cutoff_of(model: Any) -> Cutoff | None:
    live: Any = oracle_for(model)
    return live.live.cutoff  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("threshold", "label", "expected"),
    [("auto", "good", (1, 0.5)), (0.3, "bad", (0, 0.3)), (0.3, "good", (1, 0.3)), (1.0, "bad", None), (0, "bad", None)],
)
def test_fixed_thresholds(threshold: Any, label: str, expected: Any) -> None:
    model = by_cutoff(forest(), threshold, label)
    assert cutoff_of(model) == expected
    assert isinstance(oracle_for(model), TreeOracle) == (expected is not None)


def test_a_threshold_on_0_and_1_needs_no_label() -> None:
    X, y = data()
    model = FixedThresholdClassifier(DecisionTreeClassifier(), threshold=0.3).fit(X, (y == "bad").astype(int))
    assert cutoff_of(model) == (1, 0.3)


def test_tuned_thresholds() -> None:
    X, y = data()
    model = TunedThresholdClassifierCV(RandomForestClassifier(5, random_state=0), cv=2, random_state=0)
    model.fit(X, (y == "bad").astype(int))
    assert cutoff_of(model) == (1, model.best_threshold_)
    explanations = Explainer(model, X, options=QUICK).explain(X)
    assert_array_equal([one.prediction for one in explanations], model.predict(X))


def test_a_threshold_of_scores_is_left_to_the_model() -> None:
    X, y = data()
    model = FixedThresholdClassifier(
        LogisticRegression(), threshold=0.2, pos_label="bad", response_method="decision_function"
    ).fit(X, y)
    assert cutoff_of(model) is None
    assert_array_equal(
        [one.prediction for one in Explainer(model, X, options=QUICK).explain(X[:20])], model.predict(X[:20])
    )


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("table", [True, False])
def test_thresholds_and_pipelines(inside: bool, table: bool) -> None:
    X, y = data()
    last = RandomForestClassifier(10, random_state=0) if table else LogisticRegression()
    if inside:
        model = FixedThresholdClassifier(make_pipeline(StandardScaler(), last), threshold=0.2, pos_label="bad")
    else:
        model = make_pipeline(StandardScaler(), FixedThresholdClassifier(last, threshold=0.2, pos_label="bad"))
    model.fit(X, y)
    oracle = oracle_for(model)
    assert isinstance(oracle, TreeOracle) == table
    assert cutoff_of(model) == (0, 0.2)
    explanations = Explainer(model, X, options=QUICK).explain(X[:20])
    assert_array_equal([one.prediction for one in explanations], model.predict(X[:20]))
    assert all(one.negative.found for one in explanations)


def test_a_threshold_on_members_that_are_tables() -> None:
    X, y = data()
    stack = StackingClassifier([("forest", RandomForestClassifier(5, random_state=0))], LogisticRegression(), cv=2)
    model = FixedThresholdClassifier(stack, threshold=0.2, pos_label="bad").fit(X, y)
    oracle = oracle_for(model)
    assert isinstance(oracle, ComposedOracle)
    assert oracle.live.cutoff == oracle.cutoff == (0, 0.2)
    assert_array_equal(oracle.predict_proba(X), model.predict_proba(X))
    assert oracle.through_tables.model.estimator_ is not model.estimator_
    behind = make_pipeline(StandardScaler(), model).fit(X, y)
    assert cutoff_of(behind) == (0, 0.2)


def test_voters_with_a_threshold_vote_by_it() -> None:
    X, y = data()
    voter = FixedThresholdClassifier(RandomForestClassifier(5, random_state=0), threshold=0.1)  # of labels 0 and 1
    model = VotingClassifier([("forest", voter), ("tree", DecisionTreeClassifier(max_depth=2))]).fit(X, y)
    plain = VotingClassifier([("forest", voter.estimator), model.estimators[1]]).fit(X, y)
    assert (model.predict(X) != plain.predict(X)).any()
    oracle = oracle_for(model)
    assert isinstance(oracle, BlackBoxOracle)
    assert_array_equal(oracle.classes[oracle.predict(X)], model.predict(X))
    soft = VotingClassifier(model.estimators, voting="soft").fit(X, y)
    assert isinstance(oracle_for(soft), TreeOracle)  # whose mean knows nothing of thresholds
    assert cutoff_of(soft) is None


def test_probabilities_in_float32_are_compared_as_numpy_does() -> None:
    xgboost = pytest.importorskip("xgboost")
    X, y = data()
    model = xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(X, (y == "bad").astype(int))
    weighted = VotingClassifier([("one", model), ("two", model)], voting="soft", weights=[0.4, 0.6])
    weighted.fit(X, (y == "bad").astype(int))  # answers in float64
    for inside in (model, weighted):
        for threshold in np.unique(model.predict_proba(X)[:, 1])[::3]:
            near = float(str(threshold))  # as it is written, which float32 rounds back to itself
            decides = FixedThresholdClassifier(FrozenEstimator(inside), threshold=near)
            explanations = Explainer(decides, X, options=QUICK).explain(X[:30])
            assert_array_equal([one.prediction for one in explanations], decides.predict(X[:30]))
            for contrast in (contrast for one in explanations for contrast in one.contrasts if contrast.found):
                assert contrast.prediction == decides.predict(contrast.values.to_numpy(float)[None])[0]
