from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macem import kernel as numbers_kernel
from macem.errors import OptionError
from macem.features import Features
from macem.strategies.encodings import (
    Encoding,
    FrequencyMap,
    GivenPlaces,
    OrderedEncoding,
    SimplexSampling,
    encoding_from,
    project_on_simplex,
)

COUNTS = st.lists(st.integers(1, 12), min_size=1, max_size=12)


def features_of(counts: list[int], **options: Any) -> Features:
    """One categorical column whose levels 'a', 'b', … occur so often."""
    cells = np.repeat([chr(ord("a") + at) for at in range(len(counts))], counts)
    return Features.fit(pd.DataFrame({"c": cells.astype(object)}), **options)


def places_of(encoding: Encoding) -> np.ndarray:
    assert encoding.plan is not None
    return encoding.plan.level["place"]


MIXED = pd.DataFrame(
    {
        "n": [1, 2, 3, 5, 8, 13],
        "c": list("aabbbc"),
        "x": [1 / 3, 0.5, 2.0, 0.25, np.pi, 1.0],
        "b": [True, True, False, True, True, False],
        "d": [0.1, 0.2, 0.3, 0.5, 0.8, 1.3],
    }
)


def test_the_paper_s_example() -> None:
    features = features_of([11, 6, 1])
    assert places_of(FrequencyMap().fit(features)).tolist() == [0.0, 0.5, 1.0]


def test_decoding_is_the_paper_s_step_function() -> None:
    encoding = FrequencyMap().fit(features_of([11, 6, 1]))
    points = np.array([[-1.0], [0.0], [0.2499], [0.25], [0.2501], [0.75], [0.7501], [9.0]])
    assert encoding.decode(points)[:, 0].tolist() == [0, 0, 0, 0, 1, 1, 2, 2]


@settings(max_examples=150, deadline=None)
@given(COUNTS)
def test_frequency_map(counts: list[int]) -> None:
    features = features_of(counts)
    encoding = FrequencyMap().fit(features)
    places = places_of(encoding)
    found = features.counts[0]
    assert found is not None
    assert places[0] == 0.0
    assert ((places >= 0.0) & (places <= 1.0)).all()
    assert (np.diff(places) > 0.0).all()  # each level its own, the rarer the farther
    most = max(counts)
    paper = (most - found) / max(most - 1, 1)
    half_a_step = 0.5 / max(most - 1, 1)
    assert (np.abs(places - paper) < half_a_step).all()  # no place leaves its neighbourhood
    lone = np.array([(found == count).sum() == 1 for count in found])
    np.testing.assert_allclose(places[lone], paper[lone], rtol=1e-15)
    numbers = np.arange(len(counts), dtype=np.float64)[:, None]
    assert np.array_equal(encoding.decode(encoding.encode(numbers)), numbers)
    unseen = encoding.encode(np.array([[-1.0]]))[0, 0]
    assert unseen > places.max()


@settings(max_examples=150, deadline=None)
@given(COUNTS, st.lists(st.floats(-2.0, 3.0), min_size=1, max_size=20))
def test_decoding_takes_the_nearest_level(counts: list[int], places: list[float]) -> None:
    encoding = FrequencyMap().fit(features_of(counts))
    levels = places_of(encoding)
    for place, level in zip(places, encoding.decode(np.array(places)[:, None])[:, 0], strict=True):
        gaps = np.abs(place - levels)
        nearest = np.flatnonzero(gaps == gaps.min())
        assert level == nearest[np.argmin(levels[nearest])]  # ties go to the smaller coordinate


def test_levels_seen_once_only() -> None:
    encoding = FrequencyMap().fit(features_of([1, 1, 1]))
    np.testing.assert_allclose(places_of(encoding), [0.0, 1 / 6, 1 / 3], rtol=1e-15)
    single = FrequencyMap().fit(features_of([7]))
    assert places_of(single).tolist() == [0.0]
    assert single.decode(np.array([[0.3], [-5.0]])).tolist() == [[0.0], [0.0]]


def test_many_levels_of_one_count_stay_apart() -> None:
    features = features_of([3, *([1] * 2000)])
    places = places_of(FrequencyMap().fit(features))
    assert np.unique(places).size == 2001


