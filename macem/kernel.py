"""Everything compiled, and the NamedTuples that it reads.

numba's disk cache watches one source file, so all functions that call each other live here, under headed sections:
trees, links, encoding, problems, objective, search step, axis profile, refinement. Only data enters a compiled
function: C-contiguous arrays and NamedTuples of arrays. The kernel knows numbers, and neither models nor tables.

Python calls what is `compiled`, and nothing else: the rest has no wrapper for it, and such a call ends the process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from macem.compiling import instructions, rest_collector_for
from macem.vectors import MOST_KEYS, ROWS

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
U8 = NDArray[np.uint64]
Sums = NDArray[Any]  # of float64, or of float32 where a library adds in it
Records = NDArray[Any]

_Function = TypeVar("_Function", bound=Callable[..., Any])

rest_collector_for(__name__)
prefetch, trailing_zeros, has_vectors, descend = instructions()


def compiled(function: _Function) -> _Function:
    """Compile an entry for any thread, which allocates nothing; machine code stays on disk where there is a place.

    It counts no references, nor does what it calls: to count one each time that an array is taken out of a NamedTuple
    costs 20 times the work of a loop over cells (56 us against 3 for 51 x 20 of them).
    """
    return _jit(function, no_cfunc_wrapper=True, _nrt=False)


def compiled_allocating(function: _Function) -> _Function:
    """Compile an entry that allocates."""
    return _jit(function, no_cfunc_wrapper=True, _nrt=True)


def allocating(function: _Function) -> _Function:
    """Compile a function that only compiled code calls; without wrappers for Python it compiles in half the time."""
    return _jit(function, no_cfunc_wrapper=True, no_cpython_wrapper=True, _nrt=True)


def inner(function: _Function) -> _Function:
    """Compile a function that only compiled code calls and that allocates nothing."""
    return _jit(function, no_cfunc_wrapper=True, no_cpython_wrapper=True, _nrt=False)


def inlined(function: _Function) -> _Function:
    """Compile a small `inner` function into its callers: to hand NamedTuples over costs more than its work."""
    return _jit(function, no_cfunc_wrapper=True, no_cpython_wrapper=True, _nrt=False, forceinline=True)


def spliced(function: _Function) -> _Function:
    """Write a function into its caller before types are inferred.

    A compiled function carries machine code of all that it calls, and its caller carries that again: where that is
    `answer_one` or a walk, each such function more takes a second of the first call. Everything in one function takes
    longer too, since inference grows faster than what it infers; of `refine_rows` these four are what measured best.
    """
    return _jit(function, inline="always")


def _jit(function: _Function, **options: Any) -> _Function:
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    except RuntimeError:  # a read-only installation without a home: numba finds nowhere to keep a cache
        return numba.njit(nogil=True, error_model="numpy", **options)(function)


def record(**fields: Any) -> np.dtype[Any]:
    """A record type whose fields compiled and plain code alike read as attributes.

    One array of records, where fields are read together, compiles about twice as fast as an array per field.
    """
    plain = np.dtype([(name, kind) for name, kind in fields.items()], align=True)
    return np.dtype((np.record, plain))


def records(kind: np.dtype[Any], shape: int | tuple[int, ...], /, **fields: Any) -> Records:
    """An array of records with some fields filled, the others zero."""
    array: Records = np.zeros(shape, kind)
    for name, value in fields.items():
        array[name] = value
    return array


# ---------------------------------------------------------------------------------------------------------------------
# Trees: many trees of any origin in one table
# ---------------------------------------------------------------------------------------------------------------------
# A value is compared as an unsigned *key* that orders like the number, so that float32 and float64 libraries, category
# codes and missing values share one node format. Narrow nodes are one word (key 32 | category 1 | missing-left 1 |
# feature 14 | left 16), wide nodes two (key 64; flags 4 | feature 28 | left 32). Left is the step from a node to its
# left child, with the right one beside it, and zero at a leaf; as the lowest 16 bits it is one instruction to read. A
# narrow key is the upper half of a word whose lower half is zero, so that it is above a node's word just where it is
# above the node's key. `vectors.descend` reads narrow nodes, too.

MISSING = np.uint64(0xFFFFFFFFFFFFFFFF)  # key of a missing value
BEYOND = np.uint64(0xFFFFFFFFFFFFFFFE)  # above every split, and no key
NO_CODE = np.uint64(0xFFFFFFFE00000000)  # key of a category that is in no set; not above a leaf's split
UPPER_HALF = np.uint64(0xFFFFFFFF00000000)  # what a leaf compares with is not below it, what a node asks with is
SIGN = np.uint64(0x8000000000000000)  # of a float64; the key of zero, too

NARROW_FEATURES = 1 << 14
NARROW_STEPS = 1 << 16

FLAG_MISSING_LEFT = 1  # a missing value goes left
FLAG_CATEGORY = 2  # the node asks for membership in a category set
FLAG_ZERO_MISSING = 4  # zero counts as missing (LightGBM's zero_as_missing)
CATEGORIES, ZERO_MISSING = 1, 2  # what makes a table special
NEAR_ZERO = float(np.float32(1e-35))  # where zero may count as missing, so does what is no farther from it (LightGBM)

IDENTITY, SIGMOID, SOFTMAX, SIGMOID_EACH, VOTE, ADABOOST = range(6)
SIGMOID_SINGLE, SOFTMAX_SINGLE, STEP, SOFTMAX_NUMPY = range(6, 10)


TREE = record(first=np.int64, output=np.int64, width=np.int64, depth=np.int64)
"""First node of a tree, the first raw output that it adds to and how many, its longest path; one more at the end."""

MEMBER = record(
    first_tree=np.int64,
    first_output=np.int64,
    first_class=np.int64,  # first of its entries in `member_class`
    width=np.int64,  # how many outputs each of its trees adds to
    link=np.int64,
    single=np.int64,  # 1: sums are rounded to float32 after each tree
    slope=np.float64,  # factor before the link
    divisor=np.float64,  # the sum of trees is divided by it
    weight=np.float64,  # in the mean of members
)
"""A sum of trees behind a link; one more at the end."""


class TreeEnsemble(NamedTuple):
    """A weighted mean of members; each member is a sum of trees behind a link. Made by `macem.trees.pack`."""

    nodes: U8  # packed nodes, siblings adjacent
    values: F8  # (n_nodes, width) what a leaf adds to its tree's raw outputs
    tree: Records  # (n_trees + 1,) TREE
    member: Records  # (n_members + 1,) MEMBER
    member_class: I8  # class of each member's probability columns, one after the other
    set_words: U8  # bit sets of category codes
    n_codes: I8  # (n_features,) how many category codes a feature has; 0: numeric
    start: F8  # (n_outputs,) raw output before the first tree
    missing_value: float  # a number that counts as missing, beside NaN; NaN: none
    wide: int  # 1: two words a node
    single: int  # 1: numbers are rounded to float32 before they are compared
    special: int  # 0: all nodes compare; sum of 1 where some ask for categories, 2 where zero counts as missing at some
    total: float  # the weighted sum is divided by it
    n_classes: int
    depth: int  # splits on the longest path


@inlined
def key_of(table: TreeEnsemble, code: float, n_codes: int) -> np.uint64:
    """The comparable key of a number, or of a category code below `n_codes`."""
    key = key_of_number(table, code)
    if n_codes == 0 or key == MISSING:
        return key
    return np.uint64(code) << np.uint64(32) if 0.0 <= code < n_codes else NO_CODE


@inlined
def key_of_number(table: TreeEnsemble, number: float) -> np.uint64:
    """The comparable key of a number; without a branch, so that a column of them is filled four at a time."""
    if table.single == 1:
        number = np.float64(np.float32(number))
    missing = np.isnan(number) | (number == table.missing_value)
    number += 0.0  # -0.0 and 0.0 are one key
    if table.wide == 1:
        bits, kept = np.float64(number).view(np.uint64), MISSING
    else:
        bits, kept = np.uint64(np.float32(number).view(np.uint32)) << np.uint64(32), UPPER_HALF
    key = bits ^ kept if bits & SIGN else bits | SIGN
    return MISSING if missing else key


@inner
def keys_from_codes(table: TreeEnsemble, codes: F8, keys: U8) -> None:
    """Turn an (n, d) matrix of numbers and category codes into comparable keys."""
    n_rows, n_features = codes.shape
    for row in range(n_rows):
        for feature in range(n_features):
            keys[row, feature] = key_of(table, codes[row, feature], table.n_codes[feature])


@inlined
def node_at(table: TreeEnsemble, at: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Unpack a node: what keys are compared with, flags, feature, step to the left child."""
    if table.wide == 1:
        rest = table.nodes[(at << np.uint64(1)) + np.uint64(1)]
        return (
            table.nodes[at << np.uint64(1)],
            rest >> np.uint64(60),
            (rest >> np.uint64(32)) & np.uint64(0xFFFFFFF),
            rest & np.uint64(0xFFFFFFFF),
        )
    word = table.nodes[at]
    return (
        word,
        (word >> np.uint64(30)) & np.uint64(3),
        (word >> np.uint64(16)) & np.uint64(0x3FFF),
        word & np.uint64(0xFFFF),
    )


@inlined
def expect_node(table: TreeEnsemble, at: np.uint64) -> None:
    """Have a node brought from memory that will be asked for after some others.

    A forest is larger than a processor's second cache: the branches of a state took 16.6 us without it, 10.6 with it.
    """
    prefetch(table.nodes, at << np.uint64(table.wide))


@inlined
def goes_right(table: TreeEnsemble, split: np.uint64, flags: np.uint64, key: np.uint64) -> np.uint64:
    """1 if a key goes right at a node, else 0; the one place where missing values and categories are told apart."""
    one = np.uint64(1)
    if table.special == 0 and key != MISSING:
        return one if key > split else np.uint64(0)
    if key == MISSING or (flags & np.uint64(FLAG_ZERO_MISSING) and key == SIGN):
        return one ^ (flags & one)
    if flags & np.uint64(FLAG_CATEGORY):
        if key == NO_CODE:
            return one
        code = key >> np.uint64(32)
        return one ^ (
            (table.set_words[(split >> np.uint64(32)) + (code >> np.uint64(6))] >> (code & np.uint64(63))) & one
        )
    return one if key > split else np.uint64(0)


LANES = 8  # trees that are walked side by side, so that a processor waits for memory eight times less
BLOCK = 64  # rows whose keys stay in the first cache while a group of trees is walked
BRANCHES = 128  # branches that are walked side by side: what is noted of them stays in the first cache
STRIDE = 6  # levels at most between looks for the end; 4 to 8 measure alike


@inlined
def walk_clean(nodes: U8, wide: bool, depth: int, first: U8, keys: U8, n_rows: int, leaves: U8) -> None:
    """Walk eight trees with rows that have no missing value and ask for no category.

    The lanes are written out: in registers they take half the time of an array (9.6 ns against 20 a tree of depth 6).
    `wide` is a constant of each caller, so that each compiles to its own kind of node alone.
    """
    stride = min(depth, STRIDE)  # of a depth up to STRIDE, every row is at its end after one
    for number in range(n_rows):
        row = np.uint64(number)
        at0, at1, at2, at3 = first[0], first[1], first[2], first[3]
        at4, at5, at6, at7 = first[4], first[5], first[6], first[7]
        while True:
            for _ in range(stride):
                at0 = child_of(nodes, wide, at0, keys, row)
                at1 = child_of(nodes, wide, at1, keys, row)
                at2 = child_of(nodes, wide, at2, keys, row)
                at3 = child_of(nodes, wide, at3, keys, row)
                at4 = child_of(nodes, wide, at4, keys, row)
                at5 = child_of(nodes, wide, at5, keys, row)
                at6 = child_of(nodes, wide, at6, keys, row)
                at7 = child_of(nodes, wide, at7, keys, row)
            if depth <= STRIDE:
                break
            ends = split_at(nodes, wide, at0) & split_at(nodes, wide, at1)
            ends &= split_at(nodes, wide, at2) & split_at(nodes, wide, at3)
            ends &= split_at(nodes, wide, at4) & split_at(nodes, wide, at5)
            ends &= split_at(nodes, wide, at6) & split_at(nodes, wide, at7)
            if ends >= UPPER_HALF:
                break
        leaves[row, 0], leaves[row, 1], leaves[row, 2], leaves[row, 3] = at0, at1, at2, at3
        leaves[row, 4], leaves[row, 5], leaves[row, 6], leaves[row, 7] = at4, at5, at6, at7


