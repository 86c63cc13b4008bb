from __future__ import annotations

import io
import pickle
import tracemalloc
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macem.errors import DataError, NumbersAsCategoriesWarning, OneHotColumnsWarning, OptionError
from macem.features import Features

MIXED = pd.DataFrame(
    {
        "age": [30, 40, 50, 60],
        "rate": [0.1, 0.25, 0.1, 0.7],
        "weight": np.array([1 / 3, 2 / 3, 0.1, 1e-9]),
        "job": ["clerk", "miner", "clerk", "nurse"],
        "owns": [True, False, True, True],
    },
    index=["a", "b", "b", "d"],
)


def shifted(features: Features, numbers: np.ndarray) -> np.ndarray:
    """Other numbers: the next level, or one step up."""
    n_levels = np.array([1 if levels is None else len(levels) for levels in features.levels])
    steps = np.where(features.decimals >= 0, 10.0 ** -np.maximum(features.decimals, 0), 0.5)
    moved = np.where(n_levels > 1, (numbers + 1) % n_levels, numbers + steps)
    decimals = np.where(n_levels > 1, 0, np.where(features.decimals < 0, 15, features.decimals))
    return np.column_stack([np.round(moved[:, at], decimals[at]) for at in range(moved.shape[1])])


# ---- what is learned


def test_kinds_levels_and_base_values() -> None:
    features = Features.fit(MIXED)
    assert features.names == ("age", "rate", "weight", "job", "owns")
    assert features.kinds == ("integer", "decimal", "continuous", "categorical", "categorical")
    assert features.decimals.tolist() == [0, 2, -1, -1, -1]
    assert features.base.tolist() == [45.0, 0.18, np.median(MIXED["weight"]), 0.0, 0.0]
    assert features.levels[3].tolist() == ["clerk", "miner", "nurse"]
    assert features.counts[3].tolist() == [2, 1, 1]
    assert features.levels[4].tolist() == [True, False]
    assert features.low.tolist() == [30.0, 0.1, 1e-9, 0.0, 0.0]
    assert features.high.tolist() == [60.0, 0.7, 2 / 3, 2.0, 1.0]
    assert features.scale.tolist() == [30.0, 0.7 - 0.1, 2 / 3 - 1e-9, 1.0, 1.0]
    assert features.was_frame
    assert features.n_background == 4


@pytest.mark.parametrize(
    ("values", "dtype", "kind", "decimals"),
    [
        ([1.0, 2.0, 5.0], "float64", "integer", 0),
        ([1.5, 2.25], "float64", "decimal", 2),
        ([0.1, 0.2, 0.3], "float32", "decimal", 1),
        ([0.1, 0.2, 0.3], "float16", "decimal", 1),
        ([0.1, 0.2, 0.3], "Float32", "decimal", 1),
        ([0.1, 0.2, None], "Float64", "decimal", 1),
        ([1, 2, None], "Int64", "integer", 0),
        ([1, 2, 3], "int8", "integer", 0),
        ([1, 2, 3], "uint64", "integer", 0),
        ([1.5, 2.5], "float[pyarrow]", "decimal", 1),
        ([1, None, 3], "int64[pyarrow]", "integer", 0),
        ([1.0000000001, 2.0], "float64", "decimal", 10),
        ([1.00000000001, 2.0], "float64", "continuous", -1),
        ([2.0**53, 0.5], "float64", "continuous", -1),
        ([1.005, 1.115, 2.675], "float64", "decimal", 3),
        ([63.0278, 0.1234567], "float32", "continuous", -1),
        (["a", "b"], "string[pyarrow]", "categorical", -1),
        (["a", "b"], "string[python]", "categorical", -1),
        (["a", "b"], "object", "categorical", -1),
        (["a", "b"], "category", "categorical", -1),
        ([1, 2], "category", "categorical", -1),
        ([True, None, False], "boolean", "categorical", -1),
        ([True, None, False], "object", "categorical", -1),
        ([True, False], "bool[pyarrow]", "categorical", -1),
    ],
)
def test_kind_of_any_dtype(values: list[Any], dtype: str, kind: str, decimals: int) -> None:
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    features = Features.fit(pd.DataFrame({"x": pd.Series(values, dtype=dtype)}))
    assert features.kinds == (kind,)
    assert features.decimals.tolist() == [decimals]


@pytest.mark.parametrize("cells", [[1, 2.5], [1, None], [Decimal("1.5"), Decimal("2")]])
def test_numbers_in_objects_become_categories_with_a_warning(cells: list[Any]) -> None:
    table = pd.DataFrame({"income": pd.Series(cells, dtype=object), "job": pd.Series(["a", "b"], dtype=object)})
    with pytest.warns(NumbersAsCategoriesWarning, match=r"\['income'\].*infer_objects"):
        assert Features.fit(table).kinds == ("categorical", "categorical")
    assert Features.fit(table, categorical=["income"]).kinds == ("categorical", "categorical")  # and no warning
    assert Features.fit(table.to_numpy(object)).kinds[1] == "categorical"


