"""Everything compiled, and the NamedTuples that it reads.

numba's disk cache watches one source file, so all functions that call each other live here, under headed sections:
trees, links, encoding, objective, search step, axis profile, refinement. Only data enters a compiled function:
C-contiguous arrays and NamedTuples of arrays. The kernel knows numbers, and neither models nor tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
U8 = NDArray[np.uint64]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile for any thread, and keep the machine code on disk where there is a place for it."""
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # a read-only installation without a home: numba finds nowhere to keep a cache
        return numba.njit(**options)(function)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------------------------------
# Trees: many trees of any origin in one table
# ---------------------------------------------------------------------------------------------------------------------
# A value is compared as an unsigned *key* that orders like the number, so that float32 and float64 libraries, category
# codes and missing values share one node format. Narrow nodes are one word (key 32 | category 1 | missing-left 1 |
# feature 13 | left child 17), wide nodes two (key 64; flags | feature | left child).

MISSING = np.uint64(0xFFFFFFFFFFFFFFFF)  # key of a missing value
NO_CODE = np.uint64(0xFFFFFFFFFFFFFFFE)  # key of a category that is in no set

NARROW_FEATURES = 1 << 13
NARROW_NODES = 1 << 17

FLAG_MISSING_LEFT = 1  # a missing value goes left
FLAG_CATEGORY = 2  # the node asks for membership in a category set
FLAG_ZERO_MISSING = 4  # zero counts as missing (LightGBM's zero_as_missing)
FLAG_MISSING_ZERO = 8  # a missing value counts as zero (LightGBM's missing type none)

IDENTITY, SIGMOID, SOFTMAX, SIGMOID_EACH, VOTE, ADABOOST, SIGMOID_SINGLE, SOFTMAX_SINGLE, STEP = range(9)


class TreeEnsemble(NamedTuple):
    """A weighted mean of members; each member is a sum of trees behind a link. Made by `macem.trees`."""

    nodes: U8  # packed nodes, siblings adjacent, leaves pointing at themselves
    values: F8  # (n_nodes, width) what a leaf adds to its tree's raw outputs
    tree_first: I8  # (n_trees + 1,) first node of each tree
    tree_output: I8  # (n_trees,) first raw output that the tree adds to
    set_words: U8  # bit sets of category codes
    n_codes: I8  # (n_features,) how many category codes a feature has; 0: numeric
    missing_value: float  # a number that counts as missing, beside NaN; NaN: none
    wide: int  # 1: two words a node
    single: int  # 1: numbers are rounded to float32 before they are compared
    special: int  # 1: some node needs more than a comparison (categories, zero as missing)
    member_tree: I8  # (n_members + 1,) first tree of each member
    member_output: I8  # (n_members + 1,) first raw output of each member
    member_width: I8  # (n_members,) how many outputs each of its trees adds to
    member_class: I8  # class of each member's probability columns, one after the other
    member_class_first: I8  # (n_members + 1,)
    member_link: I8  # (n_members,)
    member_slope: F8  # (n_members,) factor before the link
    member_divisor: F8  # (n_members,) the sum of trees is divided by it
    member_single: I8  # (n_members,) 1: sums are rounded to float32 after each tree
    member_weight: F8  # (n_members,) weight in the mean
    total: float  # the weighted sum is divided by it
    start: F8  # (n_outputs,) raw output before the first tree
    n_classes: int