@inlined
def clean_node_at(nodes: U8, wide: bool, at: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    """`node_at` without flags."""
    split = split_at(nodes, wide, at)
    if wide:
        rest = nodes[(at << np.uint64(1)) + np.uint64(1)]
        return split, (rest >> np.uint64(32)) & np.uint64(0xFFFFFFF), rest & np.uint64(0xFFFFFFFF)
    return split, (split >> np.uint64(16)) & np.uint64(0x3FFF), split & np.uint64(0xFFFF)


@inlined
def split_at(nodes: U8, wide: bool, at: np.uint64) -> np.uint64:
    """What keys are compared with at a node."""
    return nodes[at << np.uint64(1)] if wide else nodes[at]


@inlined
def child_of(nodes: U8, wide: bool, at: np.uint64, keys: U8, row: np.uint64) -> np.uint64:
    """The node that a row without missing values goes to; a leaf's is itself."""
    split, feature, left = clean_node_at(nodes, wide, at)
    return at + left + np.uint64(keys[row, feature] > split)


@inner
def walk_narrow(nodes: U8, depth: int, first: U8, keys: U8, n_rows: int, leaves: U8) -> None:
    """`walk_clean` of narrow nodes."""
    walk_clean(nodes, False, depth, first, keys, n_rows, leaves)


@inner
def walk_in_vectors(nodes: U8, depth: int, first: U8, keys: U8, n_rows: int, leaves: U8) -> None:
    """`walk_narrow` by AVX-512, four rows at a time, the last four perhaps again.

    A tree of depth 6 takes 0.6 to 0.9 of the time of registers, one of a forest 0.8 to 0.95.
    """
    stride = min(depth, STRIDE)
    for number in range(0, n_rows, ROWS):
        row = np.uint64(min(number, n_rows - ROWS))
        for one in range(ROWS):
            for lane in range(LANES):
                leaves[row + np.uint64(one), lane] = first[lane]
        while descend(nodes, keys, row, leaves, stride) and depth > STRIDE:
            pass


@inner
def walk_wide(nodes: U8, depth: int, first: U8, keys: U8, n_rows: int, leaves: U8) -> None:
    """`walk_clean` of wide nodes."""
    walk_clean(nodes, True, depth, first, keys, n_rows, leaves)


@inner
def walk_any(table: TreeEnsemble, first: U8, keys: U8, n_rows: int, leaves: U8) -> None:
    """Walk eight trees of any nodes with any rows."""
    for number in range(n_rows):
        row = np.uint64(number)
        for lane in range(LANES):
            leaves[row, lane] = first[lane]
        moved = True
        while moved:
            for _ in range(STRIDE):
                moved = False
                for number_of_lane in range(LANES):
                    lane = np.uint64(number_of_lane)
                    here = leaves[row, lane]
                    split, flags, feature, left = node_at(table, here)
                    there = here + left + goes_right(table, split, flags, keys[row, feature])
                    leaves[row, lane] = there
                    moved |= there != here


@inlined
def group_of(trees: Records, tree: int, end: int, first: U8) -> tuple[int, int]:
    """First nodes of the eight trees from `tree` on, the last one repeated; how many are before `end`, and how deep."""
    depth = np.int64(0)
    for lane in range(LANES):
        one = trees[min(tree + lane, end - 1)]
        first[lane] = np.uint64(one.first)
        depth = max(depth, one.depth)
    return min(LANES, end - tree), depth


@compiled_allocating
def raw_scores(table: TreeEnsemble, codes: F8, raw: F8) -> None:
    """Sum the trees of every member, in order and in the member's precision, into the (n, n_outputs) array `raw`."""
    n_rows, n_features = codes.shape
    keys = np.empty((BLOCK + MOST_KEYS, n_features), np.uint64)  # `descend` reads beyond the last row's
    first = np.empty(LANES, np.uint64)
    leaves = np.empty((BLOCK, LANES), np.uint64)
    for start in range(0, n_rows, BLOCK):
        n_block = min(BLOCK, n_rows - start)
        keys_from_codes(table, codes[start : start + n_block], keys)
        clean = is_clean(table, keys, n_block)
        for row in range(n_block):
            for output in range(table.start.size):
                raw[start + row, output] = table.start[output]
        for member in range(table.member.size - 1):
            part, after = table.member[member], table.member[member + 1]
            end = after.first_tree
            width = part.width
            single = part.single == 1
            shared = after.first_output - part.first_output == width  # all trees add to the same outputs
            for tree in range(part.first_tree, end, LANES):
                n_trees, depth = group_of(table.tree, tree, end, first)
                walk_eight(table, clean, depth, first, keys, n_block, leaves)
                if shared and n_trees == LANES:
                    for column in range(width):
                        output = part.first_output + column
                        add_group(table.values, column, leaves, n_block, single, raw[start:], output)
                    continue
                for lane in range(n_trees):
                    output = table.tree[tree + lane].output
                    for column in range(width):
                        add_leaves(table.values, column, leaves, lane, n_block, single, raw[start:], output + column)


@inlined
def walk_eight(table: TreeEnsemble, clean: bool, depth: int, first: U8, keys: U8, n_rows: int, leaves: U8) -> None:
    """Walk eight trees with some rows to their leaves."""
    if not clean:
        walk_any(table, first, keys, n_rows, leaves)
    elif table.wide == 1:
        walk_wide(table.nodes, depth, first, keys, n_rows, leaves)
    elif has_vectors() and n_rows >= ROWS and keys.shape[1] <= MOST_KEYS:
        walk_in_vectors(table.nodes, depth, first, keys, n_rows, leaves)
    else:
        walk_narrow(table.nodes, depth, first, keys, n_rows, leaves)


@inner
def is_clean(table: TreeEnsemble, keys: U8, n_rows: int) -> bool:
    """Whether `walk_clean` may walk these rows."""
    clean = table.special == 0
    for row in range(n_rows):
        for feature in range(keys.shape[1]):
            clean &= keys[row, feature] != MISSING
    return clean


@inlined
def add_leaves(values: F8, column: int, leaves: U8, lane: int, n_rows: int, single: bool, raw: F8, output: int) -> None:
    """Add one value of a leaf to each row's raw output; a float64 sum of two float32 rounded once is their sum."""
    for number in range(n_rows):
        row = np.uint64(number)
        total = raw[row, np.uint64(output)] + values[leaves[row, np.uint64(lane)], np.uint64(column)]
        raw[row, np.uint64(output)] = np.float64(np.float32(total)) if single else total


@inlined
def add_group(values: F8, column: int, leaves: U8, n_rows: int, single: bool, raw: F8, output: int) -> None:
    """`add_leaves` of eight trees, in their order, with the sum in a register; saves 5 to 25 % of `raw_scores`."""
    at = np.uint64(output)
    place = np.uint64(column)
    for number in range(n_rows):
        row = np.uint64(number)
        told0, told1 = values[leaves[row, 0], place], values[leaves[row, 1], place]
        told2, told3 = values[leaves[row, 2], place], values[leaves[row, 3], place]
        told4, told5 = values[leaves[row, 4], place], values[leaves[row, 5], place]
        told6, told7 = values[leaves[row, 6], place], values[leaves[row, 7], place]
        raw[row, at] = sum_of_eight(raw[row, at], told0, told1, told2, told3, told4, told5, told6, told7, single)


@inlined
def sum_of_eight(
    total: float,
    told0: float,
    told1: float,
    told2: float,
    told3: float,
    told4: float,
    told5: float,
    told6: float,
    told7: float,
    single: bool,
) -> float:
    """A sum in order, in float64 or rounded to float32 after each term."""
    if single:
        total32 = np.float32(total) + np.float32(told0) + np.float32(told1) + np.float32(told2) + np.float32(told3)
        total32 = total32 + np.float32(told4) + np.float32(told5) + np.float32(told6) + np.float32(told7)
        return np.float64(total32)
    return total + told0 + told1 + told2 + told3 + told4 + told5 + told6 + told7


@inlined
def link_scores(table: TreeEnsemble, raw: F8, outputs: F8, probabilities: F8) -> None:
    """Class probabilities of one row's raw outputs; `outputs` is scratch of at least the widest member."""
    for label in range(table.n_classes):
        probabilities[label] = 0.0
    for member in range(table.member.size - 1):
        part = table.member[member]
        first = part.first_output
        n_outputs = table.member[member + 1].first_output - first
        for output in range(n_outputs):
            outputs[output] = raw[first + output] / part.divisor
        _link(part.link, part.slope, outputs, n_outputs)
        first_class = part.first_class
        for column in range(table.member[member + 1].first_class - first_class):
            label = table.member_class[first_class + column]
            probabilities[label] += part.weight * outputs[column]
    if table.total != 1.0:  # to divide by one takes as long as by another
        for label in range(table.n_classes):
            probabilities[label] /= table.total


@inner
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
    elif link in (SOFTMAX, SOFTMAX_NUMPY, ADABOOST):
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


COORDINATE = record(
    kind=np.int64,  # CONTINUOUS, GRID (integers, decimals), ORDERED levels (FMA), SIMPLEX (SSA)
    first=np.int64,  # first working coordinate
    first_level=np.int64,  # first entry in the levels
    base_value=np.float64,  # b, the base value; the level number of the base for levels
    scale=np.float64,  # the unit of a number's coordinate; 1 for levels
    grid=np.float64,  # steps per unit of the data's own grid; 0 where continuous, and for levels
    unseen_place=np.float64,  # coordinate of a level that the background never showed
)
"""How one feature becomes coordinates; one more at the end, for `first` and `first_level`."""

LEVEL = record(
    place=np.float64,  # r, the level's coordinate; on a simplex 0 for the base and 1 elsewhere
    order=np.int64,  # level numbers of a feature, sorted by coordinate
)


class Plan(NamedTuple):
    """An encoding as data. A number of a level feature is its level number: 0 is the mode, -1 a level never seen."""

    feature: Records  # (d + 1,) COORDINATE
    level: Records  # (L,) LEVEL, by level number within each feature


class Weights(NamedTuple):
    """The terms of the objective."""

    l1: float  # β
    margin: float  # κ
    change: float  # cost of each changed feature
    category: float  # cost of a changed category; negative: its step in the encoding
    density: float  # γ
    log_score: int  # 1: ζ is the logarithm of the probabilities, 0: the probabilities
    cutoff_class: int  # the one of two classes that is told by a cutoff; -1: the largest probability decides
    cutoff: float  # the probability from which on it is the answer


CELL = record(
    own=np.float64,  # x0, the row's number
    own_code=np.float64,  # the same as the table reads it
    reference=np.float64,  # what cost is measured from: the row (PN), or the base (PP)
    place=np.float64,  # coordinate of the row's number
    movable=np.bool_,  # there is more than one feasible value
)
GOAL = record(
    goal=np.int64,  # the class that is wanted, or to be left
    keep=np.int64,  # 1: the goal is wanted; 0: it is to be left
)


class Problems(NamedTuple):
    """P problems side by side: the feasible point nearest to a reference that has the wanted class."""

    cell: Records  # (P, d) CELL
    row: Records  # (P,) GOAL
    anchor: F8  # (P, d) the feasible numbers nearest to the reference, where every search begins
    bound: (
        F8  # (P, d, 2, 2) low and high ends of two intervals of feasible numbers, on the data's grid; low > high: none
    )
    place: F8  # (P, d, 2, 2) coordinates of these ends
    allowed: NDArray[np.bool_]  # (P, L) feasible levels


@inlined
def place_of(plan: Plan, feature: int, number: float) -> float:
    """Coordinate z of a number or level; a missing value stands at the base."""
    if np.isnan(number):
        return 0.0
    coordinate = plan.feature[feature]
    if coordinate.kind <= GRID:
        return (number - coordinate.base_value) / coordinate.scale
    if number < 0.0:
        return coordinate.unseen_place
    return plan.level[coordinate.first_level + np.int64(number)].place


@inlined
def code_of(plan: Plan, problems: Problems, level_code: F8, p: int, feature: int, number: float) -> float:
    """What the table reads for a number; the row's own cell is read as it is."""
    cell = problems.cell[p, feature]
    if number == cell.own or np.isnan(number):
        return cell.own_code
    coordinate = plan.feature[feature]
    if coordinate.kind <= GRID:
        return number
    return level_code[coordinate.first_level + np.int64(number)]


@compiled
def settle(plan: Plan, problems: Problems, p: int, feature: int, number: float) -> float:
    """The feasible number nearest to a number, on the data's own grid (a continuous one survives float32)."""
    return settled(plan, problems, p, feature, number)


@inlined
def settled(plan: Plan, problems: Problems, p: int, feature: int, number: float) -> float:
    """The feasible number nearest to a number, on the data's own grid (a continuous one survives float32)."""
    if number == problems.cell[p, feature].own:
        return number  # feasible always, though it may lie beside the grid
    grid = plan.feature[feature].grid
    number = math.floor(number * grid + 0.5) / grid if grid > 0.0 else np.float64(np.float32(number))
    return nearest_feasible(problems, p, feature, number)


@inlined
def nearest_feasible(problems: Problems, p: int, feature: int, number: float) -> float:
    """The feasible number nearest to a number."""
    nearest = problems.cell[p, feature].own
    gap = np.inf
    for side in range(2):
        low = problems.bound[p, feature, side, 0]
        high = problems.bound[p, feature, side, 1]
        if low <= high:
            inside = min(max(number, low), high)
            if abs(inside - number) < gap:
                gap = abs(inside - number)
                nearest = inside
    return nearest


@inner
def nearest_level(plan: Plan, problems: Problems, p: int, feature: int, place: float) -> float:
    """The feasible level whose coordinate is nearest; ties go to the smaller coordinate."""
    first = plan.feature[feature].first_level
    n_levels = plan.feature[feature + 1].first_level - first
    nearest = problems.cell[p, feature].own
    gap = abs(place - problems.cell[p, feature].place)
    low = 0
    high = n_levels
    while low < high:  # the first level at or beyond the place
        middle = (low + high) // 2
        if plan.level[first + plan.level[first + middle].order].place < place:
            low = middle + 1
        else:
            high = middle
    for step in (-1, 1):
        at = low - 1 if step < 0 else low
        while 0 <= at < n_levels:
            level = plan.level[first + at].order
            distance = abs(place - plan.level[first + level].place)
            if distance > gap:
                break
            if problems.allowed[p, first + level]:
                if distance < gap or plan.level[first + level].place < place_of(plan, feature, nearest):
                    gap = distance
                    nearest = np.float64(level)
                break
            at += step
    return nearest


@inner
def decode_point(plan: Plan, problems: Problems, p: int, point: F8, uniforms: F8, sample: int, numbers: F8) -> None:
    """From a working point to feasible numbers; each simplex draws the level that its uniform number falls on."""
    for feature in range(plan.feature.size - 1):
        own = problems.cell[p, feature].own
        if not problems.cell[p, feature].movable:
            numbers[feature] = own
            continue
        first = plan.feature[feature].first
        if plan.feature[feature].kind <= GRID:
            if point[first] == problems.cell[p, feature].place:
                numbers[feature] = own
            else:
                numbers[feature] = settled(
                    plan,
                    problems,
                    p,
                    feature,
                    plan.feature[feature].base_value + plan.feature[feature].scale * point[first],
                )
        elif plan.feature[feature].kind == ORDERED:
            numbers[feature] = nearest_level(plan, problems, p, feature, point[first])
        else:
            n_levels = plan.feature[feature + 1].first - first
            cumulated = 0.0
            level = 0
            base = np.int64(plan.feature[feature].base_value)
            for other in range(n_levels):
                weight = point[first + other] + (1.0 if other == base else 0.0)
                if weight > 0.0:
                    level = other
                    cumulated += weight
                    if cumulated > uniforms[sample, feature]:
                        break
            numbers[feature] = np.float64(level)
            if own < 0.0 and not problems.allowed[p, plan.feature[feature].first_level + level]:
                numbers[feature] = own


@inner
def point_of(plan: Plan, numbers: F8, point: F8) -> None:
    """From numbers to the working point; a level stands at its corner of the simplex, the base's being zero."""
    for feature in range(plan.feature.size - 1):
        first = plan.feature[feature].first
        if plan.feature[feature].kind != SIMPLEX:
            point[first] = place_of(plan, feature, numbers[feature])
            continue
        for other in range(first, plan.feature[feature + 1].first):
            point[other] = 0.0
        if numbers[feature] >= 0.0:
            point[first + np.int64(plan.feature[feature].base_value)] -= 1.0
            point[first + np.int64(numbers[feature])] += 1.0


@inner
def project(plan: Plan, problems: Problems, p: int, point: F8, weights: F8) -> None:
    """Move a working point to the nearest feasible one, in place; `weights` is scratch of one simplex."""
    for feature in range(plan.feature.size - 1):
        first = plan.feature[feature].first
        if plan.feature[feature].kind <= GRID:
            if not problems.cell[p, feature].movable:
                point[first] = problems.cell[p, feature].place
                continue
            place = point[first]
            nearest = place
            gap = np.inf
            for side in range(2):
                if problems.bound[p, feature, side, 0] <= problems.bound[p, feature, side, 1]:
                    inside = min(max(place, problems.place[p, feature, side, 0]), problems.place[p, feature, side, 1])
                    if abs(inside - place) < gap:
                        gap = abs(inside - place)
                        nearest = inside
            point[first] = nearest
        elif plan.feature[feature].kind == ORDERED:
            own = problems.cell[p, feature].place
            if not problems.cell[p, feature].movable:
                point[first] = own
            else:  # between the outermost feasible levels; decoding takes the nearest feasible one
                low = own
                high = own
                level_first = plan.feature[feature].first_level
                for at in range(level_first, plan.feature[feature + 1].first_level):
                    level = plan.level[at].order
                    if problems.allowed[p, level_first + level]:
                        low = min(low, plan.level[level_first + level].place)
                        break
                for back in range(plan.feature[feature + 1].first_level - level_first):
                    level = plan.level[plan.feature[feature + 1].first_level - 1 - back].order
                    if problems.allowed[p, level_first + level]:
                        high = max(high, plan.level[level_first + level].place)
                        break
                point[first] = min(max(point[first], low), high)
        else:
            _project_on_simplex(plan, problems, p, feature, point, weights)


@inner
def _project_on_simplex(plan: Plan, problems: Problems, p: int, feature: int, point: F8, weights: F8) -> None:
    """Euclidean projection of one block onto the simplex of its feasible levels, by sorting (exact)."""
    first = plan.feature[feature].first
    base = np.int64(plan.feature[feature].base_value)
    level_first = plan.feature[feature].first_level
    n_levels = plan.feature[feature + 1].first - first
    if not problems.cell[p, feature].movable:
        own = problems.cell[p, feature].own
        for level in range(n_levels):
            point[first + level] = 1.0 if level == own else 0.0
        if own >= 0.0:
            point[first + base] -= 1.0
        return
    n_kept = 0
    for level in range(n_levels):
        if problems.allowed[p, level_first + level]:
            weight = point[first + level] + (1.0 if level == base else 0.0)
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
            weight = max(point[first + level] + (1.0 if level == base else 0.0) - shift, 0.0)
        point[first + level] = weight - (1.0 if level == base else 0.0)


# ---------------------------------------------------------------------------------------------------------------------
# Problems: what a row may become
# ---------------------------------------------------------------------------------------------------------------------

RULE = record(
    low=np.float64,  # the allowed range, in numbers
    high=np.float64,
    direction=np.int64,  # 1: may only increase; -1: may only decrease; 0: may do both
    frozen=np.bool_,
)
"""What one feature may become, whatever the row."""


@compiled
def bound_rows(plan: Plan, rules: Records, own: F8, positive: NDArray[np.bool_], away: bool, bound: F8) -> None:
    """Set the intervals of numbers that the base-value rule leaves of the range; those of levels are not read."""
    for p in range(own.shape[0]):
        for feature in range(own.shape[1]):
            number, rule, base = own[p, feature], rules[feature], plan.feature[feature].base_value
            mirror = 2.0 * base - number
            first, second = (-np.inf, np.inf), (np.inf, -np.inf)  # all numbers, and none
            if positive[p]:
                first = (min(number, mirror), max(number, mirror))
            elif away and number >= base:
                first, second = (number, np.inf), (-np.inf, mirror)
            elif away:
                first, second = (-np.inf, number), (mirror, np.inf)
            lowest = max(number, rule.low) if rule.direction > 0 else rule.low
            highest = min(number, rule.high) if rule.direction < 0 else rule.high
            for side in range(2):
                low, high = first if side == 0 else second
                low, high = max(low, lowest), min(high, highest)
                bound[p, feature, side, 0] = settled_end(plan, feature, low, 1.0, number, positive[p], away)
                bound[p, feature, side, 1] = settled_end(plan, feature, high, -1.0, number, positive[p], away)


@inlined
def settled_end(plan: Plan, feature: int, end: float, step: float, own: float, positive: bool, away: bool) -> float:
    """The end of an interval as a number that the data could show and that keeps the base-value rule as a float.

    `step` is 1 where inward is up, and -1 where it is down.
    """
    if end == own or abs(end) == np.inf:
        return end
    base, grid = plan.feature[feature].base_value, plan.feature[feature].grid
    if grid > 0.0:
        whole = step * np.ceil(step * end * grid - 1e-9)  # an end on the grid may lie off it by its last bits
        inside, further = whole / grid, (whole + step) / grid
    else:
        inside, further = end, np.nextafter(end, step * np.inf)
    gap, radius = abs(inside - base), abs(own - base)
    misses = gap > radius if positive else away and gap < radius
    return further if misses else inside  # the mirror of a value may miss the rule by its last bit


@compiled
def pose_rows(
    plan: Plan,
    rules: Records,
    numbers: F8,
    codes: F8,
    silent: NDArray[np.bool_],
    positive: NDArray[np.bool_],
    away: bool,
    problems: Problems,
) -> None:
    """Pose problems whose intervals are set; a cell that is `silent` stays, and costs nothing."""
    for p in range(problems.row.size):
        for feature in range(plan.feature.size - 1):
            own, coordinate = numbers[p, feature], plan.feature[feature]
            is_level, is_silent = coordinate.kind > GRID, silent[p, feature]
            held = is_silent or rules[feature].frozen
            reference = coordinate.base_value if positive[p] and not is_silent else own
            cell = set_cell(plan, problems, p, feature, own, codes[p, feature], reference)
            n_levels = allow_levels(plan, problems, p, feature, positive[p], away)
            has_choice = keep_own(problems, p, feature, held)
            set_ends(plan, problems, p, feature)
            if is_level:
                has_choice = n_levels > np.int64(own >= 0.0)  # its own is one of them, unless never seen before
            cell.movable = has_choice and not held
            if cell.movable and positive[p]:
                # the base is feasible, and no level is nearer to it
                nearest = reference if is_level else nearest_feasible(problems, p, feature, reference)
                problems.anchor[p, feature] = nearest


@inlined
def set_cell(plan: Plan, problems: Problems, p: int, feature: int, own: float, code: float, reference: float) -> Any:
    """Set all that a cell tells of the row, and the anchor to the row's own number; returns the cell."""
    cell = problems.cell[p, feature]
    cell.own = problems.anchor[p, feature] = own
    cell.own_code = code
    cell.reference = reference
    cell.place = place_of(plan, feature, own)
    return cell


@inlined
def allow_levels(plan: Plan, problems: Problems, p: int, feature: int, positive: bool, away: bool) -> int:
    """Allow levels no farther from the base than the row's (PP), or at least as far (PN); returns how many."""
    radius = abs(problems.cell[p, feature].place)
    n_levels = 0
    for level in range(plan.feature[feature].first_level, plan.feature[feature + 1].first_level):
        gap = abs(plan.level[level].place)
        allowed = gap <= radius if positive else not away or gap >= radius
        problems.allowed[p, level] = allowed
        n_levels += np.int64(allowed)
    return n_levels


@inlined
def keep_own(problems: Problems, p: int, feature: int, held: bool) -> bool:
    """Keep the row's own number reachable, and alone where it is `held`; returns whether there is any other."""
    own = problems.cell[p, feature].own
    within = has_choice = False
    for side in range(2):
        low, high = problems.bound[p, feature, side, 0], problems.bound[p, feature, side, 1]
        within = within or low <= own <= high
        has_choice = has_choice or (low <= high and not low == own == high)
    spare = 0 if problems.bound[p, feature, 0, 0] > problems.bound[p, feature, 0, 1] else 1
    for side in range(2):
        if held or (not within and side == spare):
            problems.bound[p, feature, side, 0] = problems.bound[p, feature, side, 1] = own
    return has_choice


@inlined
def set_ends(plan: Plan, problems: Problems, p: int, feature: int) -> None:
    """Set the coordinates of the ends of intervals."""
    coordinate = plan.feature[feature]
    for side in range(2):
        for end in range(2):
            number = problems.bound[p, feature, side, end]
            problems.place[p, feature, side, end] = (number - coordinate.base_value) / coordinate.scale


@compiled
def free_rows(plan: Plan, rules: Records, numbers: F8, codes: F8, problems: Problems) -> None:
    """Pose problems whose every feature may move through its whole range."""
    for p in range(problems.row.size):
        for feature in range(plan.feature.size - 1):
            own = numbers[p, feature]
            cell = set_cell(plan, problems, p, feature, own, codes[p, feature], own)
            cell.movable = not np.isnan(own)
            problems.bound[p, feature, 0, 0] = min(rules[feature].low, own)
            problems.bound[p, feature, 0, 1] = max(rules[feature].high, own)
            problems.bound[p, feature, 1, 0], problems.bound[p, feature, 1, 1] = np.inf, -np.inf
            set_ends(plan, problems, p, feature)
    for p in range(problems.row.size):
        for level in range(plan.level.size):
            problems.allowed[p, level] = True


# ---------------------------------------------------------------------------------------------------------------------
# Objective: PP and PN are one problem, told apart by a reference, a goal and a sign
# ---------------------------------------------------------------------------------------------------------------------

SMALLEST_PROBABILITY = 1e-9  # below it the logarithm is flat; a forest often says exactly 0


@inlined
def margin_of(weights: Weights, problems: Problems, p: int, probabilities: F8) -> tuple[float, bool]:
    """How far ζ is on the wanted side (positive: there), and whether the class is the wanted one, ties to the first."""
    wanted = problems.row[p]
    goal = wanted.goal
    rival = -1
    top = 0
    for label in range(probabilities.size):
        if probabilities[label] > probabilities[top]:
            top = label
        if label != goal and (rival < 0 or probabilities[label] > probabilities[rival]):
            rival = label
    if rival < 0:  # a model of one class
        return (np.inf, True) if wanted.keep == 1 else (-np.inf, False)
    if weights.log_score == 1:
        margin = math.log(max(probabilities[goal], SMALLEST_PROBABILITY)) - math.log(
            max(probabilities[rival], SMALLEST_PROBABILITY)
        )
    else:
        margin = probabilities[goal] - probabilities[rival]
    if weights.cutoff_class >= 0:  # ζ is measured from where the classes meet, which is not at one half
        top = (
            weights.cutoff_class if probabilities[weights.cutoff_class] >= weights.cutoff else 1 - weights.cutoff_class
        )
        meet = weights.cutoff if goal == weights.cutoff_class else 1.0 - weights.cutoff
        margin -= math.log(meet) - math.log1p(-meet) if weights.log_score == 1 else 2.0 * meet - 1.0
    if wanted.keep == 1:
        return margin, top == goal and (weights.margin == 0.0 or margin >= weights.margin)
    return -margin, top != goal and (weights.margin == 0.0 or -margin >= weights.margin)


@inlined
def feature_cost(plan: Plan, weights: Weights, problems: Problems, p: int, feature: int, number: float) -> float:
    """What one feature adds to the elastic net and the costs of change."""
    reference = problems.cell[p, feature].reference
    if number == reference or np.isnan(number):
        return 0.0
    kind = plan.feature[feature].kind
    if kind > GRID and weights.category >= 0.0:
        return weights.change + weights.category
    if kind == SIMPLEX:  # two corners differ by one in two coordinates
        return weights.change + 2.0 * weights.l1 + 2.0
    step = place_of(plan, feature, number) - place_of(plan, feature, reference)
    return weights.change + weights.l1 * abs(step) + step * step


@inner
def cost_of(plan: Plan, weights: Weights, problems: Problems, p: int, numbers: F8) -> float:
    """Distance of numbers from the reference: β‖z - ref‖₁ + ‖z - ref‖₂², and the costs of change."""
    total = 0.0
    for feature in range(numbers.size):
        total += feature_cost(plan, weights, problems, p, feature, numbers[feature])
    return total


# ---------------------------------------------------------------------------------------------------------------------
# Search: projected FISTA with two-point zeroth-order gradients
# ---------------------------------------------------------------------------------------------------------------------


START = record(loss_weight=np.float64, smoothing=np.float64)
"""c and μ of one start."""


class Schedule(NamedTuple):
    """The starts, and the random numbers that all rows, kinds and starts share (so nothing depends on a position)."""

    start: Records  # (n_starts,) START
    n_steps: int  # I
    n_directions: int  # q
    n_samples: int  # corners drawn per query; 1 without simplexes
    step_size: float  # α_0; α_k = α_0 sqrt(1 - k / I)
    patience: int  # steps without a cheaper valid query after which a start can no longer win
    directions: F8  # (n_blocks, q, D) normal numbers; block (k + start) mod n_blocks serves step k
    uniforms: F8  # (n_blocks, n_samples, d) where each simplex is cut


class Iterates(NamedTuple):
    """Where the starts of P problems stand."""

    centre: F8  # (P, n_starts, D) y, where the next gradient is estimated
    point: F8  # (P, n_starts, D) z, the iterate


FOUND = record(
    cost=np.float64,  # of the cheapest valid numbers; inf: none
    n_queries=np.int64,
    done=np.bool_,  # the anchor has the wanted class, or the best is proved
    proved=np.bool_,  # the best is the optimum, or there is none
    exhausted=np.bool_,  # the budget ended the work
)


class Best(NamedTuple):
    """The cheapest valid numbers seen for each of P problems, and how far its work is."""

    numbers: F8  # (P, d)
    row: Records  # (P,) FOUND
    max_queries: int  # per problem


@compiled
def start_iterates(plan: Plan, problems: Problems, iterates: Iterates) -> None:
    """Every start begins at the anchor."""
    for p in range(problems.row.size):
        for start in range(iterates.point.shape[1]):
            point_of(plan, problems.anchor[p], iterates.point[p, start])
            point_of(plan, problems.anchor[p], iterates.centre[p, start])


@allocating
def propose_row(
    plan: Plan, problems: Problems, schedule: Schedule, iterates: Iterates, p: int, start: int, step: int, numbers: F8
) -> None:
    """Fill the (1 + q) * n_samples rows of `numbers` that a step asks for: the centre, then the points around it."""
    block = (step + start) % schedule.directions.shape[0]
    n_samples = schedule.n_samples
    point = np.empty(plan.feature[-1].first)
    weights = np.empty(plan.feature[-1].first)
    direction = np.empty(plan.feature[-1].first)
    for query in range(schedule.n_directions + 1):
        if query > 0:
            unit_direction(plan, problems, p, schedule.directions[block, query - 1], direction)
        for coordinate in range(point.size):
            point[coordinate] = iterates.centre[p, start, coordinate]
            if query > 0:
                point[coordinate] += schedule.start[start].smoothing * direction[coordinate]
        project(plan, problems, p, point, weights)
        for sample in range(n_samples):
            decode_point(
                plan, problems, p, point, schedule.uniforms[block], sample, numbers[query * n_samples + sample]
            )


@inner
def unit_direction(plan: Plan, problems: Problems, p: int, normal: F8, direction: F8) -> int:
    """A direction on the unit sphere of the movable coordinates; returns how many these are."""
    squares = 0.0
    n_movable = 0
    for feature in range(plan.feature.size - 1):
        for coordinate in range(plan.feature[feature].first, plan.feature[feature + 1].first):
            if problems.cell[p, feature].movable:
                direction[coordinate] = normal[coordinate]
                squares += normal[coordinate] * normal[coordinate]
                n_movable += 1
            else:
                direction[coordinate] = 0.0
    length = math.sqrt(squares)
    if length > 0.0:
        for coordinate in range(direction.size):
            direction[coordinate] /= length
    return n_movable


@allocating
def absorb_row(
    plan: Plan,
    weights: Weights,
    problems: Problems,
    schedule: Schedule,
    iterates: Iterates,
    best: Best,
    p: int,
    start: int,
    step: int,
    numbers: F8,
    margins: F8,
    reached: NDArray[np.bool_],
    log_densities: F8,
) -> None:
    """Learn from the answers to what `propose_row` asked: keep the best valid query, and take one FISTA step."""
    n_samples = schedule.n_samples
    best.row[p].n_queries += (schedule.n_directions + 1) * n_samples
    for query in range((schedule.n_directions + 1) * n_samples):
        if reached[query]:
            keep_if_best(plan, weights, problems, best, p, numbers[query])

    block = (step + start) % schedule.directions.shape[0]
    n_coordinates = plan.feature[-1].first
    gradient = np.zeros(n_coordinates)
    direction = np.empty(n_coordinates)
    centre_loss = 0.0
    for query in range(schedule.n_directions + 1):
        loss = 0.0
        for sample in range(n_samples):
            at = query * n_samples + sample
            loss += schedule.start[start].loss_weight * max(-margins[at], -weights.margin)
            loss -= weights.density * log_densities[at]
        loss /= n_samples
        if query == 0:
            centre_loss = loss
        elif loss != centre_loss:
            n_movable = unit_direction(plan, problems, p, schedule.directions[block, query - 1], direction)
            slope = (loss - centre_loss) * n_movable / (schedule.n_directions * schedule.start[start].smoothing)
            for coordinate in range(n_coordinates):
                gradient[coordinate] += slope * direction[coordinate]

    rate = schedule.step_size * math.sqrt(1.0 - step / schedule.n_steps)
    momentum = step / (step + 3.0)
    reference = np.empty(n_coordinates)
    at_reference = np.empty(plan.feature.size - 1)
    moved = np.empty(n_coordinates)
    scratch = np.empty(n_coordinates)
    for feature in range(plan.feature.size - 1):
        at_reference[feature] = problems.cell[p, feature].reference
    point_of(plan, at_reference, reference)
    for coordinate in range(n_coordinates):
        offset = iterates.centre[p, start, coordinate] - reference[coordinate]
        offset -= rate * (gradient[coordinate] + 2.0 * offset)
        shrink = rate * weights.l1
        if offset > shrink:
            offset -= shrink
        elif offset < -shrink:
            offset += shrink
        else:
            offset = 0.0
        moved[coordinate] = reference[coordinate] + offset
    project(plan, problems, p, moved, scratch)
    for coordinate in range(n_coordinates):
        before = iterates.point[p, start, coordinate]
        iterates.point[p, start, coordinate] = moved[coordinate]
        iterates.centre[p, start, coordinate] = moved[coordinate] + momentum * (moved[coordinate] - before)
    project(plan, problems, p, iterates.centre[p, start], scratch)


@inner
def keep_if_best(plan: Plan, weights: Weights, problems: Problems, best: Best, p: int, numbers: F8) -> bool:
    """Keep valid numbers if they are cheaper than the best so far."""
    cost = cost_of(plan, weights, problems, p, numbers)
    found = best.row[p]
    if cost >= found.cost:
        return False
    found.cost = cost
    for feature in range(numbers.size):
        best.numbers[p, feature] = numbers[feature]
    return True


# ---------------------------------------------------------------------------------------------------------------------
# Local evaluation: the queries of one step lie close together, so most nodes send all of them the same way
# ---------------------------------------------------------------------------------------------------------------------


AXIS = record(
    first_cut=np.int64,
    n_words=np.int64,  # of its level sets; 0 for numbers
    zero=np.int64,  # the cell of zero, where that may go another way than numbers below and above; -1: it never does
)
"""First threshold of a feature, and what else is peculiar to it; one more at the end."""


class Axes(NamedTuple):
    """What is read beside a table, made once for a table and the levels of one background."""

    feature: Records  # (d + 1,) AXIS
    cut: F8  # thresholds of each feature, sorted and distinct
    node_cut: I8  # (n_nodes,) place of a node's threshold among its feature's cuts; on levels, its first level word
    level_word: U8  # bit sets of the levels (by level number, from 0) that go left
    level_code: F8  # (L,) what the table reads for each level
    single: int  # 1: numbers are rounded to float32 before they are compared


@inner
def walk_box(nodes: U8, wide: bool, depth: int, box: U8, at: U8) -> None:
    """Walk eight trees of a table that is not special to their leaves, or to the first node that may part a box."""
    if wide:
        walk_clean_box(nodes, True, depth, box, at)
    else:
        walk_clean_box(nodes, False, depth, box, at)


@inlined
def walk_clean_box(nodes: U8, wide: bool, depth: int, box: U8, at: U8) -> None:
    """`walk_box` with the lanes written out, as in `walk_clean`."""
    stride = min(depth, STRIDE)
    at0, at1, at2, at3, at4, at5, at6, at7 = at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]
    moved = True
    while moved:
        before = at0 + at1 + at2 + at3 + at4 + at5 + at6 + at7
        for _ in range(stride):
            at0 = child_of_box(nodes, wide, at0, box)
            at1 = child_of_box(nodes, wide, at1, box)
            at2 = child_of_box(nodes, wide, at2, box)
            at3 = child_of_box(nodes, wide, at3, box)
            at4 = child_of_box(nodes, wide, at4, box)
            at5 = child_of_box(nodes, wide, at5, box)
            at6 = child_of_box(nodes, wide, at6, box)
            at7 = child_of_box(nodes, wide, at7, box)
        moved = depth > STRIDE and at0 + at1 + at2 + at3 + at4 + at5 + at6 + at7 != before  # no step leads back
    at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7] = at0, at1, at2, at3, at4, at5, at6, at7