@pytest.mark.parametrize("dtype", [bool, int, float])
def test_one_hot_columns_are_named(dtype: Any) -> None:
    random = np.random.default_rng(0)
    jobs = pd.get_dummies(pd.Series(random.choice(["clerk", "miner", "nurse"], 40)), prefix="job", dtype=dtype)
    owns = pd.Series(random.integers(0, 2, 40), name="owns")
    table = pd.concat([owns, jobs, owns.rename("age") + 30], axis=1)
    with pytest.warns(OneHotColumnsWarning, match="3 columns from 'job_clerk' to 'job_nurse'"):
        Features.fit(table)
    with pytest.warns(OneHotColumnsWarning, match="3 columns from 1 to 3"):
        Features.fit(table.to_numpy(float))
    Features.fit(table, frozen=["job_nurse"])  # none of these warns: frozen, apart, too few rows, one row of two
    Features.fit(table[["job_clerk", "age", "job_miner", "job_nurse"]])
    Features.fit(table.head(20))
    Features.fit(table.assign(job_nurse=1))


def test_grid_gives_the_float_that_the_text_parses_to() -> None:
    rng = np.random.default_rng(0)
    texts = [f"{value:.3f}" for value in rng.uniform(-1e4, 1e4, 2000)]
    table = pd.read_csv(io.StringIO("x\n" + "\n".join(texts)))
    features = Features.fit(table)
    assert features.decimals.tolist() == [3]
    numbers = np.round(rng.uniform(-1e4, 1e4, (2000, 1)) * 1000) / 1000
    shown = features.frame(numbers, features.check(table))
    assert shown.equals(pd.read_csv(io.StringIO(shown.to_csv(index=False))))
    assert pd.read_json(io.StringIO(shown.to_json(double_precision=15))).equals(shown)


def test_order_of_rows_decides_nothing() -> None:
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"c": rng.choice(list("abcdefgh"), 40), "n": rng.integers(0, 9, 40)})
    one, other = Features.fit(table), Features.fit(table.sample(frac=1.0, random_state=2))
    assert one.levels[0].tolist() == other.levels[0].tolist()
    assert one.base.tolist() == other.base.tolist()
    ties = Features.fit(pd.DataFrame({"c": ["b", "a", "c", "c"]}))
    assert ties.levels[0].tolist() == ["c", "a", "b"]


def test_fingerprint_knows_names_dtypes_and_values_but_no_index() -> None:
    fingerprint = Features.fit(MIXED).fingerprint
    assert Features.fit(MIXED.reset_index(drop=True)).fingerprint == fingerprint
    assert Features.fit(MIXED.rename(columns={"age": "years"})).fingerprint != fingerprint
    assert Features.fit(MIXED.astype({"age": "int32"})).fingerprint != fingerprint
    assert Features.fit(MIXED.assign(job=["clerk", "miner", "clerk", "clerk"])).fingerprint != fingerprint


def test_pickle_holds_no_rows_and_works_alike() -> None:
    table = pd.DataFrame({"name": [f"secret {n % 10}" for n in range(5000)], "x": np.arange(5000) + 0.123})
    features = Features.fit(table)
    features.numbers(table)
    packed = pickle.dumps(features)
    assert len(packed) < 5000
    again = pickle.loads(packed)
    assert np.array_equal(again.numbers(table), features.numbers(table))


def test_columns_of_one_value_and_missing_cells() -> None:
    table = pd.DataFrame({"x": [3.0, 3.0, np.nan], "c": ["a", None, "a"]})
    features = Features.fit(table)
    assert (features.scale[0], features.std[0], features.low[0], features.high[0]) == (1.0, 1.0, 3.0, 3.0)
    assert features.levels[1].tolist() == ["a"]
    assert np.isnan(features.numbers(table)[[2, 1], [0, 1]]).all()
    widened = Features.fit(table, ranges={"x": (0, 10)})
    assert (widened.scale[0], widened.low[0], widened.high[0]) == (10.0, 0.0, 10.0)


def test_special_codes_are_no_values() -> None:
    table = pd.DataFrame({"x": [-9.0, -9.0, -9.0, 1.5, 2.5, 3.5], "y": [-9, 1, 2, 3, 4, 5], "c": list("aabbcc")})
    features = Features.fit(table, special_values={"*": -9, "y": [1]})
    assert features.base.tolist() == [2.5, 4.0, 0.0]
    assert features.low.tolist() == [1.5, 2.0, 0.0]
    assert features.decimals.tolist() == [1, 0, -1]
    assert features.std[0] == np.std([1.5, 2.5, 3.5])
    mask = features.silent(features.numbers(table))
    assert mask.sum(axis=0).tolist() == [3, 2, 0]


@pytest.mark.parametrize(
    ("scale", "expected"),
    [("range", 10.0), ("std", np.std([0, 1, 2, 3, 10])), ("mad", 1.0), ({"x": 4}, 4.0), ([2.5, 7], 2.5)],
)
def test_scale(scale: Any, expected: float) -> None:
    table = pd.DataFrame({"x": [0, 1, 2, 3, 10], "c": list("abcab")})
    features = Features.fit(table, scale=scale)
    assert features.scale.tolist() == [expected, 1.0]


def test_scale_of_a_nearly_constant_column_is_positive() -> None:
    table = pd.DataFrame({"x": [0, 0, 0, 0, 10]})
    assert Features.fit(table, scale="mad").scale[0] == np.std([0, 0, 0, 0, 10])


