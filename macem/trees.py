"""Many trees of any origin in one common form, and their layout as one TreeEnsemble.

Adapters describe a model in the common form, `Tree` and `Member`; composites and pipelines rewrite that form; `pack`
lays it out for the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macem import kernel
from macem.errors import AdapterError
from macem.kernel import F8, I8, Axes, Plan, TreeEnsemble

# An axis profile of several trees looks at the 4096 most frequent levels of a feature, which are the first by number:
# every node that asks for the feature keeps a bit for each.
MOST_LEVEL_WORDS = 64

__all__ = ["Link", "Member", "Tree", "axes_of", "constant", "pack", "rename_features", "with_columns"]


class Link(IntEnum):
    """From the raw outputs of a member to its probabilities.

    Attributes
    ----------
    IDENTITY
        The outputs are probabilities.
    SIGMOID
        One output to (1 - p, p), p = 1 / (1 + exp(-slope · raw)).
    SOFTMAX
        softmax(slope · raw), with the exponential of the C library.
    SOFTMAX_NUMPY
        The same with NumPy's, whose last bit differs on some processors.
    SIGMOID_EACH
        One sigmoid per class, as it is (LightGBM's multiclassova).
    VOTE
        1 for the first largest output, 0 elsewhere.
    ADABOOST
        The votes of scikit-learn's AdaBoost (see there).
    SIGMOID_SINGLE, SOFTMAX_SINGLE
        As XGBoost does it, in float32.
    STEP
        One output to class 1 iff raw > 0 (XGBoost's binary:hinge).
    """

    IDENTITY = kernel.IDENTITY
    SIGMOID = kernel.SIGMOID
    SOFTMAX = kernel.SOFTMAX
    SOFTMAX_NUMPY = kernel.SOFTMAX_NUMPY
    SIGMOID_EACH = kernel.SIGMOID_EACH
    VOTE = kernel.VOTE
    ADABOOST = kernel.ADABOOST
    SIGMOID_SINGLE = kernel.SIGMOID_SINGLE
    SOFTMAX_SINGLE = kernel.SOFTMAX_SINGLE
    STEP = kernel.STEP


@dataclass(frozen=True)
class Tree:
    """One decision tree in the common form; node 0 is the root.

    Attributes
    ----------
    feature : ndarray of int, shape (n_nodes,)
        The feature a node asks for; -1 at a leaf.
    threshold : ndarray of float64, shape (n_nodes,)
        A number goes left iff ``x <= threshold``. Where the library compares in float32 (`TreeOracle.single`), both
        sides are float32 values held in float64.
    left, right : ndarray of int, shape (n_nodes,)
        Children; unused at leaves. Nodes that cannot be reached from the root are ignored.
    value : ndarray of float64, shape (n_nodes, width)
        What a leaf adds to the raw outputs ``output … output + width - 1``.
    missing_left : ndarray of bool, shape (n_nodes,)
        Whether a missing value (NaN) goes left, at nodes that ask for a number or for a category.
    output : int
        The first raw output, of its member, that the tree adds to.
    categories : mapping of int to ndarray of int
        Node -> the category codes (>= 0) that go left; every other code goes right. A feature is asked for categories
        by all its nodes or by none.
    zero_is_missing : ndarray of bool, shape (n_nodes,), or None
        Whether a zero counts as missing too, as LightGBM can be told.
    """

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: NDArray[np.float64]
    missing_left: NDArray[np.bool_]
    output: int = 0
    categories: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    zero_is_missing: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Member:
    """A sum of trees behind a link: one forest, one booster, one stage of a composite.

    Attributes
    ----------
    trees : sequence of Tree
        Summed in this order.
    n_outputs : int
        Raw outputs of the member; every tree's `value` has the same width.
    link : Link
    start : ndarray of float64, shape (n_outputs,)
        Raw outputs before the first tree.
    classes : tuple of int
        The class, as a position in the oracle's `classes`, of each probability column behind the link.
    slope : float
        Factor before the link.
    divisor : float
        The sum is divided by it before the link (a forest's number of trees).
    single : bool
        Sums are rounded to float32 after each tree.
    weight : float
        Weight in the mean of the members.
    """

    trees: Sequence[Tree]
    n_outputs: int
    link: Link
    start: NDArray[np.float64]
    classes: tuple[int, ...]
    slope: float = 1.0
    divisor: float = 1.0
    single: bool = False
    weight: float = 1.0


def constant(value: ArrayLike, output: int = 0) -> Tree:
    """Make a tree of one leaf."""
    row = np.atleast_1d(np.asarray(value, dtype=np.float64))
    return Tree(
        feature=np.array([-1]),
        threshold=np.zeros(1),
        left=np.zeros(1, np.int64),
        right=np.zeros(1, np.int64),
        value=row[None, :],
        missing_left=np.zeros(1, bool),
        output=output,
    )


def rename_features(member: Member, positions: ArrayLike) -> Member:
    """Let feature ``j`` of every tree ask for feature ``positions[j]``: a member may see a subset of columns."""
    where = np.append(np.asarray(positions, dtype=np.int64), -1)  # the last entry serves the leaves' -1
    return replace(member, trees=[replace(tree, feature=where[tree.feature]) for tree in member.trees])


def pack(
    members: Sequence[Member],
    *,
    n_features: int,
    n_classes: int,
    single: bool,
    missing_value: float = np.nan,
    total: float | None = None,
) -> TreeEnsemble:
    """Lay members out as the table that the kernel reads.

    Parameters
    ----------
    members : sequence of Member
    n_features, n_classes : int
    single : bool
        Numbers are rounded to float32 before they are compared.
    missing_value : float
        A number that counts as missing, beside NaN.
    total : float, optional
        Divisor of the weighted sum of the members; their sum of weights by default.

    Raises
    ------
    AdapterError
        If members or trees contradict themselves: the kernel reads them without looking.
    """
    for member in members:
        _refuse_member(member, n_features, n_classes)
    trees = [tree for member in members for tree in member.trees]
    n_codes = _count_codes(trees, n_features)
    nodes, left, tree_first, tree_depth = _breadth_first(trees)
    zero_missing = any(tree.zero_is_missing is not None for tree in trees)
    wide = (
        not single
        or n_features > kernel.NARROW_FEATURES
        or int(left.max(initial=0)) >= kernel.NARROW_STEPS
        or zero_missing
    )
    feature = _column(trees, "feature", nodes)
    is_leaf = feature < 0
    split = _sortable(_column(trees, "threshold", nodes), wide)
    split[is_leaf] = kernel.MISSING if wide else kernel.UPPER_HALF
    flags = np.where(is_leaf | _column(trees, "missing_left", nodes), kernel.FLAG_MISSING_LEFT, 0)
    flags |= np.where(~is_leaf & _column(trees, "zero_is_missing", nodes), kernel.FLAG_ZERO_MISSING, 0)
    words = _category_sets(trees, nodes, n_codes, split, flags)
    values = np.zeros((nodes.size, max((tree.value.shape[1] for tree in trees), default=1)))
    for number, tree in enumerate(trees):
        here = slice(tree_first[number], tree_first[number + 1])
        block = tree.value[nodes[here] - nodes[tree_first[number]]]  # a root is the first of its tree
        values[here, : block.shape[1]] = np.where(is_leaf[here, None], block, 0.0)
    outputs = np.cumsum([0] + [member.n_outputs for member in members])
    tree_output = [outputs[i] + tree.output for i, member in enumerate(members) for tree in member.trees]
    tree_width = [tree.value.shape[1] for tree in trees]
    return TreeEnsemble(
        nodes=_packed(split, flags, np.where(is_leaf, 0, feature), left, wide=wide),
        values=values,
        tree=kernel.records(
            kernel.TREE,
            len(trees) + 1,
            first=tree_first,
            output=[*tree_output, 0],
            width=[*tree_width, 0],
            depth=[*tree_depth, 0],
        ),
        member=kernel.records(
            kernel.MEMBER,
            len(members) + 1,
            first_tree=np.cumsum([0] + [len(member.trees) for member in members]),
            first_output=outputs,
            first_class=np.cumsum([0] + [len(member.classes) for member in members]),
            width=[*(max((tree.value.shape[1] for tree in member.trees), default=0) for member in members), 0],
            link=[*(int(member.link) for member in members), 0],
            single=[*(int(member.single) for member in members), 0],
            slope=[*(member.slope for member in members), 0.0],
            divisor=[*(member.divisor for member in members), 1.0],
            weight=[*(member.weight for member in members), 0.0],
        ),
        member_class=np.array([c for member in members for c in member.classes], dtype=np.int64),
        set_words=words,
        n_codes=n_codes,
        start=np.concatenate([np.asarray(member.start, dtype=np.float64) for member in members]),
        missing_value=float(missing_value),
        wide=int(wide),
        single=int(single),
        special=kernel.CATEGORIES * any(bool(tree.categories) for tree in trees)
        + kernel.ZERO_MISSING * any(tree.zero_is_missing is not None for tree in trees),
        total=float(sum(member.weight for member in members) if total is None else total),
        n_classes=n_classes,
        depth=int(tree_depth.max(initial=0)),
    )


def _refuse_member(member: Member, n_features: int, n_classes: int) -> None:
    """Refuse what would lead the kernel beyond the ends of its arrays."""
    start = np.shape(member.start)
    if start != (member.n_outputs,):
        raise AdapterError(f"A member's start has shape {start}, and its n_outputs is {member.n_outputs}.")
    if wrong := [c for c in member.classes if not 0 <= c < n_classes]:
        raise AdapterError(f"A member's classes has position {wrong[0]}, and the oracle has {n_classes} classes.")
    for number, tree in enumerate(member.trees):
        if fault := _fault(tree, member.n_outputs, n_features):
            raise AdapterError(f"Tree {number} of a member is not possible: {fault}.")


def _fault(tree: Tree, n_outputs: int, n_features: int) -> str | None:
    """What is wrong with a tree, or None."""
    columns = {name: getattr(tree, name) for name in ("feature", "threshold", "left", "right", "value", "missing_left")}
    if tree.zero_is_missing is not None:
        columns["zero_is_missing"] = tree.zero_is_missing
    n_nodes = len(tree.feature)
    for name, column in columns.items():
        if not isinstance(column, np.ndarray):
            return f"{name} is a {type(column).__name__}; give an array"
        if column.shape[:1] != (n_nodes,) or column.ndim != 1 + (name == "value"):
            return f"{name} has shape {column.shape} for {n_nodes} nodes"
    if not n_nodes:
        return "it has no nodes; macem.trees.constant makes a tree of one leaf"
    width = tree.value.shape[1]
    if not 0 <= tree.output <= n_outputs - width:
        return f"it adds {width} values from output {tree.output} on, and its member has n_outputs={n_outputs}"
    if (most := tree.feature.max()) >= n_features:
        return f"it asks for feature {most} of {n_features}; the first is 0"
    if below := [codes for codes in tree.categories.values() if np.min(codes, initial=0) < 0]:
        return f"categories has code {np.min(below[0])}; codes are 0 or more, and all others go right"
    return None


def _count_codes(trees: Sequence[Tree], n_features: int) -> NDArray[np.int64]:
    n_codes = np.zeros(n_features, np.int64)
    for tree in trees:
        for node, codes in tree.categories.items():
            feature = tree.feature[node]
            n_codes[feature] = max(n_codes[feature], 1, int(np.max(codes, initial=-1)) + 1)
    return n_codes


def _breadth_first(trees: Sequence[Tree]) -> tuple[I8, I8, I8, I8]:
    """Order the reachable nodes of all trees at once so that siblings are adjacent.

    Returns their places among the nodes of all trees, the step from each to its left child (0 at a leaf), the first
    node of each tree, and the splits on its longest path.
    """
    sizes = np.array([tree.feature.size for tree in trees], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    everything = np.arange(sizes.sum())
    shift = np.repeat(first, sizes)
    inner = _column(trees, "feature", everything) >= 0
    left, right = _column(trees, "left", everything) + shift, _column(trees, "right", everything) + shift
    level, owner = first, np.arange(len(trees))
    levels, owners = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    depth = np.zeros(len(trees), np.int64)
    n_placed = level.size
    while level.size:
        depth[owner] = len(levels) - 1
        levels.append(level)
        owners.append(owner)
        grows = inner[level]
        owner = np.repeat(owner[grows], 2)
        level = np.stack([left[level[grows]], right[level[grows]]], axis=1).ravel()
        outside = (level < first[owner]) | (level >= (first + sizes)[owner])
        if outside.any():
            at = owner[outside.argmax()]
            raise AdapterError(f"Tree {at} of all is not possible: a child is none of its {sizes[at]} nodes.")
        n_placed += level.size
        if n_placed > sizes.sum():
            raise AdapterError(f"Tree {owner[0]} of all is not possible: a node is its own descendant.")
    owner = np.concatenate(owners)
    by_tree = np.argsort(owner, kind="stable")
    nodes, owner = np.concatenate(levels)[by_tree], owner[by_tree]
    tree_first = np.append(0, np.cumsum(np.bincount(owner, minlength=len(trees)))).astype(np.int64)
    grows = inner[nodes]
    before: I8 = np.cumsum(grows) - grows  # nodes with children before this one
    root = tree_first[owner]
    children = root + 1 + 2 * (before - before[root]) if nodes.size else before
    return nodes, np.where(grows, children - np.arange(nodes.size), 0), tree_first, depth


def _column(trees: Sequence[Tree], name: str, nodes: I8) -> NDArray[Any]:
    """One attribute of the nodes of all trees; False where a tree has it not."""
    parts = [getattr(tree, name) for tree in trees]
    filled = [
        np.zeros(tree.feature.size, bool) if part is None else part for tree, part in zip(trees, parts, strict=True)
    ]
    return np.concatenate(filled)[nodes] if filled else np.zeros(0)


def _category_sets(
    trees: Sequence[Tree], nodes: I8, n_codes: I8, split: NDArray[np.uint64], flags: I8
) -> NDArray[np.uint64]:
    """Bit sets of the category nodes, whose key becomes the first word of their set; equal sets are kept once."""
    sizes = np.array([tree.feature.size for tree in trees], dtype=np.int64)
    place = np.full(sizes.sum(), -1)
    place[nodes] = np.arange(nodes.size)
    words: list[NDArray[np.uint64]] = [np.zeros(1, np.uint64)]
    n_words = 1
    known: dict[bytes, int] = {}
    for tree, first in zip(trees, np.cumsum(sizes) - sizes, strict=True):
        for node, codes in tree.categories.items():
            at = place[first + node]
            if at < 0:
                continue
            bits = np.zeros(64 * ((int(n_codes[tree.feature[node]]) + 63) // 64), bool)
            bits[np.asarray(codes, dtype=np.int64)] = True
            packed = np.packbits(bits, bitorder="little").view(np.uint64)
            key = packed.tobytes()
            if key not in known:
                known[key] = n_words
                words.append(packed)
                n_words += packed.size
            split[at] = np.uint64(known[key] << 32)
            flags[at] |= kernel.FLAG_CATEGORY
    return np.concatenate(words)


def _packed(split: NDArray[np.uint64], flags: I8, feature: I8, left: I8, *, wide: bool) -> NDArray[np.uint64]:
    """Nodes as the words that `kernel.node_at` reads."""
    flag, asked, step = flags.astype(np.uint64), feature.astype(np.uint64), left.astype(np.uint64)
    if not wide:
        narrow: NDArray[np.uint64] = split | (flag << np.uint64(30)) | (asked << np.uint64(16)) | step
        return narrow
    packed = np.empty(2 * split.size, np.uint64)
    packed[0::2] = split
    packed[1::2] = (flag << np.uint64(60)) | (asked << np.uint64(32)) | step
    return packed


def _sortable(numbers: NDArray[np.float64], wide: bool) -> NDArray[np.uint64]:
    """Map numbers to unsigned keys of the same order, as `kernel.key_of` does."""
    numbers = numbers + 0.0
    if wide:
        bits, held = numbers.view(np.uint64), kernel.MISSING
    else:
        bits, held = numbers.astype(np.float32).view(np.uint32).astype(np.uint64) << np.uint64(32), kernel.UPPER_HALF
    return np.where(bits & kernel.SIGN, bits ^ held, bits | kernel.SIGN)


def with_columns(oracle: Any, columns: ArrayLike, n_features: int) -> TreeEnsemble:
    """The table of an oracle whose column ``j`` is column ``columns[j]`` of a table of `n_features` columns."""
    return pack(
        [rename_features(member, columns) for member in oracle.members],
        n_features=n_features,
        n_classes=len(oracle.classes),
        single=oracle.single,
        missing_value=oracle.missing_value,
        total=oracle.total,
    )


def axes_of(table: TreeEnsemble, plan: Plan, level_code: F8) -> Axes:
    """Sort a table's thresholds by feature, and look up where each level of the background goes at each node.

    Parameters
    ----------
    table : TreeEnsemble
    plan : Plan
    level_code : ndarray of float64, shape (n_levels,)
        What the table reads for each level of the plan.
    """
    split, feature, is_leaf = _unpack(table)
    zero_missing = np.zeros(split.size, bool)
    if table.special >= kernel.ZERO_MISSING:  # such a table is wide
        zero_missing = table.nodes[1::2] >> np.uint64(60) & np.uint64(kernel.FLAG_ZERO_MISSING) > 0
    n_features = plan.feature.size - 1
    node_cut = np.zeros(split.size, np.int64)
    cuts: list[F8] = []
    n_words, zero = np.zeros(n_features, np.int64), np.full(n_features, -1)
    is_level = plan.feature["kind"][:-1] > kernel.GRID
    n_levels = np.diff(plan.feature["first_level"])
    n_words[is_level] = (n_levels[is_level] + 63) // 64
    if table.tree.size > 2:  # a single tree is solved exactly, which no level may be left out of
        n_words = np.minimum(n_words, MOST_LEVEL_WORDS)
    thresholds = _numbers(split, table.wide == 1)
    by_feature = np.argsort(np.where(is_leaf, n_features, feature), kind="stable")
    bounds = np.searchsorted(np.where(is_leaf, n_features, feature)[by_feature], np.arange(n_features + 1))
    n_level_nodes = 0
    for number in range(n_features):
        nodes = by_feature[bounds[number] : bounds[number + 1]]
        if is_level[number]:
            node_cut[nodes] = n_level_nodes + n_words[number] * np.arange(nodes.size)
            n_level_nodes += n_words[number] * nodes.size
            cuts.append(np.zeros(0))
        else:
            beside_zero = [np.nextafter(-kernel.NEAR_ZERO, -np.inf), kernel.NEAR_ZERO]
            more = beside_zero if zero_missing[nodes].any() else []
            distinct, place = np.unique([*thresholds[nodes], *more], return_inverse=True)
            node_cut[nodes] = place[: nodes.size]
            zero[number] = np.searchsorted(distinct, 0.0) if more else -1
            cuts.append(distinct)
    level_word = np.zeros(n_level_nodes, np.uint64)
    axes = Axes(
        feature=kernel.records(
            kernel.AXIS,
            n_features + 1,
            first_cut=np.cumsum([0] + [cut.size for cut in cuts]),
            n_words=[*n_words, 0],
            zero=[*zero, -1],
        ),
        cut=np.concatenate(cuts) if cuts else np.zeros(0),
        node_cut=node_cut,
        level_word=level_word,
        level_code=level_code,
        single=table.single,
    )
    if level_word.size:
        kernel.fill_level_words(table, axes, plan)
    return axes


def _unpack(table: TreeEnsemble) -> tuple[NDArray[np.uint64], I8, NDArray[np.bool_]]:
    """Key, feature and leafness of every node."""
    if table.wide:
        split, rest = table.nodes[0::2], table.nodes[1::2]
        feature, left = (rest >> np.uint64(32)) & np.uint64(0xFFFFFFF), rest & np.uint64(0xFFFFFFFF)
    else:
        split = table.nodes & kernel.UPPER_HALF
        feature, left = (table.nodes >> np.uint64(16)) & np.uint64(0x3FFF), table.nodes & np.uint64(0xFFFF)
    return split, feature.astype(np.int64), left == 0


def _numbers(keys: NDArray[np.uint64], wide: bool) -> F8:
    """The inverse of `_sortable`."""
    negative = keys & kernel.SIGN == 0
    if wide:
        return np.where(negative, ~keys, keys ^ kernel.SIGN).view(np.float64)
    bits = np.where(negative, ~keys, keys ^ kernel.SIGN) >> np.uint64(32)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)