@inlined
def child_of_box(nodes: U8, wide: bool, at: np.uint64, box: U8) -> np.uint64:
    """The node that all keys of a box go to, or the node itself where they part, and at a leaf."""
    split, feature, left = clean_node_at(nodes, wide, at)
    place = feature << np.uint64(1)
    low = at + left + np.uint64(box[place] > split)
    high = at + left + np.uint64(box[place + np.uint64(1)] > split)
    return low if low == high else at


@inner
def keys_in_columns(
    table: TreeEnsemble, axes: Axes, plan: Plan, problems: Problems, p: int, numbers: F8, nearby: Nearby
) -> None:
    """Fill a column of keys a feature, read at once and converted four at a time: 1.4 us a step in place of 4.5."""
    n_rows = numbers.shape[0]
    for feature in range(numbers.shape[1]):
        column, cell, n_codes = nearby.columns[feature], problems.cell[p, feature], table.n_codes[feature]
        own, own_code = cell.own, cell.own_code
        for row in range(n_rows):
            nearby.number[row] = numbers[row, feature]
        if plan.feature[feature].kind > GRID:
            for row in range(n_rows):
                code = code_of(plan, problems, axes.level_code, p, feature, nearby.number[row])
                column[row] = key_of(table, code, n_codes)
        else:  # no number is a category
            for row in range(BLOCK):
                number = nearby.number[row]
                column[row] = key_of_number(table, own_code if (number == own) | np.isnan(number) else number)