def test_base_values_and_ranges_that_are_given() -> None:
    features = Features.fit(MIXED, base={"age": 31, "job": "nurse"}, ranges={"rate": (0.123, None)})
    assert features.base.tolist()[:2] == [31.0, 0.18]
    assert features.levels[3].tolist() == ["clerk", "miner", "nurse"]
    assert features.base[3] == 2.0
    assert (features.low[1], features.high[1]) == (0.13, 0.7)  # on the column's grid
    assert Features.fit(MIXED, ranges={"age": (50, 90)}).base[0] == 50.0  # the median, moved into the range
    assert Features.fit(MIXED, base={"rate": 0.125}).decimals[1] == 3  # the grid holds the base value


def test_frozen_and_directions() -> None:
    features = Features.fit(MIXED, frozen=["age", "job"], directions={"rate": "increase", "weight": "decrease"})
    assert features.frozen.tolist() == [True, False, False, True, False]
    assert features.direction.tolist() == [0, 1, -1, 0, 0]
    assert Features.fit(MIXED, frozen="age").frozen.tolist() == [True, False, False, False, False]
    assert not Features.fit(MIXED, frozen=[]).frozen.any()
    assert not Features.fit(MIXED, frozen=None).frozen.any()


def test_declared_categories_by_name_and_by_position() -> None:
    table = pd.DataFrame({"code": [5, 1, 2, 1], "x": [1, 2, 3, 4]})
    for categorical in (["code"], [0], "code"):
        features = Features.fit(table, categorical=categorical)
        assert features.kinds == ("categorical", "integer")
        assert features.levels[0].tolist() == [1, 2, 5]
    array = Features.fit(table.to_numpy(), categorical=[0])
    assert array.levels[0].tolist() == [1, 2, 5]
    shown = array.frame(np.array([[2.0, 7.0]]), array.check(table.to_numpy()[:1]))
    assert array.model_table(shown).tolist() == [[5, 7]]


# ---- tables, and back

COLUMNS: dict[str, Any] = {
    "int8": np.array([1, 2, 3, 100], "int8"),
    "int64": np.array([10, 20, 30, 2**40]),
    "uint8": np.array([0, 2, 3, 200], "uint8"),
    "float16": np.array([0.5, 0.1, 2.25, 8.0], "float16"),
    "float32": np.array([0.5, 0.1, 2.25, 1e3], "float32"),
    "float32 continuous": np.array([1 / 3, 0.1, np.pi, 1e6], "float32"),
    "float64": np.array([0.5, 0.1, 1 / 3, np.nan]),
    "Int64": pd.array([1, None, 3, 4], "Int64"),
    "Int8": pd.array([1, None, 3, 4], "Int8"),
    "Float64": pd.array([1.5, None, 3.25, 4], "Float64"),
    "Float32": pd.array([1.5, None, 3.25, 4.1], "Float32"),
    "bool": np.array([True, False, True, True]),
    "boolean": pd.array([True, None, False, True], "boolean"),
    "object": np.array(["nan", "", None, "x"], object),
    "str": pd.array(["nan", "", None, "x"], "str"),
    "string": pd.array(["nan", "", None, "x"], "string"),
    "category": pd.Categorical(["u", None, "w", "u"], categories=["w", "v", "u"]),
    "ordered": pd.Categorical(["low", "high", "low", "mid"], categories=["low", "mid", "high", "unused"], ordered=True),
    "category of numbers": pd.Categorical([1.5, 2.5, None, 1.5]),
    "category of bools": pd.Categorical([True, False, None, True]),
    "category of intervals": pd.cut([1, 5, 9, 2], [0, 3, 6, 10]),
    "objects mixed": np.array(["a", 1, 2.5, ("t", 1)], object),
}
ARROW = {
    "int64[pyarrow]": [1, None, 3, 4],
    "double[pyarrow]": [1.5, None, 3.25, 4.0],
    "float[pyarrow]": [1.5, None, 3.25, 4.1],
    "string[pyarrow]": ["a", None, "b", ""],
    "bool[pyarrow]": [True, None, False, True],
}
INDEX = pd.Index(["r", "s", "s", "t"], name="row")


@pytest.fixture(scope="module")
def everything() -> pd.DataFrame:
    """A column of every dtype; to be read only."""
    pytest.importorskip("pyarrow")
    arrow = {dtype: pd.array(values, dtype) for dtype, values in ARROW.items()}
    table = pd.DataFrame({**COLUMNS, **arrow}, index=INDEX)
    table.columns.name = "feature"
    return table


def test_a_table_comes_back_as_it_was(everything: pd.DataFrame) -> None:
    table = everything.copy(deep=True)
    before = table.copy(deep=True)
    features = Features.fit(table)
    checked = features.check(table)
    again = features.frame(features.numbers(checked), checked)
    pd.testing.assert_frame_equal(again, before)
    pd.testing.assert_frame_equal(table, before)


def test_every_cell_can_be_replaced_in_its_own_dtype(everything: pd.DataFrame) -> None:
    table = everything
    features = Features.fit(table)
    numbers = features.numbers(features.check(table))
    wanted = shifted(features, numbers)
    narrow = table.columns.get_indexer(["float32 continuous"])
    wanted[:, narrow] = wanted[:, narrow].astype(np.float32)
    shown = features.frame(wanted, table)
    assert shown.dtypes.equals(table.dtypes)
    assert shown.index.equals(INDEX)
    assert shown.columns.equals(table.columns)
    assert shown.columns.name == "feature"
    np.testing.assert_array_equal(features.numbers(shown), wanted)
    assert np.array_equal(shown.isna(), table.isna())


