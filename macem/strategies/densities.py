"""Densities: how plausible an input is, for the term γ p(x) that keeps contrasts near the data."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import pandas as pd

from macem.errors import OptionError, OracleError
from macem.features import Features
from macem.kernel import F8, I8
from macem.strategies.encodings import FrequencyMap

__all__ = ["CopulaPlan", "Density", "GaussianCopula", "GivenDensity", "KernelDensity", "density_from"]

LEAST = float(np.log(np.finfo(np.float64).tiny))  # stands for the logarithm of zero, so that differences stay finite


@runtime_checkable
class Density(Protocol):
    """The logarithm of an input density, up to a constant.

    An object of yours needs `log_density` alone; `fit`, where it has one, is asked for the density to use.
    """

    @property
    def plan(self) -> Any:
        """The density as arrays, if any."""
        ...

    def fit(self, features: Features, numbers: F8, frame: pd.DataFrame) -> Density:
        """A new density, fitted to the background, given as numbers (n, d) and as a checked table."""
        ...

    def log_density(self, X: Any) -> F8:
        """Log-density, shape (n,), of a table as the model takes it."""
        ...


class _Fitted:
    """What the densities of numbers share: the way from the model's table to numbers."""

    plan: Any = None
    _features: Features | None = None

    def fit(self, features: Features, numbers: F8, frame: pd.DataFrame) -> Self:
        fitted = copy.copy(self)
        fitted._features = features
        fitted._learn(features, _silenced(features, numbers))
        return fitted

    def log_density(self, X: Any) -> F8:
        features = self._features
        if features is None:
            raise OptionError(f"{type(self).__name__} is not fitted: call fit(features, numbers, frame) first")
        table = X if isinstance(X, pd.DataFrame) else features.check(X)
        return self.of_numbers(features.numbers(table))

    def of_numbers(self, numbers: F8) -> F8:
        """The same of numbers (n, d); an explainer asks it where it is there, since tables take longer to build."""
        assert self._features is not None
        return self._of_numbers(_silenced(self._features, numbers))

    def _learn(self, features: Features, numbers: F8) -> None:
        raise NotImplementedError

    def _of_numbers(self, numbers: F8) -> F8:
        raise NotImplementedError


class KernelDensity(_Fitted):
    """Gaussian kernels around background rows (scikit-learn), for tables of few columns.

    Columns stand in working coordinates of unit variance, categories by their frequency, a missing value at the base.
    It keeps rows of the background, and so does the explainer that uses it.

    Parameters
    ----------
    bandwidth : float, "scott" or "silverman"
        Width of the kernels, in standard deviations.
    most_rows : int
        Of a larger background so many rows are drawn.
    """

    def __init__(self, bandwidth: float | str = "scott", most_rows: int = 2000) -> None:
        self.bandwidth = bandwidth
        self.most_rows = most_rows

    def _learn(self, features: Features, numbers: F8) -> None:
        from sklearn.neighbors import KernelDensity as Kernels

        if len(numbers) > self.most_rows:
            numbers = numbers[np.sort(np.random.default_rng(0).permutation(len(numbers))[: self.most_rows])]
        self._encoding = FrequencyMap().fit(features)
        points = self._encoding.encode(numbers)
        spread = points.std(axis=0)
        self._spread = np.where(spread > 0.0, spread, 1.0)
        self._kernels = Kernels(bandwidth=self.bandwidth).fit(points / self._spread)

    def _of_numbers(self, numbers: F8) -> F8:
        if len(numbers) == 0:
            return np.empty(0)
        found = self._kernels.score_samples(self._encoding.encode(numbers) / self._spread)
        return np.asarray(np.maximum(found, LEAST))


class CopulaPlan(NamedTuple):
    """A Gaussian copula as arrays.

    A reader finds for each feature its normal score q and the logarithm of its marginal density, and adds up
    ``sum(log_marginals) - 1/2 (stiffness * sum(q**2) - sum((q @ factor)**2))``.

    The points of a feature are sorted. A number of a discrete feature is one of them, with that point's score and
    log-marginal, or lies between, with a score interpolated and the log-marginal `rare`. A number of a continuous
    feature has a score interpolated and the log-marginal of the point to its left. Beyond the ends both are those of
    the end. A missing number or special code scores 0 and adds nothing.
    """

    first: I8  # (d + 1,) first point of each feature
    points: F8  # numbers whose scores are known
    scores: F8  # normal score of each, of mean 0 and variance 1 over the background
    log_marginals: F8  # log-mass of a discrete point; log-density from a continuous point to the next
    discrete: I8  # (d,)
    rare: F8  # (d,) log-mass of a discrete number that the background never showed
    factor: F8  # (d, rank) W in  R^-1 - I = stiffness I - W W',  R being the correlations of the scores
    stiffness: float


