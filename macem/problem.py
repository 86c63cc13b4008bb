"""Rows, features and options -> the arrays of the problems that the search solves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from macem import columns, kernel
from macem.features import Features
from macem.kernel import F8, I8, Plan, Problems, Weights
from macem.options import SearchOptions

__all__ = ["NEGATIVE", "POSITIVE", "free_problems", "pose", "select", "weights_from"]

POSITIVE = "positive"
NEGATIVE = "negative"

EVERYWHERE, NOWHERE = np.array([-np.inf, np.inf]), np.array([np.inf, -np.inf])  # intervals
INWARD = np.array([1.0, -1.0])  # up from the low end of an interval, down from its high one


def weights_from(options: SearchOptions) -> Weights:
    """The terms of the objective, as the kernel reads them."""
    return Weights(
        l1=float(options.l1_weight),
        margin=float(options.margin),
        change=float(options.change_cost),
        category=-1.0 if options.category_cost is None else float(options.category_cost),
        density=float(options.density_weight),
        log_score=int(options.score == "log"),
    )


def pose(
    features: Features,
    plan: Plan,
    numbers: F8,
    codes: F8,
    predicted: I8,
    kinds: Sequence[str],
    *,
    target: int | None,
    away_from_base: bool,
) -> Problems:
    """Pose one problem per row and kind, rows outermost.

    Parameters
    ----------
    features : Features
    plan : Plan
    numbers, codes : ndarray of float64, shape (n, d)
        The rows, as numbers and as the table reads them.
    predicted : ndarray of int, shape (n,)
        Class of each row, as a position.
    kinds : sequence of {"positive", "negative"}
    target : int or None
        The class that a negative is to reach; None: any other.
    away_from_base : bool
    """
    n_rows, n_kinds = numbers.shape[0], len(kinds)
    own = np.repeat(numbers, n_kinds, axis=0)
    positive = np.array([kind == POSITIVE for kind in kinds] * n_rows, dtype=bool)
    standing = np.repeat(features.special(numbers) | np.isnan(numbers), n_kinds, axis=0)  # it counts as at its base
    held = standing | features.frozen
    place = _places(plan, own)
    bound = _intervals(features, plan, own, positive, away_from_base)
    allowed = _levels(plan, place, positive, away_from_base)
    np.copyto(bound, own[..., None, None], where=held[..., None, None])
    goal = np.repeat(np.asarray(predicted, dtype=np.int64), n_kinds)
    if target is not None:
        goal[~positive] = target
    base = np.where(standing, own, features.base)
    problems = Problems(
        cell=kernel.records(
            kernel.CELL,
            own.shape,
            own=own,
            own_code=np.repeat(codes, n_kinds, axis=0),
            reference=np.where(positive[:, None], base, own),
            place=place,
            movable=~held & _has_choice(plan, own, bound, allowed),
        ),
        row=kernel.records(kernel.GOAL, own.shape[0], goal=goal, keep=positive | (target is not None)),
        anchor=own.copy(),
        bound=bound,
        place=_ends(plan, bound),
        allowed=allowed,
    )
    _anchor(plan, problems, positive)
    return problems


def free_problems(features: Features, plan: Plan, numbers: F8, codes: F8, goal: I8) -> Problems:
    """Problems whose every feature may move through its whole range, to see what a class rests on."""
    n, d = numbers.shape
    bound = np.empty((n, d, 2, 2))
    bound[..., 0, 0] = np.fmin(features.low, numbers)
    bound[..., 0, 1] = np.fmax(features.high, numbers)
    bound[..., 1, :] = NOWHERE
    return Problems(
        cell=kernel.records(
            kernel.CELL,
            (n, d),
            own=numbers,
            own_code=codes,
            reference=numbers,
            place=_places(plan, numbers),
            movable=~np.isnan(numbers),
        ),
        row=kernel.records(kernel.GOAL, n, goal=goal, keep=1),
        anchor=numbers,
        bound=bound,
        place=_ends(plan, bound),
        allowed=np.ones((n, plan.level.size), bool),
    )


def _places(plan: Plan, numbers: F8) -> F8:
    """Coordinates of numbers, as `kernel.place_of` has them."""
    base, scale = plan.feature["base_value"][:-1], plan.feature["scale"][:-1]
    places: F8 = (numbers - base) / scale
    if plan.level.size:
        categorical = _kinds(plan) > kernel.GRID
        np.copyto(places, plan.feature["unseen_place"][:-1], where=categorical)
        rows, features = np.nonzero(categorical & (numbers >= 0.0))
        levels = plan.feature["first_level"][features] + numbers[rows, features].astype(np.int64)
        places[rows, features] = plan.level["place"][levels]
    places[np.isnan(numbers)] = 0.0
    return places


def _ends(plan: Plan, bound: F8) -> F8:
    """Coordinates of the ends of intervals, (P, d, 2, 2)."""
    base, scale = plan.feature["base_value"][:-1, None, None], plan.feature["scale"][:-1, None, None]
    places: F8 = (bound - base) / scale
    return places


def _intervals(features: Features, plan: Plan, own: F8, positive: NDArray[np.bool_], away: bool) -> F8:
    """Feasible numbers as two intervals from low to high, (P, d, 2, 2); one whose low > high is empty."""
    base = plan.feature["base_value"][:-1]
    mirror = 2.0 * base - own
    bound = np.empty((*own.shape, 2, 2))
    low, high = bound[..., 0], bound[..., 1]
    if away:  # on the row's side of the base, and on the other from the mirror of its number
        above = own >= base
        low[..., 0] = np.where(above, own, -np.inf)
        high[..., 0] = np.where(above, np.inf, own)
        low[..., 1] = np.where(above, -np.inf, mirror)
        high[..., 1] = np.where(above, mirror, np.inf)
    else:
        bound[:] = EVERYWHERE, NOWHERE
    between = positive[:, None]
    np.copyto(low[..., 0], np.fmin(own, mirror), where=between)
    np.copyto(high[..., 0], np.fmax(own, mirror), where=between)
    np.copyto(bound[..., 1, :], NOWHERE, where=between[..., None])

    lowest, highest = features.low, features.high
    if features.direction.any():
        lowest = np.where(features.direction > 0, np.maximum(own, lowest), lowest)
        highest = np.where(features.direction < 0, np.minimum(own, highest), highest)
    np.maximum(low, lowest[..., None], out=low)
    np.minimum(high, highest[..., None], out=high)
    bound = _snapped(plan, own, bound, positive, ruled=away)
    for feature, dtype in features.narrow:  # its cells are rounded, and must not be so over an end
        ends = bound[:, feature]
        kept = (ends == own[:, feature, None, None]) | np.isinf(ends)
        bound[:, feature] = np.where(kept, ends, columns.inward(ends, dtype))

    low, high, only = bound[..., 0], bound[..., 1], own[..., None]
    lost = ~((low <= only) & (only <= high)).any(axis=-1)
    if lost.any():  # a row outside the range keeps its own value reachable
        side = np.where(low[lost, 0] > high[lost, 0], 0, 1)
        bound[(*np.nonzero(lost), side)] = own[lost][:, None]
    return bound


def _snapped(plan: Plan, own: F8, bound: F8, positive: NDArray[np.bool_], *, ruled: bool) -> F8:
    """Move interval ends inward to numbers that the data could show and that keep the base-value rule as floats."""
    base, grid = plan.feature["base_value"][:-1, None, None], plan.feature["grid"][:-1, None, None]
    own = own[..., None, None]
    radius = np.abs(own - base)
    keep = (bound == own) | np.isinf(bound)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # the mirror of a value may miss the rule by its last bit: take the next number
        snapped, further = bound, np.nextafter(bound, INWARD * np.inf)
        stepped = grid > 0.0
        if stepped.any():
            whole = INWARD * np.ceil(INWARD * bound * grid - 1e-9)
            snapped = np.where(stepped, whole / grid, bound)
            further = np.where(stepped, (whole + INWARD) / grid, further)
        gap = np.abs(snapped - base)
        misses = np.where(positive[:, None, None, None], gap > radius, (gap < radius) & ruled)
    return np.where(keep, bound, np.where(misses, further, snapped))


def _levels(plan: Plan, place: F8, positive: NDArray[np.bool_], away: bool) -> NDArray[np.bool_]:
    """Feasible levels: no farther from the base than the row's (PP), or at least as far (PN)."""
    first = plan.feature["first_level"]
    own = np.repeat(np.abs(place), first[1:] - first[:-1], axis=1)
    levels = np.abs(plan.level["place"])
    allowed: NDArray[np.bool_] = np.where(positive[:, None], levels <= own, (levels >= own) | (not away))
    return allowed