@pytest.mark.parametrize("base", ["a", "b", "c"])
def test_a_given_base_value_stands_at_zero(base: str) -> None:
    features = features_of([11, 6, 1], base={"c": base})
    for encoding in (FrequencyMap().fit(features), SimplexSampling().fit(features)):
        number = features.numbers(pd.DataFrame({"c": [base]}))
        assert features.base.tolist() == [float("abc".index(base))]
        assert not encoding.encode(number).any()
        assert encoding.decode(np.zeros((1, encoding.n_coordinates))).tolist() == number.tolist()
    places = dict(zip(features.levels[0], places_of(FrequencyMap().fit(features)), strict=True))
    assert places["b"] - places["a"] == 0.5
    assert places["c"] - places["b"] == 0.5


def test_zero_is_the_base_and_missing_stands_there() -> None:
    features = Features.fit(MIXED)
    for encoding in (FrequencyMap().fit(features), SimplexSampling().fit(features)):
        assert not encoding.encode(features.base[None, :]).any()
        assert not encoding.encode(np.full((1, 5), np.nan)).any()
        assert np.array_equal(encoding.decode(np.zeros((1, encoding.n_coordinates)))[0], features.base)


def test_numbers_land_on_the_data_s_grid() -> None:
    features = Features.fit(MIXED)
    encoding = FrequencyMap().fit(features)
    points = np.random.default_rng(0).normal(size=(500, 5))
    numbers = encoding.decode(points)
    assert np.array_equal(numbers[:, 0], np.floor(numbers[:, 0]))
    assert np.array_equal(numbers[:, 4], [float(f"{value:.1f}") for value in numbers[:, 4]])
    assert np.array_equal(numbers[:, 2], numbers[:, 2].astype(np.float32))
    assert np.abs(encoding.encode(numbers)[:, 0] - points[:, 0]).max() <= 0.5 / features.scale[0] + 1e-12
    own = features.numbers(MIXED)
    back = encoding.decode(encoding.encode(own))
    assert np.array_equal(back[:, [0, 1, 3, 4]], own[:, [0, 1, 3, 4]])
    np.testing.assert_allclose(back[:, 2], own[:, 2], rtol=1e-7)


def test_simplex_layout() -> None:
    features = Features.fit(MIXED)
    encoding = SimplexSampling(n_samples=7).fit(features)
    assert encoding.n_samples == 7
    assert encoding.n_coordinates == 3 + 3 + 2
    points = encoding.encode(features.numbers(MIXED))
    levels = features.numbers(MIXED)[:, 1].astype(int)
    weights = points[:, 1:4] + [1.0, 0.0, 0.0]
    assert np.array_equal(weights, np.eye(3)[levels])
    assert np.array_equal(encoding.decode(points)[:, [1, 3]], features.numbers(MIXED)[:, [1, 3]])
    with pytest.raises(OptionError, match="n_samples is 0"):
        SimplexSampling(0)


def test_without_uniforms_the_largest_weight_wins() -> None:
    encoding = SimplexSampling().fit(features_of([3, 2, 1]))
    weights = np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [0.2, 0.4, 0.4]])
    assert encoding.decode(weights - [1.0, 0.0, 0.0])[:, 0].tolist() == [1.0, 0.0, 1.0]


def test_uniforms_draw_each_level_as_often_as_it_weighs() -> None:
    encoding = SimplexSampling().fit(features_of([3, 2, 1]))
    uniforms = (np.arange(1000) + 0.5)[:, None] / 1000
    points = np.tile([[0.2 - 1.0, 0.0, 0.8]], (1000, 1))
    drawn = encoding.decode(points, uniforms)[:, 0]
    assert np.bincount(drawn.astype(int), minlength=3).tolist() == [200, 0, 800]
    edges = encoding.decode(points[:3], np.array([[0.0], [0.1999], [1.0 - 2**-53]]))
    assert edges[:, 0].tolist() == [0.0, 0.0, 2.0]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=8), st.data())
def test_projection_is_the_nearest_point_of_the_simplex(weights: list[float], data: st.DataObject) -> None:
    block = np.array([weights])
    found = project_on_simplex(block)[0]
    assert (found >= 0.0).all()
    assert abs(found.sum() - 1.0) < 1e-12
    other = np.array(data.draw(st.lists(st.floats(0.01, 1.0), min_size=len(weights), max_size=len(weights))))
    other /= other.sum()
    # the projection of w is the point p with (w - p) · (q - p) <= 0 for every q of the simplex
    assert (block[0] - found) @ (other - found) <= 1e-9
    for corner in np.eye(len(weights)):
        assert (block[0] - found) @ (corner - found) <= 1e-9
    np.testing.assert_allclose(project_on_simplex(found[None])[0], found, atol=1e-15)


