"""The paper's equations in plain NumPy, slow and obvious, with the readings of ``docs/method.md``.

Working coordinates z have the base values at zero; `reference` is zero for a pertinent positive and the row's z0 for a
pertinent negative.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

F8 = NDArray[np.float64]


def frequency_map(counts: F8) -> F8:
    """FMA: the mode at 0, a level seen once at 1."""
    return np.asarray((counts.max() - counts) / (counts.max() - 1.0))


def margin(probabilities: F8, goal: int, keep: bool, log_score: bool = True) -> float:
    """How far ζ leads toward what is wanted: the goal kept, or left."""
    scores = np.log(np.maximum(probabilities, 1e-9)) if log_score else probabilities
    lead = scores[goal] - max(score for label, score in enumerate(scores) if label != goal)
    return float(lead if keep else -lead)


def hinge(lead: float, kappa: float) -> float:
    """max(-lead, -κ)."""
    return max(-lead, -kappa)


def elastic_net(offset: F8, beta: float) -> float:
    """β‖δ‖₁ + ‖δ‖₂²."""
    return float(beta * np.abs(offset).sum() + np.square(offset).sum())


def shrink(offset: F8, by: float) -> F8:
    """The proximal step of `by` times the L1 norm."""
    return np.asarray(np.sign(offset) * np.maximum(np.abs(offset) - by, 0.0))


def project(z: F8, z0: F8, positive: bool, low: F8, high: F8) -> F8:
    """The nearest point no farther from the base than the row (positive), or at least as far; within the range."""
    radius = np.abs(z0)
    sides = [(-radius, radius)] if positive else [(radius, np.inf), (-np.inf, -radius)]
    nearest, gap = z0.copy(), np.full(z.shape, np.inf)
    for least, most in sides:
        least, most = np.maximum(least, low), np.minimum(most, high)
        inside = np.clip(z, least, most)
        nearer = (least <= most) & (np.abs(inside - z) < gap)
        nearest[nearer], gap[nearer] = inside[nearer], np.abs(inside - z)[nearer]
    return nearest


def project_on_simplex(weights: F8) -> F8:
    """The nearest weights that are at least 0 and sum to 1: a common shift, found by bisection."""
    low, high = weights.min() - 1.0, weights.max()
    for _ in range(200):
        middle = (low + high) / 2.0
        if np.maximum(weights - middle, 0.0).sum() > 1.0:
            low = middle
        else:
            high = middle
    return np.asarray(np.maximum(weights - high, 0.0))


def gradient(loss: Callable[[F8], float], z: F8, directions: F8, radius: float) -> F8:
    """d/(qμ) Σ (f(z + μu) - f(z)) u over the unit vectors u."""
    n_directions, n_coordinates = directions.shape
    at_z = loss(z)
    total = np.zeros(n_coordinates)
    for direction in directions:
        total += (loss(z + radius * direction) - at_z) * direction
    return total * n_coordinates / (n_directions * radius)


def minimise(
    loss: Callable[[F8], float],
    feasible: Callable[[F8], F8],
    start: F8,
    reference: F8,
    directions: F8,
    *,
    beta: float,
    radius: float,
    step_size: float,
    n_steps: int,
    n_taken: int,
) -> F8:
    """Projected FISTA; `directions` has one block of unit vectors a step, `n_taken` of `n_steps` steps are taken."""
    point, centre = start.copy(), start.copy()
    for step in range(n_taken):
        rate = step_size * np.sqrt(1.0 - step / n_steps)
        slope = gradient(lambda z: loss(feasible(z)), centre, directions[step], radius) + 2.0 * (centre - reference)
        moved = feasible(reference + shrink(centre - rate * slope - reference, rate * beta))
        centre = feasible(moved + step / (step + 3.0) * (moved - point))
        point = moved
    return point
