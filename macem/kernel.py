"""Everything compiled, and the NamedTuples that it reads.

numba's disk cache watches one source file, so all functions that call each other live here, under headed sections:
trees, links, encoding, objective, search step, axis profile, refinement. Only data enters a compiled function:
C-contiguous arrays and NamedTuples of arrays. The kernel knows numbers, and neither models nor tables.
"""

from __future__ import annotations

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