@compiled
def keys_from_codes(table: TreeEnsemble, codes: F8, keys: U8) -> None:
    """Turn an (n, d) matrix of numbers and category codes into comparable keys."""
    n_rows, n_features = codes.shape
    small = np.empty(1, np.float32)
    small_bits = small.view(np.uint32)
    large = np.empty(1, np.float64)
    large_bits = large.view(np.uint64)
    for row in range(n_rows):
        for feature in range(n_features):
            number = codes[row, feature]
            if table.single == 1:
                number = np.float64(np.float32(number))
            if np.isnan(number) or number == table.missing_value:
                keys[row, feature] = MISSING
            elif table.n_codes[feature] > 0:
                if number < 0.0 or number >= table.n_codes[feature]:
                    keys[row, feature] = NO_CODE
                else:
                    keys[row, feature] = np.uint64(number)
            elif table.wide == 1:
                large[0] = number + 0.0  # -0.0 and 0.0 are one key
                bits = large_bits[0]
                if bits >> np.uint64(63):
                    keys[row, feature] = ~bits
                else:
                    keys[row, feature] = bits | np.uint64(0x8000000000000000)
            else:
                small[0] = np.float32(number + 0.0)
                bits = np.uint64(small_bits[0])
                if bits >> np.uint64(31):
                    keys[row, feature] = bits ^ np.uint64(0xFFFFFFFF)
                else:
                    keys[row, feature] = bits | np.uint64(0x80000000)


@compiled
def leaf_of(table: TreeEnsemble, tree: int, keys: U8, row: int) -> int:
    """Walk one tree with one row of keys to its leaf."""
    first = np.uint64(table.tree_first[tree])
    at = first
    one = np.uint64(1)
    zero_key = np.uint64(0x80000000)
    if table.wide == 1:
        zero_key = np.uint64(0x8000000000000000)
    while True:
        if table.wide == 1:
            split = table.nodes[at << one]
            meta = table.nodes[(at << one) + one]
            flags = meta >> np.uint64(60)
            feature = (meta >> np.uint64(32)) & np.uint64(0xFFFFFFF)
            left = first + (meta & np.uint64(0xFFFFFFFF))
        else:
            word = table.nodes[at]
            split = word >> np.uint64(32)
            flags = (word >> np.uint64(30)) & np.uint64(3)
            feature = (word >> np.uint64(17)) & np.uint64(0x1FFF)
            left = first + (word & np.uint64(0x1FFFF))
        if left == at:
            return np.int64(at)
        key = keys[np.uint64(row), feature]
        if key == MISSING and flags & np.uint64(FLAG_MISSING_ZERO):
            key = zero_key
        if key == MISSING or (flags & np.uint64(FLAG_ZERO_MISSING) and key == zero_key):
            right = one ^ (flags & one)
        elif flags & np.uint64(FLAG_CATEGORY):
            right = one
            if key != NO_CODE:
                inside = table.set_words[split + (key >> np.uint64(6))] >> (key & np.uint64(63))
                right = one ^ (inside & one)
        elif key > split:
            right = one
        else:
            right = np.uint64(0)
        at = left + right


@compiled
def raw_scores(table: TreeEnsemble, codes: F8, raw: F8) -> None:
    """Sum the trees of every member, in order and in the member's precision, into the (n, n_outputs) array `raw`."""
    n_rows = codes.shape[0]
    keys = np.empty(codes.shape, np.uint64)
    keys_from_codes(table, codes, keys)
    for row in range(n_rows):
        for output in range(table.start.size):
            raw[row, output] = table.start[output]
        for member in range(table.member_link.size):
            for tree in range(table.member_tree[member], table.member_tree[member + 1]):
                leaf = leaf_of(table, tree, keys, row)
                for column in range(table.member_width[member]):
                    output = table.tree_output[tree] + column
                    total = raw[row, output] + table.values[leaf, column]
                    if table.member_single[member] == 1:
                        # a float64 sum of two float32 rounded once is the float32 sum
                        total = np.float64(np.float32(total))
                    raw[row, output] = total


