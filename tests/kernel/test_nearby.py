"""Rows that are asked together, and branches that are walked side by side, on every kind of table."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from macem import kernel as compiled_kernel
from macem.trees import Link, Member, Tree, pack

N_FEATURES = 4
CATEGORY = 0  # the feature that is asked for categories; leaves, too, name feature 0
CODES = 70  # more than a word of a set holds


def grown(random: np.random.Generator, depth: int, *, categories: bool, zeros: bool) -> Tree:
    """A full tree of random questions."""
    n_inner, n_nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    inner = np.arange(n_nodes) < n_inner
    feature = np.where(inner, random.integers(0 if categories else 1, N_FEATURES, n_nodes), -1)
    sets = {int(node): np.flatnonzero(random.random(CODES) < 0.5) for node in np.flatnonzero(feature == CATEGORY)}
    children = 2 * np.arange(n_nodes)
    return Tree(
        feature=feature,
        threshold=random.normal(size=n_nodes).astype(np.float32).astype(float),
        left=np.where(inner, children + 1, 0),
        right=np.where(inner, children + 2, 0),
        value=np.where(inner, 0.0, random.normal(size=n_nodes))[:, None].astype(np.float32).astype(float),
        missing_left=random.random(n_nodes) < 0.5,
        categories=sets,
        zero_is_missing=inner & (feature != CATEGORY) & (random.random(n_nodes) < 0.5) if zeros else None,
    )


def table(random: np.random.Generator, *, single: bool, categories: bool, zeros: bool, n_trees: int) -> Any:
    trees = [grown(random, 7, categories=categories, zeros=zeros) for _ in range(n_trees)]
    member = Member(trees, 1, Link.SIGMOID, np.array([0.25]), (0, 1), single=single)
    return pack([member], n_features=N_FEATURES, n_classes=2, single=single)


@pytest.mark.parametrize("radius", [0.0, 0.1, 2.0])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    ("single", "categories", "zeros"),
    [(True, False, False), (False, False, False), (False, True, False), (True, True, False), (False, True, True)],
)
def test_rows_together_answer_as_each_alone(
    plain_kernel: ModuleType, single: bool, categories: bool, zeros: bool, missing: bool, radius: float
) -> None:
    random = np.random.default_rng(7)
    ensemble = table(random, single=single, categories=categories, zeros=zeros, n_trees=19)
    n = 64 if radius else 20
    codes = random.normal(size=N_FEATURES) + radius * random.normal(size=(n, N_FEATURES))
    codes[:, CATEGORY] = random.integers(-1, CODES + 2, n) if radius else 5.0
    codes[:: 7 if radius else 1, 1] = 0.0
    if missing:
        codes[:: 5 if radius else 1, 2] = np.nan
    keys = np.empty(codes.shape, np.uint64)
    plain_kernel.keys_from_codes(ensemble, codes, keys)
    nearby = plain_kernel.nearby_for(ensemble, n, N_FEATURES)
    nearby.columns[:, :n] = keys.T
    plain_kernel.raw_scores_nearby(ensemble, n, nearby)
    apart = np.empty((n, 1))
    plain_kernel.raw_scores(ensemble, codes, apart)
    alone = np.empty((1, 1))
    for row in range(n):
        plain_kernel.raw_scores(ensemble, codes[[row]], alone)
        assert apart[row] == alone[0]
    assert_array_equal(nearby.raw[0, :n], apart[:, 0])


def test_the_lowest_bit_of_a_word(plain_kernel: ModuleType) -> None:
    trailing_zeros = compiled_kernel.trailing_zeros

    @numba.njit
    def compiled(word: np.uint64) -> Any:
        return trailing_zeros(word)

    for place in range(64):
        above = np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(place)
        for word in (np.uint64(1) << np.uint64(place), above):
            assert compiled(word) == plain_kernel.trailing_zeros(word) == place


def test_the_next_cell_that_is_entered(plain_kernel: ModuleType) -> None:
    marked = [0, 5, 63, 64, 190]
    entered = np.zeros(4, np.uint64)
    for cell in marked:
        entered[cell // 64] |= np.uint64(1) << np.uint64(cell % 64)
    for first in range(200):
        assert plain_kernel.next_entered(entered, first, 200) == next((cell for cell in marked if cell >= first), 200)
