from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr
from scipy.stats import multivariate_normal

from macem.errors import OptionError, OracleError
from macem.features import Features
from macem.strategies.densities import (
    LEAST,
    Density,
    GaussianCopula,
    GivenDensity,
    KernelDensity,
    density_from,
)


def dependent_table(n: int = 800) -> pd.DataFrame:
    """Two numbers that move together, and a category that follows them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    y = 0.9 * x + np.sqrt(1 - 0.81) * rng.normal(size=n)
    return pd.DataFrame(
        {
            "x": x,
            "y": np.exp(y),
            "count": rng.poisson(3, n),
            "grade": np.where(x < -0.5, "low", np.where(x < 1.0, "mid", "high")),
        }
    )


def fitted(density: Any, table: pd.DataFrame, **options: Any) -> Density:
    features = Features.fit(table, **options)
    found = density_from(density)
    assert found is not None
    return found.fit(features, features.numbers(features.check(table)), table)


@pytest.mark.parametrize("name", ["kde", "copula"])
def test_what_belongs_together_is_more_plausible(name: str) -> None:
    table = dependent_table()
    density = fitted(name, table)
    rng = np.random.default_rng(1)
    new = dependent_table(1600).iloc[800:]
    torn = new.assign(**{column: rng.permutation(new[column].to_numpy()) for column in new})
    together, apart = density.log_density(new), density.log_density(torn)
    assert together.shape == (800,)
    assert np.isfinite(together).all()
    assert together.mean() > apart.mean() + 0.5
    assert (together > apart).mean() > 0.65


def test_copula_is_the_density_of_a_gaussian_for_gaussian_data() -> None:
    rng = np.random.default_rng(2)
    covariance = np.array([[1.0, 0.7], [0.7, 1.0]])
    table = pd.DataFrame(rng.multivariate_normal([0, 0], covariance, 20_000), columns=["x", "y"])
    density = fitted(GaussianCopula(), table, scale=[1.0, 1.0])
    inside = table.iloc[:500]
    inside = inside[(inside.abs() < 1.5).all(axis=1)]
    expected = multivariate_normal([0, 0], covariance).logpdf(inside.to_numpy())
    found = density.log_density(inside)
    offset = 0.5 * np.log(np.linalg.det(covariance))  # left out, being a constant
    np.testing.assert_allclose(found - offset, expected, atol=0.35)
    assert abs((found - offset - expected).mean()) < 0.05


def test_copula_plan_is_all_that_is_needed() -> None:
    table = dependent_table()
    density = fitted("copula", table)
    features = Features.fit(table)
    plan = density.plan
    rows = features.numbers(table.iloc[:20])
    for row, expected in zip(rows, density.log_density(table.iloc[:20]), strict=True):
        total = 0.0
        scores = np.zeros(4)
        for at, number in enumerate(row):
            points = plan.points[plan.first[at] : plan.first[at + 1]]
            marginals = plan.log_marginals[plan.first[at] : plan.first[at + 1]]
            scores[at] = np.interp(number, points, plan.scores[plan.first[at] : plan.first[at + 1]])
            left = max(int((points <= number).sum()) - 1, 0)
            total += plan.rare[at] if plan.discrete[at] and points[left] != number else marginals[left]
        total -= 0.5 * (plan.stiffness * scores @ scores - ((scores @ plan.factor) ** 2).sum())
        assert total == pytest.approx(expected, rel=1e-12)


def test_copula_correlations_are_proper() -> None:
    table = dependent_table()
    plan = fitted("copula", table).plan
    inverse = (plan.stiffness + 1.0) * np.eye(4) - plan.factor @ plan.factor.T
    correlations = np.linalg.inv(inverse)
    np.testing.assert_allclose(np.diag(correlations), 1.0, atol=1e-9)
    assert 0.85 < correlations[0, 1] < 0.93


def test_copula_of_more_columns_than_rows() -> None:
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.normal(size=(30, 2)) @ rng.normal(size=(2, 80)) + 0.1 * rng.normal(size=(30, 80)))
    table.columns = [f"x{at}" for at in range(80)]
    density = fitted("copula", table)
    assert density.plan.factor.shape[1] <= 30
    torn = table.assign(**{column: rng.permutation(table[column].to_numpy()) for column in table})
    assert density.log_density(table).mean() > density.log_density(torn).mean()


@pytest.mark.parametrize("name", ["kde", "copula"])
def test_missing_special_unseen_and_constant_cells(name: str) -> None:
    table = dependent_table(100).assign(same=1.0)
    table.loc[:10, "x"] = np.nan
    table.loc[20:30, "count"] = -9
    density = fitted(name, table, special_values={"count": -9})
    rows = table.iloc[[5, 25, 50]].copy()
    rows.iloc[2, 3] = "never seen"
    rows.iloc[2, 0] = 1e6
    assert np.isfinite(density.log_density(rows)).all()
    assert density.log_density(rows.iloc[:0]).shape == (0,)
    silent = rows.iloc[[1]].assign(count=np.nan)
    assert density.log_density(silent)[0] == density.log_density(rows.iloc[[1]])[0]


def test_rare_categories_and_values_are_less_plausible() -> None:
    table = pd.DataFrame({"c": ["a"] * 90 + ["b"] * 10, "n": [0] * 50 + [1] * 50})
    density = fitted("copula", table)
    a, b, unseen = density.log_density(pd.DataFrame({"c": ["a", "b", "z"], "n": [0, 0, 0]}))
    assert a > b > unseen
    between = density.log_density(pd.DataFrame({"c": ["a"], "n": [7]}))[0]
    assert between < a


def test_arrays_are_read_too() -> None:
    array = np.random.default_rng(4).normal(size=(50, 3))
    features = Features.fit(array)
    for name in ("kde", "copula"):
        density = density_from(name)
        assert density is not None
        density = density.fit(features, features.numbers(features.check(array)), features.check(array))
        assert density.log_density(array).shape == (50,)


@pytest.mark.parametrize("name", ["kde", "copula"])
def test_fitted_densities_pickle(name: str) -> None:
    table = dependent_table(100)
    density = fitted(name, table)
    again = pickle.loads(pickle.dumps(density))
    assert np.array_equal(again.log_density(table), density.log_density(table))


def test_a_copula_keeps_no_rows_and_kernels_keep_few() -> None:
    table = pd.DataFrame({"x": np.random.default_rng(0).normal(size=20_000), "c": ["a", "b"] * 10_000})
    assert len(pickle.dumps(fitted("copula", table))) < 10_000
    assert len(pickle.dumps(fitted(KernelDensity(most_rows=100), table))) < 20_000


def test_kernels_draw_the_same_rows_each_time() -> None:
    table = dependent_table(500)
    density = KernelDensity(most_rows=50)
    state = np.random.get_state()[1].copy()
    one, other = (fitted(density, table).log_density(table.iloc[:5]) for _ in range(2))
    assert np.array_equal(one, other)
    assert np.array_equal(np.random.get_state()[1], state)


def test_an_object_with_log_density_is_a_density() -> None:
    class Own:
        def log_density(self, X: pd.DataFrame) -> list[float]:
            return [-np.inf if x < 0.0 else float(np.log(ndtr(x))) for x in X["x"]]

    table = pd.DataFrame({"x": [0.0, 1.0, -1.0]})
    density = fitted(Own(), table)
    assert isinstance(density, GivenDensity)
    assert density.plan is None
    assert density.log_density(table).tolist() == [np.log(0.5), np.log(ndtr(1.0)), LEAST]


def test_a_density_of_one_s_own_is_fitted_if_it_can_be() -> None:
    class Counting:
        def __init__(self, n: int = 0) -> None:
            self.n = n

        def fit(self, features: Features, numbers: np.ndarray, frame: pd.DataFrame) -> Counting:
            return Counting(len(numbers))

        def log_density(self, X: pd.DataFrame) -> np.ndarray:
            return np.full(len(X), float(self.n))

    own = Counting()
    assert fitted(own, pd.DataFrame({"x": [0.0, 1.0]})).log_density([[1.0]]).tolist() == [2.0]
    assert own.n == 0


@pytest.mark.parametrize(
    ("answer", "words"),
    [(np.zeros((2, 1)), r"shape \(2, 1\)"), (np.array([0.0, np.nan]), "nan"), (np.array([np.inf, 0.0]), "inf")],
)
def test_answers_that_are_refused(answer: np.ndarray, words: str) -> None:
    class Wrong:
        def log_density(self, X: pd.DataFrame) -> np.ndarray:
            return answer

    with pytest.raises(OracleError, match=words):
        fitted(Wrong(), pd.DataFrame({"x": [0.0, 1.0]})).log_density(pd.DataFrame({"x": [0.0, 1.0]}))


def test_densities_by_name() -> None:
    assert density_from(None) is None
    assert isinstance(density_from("kde"), KernelDensity)
    assert isinstance(density_from("copula"), GaussianCopula)
    own = GaussianCopula()
    assert density_from(own) is own
    for wrong in ("kd", 3):
        with pytest.raises(OptionError, match="log_density"):
            density_from(wrong)
    with pytest.raises(OptionError, match="not fitted"):
        own.log_density(pd.DataFrame({"x": [1.0]}))
