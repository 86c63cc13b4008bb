"""Tables in files: what a cell means, and what is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from macem import files
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


def test_json_lines(tmp_path: Path) -> None:
    table = text_table(tmp_path, '{"a": 1, "b": "x"}\n{"b": null, "c": true, "a": 2.5}\n', "table.jsonl")
    assert list(table["a"]) == [1.0, 2.5]
    assert list(table.columns) == ["a", "b", "c"]
    assert list(table["b"].isna()) == [False, True]


def test_dtypes_can_be_given(tmp_path: Path) -> None:
    assert list(text_table(tmp_path, "zip\n007\n010\n", dtypes={"zip": "str"})["zip"]) == ["007", "010"]
    with pytest.raises(OptionError, match="'zap', which"):
        text_table(tmp_path, "zip\n007\n", dtypes={"zap": "str"})
    for cell, dtype in [("x", "int64"), ("1.5", "int64"), ("1.5", "Int64"), ("maybe", "bool"), ("1", "integer")]:
        with pytest.raises(OptionError, match=f"cannot be '{dtype}'"):
            text_table(tmp_path, f"zip\n{cell}\n", dtypes={"zip": dtype})


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
        ("a.jsonl", "[1]\n", "no JSON object"),
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
    schema = files.line_schema(background.dtypes, ["no", "yes"])
    assert [str(schema.field(name).type) for name in background] == [
        "dictionary<values=large_string, indices=int32, ordered=1>"
        if "large" in str(schema.field("size").type)
        else "dictionary<values=string, indices=int32, ordered=1>",
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


def test_another_encoding_than_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("n,town\n1,Orléans\n".encode("latin-1"))
    with pytest.raises(DataError, match="save it as UTF-8"):
        files.read_table(path)


def test_a_column_with_the_name_of_a_result() -> None:
    with pytest.raises(DataError, match="rename"):
        files.line_schema({"macem_row": np.dtype(int)}, ["a", "b"])


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write() -> None:
        with files.atomically(path) as temporary:
            temporary.write_text("new")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
