"""Rows, features and options -> the arrays of the problems that the search solves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from macem import kernel
from macem.features import Features
from macem.kernel import F8, I8, Plan, Problems, Weights
from macem.options import SearchOptions

__all__ = ["NEGATIVE", "POSITIVE", "free_problems", "pose", "select", "weights_from"]

POSITIVE = "positive"
NEGATIVE = "negative"


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
    positive = np.tile(np.array([kind == POSITIVE for kind in kinds], dtype=bool), n_rows)
    held = np.repeat(np.isnan(numbers) | features.special(numbers) | features.frozen, n_kinds, axis=0)
    low, high = _intervals(features, plan, own, positive, away_from_base)
    allowed = _levels(plan, own, positive, away_from_base)
    low[held] = high[held] = own[held][:, None]
    movable = ~held & _has_choice(plan, own, low, high, allowed)
    goal = np.repeat(np.asarray(predicted, dtype=np.int64), n_kinds)
    keep = positive.copy()
    if target is not None:
        goal[~positive] = target
        keep[:] = True
    standing = features.special(numbers) | np.isnan(numbers)  # such a cell counts as standing at its base
    base = np.where(np.repeat(standing, n_kinds, axis=0), own, features.base)
    reference = np.where(positive[:, None], base, own)
    bound = np.ascontiguousarray(np.stack([low, high], axis=-1))
    problems = Problems(
        cell=kernel.records(
            kernel.CELL,
            own.shape,
            own=own,
            own_code=np.repeat(codes, n_kinds, axis=0),
            reference=reference,
            place=_places(plan, own),
            movable=movable,
        ),
        row=kernel.records(kernel.GOAL, own.shape[0], goal=goal, keep=keep),
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
    bound = np.full((n, d, 2, 2), [np.inf, -np.inf])
    bound[..., 0, 0] = np.fmin(features.low, numbers)
    bound[..., 0, 1] = np.fmax(features.high, numbers)
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
    places = _ends(plan, numbers[..., None])[..., 0]
    for feature in np.flatnonzero(_kinds(plan) > kernel.GRID):
        first, last = plan.feature["first_level"][feature], plan.feature["first_level"][feature + 1]
        known = np.append(plan.level["place"][first:last], plan.feature["unseen_place"][feature])
        places[:, feature] = known[np.nan_to_num(numbers[:, feature], nan=0.0).astype(np.int64)]
    return np.where(np.isnan(numbers), 0.0, places)


def _ends(plan: Plan, numbers: F8) -> F8:
    """Coordinates of numbers of numeric features, shape (P, d, …)."""
    shape = (-1, *(1,) * (numbers.ndim - 2))
    base, scale = (plan.feature[name][:-1].reshape(shape) for name in ("base_value", "scale"))
    places: F8 = (numbers - base) / scale
    return places


def _intervals(features: Features, plan: Plan, own: F8, positive: NDArray[np.bool_], away: bool) -> tuple[F8, F8]:
    """Feasible numbers as two intervals, within range and direction; an interval whose low > high is empty."""
    base = np.broadcast_to(plan.feature["base_value"][:-1], own.shape)
    mirror = 2.0 * base - own
    above = own >= base
    low = np.full((*own.shape, 2), np.inf)
    high = np.full((*own.shape, 2), -np.inf)
    if away:
        low[..., 0], high[..., 0] = np.where(above, own, -np.inf), np.where(above, np.inf, own)
        low[..., 1], high[..., 1] = np.where(above, -np.inf, mirror), np.where(above, mirror, np.inf)
    else:
        low[..., 0], high[..., 0] = -np.inf, np.inf
    low[positive] = np.stack([np.fmin(own, mirror), np.full_like(own, np.inf)], axis=-1)[positive]
    high[positive] = np.stack([np.fmax(own, mirror), np.full_like(own, -np.inf)], axis=-1)[positive]

    rising, falling = features.direction > 0, features.direction < 0
    low[:, rising] = np.maximum(low[:, rising], own[:, rising, None])
    high[:, falling] = np.minimum(high[:, falling], own[:, falling, None])
    low = np.maximum(low, features.low[:, None])
    high = np.minimum(high, features.high[:, None])
    low = _snapped(plan, own, low, positive, up=True, ruled=away)
    high = _snapped(plan, own, high, positive, up=False, ruled=away)

    # a row outside the range keeps its own value reachable
    lost = np.logical_not(((low <= own[..., None]) & (own[..., None] <= high)).any(axis=-1))
    side = np.where(low[..., 0] > high[..., 0], 0, 1)
    for bound in (low, high):
        np.put_along_axis(
            bound,
            side[..., None],
            np.where(lost[..., None], own[..., None], np.take_along_axis(bound, side[..., None], axis=-1)),
            axis=-1,
        )
    return low, high


def _snapped(plan: Plan, own: F8, bound: F8, positive: NDArray[np.bool_], *, up: bool, ruled: bool) -> F8:
    """Move interval ends inward to numbers that the data could show and that keep the base-value rule as floats."""
    base, grid = plan.feature["base_value"][:-1, None], plan.feature["grid"][:-1, None]
    radius = np.abs(own - plan.feature["base_value"][:-1])[..., None]
    toward = 1.0 if up else -1.0
    keep = (bound == own[..., None]) | np.isinf(bound)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        whole = np.ceil(bound * grid - 1e-9) if up else np.floor(bound * grid + 1e-9)
        snapped = np.where(grid > 0.0, whole / grid, bound)
        gap = np.abs(snapped - base)
        misses = np.where(positive[:, None, None], gap > radius, (gap < radius) & ruled)
        # the mirror of a value may miss the rule by its last bit: take the next number
        further = np.where(grid > 0.0, (whole + toward) / grid, np.nextafter(bound, toward * np.inf))
    return np.where(keep, bound, np.where(misses, further, snapped))


def _levels(plan: Plan, own: F8, positive: NDArray[np.bool_], away: bool) -> NDArray[np.bool_]:
    """Feasible levels: no farther from the base than the row's (PP), or at least as far (PN)."""
    allowed = np.zeros((own.shape[0], plan.level.size), bool)
    for feature in np.nonzero(_kinds(plan) > kernel.GRID)[0]:
        first, last = plan.feature["first_level"][feature], plan.feature["first_level"][feature + 1]
        places = np.abs(plan.level["place"][first:last])
        level = own[:, feature]
        known = level >= 0.0
        safe = np.where(known, level, 0).astype(np.int64)
        distance = np.where(
            np.isnan(level), 0.0, np.where(known, places[safe], np.abs(plan.feature["unseen_place"][feature]))
        )
        nearer = places[None, :] <= distance[:, None]
        farther = places[None, :] >= distance[:, None] if away else np.ones_like(nearer)
        allowed[:, first:last] = np.where(positive[:, None], nearer, farther)
        rows = np.nonzero(known)[0]
        allowed[rows, first + safe[rows]] = True
    return allowed