@inner
def box_of(table: TreeEnsemble, columns: U8, n_rows: int, box: U8) -> None:
    """Smallest and largest key of every column; where an order says nothing, a box that every split parts."""
    for feature in range(columns.shape[0]):
        column = columns[feature]
        low, high = MISSING, np.uint64(0)
        for row in range(n_rows):
            low = min(low, column[row])
            high = max(high, column[row])
        if low == MISSING:
            low = np.uint64(0)  # a box from nothing to MISSING: they go together, as `goes_right` says
        elif low != high and (high == MISSING or table.n_codes[feature] > 0 or table.special >= ZERO_MISSING):
            low = np.uint64(0)
            high = BEYOND
        box[2 * feature] = low
        box[2 * feature + 1] = high


@inlined
def rows_above(column: U8, split: np.uint64) -> np.uint64:
    """The rows whose key is above a split, one bit a row."""
    above = np.uint64(0)
    for row in range(BLOCK):
        above |= np.uint64(column[row] > split) << np.uint64(row)
    return above


@inner
def rows_right(table: TreeEnsemble, split: np.uint64, flags: np.uint64, column: U8) -> np.uint64:
    """The rows that go right at any node, one bit a row."""
    right = np.uint64(0)
    for row in range(BLOCK):
        right |= goes_right(table, split, flags, column[row]) << np.uint64(row)
    return right


@inlined
def add_box(table: TreeEnsemble, output: int, at: U8, single: bool, raw: Sums) -> bool:
    """Add eight trees that say the same to all rows, in one pass; False, and nothing added, where they do not."""
    for lane in range(LANES):
        if not is_leaf(table, at[lane]):
            return False
    for number in range(table.values.shape[1]):
        column = np.uint64(number)
        told0, told1 = table.values[at[0], column], table.values[at[1], column]
        told2, told3 = table.values[at[2], column], table.values[at[3], column]
        told4, told5 = table.values[at[4], column], table.values[at[5], column]
        told6, told7 = table.values[at[6], column], table.values[at[7], column]
        scores = raw[output + number]
        for row in range(BLOCK):
            scores[row] = sum_of_eight(scores[row], told0, told1, told2, told3, told4, told5, told6, told7, single)
    return True


@inlined
def is_leaf(table: TreeEnsemble, at: np.uint64) -> bool:
    """Whether a node is a leaf."""
    return split_at(table.nodes, table.wide == 1, at) >= UPPER_HALF


class Nearby(NamedTuple):
    """Room for the queries of one step."""

    numbers: F8  # (queries, d)
    number: F8  # (64,) of one feature
    columns: U8  # (d, 64) one column of keys a feature, so that a node compares all rows at once
    box: U8  # (2 d,) smallest and largest key of each column, one after the other
    raw: F8  # (n_outputs, 64)
    raw_single: NDArray[np.float32]  # the same of members that add in float32, which takes half the time
    scores: F8  # (n_outputs,)
    outputs: F8  # (n_outputs + 1,)
    probabilities: F8  # (n_classes,)
    at: U8  # (8,) how far the box has come in a group of trees
    waiting: U8  # (64, 2) subtrees still to be walked, and the rows that go there


@allocating
def nearby_for(table: TreeEnsemble, n_queries: int, n_features: int) -> Nearby:
    """Make room for the queries of one step."""
    n_outputs = table.start.size
    return Nearby(
        np.empty((n_queries, n_features)),
        np.zeros(BLOCK),
        np.zeros((n_features, BLOCK), np.uint64),
        np.empty(2 * n_features, np.uint64),
        np.empty((n_outputs, BLOCK)),
        np.empty((n_outputs, BLOCK), np.float32),
        np.empty(n_outputs),
        np.empty(n_outputs + 1),
        np.empty(table.n_classes),
        np.empty(LANES, np.uint64),
        np.empty((BLOCK, 2), np.uint64),
    )


@inner
def raw_scores_nearby(table: TreeEnsemble, n_rows: int, nearby: Nearby) -> None:
    """Sum the trees as `raw_scores` does, to the bit, for up to 64 rows whose keys, in columns, lie close together."""
    box_of(table, nearby.columns, n_rows, nearby.box)
    everyone = MISSING if n_rows == BLOCK else (np.uint64(1) << np.uint64(n_rows)) - np.uint64(1)
    for member in range(table.member.size - 1):
        if table.member[member].single == 0:
            add_member(table, member, everyone, nearby, nearby.raw)
            continue
        add_member(table, member, everyone, nearby, nearby.raw_single)
        for output in range(table.member[member].first_output, table.member[member + 1].first_output):
            for row in range(BLOCK):
                nearby.raw[output, row] = nearby.raw_single[output, row]


@inner
def add_member(table: TreeEnsemble, member: int, everyone: np.uint64, nearby: Nearby, raw: Sums) -> None:
    """Sum the trees of one member in its own precision, which is that of `raw`."""
    part, after = table.member[member], table.member[member + 1]
    for output in range(part.first_output, after.first_output):
        for row in range(BLOCK):
            raw[output, row] = table.start[output]
    width, single, end = part.width, part.single == 1, after.first_tree
    shared = after.first_output - part.first_output == width
    for tree in range(part.first_tree, end, LANES):
        n_trees, depth = group_of(table.tree, tree, end, nearby.at)
        if table.special == 0:
            walk_box(table.nodes, table.wide == 1, depth, nearby.box, nearby.at)
        together = shared and n_trees == LANES
        if not (together and add_box(table, part.first_output, nearby.at, single, raw)):
            for lane in range(n_trees):
                at, output = nearby.at[lane], table.tree[tree + lane].output
                if not is_leaf(table, at):
                    walk_apart(table, nearby, at, everyone, output, width, raw)
                    continue
                for place in range(width):
                    add_to_all(raw[output + place], table.values[at, np.uint64(place)])


@inlined
def walk_apart(
    table: TreeEnsemble,
    nearby: Nearby,
    at: np.uint64,
    rows: np.uint64,
    output: int,
    width: int,
    raw: Sums,
) -> None:
    """Walk one tree from a node on with many rows, as far as they go together, and add the leaves to them."""
    waiting, box = nearby.waiting, nearby.box
    depth = 0
    while True:
        while True:
            split, flags, feature, left = node_at(table, at)
            if left == np.uint64(0):
                break
            child = at + left
            low = box[feature << np.uint64(1)]
            high = box[(feature << np.uint64(1)) + np.uint64(1)]
            if low == high or high == MISSING:
                at = child + goes_right(table, split, flags, high)
            elif high <= split:  # never where an order says nothing: the box is then up to BEYOND
                at = child
            elif low > split:
                at = child + np.uint64(1)
            else:
                column = nearby.columns[feature]
                right = rows_above(column, split) if high < BEYOND else rows_right(table, split, flags, column)
                right &= rows
                if right == rows:
                    at = child + np.uint64(1)
                elif right == np.uint64(0):
                    at = child
                else:
                    waiting[depth, 0] = child + np.uint64(1)
                    waiting[depth, 1] = right
                    depth += 1
                    rows ^= right
                    at = child
        for place in range(width):
            add_to_rows(raw[output + place], table.values[at, np.uint64(place)], rows)
        if depth == 0:
            return
        depth -= 1
        at = waiting[depth, 0]
        rows = waiting[depth, 1]


@inner
def add_to_all(sums: Sums, value: float) -> None:
    """`add_to_rows` of all rows, without asking which: a tenth of a step of 500 trees less."""
    told = sums.dtype.type(value)
    for row in range(BLOCK):
        sums[row] += told


@inner
def add_to_rows(sums: Sums, value: float, rows: np.uint64) -> None:
    """Add a leaf's value to the sums of the rows in it, in their precision."""
    told = sums.dtype.type(value)
    nothing = sums.dtype.type(-0.0)  # added to any number it leaves that to the bit; a choice of sums takes three times
    for row in range(BLOCK):
        sums[row] += told if (rows >> np.uint64(row)) & np.uint64(1) else nothing


@inner
def answer_numbers(
    table: TreeEnsemble,
    axes: Axes,
    plan: Plan,
    weights: Weights,
    problems: Problems,
    p: int,
    numbers: F8,
    nearby: Nearby,
    margins: F8,
    reached: NDArray[np.bool_],
) -> None:
    """Ask the table for the margins of numbers that lie close together."""
    n_rows = numbers.shape[0]
    for first in range(0, n_rows, BLOCK):
        n_block = min(BLOCK, n_rows - first)
        some = numbers[first : first + n_block]
        keys_in_columns(table, axes, plan, problems, p, some, nearby)
        raw_scores_nearby(table, n_block, nearby)
        for row in range(n_block):
            for output in range(table.start.size):
                nearby.scores[output] = nearby.raw[output, row]
            link_scores(table, nearby.scores, nearby.outputs, nearby.probabilities)
            margins[first + row], reached[first + row] = margin_of(weights, problems, p, nearby.probabilities)


# ---------------------------------------------------------------------------------------------------------------------
# Axis profile: the answer to moving one feature, all others held, for every feature and every cell of it in one walk
# ---------------------------------------------------------------------------------------------------------------------


MOVE = record(
    feature=np.int64,
    number=np.float64,
    cost=np.float64,  # of the whole state after the move
    margin=np.float64,
    probability=np.float64,  # of the goal
    reached=np.bool_,
)
"""A single-feature move of a state, with what it costs and where it leads."""