@pytest.mark.parametrize("name", [*COLUMNS, *ARROW])
def test_one_row_in_any_form(everything: pd.DataFrame, name: str) -> None:
    table = everything[[name]]
    features = Features.fit(table)
    numbers = features.numbers(features.check(table))
    for row in range(4):
        cell = table.iloc[row, 0]
        forms = {
            "Series": table.iloc[row],
            "dict": {name: cell},
            "list of dicts": [{name: cell}],
            "array": table.iloc[[row]].to_numpy(object),
        }
        if not isinstance(cell, tuple):
            forms["1-D array"] = table.iloc[[row]].to_numpy(object)[0]
            forms["list"] = [[cell]]
        for form, X in forms.items():
            checked = features.check(X)
            np.testing.assert_array_equal(features.numbers(checked), numbers[[row]], err_msg=form)
            if not checked.isna().any(axis=None):
                assert checked.dtypes.equals(table.dtypes), form


def test_index_of_a_single_row() -> None:
    features = Features.fit(MIXED)
    assert features.check(MIXED.iloc[0]).index.tolist() == ["a"]
    assert features.check(MIXED.iloc[0].rename(None)).index.tolist() == [0]
    assert features.check(MIXED.iloc[0].to_dict()).index.tolist() == [0]
    pd.testing.assert_frame_equal(features.check(MIXED.iloc[0]), MIXED.iloc[[0]])


def test_columns_are_matched_by_name() -> None:
    features = Features.fit(MIXED)
    reordered = MIXED[["owns", "rate", "age", "job", "weight"]]
    pd.testing.assert_frame_equal(features.check(reordered), MIXED)
    pd.testing.assert_frame_equal(features.check(reordered.iloc[1]), MIXED.iloc[[1]])


def test_no_rows() -> None:
    features = Features.fit(MIXED)
    for X in (MIXED.iloc[:0], MIXED.to_numpy(object)[:0], [], np.empty((0, 5))):
        checked = features.check(X)
        numbers = features.numbers(checked)
        assert numbers.shape == (0, 5)
        assert features.frame(numbers, checked).shape == (0, 5)
        assert list(checked.columns) == list(MIXED.columns)


def test_rows_in_other_dtypes_than_the_background() -> None:
    features = Features.fit(MIXED)
    wider = MIXED.astype({"age": "float64", "rate": "float32", "job": "category", "owns": "object"})
    wider.iloc[0, 0] = np.nan
    wider.iloc[1, 4] = None
    checked = features.check(wider)
    assert checked["age"].dtype == np.float64
    assert checked["rate"].dtype == np.float64
    numbers = features.numbers(checked)
    assert np.isnan(numbers[0, 0])
    assert np.isnan(numbers[1, 4])
    assert numbers[:, 3].tolist() == [0.0, 1.0, 0.0, 2.0]
    moved = features.frame(shifted(features, numbers), checked)
    assert np.isnan(moved.iloc[0, 0])
    assert moved.iloc[1, 0] == 41.0


def test_records_are_read_by_their_fields() -> None:
    features = Features.fit(MIXED)
    records = MIXED[["owns", "rate", "age", "job", "weight"]].to_records(index=False)
    pd.testing.assert_frame_equal(features.check(records), MIXED.reset_index(drop=True))
    pd.testing.assert_frame_equal(features.check(np.array(records)[1:3]), MIXED[1:3].reset_index(drop=True))
    pd.testing.assert_frame_equal(features.check(records[2]), MIXED[2:3].reset_index(drop=True))
    pd.testing.assert_frame_equal(features.check(records.reshape(-1, 1)), MIXED.reset_index(drop=True))
    with pytest.raises(DataError, match="unknown 'index'"):
        features.check(MIXED.to_records())
    with pytest.raises(DataError, match="give fields of one value"):
        features.check(np.zeros(3, dtype=[("age", float, (2,))]))
    with pytest.raises(DataError, match="give a DataFrame"):
        Features.fit(records)