def _has_choice(plan: Plan, own: F8, low: F8, high: F8, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether a feature has a feasible value beside the row's own."""
    beside = (low <= high) & ((low != own[..., None]) | (high != own[..., None]))
    choice: NDArray[np.bool_] = np.any(beside, axis=-1)
    for feature in np.nonzero(_kinds(plan) > kernel.GRID)[0]:
        levels = allowed[:, plan.feature["first_level"][feature] : plan.feature["first_level"][feature + 1]]
        choice[:, feature] = levels.sum(axis=1) > (own[:, feature] >= 0.0)
    return choice


def _anchor(plan: Plan, problems: Problems, positive: NDArray[np.bool_]) -> None:
    """Set the anchors of positives: the feasible numbers nearest to the base."""
    reference = problems.cell["reference"]
    low, high = problems.bound[..., 0], problems.bound[..., 1]
    inside = np.clip(reference[..., None], low, high)
    with np.errstate(over="ignore"):  # of numbers near the largest there are
        gap = np.where(low <= high, np.abs(inside - reference[..., None]), np.inf)
    nearest = np.take_along_axis(inside, gap.argmin(axis=-1)[..., None], axis=-1)[..., 0]
    is_level = _kinds(plan) > kernel.GRID  # the mode is feasible, and nearer to the base than any other level
    moving = problems.cell["movable"] & positive[:, None]
    np.copyto(problems.anchor, np.where(is_level, reference, nearest), where=moving)


def _kinds(plan: Plan) -> I8:
    """Kind of each feature's coordinates, shape (d,)."""
    kinds: I8 = plan.feature["kind"][:-1]
    return kinds


def select(problems: Problems, rows: I8) -> Problems:
    """Some of the problems."""
    return Problems(*(np.ascontiguousarray(field[rows]) for field in problems))