REACH = record(
    rest=np.float64,  # what the other features of the state cost
    home=np.int64,  # the cell of the state itself
    low=np.int64,  # cells that a move may reach: feasible, and cheap enough
    high=np.int64,
    first_crossed=np.int64,  # cuts between them, and the first beyond, as in `Axes.node_cut`; on levels, any node's
    end_crossed=np.int64,
    gap_low=np.int64,  # cells between that are not feasible
    gap_high=np.int64,
    first_word=np.int64,  # the same for levels, as bits of `Scratch.reachable`
    own_low=np.int64,  # cells in which the tree being walked keeps to its own leaf
    own_high=np.int64,
    tree=np.int64,  # that these two are of
    moves=np.bool_,  # whether any number or other level may be reached, be it in the state's own cell
)
BRANCH = record(
    node=np.uint64,
    feature=np.uint64,
    tree=np.int64,
    low=np.int64,  # cells of the feature that lead there; on levels, their word
    high=np.int64,
    levels=np.uint64,  # levels of the feature that lead there; 0 for cells
)
"""A subtree still to be walked, with the cells or levels of one feature that lead there."""


class Scratch(NamedTuple):
    """Room for one state on its way through a table and for its axis profile; made by `macem.refine`."""

    codes: F8  # (1, d)
    keys: U8  # (1, d)
    first: U8  # (8,) where the trees of a group begin
    group: U8  # (1, 8) their leaves
    leaf: U8  # (n_trees,) the leaf of the state
    raw: F8  # (1, n_outputs) of the state
    own: Records  # (1,) MOVE, what the table says of the state
    outputs: F8  # (n_outputs + 1,)
    probabilities: F8  # (n_classes,)
    reach: Records  # (d,) REACH
    reachable: U8  # (n_words,) levels that a move may reach
    own_levels: U8  # (n_words,) levels with which the tree being walked keeps to its own leaf
    fork: U8  # (8, depth + 1) nodes at which a tree's path may be left, packed: node 63 | whether it goes right 1
    n_forks: I8  # (8,) how many
    branch: Records  # BRANCH, a stack; `refine.scratch_for` says why it cannot run over
    walked: Records  # (128,) BRANCH, those that are being walked
    at: U8  # (128,) where, packed: place in `walked` 32 | node 32; for paths the node alone
    ended: U8  # (128,) the same, of those that have come to a leaf
    # A feature of n cuts has n + 1 cells, and one place more, where its last cell is left. So its places begin at its
    # first cut, and two further for each feature before it.
    step: F8  # (n_cuts + 2 d, n_outputs) change of the raw outputs on entering a cell; zero between calls
    entered: U8  # one bit a cell: some step is not zero
    level: F8  # (L, n_outputs) change of the raw outputs at a level; zero between calls
    change: F8  # (n_outputs,)
    numbers: F8  # (d,)
    moves: Records  # MOVE
    scores: F8  # (n_moves, n_outputs) raw outputs of the moves