@compiled
def link_scores(table: TreeEnsemble, raw: F8, row: int, outputs: F8, probabilities: F8) -> None:
    """Class probabilities of one row of raw outputs; `outputs` is scratch of at least the widest member."""
    for label in range(table.n_classes):
        probabilities[label] = 0.0
    for member in range(table.member_link.size):
        first = table.member_output[member]
        n_outputs = table.member_output[member + 1] - first
        for output in range(n_outputs):
            outputs[output] = raw[row, first + output] / table.member_divisor[member]
        _link(table.member_link[member], table.member_slope[member], outputs, n_outputs)
        first_class = table.member_class_first[member]
        for column in range(table.member_class_first[member + 1] - first_class):
            label = table.member_class[first_class + column]
            probabilities[label] += table.member_weight[member] * outputs[column]
    for label in range(table.n_classes):
        probabilities[label] /= table.total


@compiled
def _link(link: int, slope: float, outputs: F8, n_outputs: int) -> None:
    """From raw outputs to probability columns, in place (one output behind a sigmoid or step becomes two columns)."""
    if link == SIGMOID:
        positive = 1.0 / (1.0 + math.exp(-slope * outputs[0]))
        outputs[0] = 1.0 - positive
        outputs[1] = positive
    elif link == SIGMOID_SINGLE:
        exponential = math.exp(np.float32(min(-outputs[0], np.float64(np.float32(88.7)))))
        positive32 = np.float32(1.0) / np.float32(
            np.float32(np.float32(exponential) + np.float32(1.0)) + np.float32(1e-16)
        )
        outputs[0] = np.float64(np.float32(np.float32(1.0) - positive32))
        outputs[1] = np.float64(positive32)
    elif link == SOFTMAX_SINGLE:
        largest = outputs[0]
        for output in range(1, n_outputs):
            largest = max(largest, outputs[output])
        total = 0.0
        for output in range(n_outputs):
            outputs[output] = np.float64(np.float32(math.exp(np.float32(outputs[output] - largest))))
            total += outputs[output]
        for output in range(n_outputs):
            outputs[output] = np.float64(np.float32(np.float32(outputs[output]) / np.float32(total)))
    elif link == SOFTMAX or link == ADABOOST:
        if link == ADABOOST and n_outputs == 2:
            half = (outputs[1] - outputs[0]) / 2.0
            outputs[0] = -half
            outputs[1] = half
        elif link == ADABOOST:
            for output in range(n_outputs):
                outputs[output] = outputs[output] / (n_outputs - 1.0)
        largest = outputs[0]
        for output in range(1, n_outputs):
            largest = max(largest, outputs[output])
        total = 0.0
        for output in range(n_outputs):
            outputs[output] = math.exp(slope * (outputs[output] - largest))
            total += outputs[output]
        for output in range(n_outputs):
            outputs[output] /= total
    elif link == SIGMOID_EACH:
        for output in range(n_outputs):
            outputs[output] = 1.0 / (1.0 + math.exp(-slope * outputs[output]))
    elif link == VOTE:
        winner = 0
        for output in range(1, n_outputs):
            if outputs[output] > outputs[winner]:
                winner = output
        for output in range(n_outputs):
            outputs[output] = 0.0
        outputs[winner] = 1.0
    elif link == STEP:
        outputs[1] = 1.0 if outputs[0] > 0.0 else 0.0
        outputs[0] = 1.0 - outputs[1]


# ---------------------------------------------------------------------------------------------------------------------
# Encoding: working points <-> the user's numbers <-> the codes of the table
# ---------------------------------------------------------------------------------------------------------------------

CONTINUOUS, GRID, ORDERED, SIMPLEX = range(4)


class Plan(NamedTuple):
    """An encoding as data. A number of a level feature is its level number: 0 is the mode, -1 a level never seen."""

    kind: I8  # (d,) CONTINUOUS, GRID (integers, decimals), ORDERED levels (FMA), SIMPLEX (SSA)
    first: I8  # (d + 1,) first working coordinate of each feature
    base: F8  # (d,) b, the base value of a number; 0 for levels
    scale: F8  # (d,) the unit of a number's coordinate; 1 for levels
    grid: F8  # (d,) steps per unit of the data's own grid; 0 where continuous, and for levels
    level_first: I8  # (d + 1,) first entry of each feature in the level arrays
    level_place: F8  # r, coordinate of each level, by level number; on a simplex 0 for the mode and 1 elsewhere
    level_order: I8  # level numbers of each feature, sorted by coordinate
    unseen_place: F8  # (d,) coordinate of a level that the background never showed