def test_what_the_dtype_of_the_background_cannot_hold_stays_beside_its_levels() -> None:
    table = pd.DataFrame({"code": [1, 300, 300], "day": pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-02"])})
    features = Features.fit(table.assign(owns=[True, False, False]), categorical=["code", "day"])
    rows = pd.DataFrame(
        {
            "code": pd.Categorical([1, None]),
            "day": pd.to_datetime(["2030-01-01", None]).tz_localize("UTC"),
            "owns": pd.Categorical([True, None]),
        }
    )
    together = features.check(rows)
    np.testing.assert_array_equal(features.numbers(together), [[1.0, -1.0, 1.0], [np.nan] * 3])
    for at in range(2):
        alone = features.check(rows[at : at + 1])
        np.testing.assert_array_equal(features.numbers(alone), features.numbers(together)[[at]])
        shown = features.frame(np.array([[0.0, 0.0, 0.0]]), alone)
        assert shown.iloc[0].tolist() == [300, pd.Timestamp("2020-01-02"), False]


def test_texts_in_columns_of_objects_stay_objects() -> None:
    table = pd.DataFrame({"job": ["clerk", "miner", "clerk"], "home": ["own", "rent", "own"]}, dtype=object)
    features = Features.fit(table)
    for moved in ([[1.0, 1.0]] * 3, [[1.0, 0.0]] * 3):  # all of the columns, and some
        shown = features.frame(np.array(moved), features.check(table))
        assert shown.dtypes.tolist() == [np.dtype(object)] * 2


@pytest.mark.parametrize("name", [0, 0.5])
def test_messages_name_columns_and_cells_as_python_does(name: Any) -> None:
    table = pd.DataFrame({name: [1, 2]})
    with pytest.raises(DataError, match=rf"column {name}, row 0 holds 'x'"):
        Features.fit(table).check(pd.DataFrame({name: ["x"]}))
    with pytest.raises(DataError, match=rf"column {name} is missing"):
        Features.fit(table.astype(float) * np.nan)
    texts = Features.fit(table.astype(str))
    with pytest.raises(DataError, match=rf"column {name}, row 0 holds 1 \(did you mean '1'\?\)"):
        texts.check(pd.DataFrame({name: np.array([np.int64(1)], object)}))


def test_a_row_is_the_same_alone_and_in_a_batch() -> None:
    features = Features.fit(MIXED)
    rows = MIXED.astype({"age": "float64"})
    rows.iloc[3, 0] = np.nan
    batch = features.check(rows)
    for at in range(4):
        pd.testing.assert_frame_equal(features.check(rows.iloc[[at]]), batch.iloc[[at]])


def test_values_that_do_not_fit_take_a_wider_dtype() -> None:
    table = pd.DataFrame({"x": np.array([1, 2, 3], "int8"), "y": pd.array([1, 2, 3], "Int8")})
    features = Features.fit(table, ranges={"x": (0, 300), "y": (0, 300)})
    shown = features.frame(np.array([[300.0, 300.0]] * 3), table)
    assert shown.to_numpy().tolist() == [[300, 300]] * 3
    assert shown.dtypes.tolist() == [np.dtype("int64"), pd.Int64Dtype()]
    half = features.frame(np.array([[1.5, 1.5]] * 3), table)
    assert half.dtypes.tolist() == [np.dtype("float64"), pd.Float64Dtype()]
    assert half.to_numpy(float).tolist() == [[1.5, 1.5]] * 3


@pytest.mark.parametrize("dtype", ["int64", "uint64", "Int64", "UInt64"])
def test_the_largest_integer_stays_what_it_is(dtype: str) -> None:
    largest = np.iinfo(dtype.lower()).max
    X = pd.DataFrame({"a": np.array([1, 2, largest], dtype=dtype.lower())}).astype(dtype)
    features = Features.fit(X, base={"a": largest})
    table = features.frame(np.array([[features.base[0]], [features.high[0]], [1.0]]), X)
    assert table["a"].tolist() == [largest, largest, 1]
    assert table["a"].dtype == dtype


@pytest.mark.parametrize(
    ("dtype", "value", "kept"), [("int64", 1e20, -5), ("uint64", -1.0, 2**63 + 2**11), ("UInt64", -1.0, 2**64 - 2**11)]
)
def test_a_range_beyond_64_bits_takes_a_float(dtype: str, value: float, kept: int) -> None:
    X = pd.DataFrame({"a": np.array([kept, 1], dtype=dtype.lower())}).astype(dtype)
    features = Features.fit(X, ranges={"a": (min(value, -5), 1e21)})
    assert features.frame(np.array([[kept], [value]], dtype=float), X)["a"].tolist() == [kept, value]


def test_unseen_levels_stay_and_known_codes_keep_their_place() -> None:
    table = pd.DataFrame({"c": pd.Categorical(["b", "a", "b"], categories=["b", "a", "unused"])})
    features = Features.fit(table)
    rows = pd.DataFrame({"c": pd.Categorical(["new", "a", "unused"], categories=["a", "new", "unused"])})
    checked = features.check(rows)
    assert checked["c"].cat.categories.tolist() == ["b", "a", "unused", "new"]
    assert features.numbers(checked)[:, 0].tolist() == [-1.0, 1.0, -1.0]
    shown = features.frame(np.array([[-1.0], [0.0], [0.0]]), checked)
    assert shown["c"].tolist() == ["new", "b", "b"]
    with pytest.raises(ValueError, match="-1"):
        features.frame(np.array([[-1.0], [-1.0], [0.0]]), checked)


def test_the_same_label_in_two_columns_is_two_levels() -> None:
    table = pd.DataFrame({"one": ["x", "y", "x"], "two": ["y", "y", "x"]})
    features = Features.fit(table)
    numbers = features.numbers(features.check(table[["two", "one"]]))
    assert numbers.tolist() == [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]


def test_dates_may_be_declared_categories() -> None:
    table = pd.DataFrame({"day": pd.to_datetime(["2020-01-02", None, "2020-01-01", "2020-01-02"])})
    features = Features.fit(table, categorical=["day"])
    numbers = features.numbers(features.check(table))
    assert numbers[[0, 2, 3], 0].tolist() == [0.0, 1.0, 0.0]
    numbers[0] = 1.0
    shown = features.frame(numbers, table)
    assert shown["day"].dtype == table["day"].dtype
    assert shown["day"].tolist()[::2] == [pd.Timestamp("2020-01-01")] * 2


def test_arrays_are_asked_as_arrays() -> None:
    numeric = np.array([[1.5, 2.0], [2.5, 3.0]], np.float32)
    features = Features.fit(numeric)
    assert features.names == (0, 1)
    asked = features.model_table(features.check(numeric))
    assert asked.dtype == np.float32
    assert np.array_equal(asked, numeric)
    assert features.model_table(features.check(numeric[0])).shape == (1, 2)

    mixed = np.array([["a", 1, 0.5], ["b", None, 1.5], [None, 3, 2.5]], object)
    features = Features.fit(mixed)
    assert features.kinds == ("categorical", "integer", "decimal")
    checked = features.check(mixed)
    assert features.model_table(checked).tolist() == mixed.tolist()
    numbers = features.numbers(checked)
    numbers[0] = [1.0, 2.0, 3.5]
    assert features.model_table(features.frame(numbers, checked))[0].tolist() == ["b", 2, 3.5]

    text = np.array([["a", "nan"], ["bb", ""]])
    features = Features.fit(text)
    asked = features.model_table(features.check(np.array([["a long word", ""]])))
    assert asked.tolist() == [["a long word", ""]]
    assert asked.dtype.kind == "U"
    missing = features.check(np.array([["a", None]], object))
    assert features.numbers(missing)[0, 0] == 0.0
    assert np.isnan(features.numbers(missing)[0, 1])
    assert pd.isna(features.model_table(missing)[0, 1])

    integers = Features.fit(np.array([[1, 2], [3, 4]]))
    assert integers.model_table(integers.check(np.array([[1.5, np.nan]]))).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_many_numbers_are_asked_in_the_form_of_their_rows(dtype: Any) -> None:
    array = np.array([[0.1, -0.0, 3.0], [2.3, 1.0, -1.0], [5.5, 2.0, 0.0]])
    if dtype != np.int64:
        array[2, 1] = np.nan
    array = array.astype(dtype)
    features = Features.fit(array)
    table = features.check(array)
    own = features.numbers(table)
    rows = np.array([0, 1, 2, 0, 2])
    numbers = own[rows]
    numbers[:, 2] += [0.0, 0.25, -0.0, -3.0, 1.0]
    numbers[1, 1] = -0.0
    expected = features.model_table(features.frame(numbers, table.iloc[rows]))
    for form in (features.form(table), features.form(array)):
        asked = form.asked(numbers, rows)
        assert asked.dtype == expected.dtype
        np.testing.assert_array_equal(asked, expected)
        assert np.array_equal(np.signbit(asked), np.signbit(expected))


@pytest.mark.parametrize("was_frame", [True, False])
def test_an_array_takes_the_form_of_its_frame(was_frame: bool) -> None:
    array = np.array([[0.1, 3.0], [np.nan, -0.0], [5.5, 2.0]])
    features = Features.fit(pd.DataFrame(array, columns=["a", "b"]) if was_frame else array)
    fast, slow = features.form(np.asfortranarray(array)), features.form(features.check(array))
    assert isinstance(fast.rows, np.ndarray)
    assert not np.shares_memory(fast.model_table, fast.rows) or was_frame
    for one, other in zip([fast, *fast.parts(2)], [slow, *slow.parts(2)], strict=True):
        pd.testing.assert_frame_equal(one.table, other.table)
        assert list(one.index) == list(other.index)
        assert type(one.model_table) is type(other.model_table)
        np.testing.assert_array_equal(one.model_table, other.model_table)
        np.testing.assert_array_equal(one.numbers, other.numbers)
        np.testing.assert_array_equal(one.cells, other.cells)
        assert one.has_background_dtypes


def test_a_background_frame_may_be_asked_with_arrays() -> None:
    features = Features.fit(MIXED)
    pd.testing.assert_frame_equal(
        features.check(MIXED.to_numpy(object)).reset_index(drop=True), MIXED.reset_index(drop=True)
    )
    floats = Features.fit(MIXED[["age", "rate"]])
    checked = floats.check(MIXED[["age", "rate"]].to_numpy())
    assert checked.dtypes.tolist() == [np.dtype("int64"), np.dtype("float64")]


def test_inputs_that_cannot_be_written_to() -> None:
    array = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    array.flags.writeable = False
    features = Features.fit(array)
    checked = features.check(array)
    shown = features.frame(features.numbers(checked) + 1.0, checked)
    assert np.array_equal(features.model_table(shown), array + 1.0)
    assert array[0, 0] == 0.0


def test_many_columns_of_one_dtype_keep_their_order() -> None:
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 300)).round(3))
    features = Features.fit(wide)
    numbers = features.numbers(wide)
    numbers[:, ::3] = np.round(numbers[:, ::3] + 1.0, 3)
    assert np.array_equal(features.frame(numbers, wide).to_numpy(), numbers)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6)), min_size=2, max_size=30),
    st.integers(0, 6),
    st.sampled_from(["float64", "float32"]),
)
def test_decimal_tables_round_trip(pairs: list[tuple[int, int]], decimals: int, dtype: str) -> None:
    background, wanted = (np.array(column) / 10.0**decimals for column in zip(*pairs, strict=True))
    table = pd.DataFrame({"x": background.astype(dtype)})
    features = Features.fit(table)
    assert 0 <= features.decimals[0] <= decimals
    wanted = np.round(wanted, features.decimals[0])[:, None]
    shown = features.frame(wanted, features.check(table))
    assert shown["x"].dtype == dtype
    assert np.array_equal(features.numbers(shown), wanted)
    assert np.array_equal(features.numbers(features.check(pd.read_csv(io.StringIO(shown.to_csv(index=False))))), wanted)


