"""Options that are not possible are refused, by name."""

from __future__ import annotations

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