class Weights(NamedTuple):
    """The terms of the objective."""

    l1: float  # β
    margin: float  # κ
    change: float  # cost of each changed feature
    category: float  # cost of a changed category; negative: its step in the encoding
    density: float  # γ
    log_score: int  # 1: ζ is the logarithm of the probabilities, 0: the probabilities


class Problems(NamedTuple):
    """P problems side by side: the feasible point nearest to a reference that has the wanted class."""

    own: F8  # (P, d) x0, the row's numbers
    own_code: F8  # (P, d) the same as the table reads them
    reference: F8  # (P, d) the row (PN), or the feasible numbers nearest to the base (PP)
    low: F8  # (P, d, 2) feasible numbers on each side of the base, on the data's grid; low > high: none
    high: F8  # (P, d, 2)
    allowed: NDArray[np.bool_]  # (P, L) feasible levels
    movable: NDArray[np.bool_]  # (P, d) more than one feasible value
    goal: I8  # (P,) the class that is wanted, or to be left
    keep: I8  # (P,) 1: the goal is wanted; 0: it is to be left


@compiled
def place_of(plan: Plan, feature: int, number: float) -> float:
    """Coordinate z of a number or level; a missing value stands at the base."""
    if np.isnan(number):
        return 0.0
    if plan.kind[feature] <= GRID:
        return (number - plan.base[feature]) / plan.scale[feature]
    if number < 0.0:
        return plan.unseen_place[feature]
    return plan.level_place[plan.level_first[feature] + np.int64(number)]


@compiled
def code_of(plan: Plan, problems: Problems, level_code: F8, p: int, feature: int, number: float) -> float:
    """What the table reads for a number; the row's own cell is read as it is."""
    if number == problems.own[p, feature] or np.isnan(number):
        return problems.own_code[p, feature]
    if plan.kind[feature] <= GRID:
        return number
    return level_code[plan.level_first[feature] + np.int64(number)]


@compiled
def settle(plan: Plan, problems: Problems, p: int, feature: int, number: float) -> float:
    """The feasible number nearest to a number, on the data's own grid (a continuous one survives float32)."""
    if plan.grid[feature] > 0.0:
        number = math.floor(number * plan.grid[feature] + 0.5) / plan.grid[feature]
    else:
        number = np.float64(np.float32(number))
    nearest = problems.own[p, feature]
    gap = np.inf
    for side in range(2):
        low = problems.low[p, feature, side]
        high = problems.high[p, feature, side]
        if low <= high:
            inside = min(max(number, low), high)
            if abs(inside - number) < gap:
                gap = abs(inside - number)
                nearest = inside
    return nearest


@compiled
def nearest_level(plan: Plan, problems: Problems, p: int, feature: int, place: float) -> float:
    """The feasible level whose coordinate is nearest; ties go to the smaller coordinate."""
    first = plan.level_first[feature]
    n_levels = plan.level_first[feature + 1] - first
    nearest = problems.own[p, feature]
    gap = abs(place - place_of(plan, feature, nearest))
    low = 0
    high = n_levels
    while low < high:  # the first level at or beyond the place
        middle = (low + high) // 2
        if plan.level_place[first + plan.level_order[first + middle]] < place:
            low = middle + 1
        else:
            high = middle
    for step in (-1, 1):
        at = low - 1 if step < 0 else low
        while 0 <= at < n_levels:
            level = plan.level_order[first + at]
            distance = abs(place - plan.level_place[first + level])
            if distance > gap:
                break
            if problems.allowed[p, first + level]:
                if distance < gap or plan.level_place[first + level] < place_of(plan, feature, nearest):
                    gap = distance
                    nearest = np.float64(level)
                break
            at += step
    return nearest


