"""Tables of trees: walks, keys and links, against a walk that is plain to see."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from macem.trees import Link, Member, Tree, pack

SPECIAL = [0.0, -0.0, 1.0, np.nextafter(1.0, 2.0), -1.0, 1e-300, 1e300, -np.inf, np.inf, np.nan]


def grown(thresholds: tuple[float, float], *, missing_left: bool) -> Tree:
    """Feature 0 at the root, feature 1 (a category set {1, 2}) on its right."""
    return Tree(
        feature=np.array([0, -1, 1, -1, -1]),
        threshold=np.array([thresholds[0], 0.0, 0.0, 0.0, 0.0]),
        left=np.array([1, 0, 3, 0, 0]),
        right=np.array([2, 0, 4, 0, 0]),
        value=np.array([[0.0], [1.0], [0.0], [10.0], [thresholds[1]]]),
        missing_left=np.full(5, missing_left),
        categories={2: np.array([1, 2])},
    )


def packed(trees: list[Tree], **options: Any) -> Any:
    member = Member(trees, 1, Link.SIGMOID, np.array([0.5]), (0, 1))
    return pack([member], n_features=2, n_classes=2, **{"single": False, **options})


def walked(tree: Tree, row: Any) -> float:
    node = 0
    while tree.feature[node] >= 0:
        value = row[tree.feature[node]]
        if np.isnan(value):
            left = bool(tree.missing_left[node])
        elif node in tree.categories:
            left = value in tree.categories[node]
        else:
            left = value <= tree.threshold[node]
        node = tree.left[node] if left else tree.right[node]
    return float(tree.value[node, 0])


@pytest.mark.parametrize("missing_left", [True, False])
@pytest.mark.parametrize("threshold", [0.0, 1.0, -np.inf, 1e300])
def test_walks_are_those_of_the_trees(kernel: ModuleType, threshold: float, missing_left: bool) -> None:
    trees = [grown((threshold, 100.0), missing_left=missing_left), grown((1.0, 1000.0), missing_left=not missing_left)]
    codes = np.array([[number, code] for number in SPECIAL for code in (0.0, 1.0, 2.0, 3.0, -1.0, 7.0, np.nan)])
    raw = np.empty((len(codes), 1))
    kernel.raw_scores(packed(trees), codes, raw)
    assert_array_equal(raw[:, 0], [0.5 + walked(trees[0], row) + walked(trees[1], row) for row in codes])


@pytest.mark.parametrize(("depth", "wide"), [(16, 0), (17, 1)])
def test_a_child_too_far_for_a_narrow_node_makes_nodes_wide(kernel: ModuleType, depth: int, wide: int) -> None:
    n_inner = 2**depth - 1
    place = np.arange(2 * n_inner + 1)  # of a complete tree that says which leaf a number falls in
    level = np.frexp(place + 1.0)[1] - 1
    leaves_below = 2.0 ** (depth - level)
    inner = place < n_inner
    tree = Tree(
        feature=np.where(inner, 0, -1),
        threshold=np.where(inner, (place + 1.5 - 2.0**level) * leaves_below - 0.5, 0.0),
        left=np.where(inner, 2 * place + 1, 0),
        right=np.where(inner, 2 * place + 2, 0),
        value=np.where(inner, 0, place - n_inner)[:, None].astype(np.float64),
        missing_left=np.ones(place.size, bool),
    )
    table = pack([Member([tree], 1, Link.SIGMOID, np.zeros(1), (0, 1))], n_features=1, n_classes=2, single=True)
    numbers = np.random.default_rng(0).integers(0, 2**depth, (20, 1)).astype(np.float64)
    raw = np.empty((20, 1))
    kernel.raw_scores(table, numbers, raw)
    assert table.wide == wide
    assert_array_equal(raw, numbers)


def test_float32_sums_are_rounded_after_each_tree(kernel: ModuleType) -> None:
    trees = [grown((0.0, value), missing_left=True) for value in (1e8, 1.0, -1e8)]
    member = Member(trees, 1, Link.SIGMOID, np.zeros(1), (0, 1), single=True)
    raw = np.empty((1, 1))
    kernel.raw_scores(pack([member], n_features=2, n_classes=2, single=True), np.array([[5.0, 0.0]]), raw)
    assert raw[0, 0] == 0.0


def test_a_number_may_stand_for_missing(kernel: ModuleType) -> None:
    raw = np.empty((2, 1))
    table = packed([grown((-100.0, 0.0), missing_left=True)], missing_value=-999.0)
    kernel.raw_scores(table, np.array([[-999.0, 0.0], [np.nan, 0.0]]), raw)
    assert_array_equal(raw[:, 0], [1.5, 1.5])


@pytest.mark.parametrize("single", [True, False])
def test_keys_order_as_numbers_do(plain_kernel: ModuleType, single: bool) -> None:
    table = packed([grown((1.0 if single else 1e-300, 0.0), missing_left=True)], single=single)
    numbers = np.sort(np.array([*SPECIAL[:-1], 3.5, -2.25, 1e-40]))
    codes = np.column_stack([numbers, np.zeros(numbers.size)])
    keys = np.empty(codes.shape, np.uint64)
    with np.errstate(over="ignore", under="ignore"):
        plain_kernel.keys_from_codes(table, codes, keys)
        compared = numbers.astype(np.float32) if single else numbers
    for at in range(numbers.size - 1):
        assert (keys[at, 0] < keys[at + 1, 0]) == (compared[at] < compared[at + 1])
        assert keys[at, 0] <= keys[at + 1, 0]


@pytest.mark.parametrize(
    ("link", "raw", "expected"),
    [
        ("IDENTITY", [0.25, 0.75], [0.25, 0.75]),
        ("SIGMOID", [0.0], [0.5, 0.5]),
        ("SIGMOID", [np.log(3.0)], [0.25, 0.75]),
        ("SOFTMAX", [0.0, np.log(3.0), 0.0], [0.2, 0.6, 0.2]),
        ("SOFTMAX_NUMPY", [0.0, np.log(3.0), 0.0], [0.2, 0.6, 0.2]),
        ("SIGMOID_EACH", [0.0, np.log(3.0)], [0.5, 0.75]),
        ("VOTE", [1.0, 2.0, 2.0], [0.0, 1.0, 0.0]),
        ("STEP", [0.1], [0.0, 1.0]),
        ("STEP", [0.0], [1.0, 0.0]),
        ("SIGMOID_SINGLE", [0.0], [0.5, 0.5]),
        ("SOFTMAX_SINGLE", [0.0, 0.0], [0.5, 0.5]),
        ("ADABOOST", [-1.0, 1.0], [1.0 / (1.0 + np.e**2), 1.0 / (1.0 + np.e**-2)]),
    ],
)
def test_links(plain_kernel: ModuleType, link: str, raw: list[float], expected: list[float]) -> None:
    outputs = np.array([*raw, 0.0])
    plain_kernel._link(getattr(plain_kernel, link), 1.0, outputs, len(raw))
    np.testing.assert_allclose(outputs[: len(expected)], expected, rtol=1e-6 if "SINGLE" in link else 1e-12)


def at_random(generator: Any, n_features: int, depth: int) -> Tree:
    """A tree of which every other node at most is a leaf."""
    feature, left, right, threshold = [], [], [], []
    waiting = [0]
    levels = [0]
    while waiting:
        node = waiting.pop(0)
        grows = levels[node] < depth and (levels[node] < 2 or generator.random() < 0.8)
        feature.append(generator.integers(n_features) if grows else -1)
        threshold.append(float(generator.integers(10)))
        left.append(len(levels) if grows else 0)
        right.append(len(levels) + 1 if grows else 0)
        if grows:
            waiting += [len(levels), len(levels) + 1]
            levels += [levels[node] + 1] * 2
    value = generator.normal(size=(len(feature), 1))
    arrays = map(np.array, (feature, threshold, left, right))
    return Tree(*arrays, value=value, missing_left=np.ones(len(feature), bool))


@pytest.mark.parametrize("n_features", [1, 8, 9, 17, 32, 33])
@pytest.mark.parametrize("depth", [2, 6, 11])
def test_rows_in_vectors_go_where_they_go_alone(kernel: ModuleType, depth: int, n_features: int) -> None:
    generator = np.random.default_rng(depth * n_features)
    trees = [at_random(generator, n_features, depth) for _ in range(11)]
    member = Member(trees, 1, Link.SIGMOID, np.zeros(1), (0, 1))
    table = pack([member], n_features=n_features, n_classes=2, single=True)
    assert table.wide == 0
    for n in (3, 4, 5, 65):
        codes = generator.integers(11, size=(n, n_features)).astype(float)
        raw = np.empty((n, 1))
        kernel.raw_scores(table, codes, raw)
        expected = np.zeros(n)
        for tree in trees:
            expected += [walked(tree, row) for row in codes]
        assert_array_equal(raw[:, 0], expected)