def over_rows(kernel: ModuleType, name: str) -> Any:
    """An inner function of the kernel over many rows: only compiled code may call one that is compiled."""
    function = getattr(kernel, name)

    def point_of(plan: Any, numbers: Any, points: Any) -> None:
        for row in range(len(points)):
            function(plan, numbers[row], points[row])

    def decode_point(plan: Any, problems: Any, points: Any, uniforms: Any, numbers: Any) -> None:
        for row in range(len(points)):
            function(plan, problems, row, points[row], uniforms, row, numbers[row])

    def project(plan: Any, problems: Any, points: Any, weights: Any) -> None:
        for row in range(len(points)):
            function(plan, problems, row, points[row], weights)

    driver = {"point_of": point_of, "decode_point": decode_point, "project": project}[name]
    return numba.njit(driver) if kernel is numbers_kernel else driver


def open_problems(features: Features, encoding: Encoding, numbers: np.ndarray) -> numbers_kernel.Problems:
    """Problems that forbid nothing, their own rows far from every point."""
    n, d = numbers.shape
    assert encoding.plan is not None
    cell = numbers_kernel.records(
        numbers_kernel.CELL, (n, d), own=numbers, own_code=numbers, reference=numbers, movable=True
    )
    return numbers_kernel.Problems(
        cell=cell,
        row=numbers_kernel.records(numbers_kernel.GOAL, n),
        anchor=numbers,
        bound=np.tile([[-1e300, 1e300], [np.inf, -np.inf]], (n, d, 1, 1)),
        place=np.tile([[-1e300, 1e300], [np.inf, -np.inf]], (n, d, 1, 1)),
        allowed=np.ones((n, encoding.plan.level.size), np.bool_),
    )


@pytest.mark.parametrize("encoding", [FrequencyMap(), SimplexSampling()])
def test_the_kernel_reads_a_plan_alike(kernel: ModuleType, encoding: Any) -> None:
    features = Features.fit(MIXED, base={"c": "c"})
    fitted = encoding.fit(features)
    rng = np.random.default_rng(3)
    own = features.numbers(MIXED)
    own[0, 1], own[1, [0, 3]] = -1.0, np.nan
    encoded = np.empty((6, fitted.n_coordinates))
    over_rows(kernel, "point_of")(fitted.plan, own, encoded)
    assert np.array_equal(encoded, fitted.encode(own))

    points = rng.normal(size=(200, fitted.n_coordinates))
    first = fitted.plan.feature["first"]
    for at, kind in enumerate(fitted.plan.feature["kind"][:-1]):
        if kind == numbers_kernel.SIMPLEX:
            block = slice(first[at], first[at + 1])
            corner = np.eye(block.stop - block.start)[int(features.base[at])]
            points[:, block] = project_on_simplex(points[:, block] + corner) - corner
    uniforms = rng.random((200, 5))
    problems = open_problems(features, fitted, np.tile(features.base, (200, 1)))
    numbers = np.empty((200, 5))
    over_rows(kernel, "decode_point")(fitted.plan, problems, points, uniforms, numbers)
    assert np.array_equal(numbers, fitted.decode(points, uniforms))


def test_the_kernel_projects_alike(kernel: ModuleType) -> None:
    features = Features.fit(MIXED)
    fitted = SimplexSampling().fit(features)
    points = np.random.default_rng(4).normal(size=(50, fitted.n_coordinates))
    expected = points.copy()
    for block in (slice(1, 4), slice(5, 7)):
        corner = np.eye(block.stop - block.start)[0]
        expected[:, block] = project_on_simplex(points[:, block] + corner) - corner
    problems = open_problems(features, fitted, np.tile(features.base, (50, 1)))
    over_rows(kernel, "project")(fitted.plan, problems, points, np.empty(3))
    np.testing.assert_allclose(points, expected, atol=1e-14)