@compiled
def decode_point(plan: Plan, problems: Problems, p: int, point: F8, uniforms: F8, sample: int, numbers: F8) -> None:
    """From a working point to feasible numbers; each simplex draws the level that its uniform number falls on."""
    for feature in range(plan.kind.size):
        own = problems.own[p, feature]
        if not problems.movable[p, feature]:
            numbers[feature] = own
            continue
        first = plan.first[feature]
        if plan.kind[feature] <= GRID:
            if point[first] == place_of(plan, feature, own):
                numbers[feature] = own
            else:
                numbers[feature] = settle(
                    plan, problems, p, feature, plan.base[feature] + plan.scale[feature] * point[first]
                )
        elif plan.kind[feature] == ORDERED:
            numbers[feature] = nearest_level(plan, problems, p, feature, point[first])
        else:
            n_levels = plan.first[feature + 1] - first
            cumulated = 0.0
            level = 0
            for other in range(n_levels):
                weight = point[first + other] + (1.0 if other == 0 else 0.0)
                if weight > 0.0:
                    level = other
                    cumulated += weight
                    if cumulated > uniforms[sample, feature]:
                        break
            numbers[feature] = np.float64(level)
            if own < 0.0 and not problems.allowed[p, plan.level_first[feature] + level]:
                numbers[feature] = own


@compiled
def point_of(plan: Plan, numbers: F8, point: F8) -> None:
    """From numbers to the working point; a level stands at its corner of the simplex, the mode's being zero."""
    for feature in range(plan.kind.size):
        first = plan.first[feature]
        if plan.kind[feature] != SIMPLEX:
            point[first] = place_of(plan, feature, numbers[feature])
            continue
        for other in range(first, plan.first[feature + 1]):
            point[other] = 0.0
        if numbers[feature] > 0.0:
            point[first] = -1.0
            point[first + np.int64(numbers[feature])] = 1.0


@compiled
def project(plan: Plan, problems: Problems, p: int, point: F8, weights: F8) -> None:
    """Move a working point to the nearest feasible one, in place; `weights` is scratch of one simplex."""
    for feature in range(plan.kind.size):
        first = plan.first[feature]
        if plan.kind[feature] <= GRID:
            place = point[first]
            if not problems.movable[p, feature]:
                point[first] = place_of(plan, feature, problems.own[p, feature])
                continue
            nearest = place
            gap = np.inf
            for side in range(2):
                if problems.low[p, feature, side] <= problems.high[p, feature, side]:
                    inside = min(
                        max(place, place_of(plan, feature, problems.low[p, feature, side])),
                        place_of(plan, feature, problems.high[p, feature, side]),
                    )
                    if abs(inside - place) < gap:
                        gap = abs(inside - place)
                        nearest = inside
            point[first] = nearest
        elif plan.kind[feature] == ORDERED:
            own = place_of(plan, feature, problems.own[p, feature])
            if not problems.movable[p, feature]:
                point[first] = own
            else:  # between the outermost feasible levels; decoding takes the nearest feasible one
                low = own
                high = own
                level_first = plan.level_first[feature]
                for at in range(level_first, plan.level_first[feature + 1]):
                    level = plan.level_order[at]
                    if problems.allowed[p, level_first + level]:
                        low = min(low, plan.level_place[level_first + level])
                        break
                for back in range(plan.level_first[feature + 1] - level_first):
                    level = plan.level_order[plan.level_first[feature + 1] - 1 - back]
                    if problems.allowed[p, level_first + level]:
                        high = max(high, plan.level_place[level_first + level])
                        break
                point[first] = min(max(point[first], low), high)
        else:
            _project_on_simplex(plan, problems, p, feature, point, weights)


