"""Tables in files: what a cell means, and what is kept."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from macem import files, result_files
from macem.errors import DataError, OptionError

pytest.importorskip("pyarrow")


def text_table(tmp_path: Path, text: str, name: str = "table.csv", **options: object) -> pd.DataFrame:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return files.read_table(path, **options)  # type: ignore[arg-type]


def test_dtypes_of_a_csv_file(tmp_path: Path) -> None:
    table = text_table(
        tmp_path,
        'whole,number,gaps,truth,text,none\n1,1.5,NA,true,a,none\n2,2,3,false,nan,x\n3,1e3,,True,"",\n',
    )
    assert [str(dtype) for dtype in table.dtypes] == ["int64", "float64", "float64", "bool", "str", "str"]
    assert list(table["text"]) == ["a", "nan", ""]
    assert list(table["none"].isna()) == [False, False, True]
    assert table["none"][0] == "none"


def test_numbers_are_read_to_the_last_bit(tmp_path: Path) -> None:
    values = [0.1 + 0.2, 1 / 3, 5e-324, 1.7976931348623157e308]
    table = text_table(tmp_path, "x\n" + "\n".join(map(repr, values)))
    assert list(table["x"]) == values


def test_what_only_arrow_takes_for_a_number_is_text(tmp_path: Path) -> None:
    assert list(text_table(tmp_path, "code\n0x10\n0xFF\n")["code"]) == ["0x10", "0xFF"]


def test_whole_numbers_of_any_length(tmp_path: Path) -> None:
    huge = "1" * 400
    table = text_table(tmp_path, f'{{"n": {huge}, "m": {2**63}}}\n{{"n": 1, "m": 1}}\n', "table.jsonl")
    assert table.to_dict("list") == {"n": [float("inf"), 1.0], "m": [2.0**63, 1.0]}


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_table_as_far_as_wanted(tmp_path: Path, suffix: str) -> None:
    path, table = tmp_path / f"table.{suffix}", pd.DataFrame({"n": [1, 2, 3]})
    {"csv": table.to_csv, "parquet": table.to_parquet}.get(suffix, table.to_json)(
        path, **({"orient": "records", "lines": True} if suffix == "jsonl" else {"index": False})
    )
    for limit in range(5):
        assert list(files.read_table(path, limit=limit)["n"]) == [1, 2, 3][:limit]


def test_json_lines(tmp_path: Path) -> None:
    table = text_table(tmp_path, '{"a": 1, "b": "x"}\n{"b": null, "c": true, "a": 2.5}\n', "table.jsonl")
    assert list(table["a"]) == [1.0, 2.5]
    assert list(table.columns) == ["a", "b", "c"]
    assert list(table["b"].isna()) == [False, True]


def test_dtypes_can_be_given(tmp_path: Path) -> None:
    assert list(text_table(tmp_path, "zip\n007\n010\n", dtypes={"zip": "str"})["zip"]) == ["007", "010"]
    for no_dtype in ([], ","):
        with pytest.raises(OptionError, match="column 'zip' cannot be"):
            text_table(tmp_path, "zip\n007\n", dtypes={"zip": no_dtype})
    with pytest.raises(OptionError, match="'zap', which"):
        text_table(tmp_path, "zip\n007\n", dtypes={"zap": "str"})
    wrong = [("x", "int64"), ("1.5", "int64"), ("1.5", "Int64"), ("inf", "Int64"), ("300", "int8"), ("-1", "uint8")]
    for cell, dtype in [*wrong, ("maybe", "bool"), ("NA", "int64"), ("", "bool"), ("1", "integer")]:
        with pytest.raises(OptionError, match=f"cannot be '{dtype}'"):
            text_table(tmp_path, f"zip,n\n{cell},1\n", dtypes={"zip": dtype})


def test_dtypes_that_know_missing_cells(tmp_path: Path) -> None:
    dtypes = {"i": "Int64", "f": "Float64", "b": "boolean", "s": "string", "plain": "bool"}
    table = text_table(tmp_path, "i,f,b,s,plain\n1,0.5,False,x,False\n,,,,true\n", dtypes=dtypes)
    assert {name: str(dtype) for name, dtype in table.dtypes.items()} == dtypes
    assert list(table.iloc[0]) == [1, 0.5, False, "x", False]
    assert table.iloc[1, :4].isna().all()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "empty"),
        ("a.csv", "x,x\n1,2\n", "two columns 'x'"),
        ("a.csv", "x,y\n1,2,3\n", "3 fields"),
        ("a.csv", "\nx,y\n1,2\n", "or its first line is"),
        ("a.jsonl", "[1]\n", "row 0: the line is no JSON object .*Correct the file"),
        ("a.parquet", "no parquet", "cannot be read"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        text_table(tmp_path, text, name)


def test_unknown_suffix_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"\.xlsx"):
        files.format_of("table.xlsx")
    with pytest.raises(DataError, match="no file"):
        files.read_table(tmp_path / "nothing.csv")


def test_categories_and_narrow_dtypes_pass_through_parquet(tmp_path: Path) -> None:
    background = pd.DataFrame(
        {
            "size": pd.Categorical(["S", "M"], ["S", "M", "L"], ordered=True),
            "small": np.array([1, 2], np.int8),
            "single": np.array([0.1, 0.2], np.float32),
            "nullable": pd.array([1, None], dtype="Int64"),
            "truth": pd.array([None, True], dtype="boolean"),
            "text": pd.array(["a", None], dtype="string"),
        }
    )
    background.to_parquet(tmp_path / "rows.parquet")
    chunk = next(files.RowFile(tmp_path / "rows.parquet", background).chunks(10))
    pd.testing.assert_frame_equal(chunk.frame, background)
    schema = result_files.line_schema(background.dtypes, ["no", "yes"])
    assert [str(schema.field(name).type) for name in background] == [
        "dictionary<values=string, indices=int32, ordered=1>",
        "int8",
        "float",
        "int64",
        "bool",
        "string",
    ]


def test_rows_take_the_backgrounds_dtypes(tmp_path: Path) -> None:
    background = pd.DataFrame({"n": [1, 2], "c": pd.Categorical(["a", "b"]), "flag": [True, False]})
    path = tmp_path / "rows.csv"
    path.write_text("extra,flag,c,n\n0,true,a,1\n0,false,z,2.5\n0,maybe,b,3\n0,true,b,x\n")
    rows = files.RowFile(path, background)
    assert rows.n_rows == 4
    (chunk,) = rows.chunks(10)
    assert list(chunk.frame.columns) == ["n", "c", "flag"]
    assert list(chunk.frame["n"]) == [1.0, 2.5]
    # An unseen category stays a category: as a missing value it would be another question.
    assert list(chunk.frame["c"]) == ["a", "z"]
    assert [label for label, _ in chunk.refused] == [2, 3]
    assert "'maybe', which is neither" in chunk.refused[0][1]


def test_numbers_that_a_narrow_dtype_cannot_hold_widen_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("n\n300\n-1\n99999999999999999999\n1\n")
    for dtype, widened in [("int8", "float64"), ("uint64", "float64"), ("int64", "float64"), ("Int8", "Float64")]:
        rows = files.RowFile(path, pd.DataFrame({"n": pd.Series([1], dtype=dtype)}))
        (chunk,) = rows.chunks(10)
        assert chunk.frame["n"].tolist() == [300, -1, 1e20, 1]
        assert str(chunk.frame["n"].dtype) == widened
    path.write_text(f"n\n{2**63 - 1}\n1\n")
    (chunk,) = files.RowFile(path, pd.DataFrame({"n": [1]})).chunks(10)
    assert chunk.frame["n"].tolist() == [2**63 - 1, 1]


def test_categories_that_are_whole_numbers(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("k,n\n2,1\n,1\n2.5,1\n")
    background = pd.DataFrame({"k": pd.Categorical([1, 2]), "n": [1, 1]})
    (chunk,) = files.RowFile(path, background).chunks(10)
    # As the category 2, 2.5 would be another question.
    assert chunk.frame["k"].tolist()[::2] == [2, 2.5]
    assert chunk.frame["k"].isna().tolist() == [False, True, False]


def test_a_refused_row_leaves_no_trace_in_the_others(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("n,x\n1,\n12 months,0.1\n3,ten\n")
    background = pd.DataFrame({"n": [1, 2], "x": np.array([0.1, 0.2], np.float32)})
    (chunk,) = files.RowFile(path, background).chunks(10)
    assert list(chunk.frame.index) == [0]
    assert dict(chunk.frame.dtypes) == dict(background.dtypes)


@pytest.mark.parametrize("first", [None, [1], {"a": 1}])
def test_ids_that_are_missing_or_nested(tmp_path: Path, first: object) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"id": key, "n": n}) for key, n in [(first, "x"), (first, 1), (7, 2)]))
    one, two, three = files.RowFile(path, pd.DataFrame({"n": [1]}), "id").chunks(1)
    assert one.frame.empty
    assert [one.refused[0][0], two.frame.index[0]] == [None if first is None else str(first)] * 2
    assert list(three.frame.index) == ["7"]


@pytest.mark.parametrize("names", [[0, 1], [("loan", "n"), ("loan", "m")]])
def test_names_of_columns_are_texts(tmp_path: Path, names: list[object]) -> None:
    path = tmp_path / "rows.parquet"
    columns = pd.MultiIndex.from_tuples(names) if isinstance(names[0], tuple) else pd.Index(names)
    pd.DataFrame([[1, 2], [3, 4]], columns=columns).to_parquet(path)
    table = files.read_table(path)
    assert list(table) == [str(name) for name in names]
    assert files.RowFile(path, table).n_rows == 2


def test_rows_without_a_column_of_the_background(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("n\n1\n")
    with pytest.raises(DataError, match="--drop target"):
        files.RowFile(path, pd.DataFrame({"n": [1], "target": ["x"]}))


def test_an_id_column_names_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,n\n007,1\nx,2\n")
    (chunk,) = files.RowFile(path, pd.DataFrame({"n": [1]}), "id").chunks(5)
    assert list(chunk.frame.index) == ["007", "x"]
    with pytest.raises(DataError, match=r"no column 'key' to name the rows by .*name another"):
        files.RowFile(path, pd.DataFrame({"n": [1]}), "key")


def test_a_column_of_the_model_may_name_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,n\n7,1\n9,2\n")
    (chunk,) = files.RowFile(path, pd.DataFrame({"id": [1], "n": [1]}), "id").chunks(5)
    assert list(chunk.frame.index) == ["7", "9"]
    assert chunk.frame["id"].tolist() == [7, 9]


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [
        ("cell.csv", "n,town\n1,Orléans\n".encode("latin-1"), "line 2 has the byte 0xe9 (byte 12 of the file)"),
        ("header.csv", "n,côte\n1,2\n".encode("cp1252"), "line 1 has the byte 0xf4 (byte 3 of the file)"),
        ("short.csv", "n,town\n1,x\n1,2,é\n".encode("latin-1"), "line 3 has the byte 0xe9"),
        ("two_bytes.csv", "n,town\n1,x\n".encode("utf-16"), "line 1 has the byte 0xff (byte 0 of the file)"),
        ("end.csv", "n,town\n1,é".encode()[:-1], "line 2 has the byte 0xc3 (byte 9 of the file)"),
        ("far.csv", b"n,town\n" + b"1,x\n" * 300_000 + b"1,\xe9\n", "line 300002 has the byte 0xe9 (byte 1200009 "),
        ("a.jsonl", '{"n": 1}\n{"town": "Orléans"}\n'.encode("latin-1"), "line 2 has the byte 0xe9"),
    ],
)
def test_another_encoding_than_utf_8(tmp_path: Path, name: str, content: bytes, where: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name} is not UTF-8: its {re.escape(where)}.*; save it as UTF-8"):
        files.read_table(tmp_path / name)


def test_a_letter_over_the_end_of_a_block(tmp_path: Path) -> None:
    text = "x" * ((1 << 20) - 4) + "éé"
    assert text_table(tmp_path, f"a\n{text[:1000]}\n{text[1000:]}\n")["a"].str.len().sum() == len(text)


def test_a_parquet_file_called_csv(tmp_path: Path) -> None:
    pd.DataFrame({"n": [1.5, 2.5], "town": ["a", "é"]}).to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "rows.parquet").rename(tmp_path / "rows.csv")
    with pytest.raises(DataError, match="check that its suffix"):
        files.read_table(tmp_path / "rows.csv")


@pytest.mark.parametrize("cell", ['"' + "z" * 3_000_000 + '"', '"z\n' + "1,2\n" * 1_000_000])
def test_a_row_of_megabytes(tmp_path: Path, cell: str) -> None:
    with pytest.raises(DataError, match="a quote that is never closed"):
        text_table(tmp_path, f"n,town\n1,a\n2,{cell}\n")


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
def test_a_header_alone_is_no_rows(tmp_path: Path, end: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbfn,town" + end.encode())
    assert list(files.read_table(path)) == ["n", "town"]
    assert files.RowFile(path, pd.DataFrame({"n": [1], "town": ["x"]})).n_rows == 0


def test_lines_that_are_no_text_or_too_deep(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    good = ['{"n": 1, "town": "\\ud83d\\ude00"}', '{"n": 2, "town": "\\\\udead"}']
    bad = ['{"n": 3, "town": "\\ud800"}', "[" * 100_000, '{"n": ' + "[" * 100_000, '{"\\uDC00": 1}']
    path.write_text("\n".join([good[0], *bad, good[1]]))
    (chunk,) = files.RowFile(path, pd.DataFrame({"n": [1], "town": ["x"]})).chunks(10)
    assert list(chunk.frame["town"]) == ["\U0001f600", "\\udead"]
    assert [label for label, _ in chunk.refused] == [1, 2, 3, 4]
    assert "'\\ud800'" in chunk.refused[0][1]
    assert "nested too deeply" in chunk.refused[1][1]


def read_labels(path: Path, frame: pd.DataFrame, id_column: str | None = None) -> tuple[list[object], str]:
    """Labels of the rows of a Parquet file, and the type that the results give them."""
    frame.to_parquet(path)
    rows = files.RowFile(path, frame[["n"]], id_column)
    labels = [label for chunk in rows.chunks(2) for label in chunk.frame.index]
    return labels, str(result_files.line_schema({}, ["a", "b"], rows.label_dtype).field("macem_row").type)


@pytest.mark.parametrize(
    ("index", "expected", "kind"),
    [
        (pd.RangeIndex(100, 103), [100, 101, 102], "int64"),
        (pd.RangeIndex(9, 3, -2), [9, 7, 5], "int64"),
        (pd.Index([7, 3, 5]), [7, 3, 5], "int64"),
        (pd.Index(["x", "y", "x"]), ["x", "y", "x"], "string"),
        (pd.Index([None, 2**53 + 1, 5], dtype="object"), [pd.NA, 2**53 + 1, 5], "int64"),
        (pd.Index([Decimal(10**20), Decimal(2), Decimal(3)]), ["100000000000000000000", "2", "3"], "string"),
    ],
)
def test_rows_of_parquet_keep_their_labels(tmp_path: Path, index: pd.Index, expected: list[object], kind: str) -> None:
    labels, written = read_labels(tmp_path / "rows.parquet", pd.DataFrame({"n": [1, 2, 3]}, index=index))
    assert labels == expected or (labels[0] is pd.NA and labels[1:] == expected[1:])
    assert written.removeprefix("large_") == kind
    if not isinstance(index, pd.RangeIndex):
        by_id = pd.DataFrame({"n": [1, 2, 3], "key": index})
        assert str(read_labels(tmp_path / "rows.parquet", by_id, "key")) == str((labels, written))


def test_a_range_of_another_length_is_no_index(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"n": [1, 2, 3]}, index=pd.RangeIndex(100, 103))
    pa.parquet.write_table(pa.Table.from_pandas(frame).slice(0, 2), tmp_path / "rows.parquet")
    (chunk,) = files.RowFile(tmp_path / "rows.parquet", frame).chunks(5)
    assert list(chunk.frame.index) == [0, 1]


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]", "Float64"])
def test_whole_numbers_widen_where_a_row_of_parquet_has_a_gap(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"n": pd.array([3, None, 5], dtype=dtype)}).to_parquet(path)
    chunks = [chunk.frame["n"] for chunk in files.RowFile(path, pd.DataFrame({"n": [1, 2]})).chunks(1)]
    assert [str(column.dtype) for column in chunks] == ["float64"] * 3
    assert str([column.iloc[0] for column in chunks]) == str([np.float64(3), np.float64("nan"), np.float64(5)])


def test_decimals_are_the_nearest_numbers(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    digits = [*(f"{cents / 100:.2f}" for cents in range(0, 1_000_000, 997)), "99999999999999.99", "-0.01"]
    path = tmp_path / "table.parquet"
    for kind in (pa.decimal128(18, 2), pa.decimal256(50, 4)):
        cells = pa.array([None, *map(Decimal, digits)], kind)
        pa.parquet.write_table(pa.table({"amount": cells, "n": range(len(cells))}), path)
        table = files.read_table(path)
        assert table["amount"].dtype == float
        assert table["amount"].tolist()[1:] == [float(text) for text in digits]
        (chunk,) = files.RowFile(path, table).chunks(1 << 20)
        pd.testing.assert_frame_equal(chunk.frame, table)
