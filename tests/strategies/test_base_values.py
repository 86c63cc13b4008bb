from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from macem.errors import OptionError
from macem.features import Features
from macem.strategies.base_values import Constant, median

TABLE = pd.DataFrame({"x": [1, 2, 4, 9], "y": [0.5, -1.5, 2.5, 3.5], "c": list("abbc")})


def test_the_default_is_the_median_and_the_mode() -> None:
    default = Features.fit(TABLE)
    assert default.base.tolist() == [3.0, 1.5, 0.0]
    assert default.levels[2][0] == "b"
    assert Features.fit(TABLE, base=median).base.tolist() == default.base.tolist()


def test_a_median_between_two_values_lies_on_the_grid() -> None:
    assert Features.fit(pd.DataFrame({"x": [1, 2]})).base.tolist() == [2.0]
    assert Features.fit(pd.DataFrame({"x": [0.1, 0.2]})).base.tolist() == [0.2]
    assert Features.fit(pd.DataFrame({"x": [1.5, -2.0]})).base.tolist() == [-0.2]


def test_a_rule_is_moved_into_the_range() -> None:
    assert Features.fit(TABLE, base=Constant(0)).base.tolist() == [1.0, 0.0, 0.0]
    assert Features.fit(TABLE, base=Constant(0), ranges={"x": (-5, 5)}).base.tolist() == [0.0, 0.0, 0.0]


def test_a_rule_sees_what_says_something() -> None:
    seen: list[list[float]] = []

    def first(values: np.ndarray) -> float:
        seen.append(values.tolist())
        return float(values[0])

    table = pd.DataFrame({"x": [-9.0, np.nan, 7.0, 3.0]})
    assert Features.fit(table, base=first, special_values={"*": -9}).base.tolist() == [7.0]
    assert seen == [[7.0, 3.0]]


def test_a_rule_that_answers_nonsense_is_refused() -> None:
    with pytest.raises(OptionError, match=r"'x'.*finite"):
        Features.fit(TABLE, base=lambda values: float("nan"))