def _has_choice(plan: Plan, own: F8, bound: F8, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether a feature has a feasible value beside the row's own."""
    low, high, only = bound[..., 0], bound[..., 1], own[..., None]
    choice: NDArray[np.bool_] = ((low <= high) & ((low != only) | (high != only))).any(axis=-1)
    for feature in np.flatnonzero(_kinds(plan) > kernel.GRID):
        levels = allowed[:, plan.feature["first_level"][feature] : plan.feature["first_level"][feature + 1]]
        choice[:, feature] = levels.sum(axis=1) > (own[:, feature] >= 0.0)
    return choice


def _anchor(plan: Plan, problems: Problems, positive: NDArray[np.bool_]) -> None:
    """Set the anchors of positives: the feasible numbers nearest to the base."""
    reference = problems.cell["reference"][..., None]
    low, high = problems.bound[..., 0], problems.bound[..., 1]
    inside = np.minimum(np.maximum(reference, low), high)
    with np.errstate(over="ignore"):  # of numbers near the largest there are
        gap = np.where(low <= high, np.abs(inside - reference), np.inf)
    nearest = np.where(gap[..., 1] < gap[..., 0], inside[..., 1], inside[..., 0])
    is_level = _kinds(plan) > kernel.GRID  # the mode is feasible, and nearer to the base than any other level
    moving = problems.cell["movable"] & positive[:, None]
    np.copyto(problems.anchor, np.where(is_level, reference[..., 0], nearest), where=moving)


def _kinds(plan: Plan) -> I8:
    """Kind of each feature's coordinates, shape (d,)."""
    kinds: I8 = plan.feature["kind"][:-1]
    return kinds


def select(problems: Problems, rows: I8) -> Problems:
    """Some of the problems."""
    return Problems(*(np.ascontiguousarray(field[rows]) for field in problems))
