"""Result files: their columns, and that they appear whole or not at all; what is read back stands in test_batch.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from macem import result_files
from macem.errors import DataError

pytest.importorskip("pyarrow")


def test_a_column_with_the_name_of_a_result() -> None:
    with pytest.raises(DataError, match="rename"):
        result_files.line_schema({"macem_row": np.dtype(int)}, ["a", "b"])


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write() -> None:
        with result_files.atomically(path) as temporary:
            temporary.write_text("new")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