LEVELS = st.one_of(st.text(max_size=3), st.integers(-3, 3), st.none(), st.just(float("nan")))


@settings(max_examples=100, deadline=None)
@given(st.lists(LEVELS, min_size=1, max_size=20).filter(lambda cells: not all(map(pd.isna, cells))))
def test_any_objects_are_levels(cells: list[Any]) -> None:
    table = pd.DataFrame({"c": pd.Series(cells, dtype=object)})
    features = Features.fit(table, categorical=["c"])  # numbers alone would be warned of
    numbers = features.numbers(features.check(table))
    assert np.array_equal(np.isnan(numbers[:, 0]), table["c"].isna())
    assert (np.diff(features.counts[0]) <= 0).all()
    for cell, number in zip(cells, numbers[:, 0], strict=True):
        assert np.isnan(number) or features.levels[0][int(number)] == cell


# ---- size


def test_one_pass_within_a_fraction_of_the_table() -> None:
    rng = np.random.default_rng(0)
    n = 100_000
    table = pd.DataFrame({f"x{at}": rng.normal(size=n) for at in range(16)})
    for at in range(4):
        table[f"c{at}"] = pd.Categorical.from_codes(rng.integers(0, 50, n), [f"level {code}" for code in range(50)])
    tracemalloc.start()
    try:
        Features.fit(table)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * table.memory_usage(deep=True).sum()