@compiled_allocating
def fill_level_words(table: TreeEnsemble, axes: Axes, plan: Plan) -> None:
    """Set, for every node on a level feature, the bits of the levels that go left."""
    n_features = plan.feature.size - 1
    codes = np.zeros((1, n_features))
    keys = np.empty((1, n_features), np.uint64)
    level_key = np.empty(axes.level_code.size, np.uint64)
    for feature in range(n_features):
        for at in range(plan.feature[feature].first_level, plan.feature[feature + 1].first_level):
            codes[0, feature] = axes.level_code[at]
            keys_from_codes(table, codes, keys)
            level_key[at] = keys[0, feature]
    for tree in range(table.tree.size - 1):
        for node in range(table.tree[tree].first, table.tree[tree + 1].first):
            split, flags, word, left = node_at(table, np.uint64(node))
            feature = np.int64(word)
            if left == np.uint64(0):
                continue
            n_levels = min(
                64 * axes.feature[feature].n_words,
                plan.feature[feature + 1].first_level - plan.feature[feature].first_level,
            )
            for level in range(n_levels):
                key = level_key[plan.feature[feature].first_level + level]
                if goes_right(table, split, flags, key) == np.uint64(0):
                    axes.level_word[axes.node_cut[node] + level // 64] |= np.uint64(1) << np.uint64(level % 64)


@inlined
def as_read(axes: Axes, number: float) -> float:
    """A number as the table compares it; where that is in float32, the cuts are float32 as they are."""
    return np.float64(np.float32(number)) if axes.single == 1 else number


@inlined
def cell_of(axes: Axes, feature: int, code: float) -> int:
    """The cell (cut[c - 1], cut[c]] that a number lies in."""
    code = as_read(axes, code)
    first = axes.feature[feature].first_cut
    low, n_left = first, axes.feature[feature + 1].first_cut - first
    while n_left > 0:  # a product in place of a jump that nobody can foresee
        half = (n_left + 1) >> 1
        low += half * np.int64(axes.cut[low + half - 1] < code)
        n_left -= half
    return low - first


@inlined
def nearest_in_cell(
    axes: Axes, plan: Plan, problems: Problems, p: int, feature: int, low: float, high: float
) -> tuple[float, float, bool]:
    """The feasible number that is read within (low, high], nearest to the reference; its distance; if there is one.

    The reference and the ends of what is feasible may round over a cut when they are read: 20240117, to 20240116. What
    is found beside them lies in the cell as it is read, and in float32.
    """
    reference = problems.cell[p, feature].reference
    read = as_read(axes, reference)
    nearest = reference
    gap = np.inf
    for side in range(2):
        inner = problems.bound[p, feature, side, 0]
        outer = problems.bound[p, feature, side, 1]
        if inner > outer or as_read(axes, inner) > high or as_read(axes, outer) <= low:
            continue
        if low < read <= high and inner <= reference <= outer:
            return reference, 0.0, True
        if read <= low or reference <= inner:
            number = inner if as_read(axes, inner) > low else number_above(plan, feature, low)
            rounded = np.float64(np.float32(number))
            if number > outer:  # the row's own number may be this end, between two of the data's
                number = rounded = outer
            if number != inner and max(as_read(axes, number), rounded) > high:
                continue
        else:
            number = outer if as_read(axes, outer) <= high else number_at_most(axes, plan, feature, high)
            rounded = np.float64(np.float32(number))
            if number < inner:
                number = rounded = inner
            if number != outer and min(as_read(axes, number), rounded) <= low:
                continue
        if abs(number - reference) < gap:
            gap = abs(number - reference)
            nearest = number
    return nearest, gap, gap < np.inf


@inlined
def number_above(plan: Plan, feature: int, bound: float) -> float:
    """The smallest number of the data's grid beyond a bound, in float64 and in float32."""
    above = np.float32(bound)
    if np.float64(above) <= bound:
        above = np.nextafter(above, np.float32(np.inf))
    number = np.float64(above)
    grid = plan.feature[feature].grid
    if grid > 0.0:
        half = (number + np.float64(np.nextafter(above, np.float32(-np.inf)))) / 2.0  # beyond it float32 rounds up
        whole = np.floor(max(bound, half) * grid) - 1.0
        number = whole / grid
        while number <= bound or np.float64(np.float32(number)) <= bound:
            whole = max(whole + 1.0, np.nextafter(whole, np.inf))  # which is the same up to 2**53
            number = whole / grid
    return number


@inlined
def number_at_most(axes: Axes, plan: Plan, feature: int, bound: float) -> float:
    """The largest number of the data's grid that is read as a bound or less, and is so in float32."""
    below = np.float32(bound)
    if np.float64(below) > bound:
        below = np.nextafter(below, np.float32(-np.inf))
    number = np.float64(below)
    grid = plan.feature[feature].grid
    if grid > 0.0:
        half = (number + np.float64(np.nextafter(below, np.float32(np.inf)))) / 2.0  # up to it float32 rounds down
        whole = np.floor((half if axes.single == 1 else min(bound, half)) * grid) + 1.0
        number = whole / grid
        while as_read(axes, number) > bound or np.float64(np.float32(number)) > bound:
            whole = min(whole - 1.0, np.nextafter(whole, -np.inf))
            number = whole / grid
    return number


@inner
def answer_one(
    table: TreeEnsemble,
    axes: Axes,
    plan: Plan,
    weights: Weights,
    problems: Problems,
    p: int,
    numbers: F8,
    scratch: Scratch,
) -> tuple[float, bool]:
    """Ask the table for the margin of one row of numbers; its leaves and raw outputs stay in the scratch."""
    read_state(table, axes, plan, problems, p, numbers, scratch)
    one = np.int64(1)
    clean = is_clean(table, scratch.keys, one)
    n_trees = table.tree.size - 1
    for tree in range(0, n_trees, LANES):
        n_lanes, depth = group_of(table.tree, tree, n_trees, scratch.first)
        walk_eight(table, clean, depth, scratch.first, scratch.keys, one, scratch.group)
        for lane in range(n_lanes):
            scratch.leaf[tree + lane] = scratch.group[0, lane]
    judge_state(table, weights, problems, p, scratch)
    return scratch.own[0].margin, scratch.own[0].reached


@inlined
def read_state(
    table: TreeEnsemble, axes: Axes, plan: Plan, problems: Problems, p: int, numbers: F8, scratch: Scratch
) -> None:
    """Find the keys of a state's numbers."""
    for feature in range(numbers.size):
        scratch.codes[0, feature] = code_of(plan, problems, axes.level_code, p, feature, numbers[feature])
    keys_from_codes(table, scratch.codes, scratch.keys)


@inner
def judge_state(table: TreeEnsemble, weights: Weights, problems: Problems, p: int, scratch: Scratch) -> None:
    """Add up the leaves of a state, and judge the sums."""
    for output in range(table.start.size):
        scratch.raw[0, output] = table.start[output]
    for member in range(table.member.size - 1):
        part = table.member[member]
        single = part.single == 1
        for tree in range(part.first_tree, table.member[member + 1].first_tree):
            for column in range(part.width):
                output = table.tree[tree].output + column
                total = scratch.raw[0, output] + table.values[scratch.leaf[tree], np.uint64(column)]
                scratch.raw[0, output] = np.float64(np.float32(total)) if single else total
    judge_scores(table, weights, problems, p, scratch.raw, np.int64(1), scratch.own, scratch)


@inner
def judge_scores(
    table: TreeEnsemble,
    weights: Weights,
    problems: Problems,
    p: int,
    scores: F8,
    n_moves: int,
    moves: Records,
    scratch: Scratch,
) -> None:
    """Turn raw outputs, one row a move, into margins and verdicts."""
    for move in range(n_moves):
        link_scores(table, scores[move], scratch.outputs, scratch.probabilities)
        one = moves[move]
        one.margin, one.reached = margin_of(weights, problems, p, scratch.probabilities)
        one.probability = scratch.probabilities[problems.row[p].goal]


@inner
def find_reach(
    axes: Axes, plan: Plan, weights: Weights, problems: Problems, p: int, numbers: F8, bound: float, scratch: Scratch
) -> None:
    """Find, for every feature, the cells or levels that are feasible and leave the state's cost below the bound."""
    cost = cost_of(plan, weights, problems, p, numbers)
    for feature in range(numbers.size):
        reach, cell, coordinate = scratch.reach[feature], problems.cell[p, feature], plan.feature[feature]
        reach.rest = cost - feature_cost(plan, weights, problems, p, feature, numbers[feature])
        spare = bound - reach.rest
        reach.home = cell_of(axes, feature, scratch.codes[0, feature])
        reach.low = reach.home
        reach.high = reach.home
        reach.first_crossed = 0
        reach.end_crossed = 0
        reach.moves = False
        if not cell.movable:
            continue
        if coordinate.kind > GRID:
            level_first = coordinate.first_level
            n_levels = plan.feature[feature + 1].first_level - level_first
            for word in range(axes.feature[feature].n_words):
                bits = np.uint64(0)
                for place in range(min(np.int64(64), n_levels - 64 * word)):
                    level = 64 * word + place
                    bit = np.uint64(1) << np.uint64(place)
                    if level == numbers[feature]:
                        bits |= bit
                    elif problems.allowed[p, level_first + level]:
                        number = np.float64(level)
                        if feature_cost(plan, weights, problems, p, feature, number) < spare:
                            bits |= bit
                            reach.moves = True
                scratch.reachable[reach.first_word + word] = bits
            reach.end_crossed = axes.level_word.size if reach.moves else 0
            continue
        step = np.inf
        if spare < np.inf:  # the numbers whose own cost is below what is to spare, and a little more
            room = max(spare - weights.change, 0.0)
            step = (math.sqrt(weights.l1 * weights.l1 + 4.0 * room) - weights.l1) / 2.0
            step *= coordinate.scale * (1.0 + 1e-9)
        reach.gap_low = np.int64(axes.cut.size + 1)
        reach.gap_high = np.int64(-1)
        for side in range(2):
            low = max(problems.bound[p, feature, side, 0], cell.reference - step)
            high = min(problems.bound[p, feature, side, 1], cell.reference + step)
            if low > high:
                continue
            first = cell_of(axes, feature, low)
            last = cell_of(axes, feature, high)
            reach.low = min(reach.low, first)
            reach.high = max(reach.high, last)
            reach.gap_low = min(reach.gap_low, last + 1)
            reach.gap_high = max(reach.gap_high, first - 1)
            reach.moves = True
        from_zero = reach.home == axes.feature[feature].zero  # a move away may cross where its cells do not part
        reach.first_crossed = 0 if from_zero else reach.low
        reach.end_crossed = axes.cut.size if from_zero else reach.high


@inner
def walk_axes(table: TreeEnsemble, axes: Axes, plan: Plan, scratch: Scratch) -> None:
    """Collect, over all trees, how the raw outputs change when one feature alone leaves its cell or level.

    A move of one feature leaves the path of the state at one of its nodes; the branches that begin there are walked
    many at a time, like whole trees. Of four nodes on a path three ask for what no move of their feature changes: the
    others are listed first, by a sum in place of a jump that nobody can foresee.
    """
    for feature in range(scratch.reach.size):
        scratch.reach[feature].tree = -1
    n_trees = table.tree.size - 1
    n_branches = np.int64(0)
    for first in range(0, n_trees, LANES):
        n_lanes = min(np.int64(LANES), n_trees - first)
        for lane in range(n_lanes):
            scratch.at[lane] = np.uint64(table.tree[first + lane].first)
            scratch.n_forks[lane] = 0
        on = np.uint64(1)
        while on != np.uint64(0):
            on = np.uint64(0)
            for lane in range(n_lanes):
                at = scratch.at[lane]
                split, flags, feature, left = node_at(table, at)
                right = goes_right(table, split, flags, scratch.keys[0, feature])
                reach, n_forks = scratch.reach[feature], scratch.n_forks[lane]
                scratch.fork[lane, n_forks] = at << np.uint64(1) | right
                cut = axes.node_cut[at]
                crossed = (reach.first_crossed <= cut) & (cut < reach.end_crossed)
                scratch.n_forks[lane] = n_forks + np.int64(crossed & (left != np.uint64(0)))
                at += left + right
                expect_node(table, at)
                prefetch(axes.node_cut, at)
                scratch.at[lane] = at
                on |= left
        for lane in range(n_lanes):
            scratch.leaf[first + lane] = scratch.at[lane]
            n_branches = push_branches(table, axes, scratch, lane, first + lane, n_branches)
        n_left = scratch.walked.size - 1 if first + LANES < n_trees else 0  # whole batches, but for the last
        if n_branches > n_left:
            n_branches = walk_branches(table, axes, plan, scratch, n_branches, n_left)


@inlined
def push_branches(table: TreeEnsemble, axes: Axes, scratch: Scratch, lane: int, tree: int, n_branches: int) -> int:
    """Note the branches that begin beside a path, with the cells or levels that lead there; returns how many wait."""
    for fork in range(scratch.n_forks[lane]):
        word = scratch.fork[lane, fork]
        here, right = word >> np.uint64(1), word & np.uint64(1)
        _, _, feature, left = node_at(table, here)
        away = here + left + (np.uint64(1) - right)
        expect_node(table, away)
        place = axes.node_cut[here]
        reach = scratch.reach[feature]
        n_words = axes.feature[feature].n_words
        fresh = reach.tree != tree
        reach.tree = tree
        if n_words == 0:
            own_low = reach.low if fresh else reach.own_low
            own_high = reach.high if fresh else reach.own_high
            below, above = min(own_high, place), max(own_low, place + 1)
            low = own_low if right else above
            high = below if right else own_high
            reach.own_low = above if right else own_low
            reach.own_high = own_high if right else below
            low = reach.gap_high + 1 if (reach.gap_low <= low) & (low <= reach.gap_high) else low
            high = reach.gap_low - 1 if (reach.gap_low <= high) & (high <= reach.gap_high) else high
            # noted in any case, and written over where no cell leads there
            push_branch(scratch, n_branches, away, feature, tree, low, high, np.uint64(0))
            n_branches += np.int64(low <= high)
            continue
        if fresh:
            for number in range(n_words):
                scratch.own_levels[reach.first_word + number] = scratch.reachable[reach.first_word + number]
        for number in range(n_words):
            kept = scratch.own_levels[reach.first_word + number]
            leftward = axes.level_word[place + number]
            levels = kept & (leftward if right else ~leftward)
            scratch.own_levels[reach.first_word + number] = kept & ~levels
            if levels:
                push_branch(scratch, n_branches, away, feature, tree, number, number, levels)
                n_branches += 1
    return n_branches


@inlined
def push_branch(
    scratch: Scratch, at: int, node: np.uint64, feature: np.uint64, tree: int, low: int, high: int, levels: np.uint64
) -> None:
    """Note a branch that is to be walked."""
    branch = scratch.branch[at]
    branch.node = node
    branch.feature = feature
    branch.tree = tree
    branch.low = low
    branch.high = high
    branch.levels = levels


@inner
def walk_branches(table: TreeEnsemble, axes: Axes, plan: Plan, scratch: Scratch, n_branches: int, n_left: int) -> int:
    """Walk branches with the cells or levels that lead there, and note how those change the raw outputs.

    A batch goes down a level at a time, and those that go on move up in it. Returns how many wait, `n_left` at most.
    """
    node_bits, place_bits = np.uint64(0xFFFFFFFF), np.uint64(32)
    while n_branches > n_left:
        n_walked = min(n_branches, scratch.walked.size)
        n_branches -= n_walked
        for place in range(n_walked):
            branch = scratch.branch[n_branches + place]
            scratch.walked[place] = branch
            scratch.at[place] = branch.node | np.uint64(place) << place_bits
        n_ended = np.int64(0)
        while n_walked > 0:
            n_on = np.int64(0)
            for place in range(n_walked):
                word = scratch.at[place]
                here = word & node_bits
                split, flags, asked, left = node_at(table, here)
                ends = left == np.uint64(0)
                branch = scratch.walked[word >> place_bits]
                if asked == branch.feature and not ends:
                    to, n_branches = part_branch(scratch, axes, branch, n_branches, axes.node_cut[here], here + left)
                else:
                    to = here + left + goes_right(table, split, flags, scratch.keys[0, asked])
                scratch.ended[n_ended] = word
                n_ended += np.int64(ends)
                expect_node(table, to)
                scratch.at[n_on] = to | word & ~node_bits
                n_on += np.int64(not ends)
            n_walked = n_on
        note_leaves(table, axes, plan, scratch, n_ended)
    return n_branches


@inlined
def part_branch(
    scratch: Scratch, axes: Axes, branch: Any, n_branches: int, place: int, below: np.uint64
) -> tuple[np.uint64, int]:
    """Send a branch's cells or levels on at a node that asks for their feature.

    Where they part, those that go right wait as a branch of their own, and `branch` keeps the others.
    """
    right = below + np.uint64(1)
    to = below
    if branch.levels:
        leftward = branch.levels & axes.level_word[place + branch.low]
        rest = branch.levels & ~leftward
        if leftward == np.uint64(0):
            to = right
        elif rest:
            push_branch(scratch, n_branches, right, branch.feature, branch.tree, branch.low, branch.low, rest)
            n_branches += 1
            branch.levels = leftward
    elif branch.low > place:
        to = right
    elif branch.high > place:
        push_branch(scratch, n_branches, right, branch.feature, branch.tree, place + 1, branch.high, np.uint64(0))
        n_branches += 1
        branch.high = place
    return to, n_branches


@inlined
def note_leaves(table: TreeEnsemble, axes: Axes, plan: Plan, scratch: Scratch, n_ended: int) -> None:
    """Note how the leaves that some cells or levels lead to differ from the state's own."""
    width, n_outputs = np.uint64(table.values.shape[1]), table.start.size
    for number in range(n_ended):  # what will be read below, and when the moves are listed
        word = scratch.ended[number]
        branch = scratch.walked[word >> np.uint64(32)]
        first_cut = axes.feature[branch.feature].first_cut
        first_cell = first_cut + 2 * np.int64(branch.feature)
        prefetch(table.values, (word & np.uint64(0xFFFFFFFF)) * width)
        prefetch(scratch.step, (first_cell + branch.low) * n_outputs)
        prefetch(scratch.step, (first_cell + branch.high + 1) * n_outputs)
        prefetch(axes.cut, first_cut + branch.low)
        prefetch(axes.cut, first_cut + branch.high)
    for number in range(n_ended):
        word = scratch.ended[number]
        branch = scratch.walked[word >> np.uint64(32)]
        leaf, feature = word & np.uint64(0xFFFFFFFF), branch.feature
        own, tree = scratch.leaf[branch.tree], table.tree[branch.tree]
        if branch.levels:
            levels = branch.levels
            while levels:
                level = plan.feature[feature].first_level + 64 * branch.low + trailing_zeros(levels)
                levels &= levels - np.uint64(1)
                for place in range(tree.width):
                    column = np.uint64(place)
                    scratch.level[level, tree.output + place] += table.values[leaf, column] - table.values[own, column]
            continue
        first_cell = axes.feature[feature].first_cut + 2 * np.int64(feature)
        enter = first_cell + branch.low
        leave = first_cell + branch.high + 1
        for place in range(tree.width):
            column = np.uint64(place)
            change = table.values[leaf, column] - table.values[own, column]
            scratch.step[enter, tree.output + place] += change
            scratch.step[leave, tree.output + place] -= change
        scratch.entered[enter >> 6] |= np.uint64(1) << np.uint64(enter & 63)
        scratch.entered[leave >> 6] |= np.uint64(1) << np.uint64(leave & 63)


@inlined
def enter_cell(scratch: Scratch, at: int, n_outputs: int) -> None:
    """Change the raw outputs as on entering a cell, and forget that it was entered."""
    block, bit = at >> 6, np.uint64(1) << np.uint64(at & 63)
    if scratch.entered[block] & bit:
        scratch.entered[block] &= ~bit
        for output in range(n_outputs):
            scratch.change[output] += scratch.step[at, output]
            scratch.step[at, output] = 0.0


@spliced
def axis_moves(
    table: TreeEnsemble,
    axes: Axes,
    plan: Plan,
    weights: Weights,
    problems: Problems,
    p: int,
    numbers: F8,
    bound: float,
    scratch: Scratch,
) -> int:
    """List single-feature moves that cost less than a bound; returns how many.

    On the way it finds what `answer_one` does: the state's own leaves, raw outputs and margin stay in the scratch.
    """
    n_outputs = table.start.size
    raw, moves = scratch.raw, scratch.moves
    read_state(table, axes, plan, problems, p, numbers, scratch)
    find_reach(axes, plan, weights, problems, p, numbers, bound, scratch)
    walk_axes(table, axes, plan, scratch)
    judge_state(table, weights, problems, p, scratch)
    n_moves = np.int64(0)
    for feature in range(numbers.size):
        reach = scratch.reach[feature]
        if not reach.moves:
            continue
        coordinate, axis = plan.feature[feature], axes.feature[feature]
        if coordinate.kind > GRID:
            level_first = coordinate.first_level
            n_levels = plan.feature[feature + 1].first_level - level_first
            for level in range(min(n_levels, 64 * axis.n_words)):
                bits = scratch.reachable[reach.first_word + level // 64]
                if level == numbers[feature] or not (bits >> np.uint64(level % 64)) & np.uint64(1):
                    continue
                for output in range(n_outputs):
                    scratch.scores[n_moves, output] = raw[0, output] + scratch.level[level_first + level, output]
                    scratch.level[level_first + level, output] = 0.0
                move = moves[n_moves]
                move.feature = feature
                move.number = np.float64(level)
                move.cost = reach.rest + feature_cost(plan, weights, problems, p, feature, np.float64(level))
                n_moves += 1
            continue
        cut_first = axis.first_cut
        cell_first = cut_first + 2 * feature
        for output in range(n_outputs):
            scratch.change[output] = 0.0
        cell = reach.low
        while cell <= reach.high:
            at = cell_first + cell
            enter_cell(scratch, at, n_outputs)
            end = next_entered(scratch.entered, at + 1, cell_first + reach.high + 1) - cell_first
            if cell <= axis.zero < end:  # by itself
                end = axis.zero if cell < axis.zero else axis.zero + 1
            low = -np.inf if cell == 0 else axes.cut[cut_first + cell - 1]
            high = np.inf if cut_first + end > axes.feature[feature + 1].first_cut else axes.cut[cut_first + end - 1]
            number, _, found = nearest_in_cell(axes, plan, problems, p, feature, low, high)
            if cell == axis.zero:
                number, found = 0.0, nearest_feasible(problems, p, feature, 0.0) == 0.0
            if found and number != numbers[feature]:
                cost = reach.rest + feature_cost(plan, weights, problems, p, feature, number)
                if cost < bound:
                    # in the state's own cell the changes add up to nothing, but for their last bits
                    at_home = cell <= reach.home < end
                    for output in range(n_outputs):
                        change = 0.0 if at_home else scratch.change[output]
                        scratch.scores[n_moves, output] = raw[0, output] + change
                    move = moves[n_moves]
                    move.feature = feature
                    move.number = number
                    move.cost = cost
                    n_moves += 1
            cell = end
        enter_cell(scratch, cell_first + reach.high + 1, n_outputs)
    judge_scores(table, weights, problems, p, scratch.scores, n_moves, moves, scratch)
    if table.special >= ZERO_MISSING:
        judge_zeros(table, axes, plan, weights, problems, p, numbers, n_moves, scratch)
    return n_moves


@inner
def judge_zeros(
    table: TreeEnsemble,
    axes: Axes,
    plan: Plan,
    weights: Weights,
    problems: Problems,
    p: int,
    state: F8,
    n_moves: int,
    scratch: Scratch,
) -> None:
    """Ask the table about moves to zero where that goes another way than its cell."""
    own, numbers = scratch.own[0], scratch.numbers
    margin, reached, probability = own.margin, own.reached, own.probability
    for feature in range(numbers.size):
        numbers[feature] = state[feature]
    for number in range(n_moves):
        move = scratch.moves[number]
        if move.number != 0.0 or axes.feature[move.feature].zero < 0:
            continue
        numbers[move.feature] = 0.0
        answer_one(table, axes, plan, weights, problems, p, numbers, scratch)
        numbers[move.feature] = state[move.feature]
        move.margin, move.reached, move.probability = own.margin, own.reached, own.probability
    own.margin, own.reached, own.probability = margin, reached, probability


@inlined
def next_entered(entered: U8, first: int, end: int) -> int:
    """The first marked cell from `first` on, or `end`."""
    block = first >> 6
    word = (entered[block] >> np.uint64(first & 63)) << np.uint64(first & 63)
    while word == np.uint64(0):
        block += 1
        if block << 6 >= end:
            return end
        word = entered[block]
    return min((block << 6) + trailing_zeros(word), end)


# ---------------------------------------------------------------------------------------------------------------------
# Refinement: a beam outward from the anchor, then from what is left of the best without some of its moves
# ---------------------------------------------------------------------------------------------------------------------

TRADE_OFFS = (0.5, 1.0, 2.0, 1e6)  # what a unit of missing margin is thought to cost, in prices seen so far
INWARD_ROUNDS = 3  # outward again from each inward state; a fourth asks a tenth more for 0.1 % of distance
JUMPS = 5  # prices tried from a state
FALL = 0.6  # of the price from one to the next


STATE = record(
    cost=np.float64,
    fingerprint=np.uint64,  # of its numbers
)
CHILD = record(
    cost=np.float64,
    margin=np.float64,
    score=np.float64,  # cost, and what the missing margin is thought to cost; inf: no child
    fingerprint=np.uint64,
)
SLOT = record(
    n_states=np.int64,
    n_seen=np.int64,  # how many numbers have been a state
    n_rounds=np.int64,  # how many rounds of profiles were asked
    gained=np.int64,  # the last of them that found a nearer example
    nearest=np.float64,  # what that costs; inf: none yet
    polished=np.float64,  # the cost that the last inward round started from; inf: still outward
    price=np.float64,  # cost of a unit of margin; 0: not yet known
    missing=np.float64,  # margin that the anchor lacks
)


class Rounds(NamedTuple):
    """How often a beam goes outward."""

    unknown: int  # while no example is known
    most: int  # from then on
    patience: int  # and as many of these find nothing nearer than before


class Beam(NamedTuple):
    """States whose profiles are asked next, and the most promising moves seen from them, for each of S problems."""

    slot: Records  # (S,) SLOT
    state: Records  # (S, width) STATE
    numbers: F8  # (S, width, d)
    child: Records  # (S, width) CHILD
    grown: F8  # (S, width, d) the children's numbers
    seen: U8  # (S, most) their fingerprints


@inlined
def fingerprint_of_cell(feature: int, number: float) -> np.uint64:
    """A hash of one cell, of products of half words: plain Python would warn of one that wraps around."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    bits = np.float64(number + 0.0).view(np.uint64) ^ np.uint64(feature + 1) * np.uint64(0x9E3779B1)
    for _ in range(2):
        bits = (bits & low) * np.uint64(0x85EBCA77) ^ (bits >> half) * np.uint64(0xC2B2AE3D)
        bits ^= bits >> np.uint64(29)
    return bits


@inner
def fingerprint_of(numbers: F8) -> np.uint64:
    """The exclusive or of all cells' fingerprints, so that a move's follows from its state's (Zobrist's hash)."""
    fingerprint = np.uint64(0)
    for feature in range(numbers.size):
        fingerprint ^= fingerprint_of_cell(feature, numbers[feature])
    return fingerprint


@inlined
def was_state(beam: Beam, slot: int, fingerprint: np.uint64) -> bool:
    """Whether numbers have been a state, whose profile would hardly ever tell more if it were asked once again.

    Before this was asked, two in five states of a beam of 8 were repeated, by other ways or in inward rounds, and gave
    2 of the 2691 examples that were nearer than the last.
    """
    known = False
    for at in range(beam.slot[slot].n_seen):
        known |= beam.seen[slot, at] == fingerprint
    return known


@inlined
def becomes_state(beam: Beam, slot: int, fingerprint: np.uint64) -> bool:
    """Note that numbers are a state now; False where they have been one."""
    if was_state(beam, slot, fingerprint):
        return False
    progress = beam.slot[slot]
    if progress.n_seen < beam.seen.shape[1]:  # the rest may be asked again, and no more than that
        beam.seen[slot, progress.n_seen] = fingerprint
        progress.n_seen += 1
    return True


@inner
def start_beam(plan: Plan, problems: Problems, weights: Weights, beam: Beam, slot: int, p: int) -> None:
    """The first state is the anchor."""
    for feature in range(plan.feature.size - 1):
        beam.numbers[slot, 0, feature] = problems.anchor[p, feature]
    state, progress = beam.state[slot, 0], beam.slot[slot]
    state.cost = cost_of(plan, weights, problems, p, problems.anchor[p])
    state.fingerprint = fingerprint_of(problems.anchor[p])
    progress.n_states = 1
    progress.n_seen = 0
    becomes_state(beam, slot, state.fingerprint)
    progress.n_rounds = 0
    progress.gained = 0
    progress.nearest = np.inf
    progress.polished = np.inf
    progress.price = 0.0
    clear_children(beam, slot)


@inner
def absorb_moves(
    beam: Beam, slot: int, state: int, bound: float, moves: Records, n_moves: int, own_margin: float
) -> None:
    """Keep, for every trade-off of cost against margin, the most promising moves that do not reach the class yet."""
    if own_margin == -np.inf:
        return
    progress = beam.slot[slot]
    missing = max(-own_margin, 1e-12)
    if progress.price == 0.0:
        progress.missing = missing
    if bound < np.inf:
        progress.price = bound / progress.missing
    elif progress.price == 0.0:
        cheapest = np.inf
        for move in range(n_moves):
            gain = moves[move].margin - own_margin
            if gain > 0.0:
                cheapest = min(cheapest, moves[move].cost / gain * missing)
        if cheapest < np.inf:
            progress.price = cheapest / missing
    own = beam.state[slot, state]
    steepest = steepest_gain(moves, n_moves, own.cost, own_margin)
    lost = steepest == 0.0 and bound == np.inf  # a plateau, or the top of a hill: on, to what costs least
    for move in range(n_moves):
        one = moves[move]
        cost, margin = one.cost, one.margin
        if one.reached or cost >= bound or (margin <= own_margin and cost >= own.cost and not lost):
            continue
        if bound < np.inf and (bound - cost) * steepest <= -margin:
            continue  # what is left to spend would not do, even if every move gained as much as the best of these
        missed = progress.price * max(-margin, 0.0)
        if bound < np.inf and cost + missed >= bound:
            continue  # at the price of the best so far it would end no nearer: 5 % of the profiles, for no distance
        for trade_off in range(len(TRADE_OFFS)):
            worst = worst_child(beam, slot, trade_off)
            score = cost + TRADE_OFFS[trade_off] * missed
            if score >= beam.child[slot, worst].score:
                continue
            number = beam.numbers[slot, state, one.feature]
            fingerprint = own.fingerprint ^ fingerprint_of_cell(one.feature, number)
            fingerprint ^= fingerprint_of_cell(one.feature, one.number)
            first = 0 if lost else trade_off  # on a plateau every trade-off would keep the same
            if is_kept(beam, slot, first, trade_off, fingerprint) or was_state(beam, slot, fingerprint):
                continue
            for feature in range(beam.grown.shape[2]):
                beam.grown[slot, worst, feature] = beam.numbers[slot, state, feature]
            beam.grown[slot, worst, one.feature] = one.number
            set_child(beam, slot, worst, cost, margin, score, fingerprint)


@inner
def steepest_gain(moves: Records, n_moves: int, own_cost: float, own_margin: float) -> float:
    """The most margin that a unit of cost gains, or saves, among the moves of a state."""
    steepest = 0.0
    for move in range(n_moves):
        one = moves[move]
        gain = one.margin - own_margin
        extra = one.cost - own_cost
        if gain > 0.0 and extra <= 0.0:
            return np.inf
        if gain > 0.0:
            steepest = max(steepest, gain / extra)
    return steepest


@inner
def offer_child(beam: Beam, slot: int, numbers: F8, cost: float, margin: float) -> None:
    """Keep numbers among the children where they are more promising than those kept so far."""
    fingerprint = fingerprint_of(numbers)
    if was_state(beam, slot, fingerprint):
        return
    for trade_off in range(len(TRADE_OFFS)):
        worst = worst_child(beam, slot, trade_off)
        score = cost + TRADE_OFFS[trade_off] * beam.slot[slot].price * max(-margin, 0.0)
        if score < beam.child[slot, worst].score and not is_kept(beam, slot, trade_off, trade_off, fingerprint):
            for feature in range(numbers.size):
                beam.grown[slot, worst, feature] = numbers[feature]
            set_child(beam, slot, worst, cost, margin, score, fingerprint)


@inlined
def set_child(
    beam: Beam, slot: int, child: int, cost: float, margin: float, score: float, fingerprint: np.uint64
) -> None:
    """Note what a child costs and lacks."""
    kept = beam.child[slot, child]
    kept.cost = cost
    kept.margin = margin
    kept.score = score
    kept.fingerprint = fingerprint


@inner
def is_kept(beam: Beam, slot: int, first: int, last: int, fingerprint: np.uint64) -> bool:
    """Whether some trade-offs keep the same child: the same moves in another order."""
    n_kept = beam.child.shape[1] // len(TRADE_OFFS)
    for child in range(first * n_kept, (last + 1) * n_kept):
        if beam.child[slot, child].fingerprint == fingerprint:
            return True
    return False


@inner
def worst_child(beam: Beam, slot: int, trade_off: int) -> int:
    """The place of the child to be replaced next."""
    n_kept = beam.child.shape[1] // len(TRADE_OFFS)
    worst = trade_off * n_kept
    for child in range(worst + 1, worst + n_kept):
        if beam.child[slot, child].score > beam.child[slot, worst].score:
            worst = child
    return worst


@inner
def clear_children(beam: Beam, slot: int) -> None:
    """No child is kept."""
    for child in range(beam.child.shape[1]):
        set_child(beam, slot, child, np.inf, np.inf, np.inf, np.uint64(0))


@spliced
def next_states(
    plan: Plan,
    weights: Weights,
    problems: Problems,
    beam: Beam,
    slot: int,
    p: int,
    best: Best,
    rounds: Rounds,
) -> None:
    """Replace the states by the children of the last outward round, or by those of an inward round around the best."""
    progress = beam.slot[slot]
    nearest = best.row[p].cost
    progress.n_rounds += 1
    if nearest < progress.nearest * (1.0 - 1e-6):
        progress.nearest = nearest
        progress.gained = progress.n_rounds
    n_rounds = rounds.unknown
    if progress.polished < np.inf:
        n_rounds = INWARD_ROUNDS
    elif nearest < np.inf:
        n_rounds = min(rounds.most, progress.gained + rounds.patience)
    n_states = grow_children(beam, slot, nearest) if progress.n_rounds < n_rounds else 0
    clear_children(beam, slot)
    if n_states == 0 and nearest < progress.polished * (1.0 - 1e-6):
        progress.polished = nearest
        progress.n_rounds = 0
        n_states = inward_states(problems, beam, slot, p, best)
    for state in range(n_states):
        numbers, one = beam.numbers[slot, state], beam.state[slot, state]
        one.cost = cost_of(plan, weights, problems, p, numbers)
        one.fingerprint = fingerprint_of(numbers)
    progress.n_states = n_states


@inner
def grow_children(beam: Beam, slot: int, bound: float) -> int:
    """Turn the children that are cheaper than a bound into states, each once and for all; returns how many."""
    n_states = 0
    for child in range(beam.child.shape[1]):
        kept = beam.child[slot, child]
        if kept.cost >= bound:
            continue
        if becomes_state(beam, slot, kept.fingerprint):
            for feature in range(beam.grown.shape[2]):
                beam.numbers[slot, n_states, feature] = beam.grown[slot, child, feature]
            n_states += 1
    return n_states


@inner
def inward_states(problems: Problems, beam: Beam, slot: int, p: int, best: Best) -> int:
    """The best itself (pulls), and the best with one or two changes taken back (swaps), but for former states."""
    n_features = best.numbers.shape[1]
    width = beam.numbers.shape[1]
    n_states = 0
    for pairs in range(2):  # each feature alone before any two
        for one in range(pairs - 1, n_features):
            if one >= 0 and best.numbers[p, one] == problems.anchor[p, one]:
                continue
            for two in range(0 if pairs else -1, one if pairs else 0):
                if pairs and best.numbers[p, two] == problems.anchor[p, two]:
                    continue
                if n_states == width:
                    return n_states
                for feature in range(n_features):
                    number = best.numbers[p, feature]
                    if feature in (one, two) or np.isnan(number):
                        number = problems.anchor[p, feature]
                    beam.numbers[slot, n_states, feature] = number
                n_states += np.int64(becomes_state(beam, slot, fingerprint_of(beam.numbers[slot, n_states])))
    return n_states


@spliced
def jump(
    table: TreeEnsemble,
    axes: Axes,
    plan: Plan,
    weights: Weights,
    problems: Problems,
    p: int,
    best: Best,
    beam: Beam,
    slot: int,
    state: int,
    n_moves: int,
    own_margin: float,
    scratch: Scratch,
) -> None:
    """Move many features at once, as if their gains of margin added up, and ask whether that is true.

    At a price λ of a unit of cost every feature makes the move of largest gain - λ cost on its own. λ falls until the
    class is reached. Where not even the sum of the gains reaches it nothing is asked: that halves the queries of a
    refinement, for the same distance.
    """
    moves, numbers = scratch.moves, scratch.numbers
    own_cost = beam.state[slot, state].cost
    steepest = 0.0
    n_listed, n_moves = n_moves, 0
    for move in range(n_listed):  # those that are worth something at some price move up
        one = moves[move]
        gain = one.margin - own_margin
        extra = one.cost - own_cost
        if gain * extra > 0.0:
            steepest = max(steepest, gain / extra)
        if gain > 0.0 or extra < 0.0:
            kept = moves[n_moves]
            kept.feature = one.feature
            kept.number = one.number
            kept.margin = gain
            kept.cost = extra
            n_moves += 1
    price = steepest
    before = own_cost
    for _ in range(JUMPS):
        price *= FALL
        for feature in range(numbers.size):
            numbers[feature] = beam.numbers[slot, state, feature]
        n_moved = 0
        promised = own_margin
        move = 0
        while move < n_moves:
            feature = moves[move].feature
            most = 0.0
            gain = 0.0
            while move < n_moves and moves[move].feature == feature:
                one = moves[move]
                worth = one.margin - price * one.cost
                if worth > most:
                    most = worth
                    gain = one.margin
                    numbers[feature] = one.number
                move += 1
            if most > 0.0:
                promised += gain
                n_moved += 1
        if n_moved < 2 or promised < 0.0:
            continue
        cost = cost_of(plan, weights, problems, p, numbers)
        if cost == before or cost >= best.row[p].cost:
            continue
        before = cost
        margin, reached = answer_one(table, axes, plan, weights, problems, p, numbers, scratch)
        best.row[p].n_queries += 1
        if reached:
            keep_if_best(plan, weights, problems, best, p, numbers)
            return
        offer_child(beam, slot, numbers, cost, margin)


@compiled
def refine_rows(
    table: TreeEnsemble,
    axes: Axes,
    plan: Plan,
    weights: Weights,
    problems: Problems,
    best: Best,
    beam: Beam,
    scratch: Scratch,
    rounds: Rounds,
    sensitivity: F8,
) -> None:
    """Improve the best numbers of every problem over the axis profiles of a table.

    Where `sensitivity` is (P, d), it is filled from the anchors' profiles instead: the largest change in the
    probability of the goal that moving a feature alone can cause. One entry for both: a profile compiles for seconds.
    """
    moves = scratch.moves
    for p in range(problems.row.size):
        found, progress = best.row[p], beam.slot[0]
        if found.done or found.exhausted:
            continue
        if sensitivity.size == 0:
            anchor = problems.anchor[p]
            if answer_one(table, axes, plan, weights, problems, p, anchor, scratch)[1]:  # nothing is nearer
                keep_if_best(plan, weights, problems, best, p, anchor)
                found.n_queries += 1
                found.done = True
                found.proved = True
                continue
        start_beam(plan, problems, weights, beam, 0, p)
        while True:
            for state in range(progress.n_states):
                bound = found.cost
                if beam.state[0, state].cost >= bound and progress.polished == np.inf:
                    continue
                if found.n_queries >= best.max_queries:
                    found.exhausted = True
                    break
                numbers = beam.numbers[0, state]
                n_moves = axis_moves(table, axes, plan, weights, problems, p, numbers, bound, scratch)
                own = scratch.own[0]
                if sensitivity.size > 0:
                    for move in range(n_moves):
                        one = moves[move]
                        change = abs(one.probability - own.probability)
                        sensitivity[p, one.feature] = max(sensitivity[p, one.feature], change)
                    continue
                found.n_queries += 1  # one walk answers all its moves
                own_margin = own.margin  # before another question
                if own.reached:
                    keep_if_best(plan, weights, problems, best, p, numbers)
                keep_cheapest_move(table, axes, plan, weights, problems, p, best, numbers, n_moves, scratch)
                absorb_moves(beam, 0, state, found.cost, moves, n_moves, own_margin)
                jump(table, axes, plan, weights, problems, p, best, beam, 0, state, n_moves, own_margin, scratch)
            if found.exhausted:
                break
            next_states(plan, weights, problems, beam, 0, p, best, rounds)
            if progress.n_states == 0:
                break


@spliced
def keep_cheapest_move(
    table: TreeEnsemble,
    axes: Axes,
    plan: Plan,
    weights: Weights,
    problems: Problems,
    p: int,
    best: Best,
    state: F8,
    n_moves: int,
    scratch: Scratch,
) -> None:
    """Keep the cheapest move of a state that reaches the class, where it is better than the best so far.

    A profile adds the trees in another order than the table, so a last bit may differ at a tie: the table is asked.
    """
    moves, numbers, found = scratch.moves, scratch.numbers, best.row[p]
    while True:
        cheapest = -1
        for move in range(n_moves):
            least = found.cost if cheapest < 0 else moves[cheapest].cost
            if moves[move].reached and moves[move].cost < least:
                cheapest = move
        if cheapest < 0:
            break
        for feature in range(numbers.size):
            numbers[feature] = state[feature]
        numbers[moves[cheapest].feature] = moves[cheapest].number
        margin, reached = answer_one(table, axes, plan, weights, problems, p, numbers, scratch)
        found.n_queries += 1
        if not reached or not keep_if_best(plan, weights, problems, best, p, numbers):
            moves[cheapest].margin = margin
            moves[cheapest].reached = False


@allocating
def enumerate_leaves(
    table: TreeEnsemble,
    axes: Axes,
    plan: Plan,
    weights: Weights,
    problems: Problems,
    p: int,
    best: Best,
    scratch: Scratch,
) -> None:
    """The exact optimum of a single tree: the cheapest feasible numbers of every leaf that has the wanted class."""
    n_features = plan.feature.size - 1
    path_node = np.empty(table.depth + 1, np.uint64)
    path_right = np.zeros(table.depth + 1, np.int64)  # 0: left is visited, 1: right, 2 and 3: only that side can be
    levels = np.empty(max(1, plan.level.size), np.bool_)
    numbers = scratch.numbers
    keys = np.empty((1, n_features), np.uint64)
    codes = np.empty((1, n_features))
    for feature in range(n_features):
        codes[0, feature] = problems.cell[p, feature].own_code
    keys_from_codes(table, codes, keys)
    depth = 0
    at = np.uint64(0)
    while True:
        split, flags, word, left = node_at(table, at)
        if left != np.uint64(0):
            feature = np.int64(word)
            path_node[depth] = at
            path_right[depth] = 0
            if not problems.cell[p, feature].movable:
                right = goes_right(table, split, flags, keys[0, feature])
                path_right[depth] = 2 + np.int64(right)
                at += left + right
            else:
                at += left
            depth += 1
            continue
        feasible = True
        for feature in range(n_features):
            numbers[feature] = problems.anchor[p, feature]
        for place in range(depth):
            feature = np.int64(node_at(table, path_node[place])[2])
            if not problems.cell[p, feature].movable or numbers[feature] != problems.anchor[p, feature]:
                continue
            number, found = nearest_on_path(
                table, axes, plan, weights, problems, p, feature, path_node, path_right, depth, levels
            )
            if not found:
                feasible = False
                break
            numbers[feature] = number
        if feasible and cost_of(plan, weights, problems, p, numbers) < best.row[p].cost:
            if best.row[p].n_queries >= best.max_queries:
                best.row[p].exhausted = True
                return
            best.row[p].n_queries += 1
            if answer_one(table, axes, plan, weights, problems, p, numbers, scratch)[1]:
                keep_if_best(plan, weights, problems, best, p, numbers)
        while depth > 0 and path_right[depth - 1] >= 1:
            depth -= 1
        if depth == 0:
            return
        path_right[depth - 1] = 1
        parent = path_node[depth - 1]
        at = parent + node_at(table, parent)[3] + np.uint64(1)


@allocating
def nearest_on_path(
    table: TreeEnsemble,
    axes: Axes,
    plan: Plan,
    weights: Weights,
    problems: Problems,
    p: int,
    feature: int,
    path_node: U8,
    path_right: I8,
    depth: int,
    levels: NDArray[np.bool_],
) -> tuple[float, bool]:
    """The feasible value of one feature, nearest to the reference, that follows a path of the first tree."""
    low = -np.inf
    high = np.inf
    on_levels = plan.feature[feature].kind > GRID
    n_levels = min(
        plan.feature[feature + 1].first_level - plan.feature[feature].first_level, 64 * axes.feature[feature].n_words
    )
    own = problems.cell[p, feature].own
    own_follows = own < 0.0  # a level never seen is in no level set; it stands where its own code goes
    if on_levels:
        for level in range(n_levels):
            levels[level] = problems.allowed[p, plan.feature[feature].first_level + level]
    for place in range(depth):
        at = path_node[place]
        split, flags, word, _ = node_at(table, at)
        if np.int64(word) != feature:
            continue
        right = path_right[place] % 2
        cut = axes.node_cut[np.int64(at)]
        if on_levels:
            for level in range(n_levels):
                inside = (axes.level_word[cut + level // 64] >> np.uint64(level % 64)) & np.uint64(1)
                if np.int64(inside) == right:
                    levels[level] = False
            if own < 0.0:
                code = np.empty((1, (plan.feature.size - 1)))
                key = np.empty((1, (plan.feature.size - 1)), np.uint64)
                for other in range(plan.feature.size - 1):
                    code[0, other] = problems.cell[p, other].own_code
                keys_from_codes(table, code, key)
                own_follows = own_follows and np.int64(goes_right(table, split, flags, key[0, feature])) == right
        elif right:
            low = max(low, axes.cut[axes.feature[feature].first_cut + cut])
        else:
            high = min(high, axes.cut[axes.feature[feature].first_cut + cut])
    if not on_levels:
        number, _, found = nearest_in_cell(axes, plan, problems, p, feature, low, high)
        return number, found
    nearest = own
    found = own_follows
    cost = feature_cost(plan, weights, problems, p, feature, own) if own_follows else np.inf
    for level in range(n_levels):
        if levels[level]:
            other = feature_cost(plan, weights, problems, p, feature, np.float64(level))
            if other < cost:
                cost = other
                nearest = np.float64(level)
                found = True
    return nearest, found


# ---------------------------------------------------------------------------------------------------------------------
# Entries: what the drivers call, once per batch
# ---------------------------------------------------------------------------------------------------------------------


@compiled
def judge_rows(
    weights: Weights, problems: Problems, rows: I8, probabilities: F8, margins: F8, reached: NDArray[np.bool_]
) -> None:
    """Margin and verdict of probabilities that were asked for the problems `rows`."""
    for at in range(rows.size):
        margins[at], reached[at] = margin_of(weights, problems, rows[at], probabilities[at])


@compiled
def propose_rows(
    plan: Plan,
    problems: Problems,
    schedule: Schedule,
    iterates: Iterates,
    active: I8,
    starts: I8,
    step: int,
    numbers: F8,
) -> None:
    """`propose_row` for many problems and starts; `numbers` is (n_active, queries, d)."""
    for at in range(active.size):
        propose_row(plan, problems, schedule, iterates, active[at], starts[at], step, numbers[at])


@compiled
def absorb_rows(
    plan: Plan,
    weights: Weights,
    problems: Problems,
    schedule: Schedule,
    iterates: Iterates,
    best: Best,
    active: I8,
    starts: I8,
    step: int,
    numbers: F8,
    margins: F8,
    reached: NDArray[np.bool_],
    log_densities: F8,
) -> None:
    """`absorb_row` for many problems and starts; answers are (n_active, queries)."""
    for at in range(active.size):
        absorb_row(
            plan, weights, problems, schedule, iterates, best, active[at], starts[at], step,
            numbers[at], margins[at], reached[at], log_densities[at],
        )  # fmt: skip


@compiled
def draw_rows(plan: Plan, problems: Problems, p: int, uniforms: F8, numbers: F8) -> None:
    """Draw feasible numbers for a problem: half of the time all its features move, anywhere, else some of them.

    `uniforms` is (n, d + 1, 2): whether a feature moves and where to, and half the share of a draw's features that do.
    """
    for draw in range(numbers.shape[0]):
        share = 2.0 * uniforms[draw, numbers.shape[1], 0]
        for feature in range(numbers.shape[1]):
            numbers[draw, feature] = problems.anchor[p, feature]
            if problems.cell[p, feature].movable and uniforms[draw, feature, 0] < share:
                numbers[draw, feature] = drawn(plan, problems, p, feature, uniforms[draw, feature, 1])


@inner
def drawn(plan: Plan, problems: Problems, p: int, feature: int, uniform: float) -> float:
    """A feasible number or level of a feature that may move, drawn by a uniform number."""
    if plan.feature[feature].kind > GRID:
        first = plan.feature[feature].first_level
        n_levels = plan.feature[feature + 1].first_level - first
        level = np.int64(uniform * n_levels)
        while not problems.allowed[p, first + level]:
            level = (level + 1) % n_levels
        return np.float64(level)
    low, high = np.inf, -np.inf
    for side in range(2):
        if problems.bound[p, feature, side, 0] <= problems.bound[p, feature, side, 1]:
            low = min(low, problems.bound[p, feature, side, 0])
            high = max(high, problems.bound[p, feature, side, 1])
    return settled(plan, problems, p, feature, low + (high - low) * uniform)


@compiled_allocating
def search_rows(
    table: TreeEnsemble,
    axes: Axes,
    plan: Plan,
    weights: Weights,
    problems: Problems,
    schedule: Schedule,
    iterates: Iterates,
    best: Best,
) -> None:
    """Search every problem on a table, without leaving compiled code."""
    n_rows = (schedule.n_directions + 1) * schedule.n_samples
    nearby = nearby_for(table, n_rows, plan.feature.size - 1)
    numbers = nearby.numbers
    margins = np.empty(n_rows)
    reached = np.empty(n_rows, np.bool_)
    log_densities = np.zeros(n_rows)
    for p in range(problems.row.size):
        if best.row[p].done:
            continue
        for start in range(schedule.start.size):
            gained = 0
            for step in range(schedule.n_steps):
                if step - gained >= schedule.patience and best.row[p].cost < np.inf:
                    break
                before = best.row[p].cost
                if best.row[p].n_queries + n_rows > best.max_queries:
                    best.row[p].exhausted = True
                    break
                propose_row(plan, problems, schedule, iterates, p, start, step, numbers)
                answer_numbers(table, axes, plan, weights, problems, p, numbers, nearby, margins, reached)
                absorb_row(
                    plan, weights, problems, schedule, iterates, best, p, start, step,
                    numbers, margins, reached, log_densities,
                )  # fmt: skip
                if best.row[p].cost < before:
                    gained = step


@compiled
def solve_single_tree(
    table: TreeEnsemble, axes: Axes, plan: Plan, weights: Weights, problems: Problems, best: Best, scratch: Scratch
) -> None:
    """Solve every problem on a table of one tree exactly."""
    for p in range(problems.row.size):
        if not best.row[p].done:
            enumerate_leaves(table, axes, plan, weights, problems, p, best, scratch)
            best.row[p].done = not best.row[p].exhausted
            best.row[p].proved = not best.row[p].exhausted


@compiled
def cost_rows(plan: Plan, weights: Weights, problems: Problems, rows: I8, numbers: F8, costs: F8) -> None:
    """Costs of numbers that were proposed for the problems `rows`."""
    for at in range(rows.size):
        costs[at] = cost_of(plan, weights, problems, rows[at], numbers[at])


@compiled
def keep_rows(
    plan: Plan, weights: Weights, problems: Problems, best: Best, rows: I8, numbers: F8, reached: NDArray[np.bool_]
) -> None:
    """Keep the cheapest of many answers for the problems `rows`."""
    for at in range(rows.size):
        if reached[at]:
            keep_if_best(plan, weights, problems, best, rows[at], numbers[at])


@compiled
def fingerprint_rows(numbers: F8, owners: I8, fingerprints: U8) -> None:
    """Fingerprints of many numbers; a cell that is the row's own (missing, never seen) counts its owner too."""
    for row in range(numbers.shape[0]):
        fingerprint = fingerprint_of(numbers[row])
        for feature in range(numbers.shape[1]):
            if not numbers[row, feature] >= 0.0:
                fingerprint ^= fingerprint_of_cell(numbers.shape[1], np.float64(owners[row]))
                break
        fingerprints[row] = fingerprint


@compiled_allocating
def link_rows(table: TreeEnsemble, raw: F8, probabilities: F8) -> None:
    """Class probabilities of raw outputs, as the search reads them."""
    outputs = np.empty(table.start.size + 1)
    for row in range(raw.shape[0]):
        link_scores(table, raw[row], outputs, probabilities[row])


@compiled
def start_beams(plan: Plan, problems: Problems, weights: Weights, beam: Beam, rows: I8) -> None:
    """`start_beam` for the problems `rows`, each in its own slot."""
    for at in range(rows.size):
        start_beam(plan, problems, weights, beam, rows[at], rows[at])


@compiled
def next_states_of_rows(
    plan: Plan,
    weights: Weights,
    problems: Problems,
    beam: Beam,
    rows: I8,
    best: Best,
    rounds: Rounds,
) -> None:
    """`next_states` for the problems `rows`, each in its own slot."""
    for at in range(rows.size):
        next_states(plan, weights, problems, beam, rows[at], rows[at], best, rounds)


@compiled
def absorb_moves_of_states(beam: Beam, best: Best, rows: I8, states: I8, moves: Records, n_moves: I8) -> None:
    """`absorb_moves` for states of the problems `rows`, whose moves `grid_moves_of_states` listed."""
    first = 0
    for at in range(rows.size):
        last = first + n_moves[at] - 1
        bound = best.row[rows[at]].cost
        absorb_moves(beam, rows[at], states[at], bound, moves[first:last], last - first, moves[last].margin)
        first = last + 1


@compiled
def moved_rows(plan: Plan, std: F8, problems: Problems, numbers: F8, moved: F8) -> None:
    """How far numbers are from the references in standard deviations; a category counts by its step in the encoding."""
    for p in range(numbers.shape[0]):
        for feature in range(numbers.shape[1]):
            number, reference = numbers[p, feature], problems.cell[p, feature].reference
            if plan.feature[feature].kind > GRID:
                number, reference = place_of(plan, feature, number), place_of(plan, feature, reference)
            step = abs(number - reference) / std[feature]
            moved[p, feature] = 0.0 if np.isnan(step) else step  # a missing cell has not moved


@compiled
def code_rows(plan: Plan, level_code: F8, problems: Problems, rows: I8, numbers: F8, codes: F8) -> None:
    """What a table reads for numbers that were found for the problems `rows`."""
    for at in range(rows.size):
        for feature in range(numbers.shape[1]):
            codes[at, feature] = code_of(plan, problems, level_code, rows[at], feature, numbers[at, feature])


MOST_LEVELS = 32  # levels of one feature that are asked of a black box
PULLS = 9  # steps between the reference and a moved feature


@compiled
def grid_moves_of_states(
    plan: Plan,
    weights: Weights,
    problems: Problems,
    rows: I8,
    numbers: F8,
    bounds: F8,
    steps: F8,
    moves: Records,
    n_moves: I8,
) -> int:
    """`grid_moves` of many states, after each a move that leaves the state as it is; returns how many in all."""
    end = 0
    for at in range(rows.size):
        first = end
        end += grid_moves(plan, weights, problems, rows[at], numbers[at], bounds[at], steps, moves[first:])
        moves[end].feature = 0
        moves[end].number = numbers[at, 0]
        end += 1
        n_moves[at] = end - first
    return end


@inner
def grid_moves(
    plan: Plan,
    weights: Weights,
    problems: Problems,
    p: int,
    numbers: F8,
    bound: float,
    steps: F8,
    moves: Records,
) -> int:
    """List moves of one state that are worth a query where no profile can be read; returns how many.

    `steps` are distances from the reference, in working coordinates; a feature that has moved already is pulled back
    in even steps instead.
    """
    n_moves = 0
    cost = cost_of(plan, weights, problems, p, numbers)
    for feature in range(plan.feature.size - 1):
        if not problems.cell[p, feature].movable:
            continue
        current = numbers[feature]
        reference = problems.cell[p, feature].reference
        rest = cost - feature_cost(plan, weights, problems, p, feature, current)
        first = n_moves
        on_levels = plan.feature[feature].kind > GRID
        n_levels = plan.feature[feature + 1].first_level - plan.feature[feature].first_level
        n_tries = min(MOST_LEVELS, n_levels) if on_levels else 2 * steps.size + 4
        if not on_levels and current != reference:
            n_tries = PULLS
        for attempt in range(n_tries):
            if on_levels:
                number = np.float64(attempt)
                if not problems.allowed[p, plan.feature[feature].first_level + attempt]:
                    continue
            elif current != reference:
                number = settled(plan, problems, p, feature, reference + (current - reference) * attempt / PULLS)
            elif attempt < 2 * steps.size:
                step = steps[attempt // 2] * plan.feature[feature].scale
                number = settled(plan, problems, p, feature, reference + (step if attempt % 2 else -step))
            else:
                end = attempt - 2 * steps.size
                number = problems.bound[p, feature, end // 2, end % 2]
                if (
                    problems.bound[p, feature, end // 2, 0] > problems.bound[p, feature, end // 2, 1]
                    or abs(number) == np.inf
                ):
                    continue
            if number == current:
                continue
            known = False
            for move in range(first, n_moves):
                known = known or moves[move].number == number
            if known:
                continue
            moves[n_moves].cost = rest + feature_cost(plan, weights, problems, p, feature, number)
            if moves[n_moves].cost < bound:
                moves[n_moves].feature = feature
                moves[n_moves].number = number
                n_moves += 1
    return n_moves
