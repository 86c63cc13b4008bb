"""The common form of trees: what contradicts itself is refused before the kernel reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from macem.errors import AdapterError
from macem.oracle import BlackBoxOracle, TreeOracle
from macem.trees import Link, Member, Tree, constant

STUMP = Tree(
    feature=np.array([0, -1, -1]),
    threshold=np.array([0.5, 0.0, 0.0]),
    left=np.array([1, 0, 0]),
    right=np.array([2, 0, 0]),
    value=np.array([[0.0], [-1.0], [1.0]]),
    missing_left=np.zeros(3, bool),
)
MEMBER = Member([STUMP, constant(0.5)], 1, Link.SIGMOID, np.zeros(1), (0, 1))


def numbers(X: Any) -> Any:
    return np.asarray(X, dtype=np.float64)


def oracle(member: Member = MEMBER, read: Any = numbers) -> TreeOracle:
    live = BlackBoxOracle(lambda X: np.full((len(X), 2), 0.5), classes=[0, 1])
    return TreeOracle([MEMBER, member], np.array([0, 1]), live, read, n_features=2, single=False)


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"value": np.zeros((3, 2))}, "Tree 1 of a member is not possible: it adds 2 values from output 0 on"),
        ({"output": 7}, "adds 1 values from output 7 on, and its member has n_outputs=1"),
        ({"output": -1}, "from output -1 on"),
        ({"feature": np.array([2, -1, -1])}, "asks for feature 2 of 2"),
        ({"left": np.array([3, 0, 0])}, "Tree 3 of all is not possible: a child is none of its 3 nodes"),
        ({"right": np.array([-1, 0, 0])}, "a child is none of its 3 nodes"),
        ({"left": np.array([0, 0, 0])}, "a node is its own descendant"),
        ({"left": [1, 0, 0]}, "left is a list; give an array"),
        ({"threshold": np.zeros(2)}, r"threshold has shape \(2,\) for 3 nodes"),
        ({"value": np.zeros(3)}, r"value has shape \(3,\) for 3 nodes"),
        ({"zero_is_missing": np.zeros(2, bool)}, "zero_is_missing has shape"),
        ({"categories": {0: np.array([3, -2])}}, "categories has code -2"),
    ],
)
def test_a_tree_that_contradicts_itself_is_refused(tree: Any, told: str) -> None:
    member = replace(MEMBER, trees=[STUMP, replace(STUMP, **tree)])
    with pytest.raises(AdapterError, match=told):
        oracle(member).predict_proba(np.zeros((3, 2)))


def test_no_nodes_are_no_tree() -> None:
    nothing = {name: getattr(STUMP, name)[:0] for name in ("feature", "threshold", "left", "right", "value")}
    member = replace(MEMBER, trees=[replace(STUMP, **nothing, missing_left=np.zeros(0, bool))])
    with pytest.raises(AdapterError, match=r"no nodes; macem\.trees\.constant"):
        oracle(member).predict_proba(np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"start": 0.0}, r"start has shape \(\), and its n_outputs is 1"),
        ({"start": np.zeros(2)}, r"start has shape \(2,\)"),
        ({"classes": (0, 2)}, "classes has position 2, and the oracle has 2 classes"),
    ],
)
def test_a_member_that_contradicts_itself_is_refused(change: Any, told: str) -> None:
    with pytest.raises(AdapterError, match=told):
        oracle(replace(MEMBER, **change)).predict_proba(np.zeros((3, 2)))


def test_nodes_that_no_path_reaches_may_say_anything() -> None:
    stray: dict[str, Any] = {name: np.append(getattr(STUMP, name), 99) for name in ("left", "right")}
    kept: dict[str, Any] = {
        name: np.append(getattr(STUMP, name), 0) for name in ("feature", "threshold", "missing_left")
    }
    tree = replace(STUMP, **stray, **kept, value=np.append(STUMP.value, [[0.0]], axis=0))
    rows = np.array([[0.0, 0.0], [1.0, 0.0]])
    apart, together = oracle(replace(MEMBER, trees=[tree])), oracle(replace(MEMBER, trees=[STUMP]))
    np.testing.assert_array_equal(apart.predict_proba(rows), together.predict_proba(rows))


@pytest.mark.parametrize("cells", [np.s_[:, :1], np.s_[1:], np.s_[:, 0]], ids=["a column", "fewer rows", "a vector"])
def test_a_reader_that_answers_in_another_shape_is_refused(cells: Any) -> None:
    with pytest.raises(AdapterError, match=r"answered 3 rows with shape .* n_features=2"):
        oracle(read=lambda X: numbers(X)[cells]).predict_proba(np.zeros((3, 2)))