def test_fifty_thousand_levels() -> None:
    names = np.array([f"customer {at}" for at in range(50_000)], object)
    table = pd.DataFrame({"c": np.concatenate([names, names[:1000]])})
    features = Features.fit(table)
    assert features.levels[0].size == 50_000
    numbers = features.numbers(features.check(table))
    assert np.array_equal(features.levels[0][numbers[:, 0].astype(int)], table["c"].to_numpy(object))


# ---- refused, with a message that names the column, the value and what to do


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (MIXED.drop(columns="age"), ["missing 'age'", "give exactly"]),
        (MIXED.assign(extra=1), ["unknown 'extra'"]),
        (MIXED.rename(columns={"weight": "wieght"}), ["missing 'weight'", "unknown 'wieght'", "did you mean 'weight'"]),
        (pd.concat([MIXED, MIXED[["age"]]], axis=1), ["'age'", "more than once"]),
        (np.zeros((2, 4)), ["4 columns", "5"]),
        (np.zeros(4), ["4 columns", "5"]),
        (np.zeros((1, 1, 5)), ["3 dimensions"]),
        (7, ["int", "give a DataFrame"]),
        ("age", ["str", "give a DataFrame"]),
        ({"age": 1}, ["row 0", "missing 'rate'"]),
        ([{**MIXED.iloc[0]}, {"age": 1}], ["row 1", "missing"]),
        ([{**MIXED.iloc[0]}, 3], ["row 1", "int"]),
        (MIXED.assign(age=[1, 2, 3, np.inf]), ["'age'", "'d'", "inf", "NaN"]),
        (MIXED.assign(weight=[1, -np.inf, 3, 4]), ["'weight'", "'b'", "-inf"]),
        ({**MIXED.iloc[0], "rate": float("inf")}, ["'rate'", "inf"]),
        (MIXED.assign(age=["1", "2", "3", "4"]), ["'age'", "'a'", "'1'", "give a number"]),
        (MIXED.assign(age=[1, 2, "three", 4]), ["'age'", "'b'", "'three'"]),
        (
            MIXED.assign(job=[["a"], ["b"], ["c"], ["d"]]),
            ["'job'", "'a'", "['a']", "are texts ('clerk', 'miner'", "give texts"],
        ),
        (MIXED.assign(job=[17, 18, 17, 18]), ["'job'", "'a'", "holds 17,", "are texts", "dtype={'job': str}"]),
        (MIXED.assign(job=[1.0, 2.0, None, 1.0]), ["'job'", "holds 1.0,", "are texts", "None"]),
        (MIXED.assign(job=[None, True, "clerk", None]), ["'job'", "'b'", "holds True,", "are texts"]),
        (MIXED.assign(job=pd.Timestamp("2020-01-02")), ["'job'", "Timestamp(", "are texts"]),
        ({**MIXED.iloc[0], "job": {"is": "clerk"}}, ["'job'", "row 0", "{'is': 'clerk'}", "are texts"]),
        ({**MIXED.iloc[0], "job": b"clerk"}, ["'job'", "b'clerk'", "are texts"]),
        ({**MIXED.iloc[0], "owns": "yes"}, ["'owns'", "row 0", "'yes'", "are bools (True, False)", "give bools"]),
        ({**MIXED.iloc[0], "owns": "True"}, ["'owns'", "'True' (did you mean True?)", "give bools"]),
        ({**MIXED.iloc[0], "owns": np.int64(2)}, ["'owns'", "holds 2,", "are bools"]),
        (MIXED.astype({"job": "category"}).assign(owns=pd.Categorical(["yes"] * 4)), ["'owns'", "'yes'", "are bools"]),
    ],
)
def test_rows_that_are_refused(X: Any, words: list[str]) -> None:
    features = Features.fit(MIXED)
    with pytest.raises(DataError) as caught:
        features.numbers(features.check(X))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (pd.DataFrame({"x": [np.nan, np.nan]}), ["'x'", "missing (NaN)", "drop it"]),
        (pd.DataFrame({"c": pd.Series([None, None], dtype="str")}), ["'c'", "missing", "drop it"]),
        (pd.DataFrame({"x": [1.0, np.inf]}), ["'x'", "row 1", "inf"]),
        (pd.DataFrame({"x": pd.to_datetime(["2020-01-01"])}), ["'x'", "datetime64", "categorical"]),
        (pd.DataFrame({"x": [1 + 2j]}), ["'x'", "complex128"]),
        (pd.DataFrame({"x": pd.arrays.SparseArray([0.0, 1.0])}), ["'x'", "sparse", "to_dense"]),
        (pd.DataFrame({"x": []}), ["no rows"]),
        (pd.DataFrame(index=[0, 1]), ["no columns"]),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), ["'x'", "more than once"]),
        (np.zeros(3), ["1 dimensions"]),
        (None, ["NoneType", "give a DataFrame"]),
        (pd.DataFrame({"c": [[1], [2]]}), ["'c'", "strings or numbers"]),
    ],
)
def test_backgrounds_that_are_refused(X: Any, words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        Features.fit(X)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"frozen": ["aeg"]}, ["frozen", "'aeg'", "did you mean 'age'"]),
        ({"frozen": 17}, ["frozen", "17"]),
        ({"categorical": ["jbo"]}, ["categorical", "'jbo'", "'job'"]),
        ({"base": {"agee": 3}}, ["base", "'agee'", "'age'"]),
        ({"base": {"age": 100}}, ["base['age']", "100.0", "30.0 to 60.0", "ranges"]),
        ({"base": {"age": 40.5}}, ["base['age']", "40.5", "whole number"]),
        ({"base": {"age": "old"}}, ["base['age']", "'old'", "number"]),
        ({"base": {"age": np.nan}}, ["base['age']", "finite"]),
        ({"base": {"job": "minor"}}, ["base['job']", "'minor'", "did you mean 'miner'"]),
        ({"base": {"job": None}, "frozen": ["nothing"]}, ["frozen"]),
        ({"base": ["age"]}, ["base", "dict"]),
        ({"ranges": {"age": (50, 40)}}, ["ranges['age']", "(50, 40)", "low <= high"]),
        ({"ranges": {"age": (99, None)}}, ["ranges['age']", "99.0 to 60.0"]),
        ({"ranges": {"age": (40.2, 40.8)}}, ["ranges['age']", "(40.2, 40.8)", "wider"]),
        ({"ranges": {"age": 40}}, ["ranges['age']", "pair"]),
        ({"ranges": {"age": (0, np.inf)}}, ["ranges['age']", "finite"]),
        ({"ranges": {"job": (0, 1)}}, ["ranges", "'job'", "categorical", "frozen"]),
        ({"ranges": {"age": (40, 50)}, "base": {"age": 55}}, ["base['age']", "40.0 to 50.0"]),
        ({"directions": {"age": "up"}}, ["directions['age']", "'up'", "'increase'"]),
        ({"directions": {"job": "increase"}}, ["directions", "'job'", "categorical"]),
        ({"special_values": {"job": ["clerk"]}}, ["special_values", "'job'", "categorical"]),
        ({"special_values": [-9]}, ["special_values", "'*'"]),
        ({"special_values": {"age": "old"}}, ["special_values['age']", "'old'"]),
        ({"special_values": {"age": [30, 40, 50, 60]}}, ["'age'", "special code"]),
        ({"scale": "rnge"}, ["scale", "'rnge'", "did you mean 'range'"]),
        ({"scale": [1.0]}, ["scale", "1 units", "5 columns"]),
        ({"scale": {"age": 0}}, ["scale['age']", "positive"]),
        ({"scale": {"job": 2}}, ["scale", "'job'", "categorical"]),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((OptionError, DataError)) as caught:
        Features.fit(MIXED, **options)
    for word in words:
        assert word in str(caught.value)