@compiled
def _project_on_simplex(plan: Plan, problems: Problems, p: int, feature: int, point: F8, weights: F8) -> None:
    """Euclidean projection of one block onto the simplex of its feasible levels, by sorting (exact)."""
    first = plan.first[feature]
    level_first = plan.level_first[feature]
    n_levels = plan.first[feature + 1] - first
    if not problems.movable[p, feature]:
        own = problems.own[p, feature]
        for level in range(n_levels):
            point[first + level] = 1.0 if level == own else 0.0
        if own >= 0.0:
            point[first] -= 1.0
        return
    n_kept = 0
    for level in range(n_levels):
        if problems.allowed[p, level_first + level]:
            weight = point[first + level] + (1.0 if level == 0 else 0.0)
            at = n_kept
            while at > 0 and weights[at - 1] < weight:
                weights[at] = weights[at - 1]
                at -= 1
            weights[at] = weight
            n_kept += 1
    cumulated = 0.0
    shift = 0.0
    for at in range(n_kept):
        cumulated += weights[at]
        if weights[at] - (cumulated - 1.0) / (at + 1.0) > 0.0:
            shift = (cumulated - 1.0) / (at + 1.0)
    for level in range(n_levels):
        weight = 0.0
        if problems.allowed[p, level_first + level]:
            weight = max(point[first + level] + (1.0 if level == 0 else 0.0) - shift, 0.0)
        point[first + level] = weight - (1.0 if level == 0 else 0.0)


# ---------------------------------------------------------------------------------------------------------------------
# Objective: PP and PN are one problem, told apart by a reference, a goal and a sign
# ---------------------------------------------------------------------------------------------------------------------

SMALLEST_PROBABILITY = 1e-9  # below it the logarithm is flat; a forest often says exactly 0


@compiled
def margin_of(weights: Weights, problems: Problems, p: int, probabilities: F8) -> tuple[float, bool]:
    """How far ζ is on the wanted side (positive: there), and whether the class is the wanted one, ties to the first."""
    goal = problems.goal[p]
    rival = -1
    top = 0
    for label in range(probabilities.size):
        if probabilities[label] > probabilities[top]:
            top = label
        if label != goal and (rival < 0 or probabilities[label] > probabilities[rival]):
            rival = label
    if rival < 0:  # a model of one class
        return (np.inf, True) if problems.keep[p] == 1 else (-np.inf, False)
    if weights.log_score == 1:
        margin = math.log(max(probabilities[goal], SMALLEST_PROBABILITY)) - math.log(
            max(probabilities[rival], SMALLEST_PROBABILITY)
        )
    else:
        margin = probabilities[goal] - probabilities[rival]
    if problems.keep[p] == 1:
        return margin, top == goal and (weights.margin == 0.0 or margin >= weights.margin)
    return -margin, top != goal and (weights.margin == 0.0 or -margin >= weights.margin)


@compiled
def feature_cost(plan: Plan, weights: Weights, problems: Problems, p: int, feature: int, number: float) -> float:
    """What one feature adds to the elastic net and the costs of change."""
    reference = problems.reference[p, feature]
    if number == reference or np.isnan(number):
        return 0.0
    if plan.kind[feature] > GRID and weights.category >= 0.0:
        return weights.change + weights.category
    if plan.kind[feature] == SIMPLEX:  # two corners differ by one in two coordinates
        return weights.change + 2.0 * weights.l1 + 2.0
    step = place_of(plan, feature, number) - place_of(plan, feature, reference)
    return weights.change + weights.l1 * abs(step) + step * step


@compiled
def cost_of(plan: Plan, weights: Weights, problems: Problems, p: int, numbers: F8) -> float:
    """Distance of numbers from the reference: β‖z - ref‖₁ + ‖z - ref‖₂², and the costs of change."""
    total = 0.0
    for feature in range(numbers.size):
        total += feature_cost(plan, weights, problems, p, feature, numbers[feature])
    return total
