"""Options that are not possible are refused, by name."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from macem import SearchOptions, kernel
from macem.errors import OptionError
from macem.options import BEAM_STEP


def test_a_beam_has_as_many_states_for_each_trade_off() -> None:
    assert len(kernel.TRADE_OFFS) == BEAM_STEP
    assert SearchOptions(beam_width=12).beam_width == 12
    with pytest.raises(OptionError, match="beam_width=10 is not a multiple of 4; give 8 or 12"):
        SearchOptions(beam_width=10)
    with pytest.raises(OptionError, match="beam_width=3 is not a whole number of at least 4"):
        SearchOptions(beam_width=3)


def test_numbers_of_numpy_are_numbers() -> None:
    options = SearchOptions(n_steps=np.int64(5), l1_weight=np.float32(2.0), smoothing=np.array([0.5]))
    assert options == SearchOptions(n_steps=5, l1_weight=2.0, smoothing=(0.5,))
    assert json.loads(json.dumps(options.as_dict()))["n_steps"] == 5


@pytest.mark.parametrize("option", [{"smoothing": [[0.5]]}, {"loss_weights": None}, {"l1_weight": 10**400}])
def test_what_is_no_number_is_named(option: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(option))}=.*give"):
        SearchOptions(**option)
