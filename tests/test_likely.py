"""Examples that a density draws to where the data are, on two columns that go together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

import macem
from macem.strategies.densities import GaussianCopula

GENERATOR = np.random.default_rng(3)
A = GENERATOR.integers(0, 41, 400)
X = pd.DataFrame({"a": A, "b": np.clip(A + GENERATOR.integers(-2, 3, A.size), 0, 40)})
ROWS = pd.DataFrame({"a": [22, 23, 24], "b": [22, 23, 24]})


def model(table: pd.DataFrame) -> np.ndarray:
    high = np.asarray(table, dtype=float)[:, 0] > 30
    return np.column_stack([1.0 - high, high])


def explained(weight: float, density: str = "copula", **options) -> tuple[macem.Explainer, macem.results.Explanations]:
    given = macem.SearchOptions(density_weight=weight, n_steps=20, **options)
    explainer = macem.Explainer(model, X, density=density, options=given)
    return explainer, explainer.explain(ROWS, seed=1)


def negatives(explanations: macem.results.Explanations) -> pd.DataFrame:
    assert all(one.negative.found for one in explanations)
    return pd.DataFrame([one.negative.values for one in explanations])


@pytest.mark.parametrize("density", ["kde", "copula"])
def test_a_density_draws_examples_to_the_data_at_a_price(density: str) -> None:
    explainer, alone = explained(0.0, density)
    assert negatives(alone)["a"].tolist() == [31, 31, 31]
    assert negatives(alone)["b"].tolist() == [22, 23, 24]  # the nearest, which no row resembles
    likely = explained(5.0, density)[1]
    fitted = GaussianCopula().fit(explainer.features, explainer.features.numbers(X), X)
    assert (fitted.log_density(negatives(likely)) > fitted.log_density(negatives(alone)) + 1.0).all()
    assert (negatives(likely)["a"] - negatives(likely)["b"]).abs().max() <= 4
    for near, far in zip(alone, likely, strict=True):
        assert far.negative.distance > near.negative.distance
        assert far.negative.prediction != far.prediction
        assert (far.negative.values >= far.original).all()  # the base is 20: no nearer to it than the row


def test_more_weight_is_no_less_likely() -> None:
    found = [explained(weight) for weight in (0.0, 0.5, 5.0)]
    fitted = GaussianCopula().fit(found[0][0].features, found[0][0].features.numbers(X), X)
    densities = [fitted.log_density(negatives(explanations)).sum() for _, explanations in found]
    assert densities == sorted(densities)


def test_limits_hold() -> None:
    explainer = explained(5.0)[0]
    for explanation in explainer.explain(ROWS, max_queries=2000):
        # a step, or a round, may pass the limit, but no further one begins
        assert explanation.negative.n_queries <= 2500
    stopped = explainer.explain(ROWS, time_limit=0.0)
    assert not any(one.negative.found for one in stopped)


@pytest.mark.parametrize("n_trees", [1, 10])
def test_a_table_takes_the_density_by_numbers_as_the_model_itself_does(n_trees: int) -> None:
    forest = RandomForestClassifier(n_trees, max_depth=3, random_state=0).fit(X, A > 30)
    options = macem.SearchOptions(density_weight=5.0)
    on_table = macem.Explainer(forest, X, density="copula", options=options)
    assert "compiled" in on_table.describe()
    asked = macem.Explainer(forest.predict_proba, X, density="copula", options=options)
    fitted = GaussianCopula().fit(on_table.features, on_table.features.numbers(X), X)
    scores = []
    for explainer in (on_table, asked, on_table.with_options(macem.SearchOptions())):
        explanations = explainer.explain(ROWS)
        distances = np.array([one.negative.distance for one in explanations])
        scores.append(distances - 5.0 * fitted.log_density(negatives(explanations)))
        if explainer is on_table:
            assert all(one.negative.lower_bound is None for one in explanations)
    assert (scores[0] <= scores[1] + 0.05).all()  # grids may end a step apart
    assert (scores[0] < scores[2] - 1.0).all()