def test_places_given_by_the_user() -> None:
    table = pd.DataFrame({"size": list("SMLMM"), "color": list("rrgbb")})
    features = Features.fit(table)
    encoding = GivenPlaces({"size": {"S": 0, "M": 1, "L": 2.5}}).fit(features)
    places = dict(zip(features.levels[0], encoding.encode(np.array([[0.0, 0], [1, 0], [2, 0]]))[:, 0], strict=True))
    assert places == {"M": 0.0, "S": -1.0, "L": 1.5}
    color = slice(3, 6)
    assert np.array_equal(places_of(encoding)[color], places_of(FrequencyMap().fit(features))[color])
    numbers = features.numbers(table)
    assert np.array_equal(encoding.decode(encoding.encode(numbers)), numbers)


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ({"size": {"S": 0, "M": 1}}, "'size'.*'L'"),
        ({"size": {"S": 0, "M": 1, "L": 1}}, "'M'.*'L'|'L'.*'M'"),
        ({"size": {"S": 0, "M": 1, "L": np.nan}}, "'size'.*finite"),
        ({"sise": {}}, "'sise'.*did you mean 'size'"),
        ({"n": {1: 0}}, "'n'.*numeric"),
    ],
)
def test_given_places_that_are_refused(places: Any, words: str) -> None:
    features = Features.fit(pd.DataFrame({"size": list("SMLM"), "n": [1, 2, 3, 4]}))
    with pytest.raises(OptionError, match=words):
        GivenPlaces(places).fit(features)


def test_an_encoding_of_one_s_own_is_one_method() -> None:
    class LogFrequency(OrderedEncoding):
        """Distance from the mode in orders of magnitude."""

        def places(self, counts: np.ndarray, levels: np.ndarray) -> np.ndarray:
            return np.log(counts.max() / counts)

    encoding = LogFrequency().fit(features_of([100, 10, 10, 1]))
    places = places_of(encoding)
    assert (np.diff(places) > 0.0).all()  # equal counts come apart on their own
    np.testing.assert_allclose(places[[0, 3]], np.log([1, 100]))
    assert isinstance(encoding, Encoding)

    class Wrong(OrderedEncoding):
        def places(self, counts: np.ndarray, levels: np.ndarray) -> np.ndarray:
            return np.zeros(1)

    with pytest.raises(OptionError, match="one finite number for each of its 4 levels"):
        Wrong().fit(features_of([4, 3, 2, 1]))
    with pytest.raises(OptionError, match="OrderedEncoding has no method places"):
        OrderedEncoding().fit(features_of([2, 1]))
    with pytest.raises(OptionError, match=r"the class Wrong: give an object of it, such as Wrong\(\)"):
        encoding_from(Wrong)


def test_fitting_leaves_the_encoding_as_it_is() -> None:
    encoding = FrequencyMap()
    encoding.fit(features_of([2, 1]))
    with pytest.raises(OptionError, match="not fitted"):
        _ = encoding.plan


def test_fitted_encodings_pickle() -> None:
    features = Features.fit(MIXED)
    for encoding in (FrequencyMap(), SimplexSampling(3), GivenPlaces({"c": {"a": 1, "b": 0, "c": 5}})):
        fitted = encoding.fit(features)
        again = pickle.loads(pickle.dumps(fitted))
        points = fitted.encode(features.numbers(MIXED))
        assert np.array_equal(again.encode(features.numbers(MIXED)), points)


def test_tables_of_numbers_only_and_of_categories_only() -> None:
    for columns in (["n", "x"], ["c", "b"]):
        features = Features.fit(MIXED[columns])
        numbers = features.numbers(MIXED[columns])
        for encoding in (FrequencyMap().fit(features), SimplexSampling().fit(features)):
            np.testing.assert_allclose(encoding.decode(encoding.encode(numbers)), numbers, rtol=1e-7)
            assert encoding.encode(numbers[:0]).shape == (0, encoding.n_coordinates)
            assert encoding.decode(np.empty((0, encoding.n_coordinates))).shape == (0, 2)


def test_encodings_by_name() -> None:
    assert isinstance(encoding_from("fma"), FrequencyMap)
    assert isinstance(encoding_from("ssa"), SimplexSampling)
    own = FrequencyMap()
    assert encoding_from(own) is own
    for wrong in ("onehot", 3, None):
        with pytest.raises(OptionError, match="encoding"):
            encoding_from(wrong)