def test_a_frame_is_refused_where_the_background_had_no_names() -> None:
    features = Features.fit(np.zeros((3, 2)))
    with pytest.raises(DataError, match="give an array"):
        features.check(pd.DataFrame({"x": [1.0], "y": [2.0]}))


def test_position() -> None:
    features = Features.fit(MIXED)
    assert features.position("job") == 3
    assert features.position(3) == 3
    with pytest.raises(OptionError, match="did you mean 'job'"):
        features.position("jab")
    with pytest.raises(OptionError, match="True"):
        features.position(True)
    numbered = Features.fit(pd.DataFrame({7: [1, 2], 8: [3, 4]}))
    assert numbered.position(8) == 1
    with pytest.raises(OptionError):
        numbered.position(0)


@pytest.mark.parametrize(
    ("background", "rows", "shown"),
    [
        ([True, False, True], pd.array([1, None, 0], "Int64"), pd.array([0, 1, 0], "Int64")),
        ([True, False, True], pd.array([True, None, False], "boolean"), pd.array([False, True, False], "boolean")),
        (pd.cut([0.0, 1.0, 2.0], 2), pd.cut([0.0, 1.0, 2.0], 3), None),
    ],
    ids=["numbers for bools", "nullable bools", "other intervals"],
)
def test_levels_are_put_into_columns_of_another_dtype(background: Any, rows: Any, shown: Any) -> None:
    features = Features.fit(pd.DataFrame({"c": background}))
    form = features.form(pd.DataFrame({"c": rows}))
    levels = [list(features.levels[0]).index(level) for level in (background[1], background[0], background[1])]
    table = form.frame(np.array(levels, float)[:, None], np.arange(3))
    assert table["c"].tolist() == [background[1], background[0], background[1]]
    if shown is not None:
        assert table["c"].dtype == rows.dtype
        assert table["c"].array.equals(shown)