class GaussianCopula(_Fitted):
    """Each column's own distribution, joined by the correlations of normal scores; for tables of many columns.

    A value scores the normal quantile of its mid-rank (a discrete value the middle of its step). Correlations are
    shrunk toward none as Ledoit and Wolf do, so more columns than rows are no obstacle. It keeps no rows.

    Parameters
    ----------
    most_points : int
        Points that describe one column's distribution, categories apart.
    """

    def __init__(self, most_points: int = 64) -> None:
        self.most_points = most_points

    def _learn(self, features: Features, numbers: F8) -> None:
        n_rows, n_features = numbers.shape
        margins = []
        scores = np.zeros_like(numbers)
        for at in range(n_features):
            column = numbers[:, at]
            present = ~np.isnan(column)
            unit = 0.0 if features.kinds[at] == "categorical" else float(features.scale[at])
            margin = _margin_of(column[present], features.kinds[at], unit, self.most_points)
            found = np.interp(column[present], margin.points, margin.scores)
            mean, spread = found.mean(), found.std() or 1.0
            scores[present, at] = (found - mean) / spread
            margins.append(margin._replace(scores=(margin.scores - mean) / spread))
        factor, stiffness = _precision(scores)
        sizes = [margin.points.size for margin in margins]
        self.plan = CopulaPlan(
            first=np.append(0, np.cumsum(sizes)).astype(np.int64),
            points=np.concatenate([margin.points for margin in margins]),
            scores=np.concatenate([margin.scores for margin in margins]),
            log_marginals=np.concatenate([margin.log_marginals for margin in margins]),
            discrete=np.array([margin.discrete for margin in margins], np.int64),
            rare=np.full(n_features, np.log(0.5 / n_rows)),
            factor=factor,
            stiffness=stiffness,
        )

    def _of_numbers(self, numbers: F8) -> F8:
        plan: CopulaPlan = self.plan
        scores = np.zeros_like(numbers)
        total = np.zeros(len(numbers))
        for at in range(numbers.shape[1]):
            points, point_scores, log_marginals = (
                array[plan.first[at] : plan.first[at + 1]] for array in (plan.points, plan.scores, plan.log_marginals)
            )
            column = numbers[:, at]
            present = ~np.isnan(column)
            scores[present, at] = np.interp(column[present], points, point_scores)
            left = np.maximum(np.searchsorted(points, column[present], side="right") - 1, 0)
            marginal = log_marginals[left]
            if plan.discrete[at]:
                marginal = np.where(points[left] == column[present], marginal, plan.rare[at])
            total[present] += marginal
        turned = scores @ plan.factor
        return np.asarray(total - 0.5 * (plan.stiffness * (scores**2).sum(axis=1) - (turned**2).sum(axis=1)))


class _Margin(NamedTuple):
    """One column's distribution: a row of `CopulaPlan`."""

    points: F8
    scores: F8
    log_marginals: F8
    discrete: bool


def _margin_of(values: F8, kind: str, unit: float, most_points: int) -> _Margin:
    """Distribution of a column's known values; densities are per unit."""
    from scipy.special import ndtri

    ordered = np.sort(values)
    n = ordered.size
    points = np.unique(ordered)
    discrete = kind == "categorical" or points.size == 1
    discrete = discrete or (kind != "continuous" and points.size <= min(most_points, n // 5))
    if not discrete:  # points of equal mass
        n_steps = int(np.clip(np.sqrt(n), 1, most_points - 1))
        points = np.unique(ordered[np.linspace(0, n - 1, n_steps + 1).astype(np.int64)])
    before = np.searchsorted(ordered, points, side="left")
    through = np.searchsorted(ordered, points, side="right")
    scores = ndtri((before + through) / (2.0 * n))
    if discrete:
        return _Margin(points, scores, np.log((through - before) / n), True)
    masses = np.diff(before) / n
    masses[-1] += (n - before[-1]) / n
    log_densities = np.log(masses / (np.diff(points) / unit))
    return _Margin(points, scores, np.append(log_densities, log_densities[-1]), False)


def _precision(scores: F8) -> tuple[F8, float]:
    """Factor and stiffness of the inverse of the shrunk correlations of scores (n, d) of mean 0 and variance 1."""
    from sklearn.covariance import ledoit_wolf_shrinkage

    n_rows, n_features = scores.shape
    if not scores.any():
        return np.zeros((n_features, 1)), 0.0
    shrinkage = float(np.clip(ledoit_wolf_shrinkage(scores, assume_centered=True), 1e-3, 1.0))
    if n_features <= n_rows:
        variances, axes = np.linalg.eigh(scores.T @ scores / n_rows)
    else:
        _, singular, rows = np.linalg.svd(scores, full_matrices=False)
        variances, axes = singular**2 / n_rows, rows.T
    variances = np.maximum(variances, 0.0)
    weights = 1.0 / shrinkage - 1.0 / ((1.0 - shrinkage) * variances + shrinkage)
    return np.ascontiguousarray(axes * np.sqrt(np.maximum(weights, 0.0))), 1.0 / shrinkage - 1.0


class GivenDensity:
    """Any object with ``log_density(X)``, X being a table as the model takes it."""

    plan: Any = None

    def __init__(self, density: Any) -> None:
        self.density = density

    def fit(self, features: Features, numbers: F8, frame: pd.DataFrame) -> GivenDensity:
        if not hasattr(self.density, "fit"):
            return self
        return GivenDensity(self.density.fit(features, numbers, frame))

    def log_density(self, X: Any) -> F8:
        found = np.asarray(self.density.log_density(X), np.float64)
        if found.shape != (len(X),):
            raise OracleError(
                f"the density answered {len(X)} rows with an array of shape {found.shape}: "
                "let log_density return one number for each row"
            )
        if np.isnan(found).any() or (found == np.inf).any():
            raise OracleError(
                f"the density answered {found[~(found < np.inf)][0]} for some row: "
                "let log_density return finite numbers, or -inf where it is zero"
            )
        return np.asarray(np.maximum(found, LEAST))


def density_from(given: Any) -> Density | None:
    """A density by name ("kde" or "copula"), or any object with log_density; None is none."""
    if given is None:
        return None
    if isinstance(given, str) and given in ("kde", "copula"):
        return KernelDensity() if given == "kde" else GaussianCopula()
    if isinstance(given, _Fitted):
        return given
    if not callable(getattr(given, "log_density", None)):
        raise OptionError(
            f"density is {given!r}: give None, 'kde', 'copula' or an object with log_density(X) for a table X"
        )
    return GivenDensity(given)


def _silenced(features: Features, numbers: F8) -> F8:
    """Numbers with special codes as missing ones."""
    return np.where(features.silent(numbers), np.nan, numbers)
