"""SearchOptions: what a user may set of the method, with the paper's symbols."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal

from macem.errors import OptionError

__all__ = ["SearchOptions"]

BEAM_STEP = 4  # as many states for each of the kernel's trade-offs


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How contrasts are searched for, and what counts as near.

    Attributes
    ----------
    n_steps : int
        Steps of each start (the paper's I).
    n_directions : int
        Random directions per gradient estimate (q).
    l1_weight : float
        Weight of the L1 term beside the squared L2 term (β); larger is sparser.
    margin : float
        How far the wanted class must lead, in units of `score` (κ).
    loss_weights : tuple of float
        Weight of the class term for each start (c).
    smoothing : tuple of float
        Smoothing radius of each start, in working coordinates (μ); as many as `loss_weights`.
    density_weight : float
        Weight of the input density (γ); needs ``Explainer(density=…)``.
    change_cost : float
        Cost of each changed feature, beside the elastic net, in choosing among valid points.
    category_cost : float or None
        Cost of a changed category in choosing among valid points; None: its step in the encoding.
    score : {"log", "probability"}
        The class scores that the margin is taken of (ζ).
    refine : bool
        Refine over axis profiles: before the search on a table, which then serves what is left, and after it on a
        black box. False is the paper as written.
    away_from_base : bool
        Hold pertinent negatives at least as far from the base values as the row; False gives ordinary counterfactuals.
    step_size : float
        First step of FISTA (α_0); step k takes ``step_size * sqrt(1 - k / n_steps)``.
    beam_width : int
        States per outward round of the refinement on a table, a multiple of 4, since they are chosen by four trade-offs
        of cost against margin; more find nearer examples and take longer (docs/method.md has both).

    Raises
    ------
    OptionError
        If a value is impossible; the message names it.
    """

    n_steps: int = 100
    n_directions: int = 50
    l1_weight: float = 5.0
    margin: float = 0.0
    loss_weights: tuple[float, ...] = (10.0,)
    smoothing: tuple[float, ...] = (0.5,)
    density_weight: float = 0.0
    change_cost: float = 0.0
    category_cost: float | None = None
    score: Literal["log", "probability"] = "log"
    refine: bool = True
    away_from_base: bool = True
    step_size: float = 0.02
    beam_width: int = 4

    def __post_init__(self) -> None:
        for name in ("loss_weights", "smoothing"):
            value: Any = getattr(self, name)
            try:
                numbers = (float(value),) if isinstance(value, Real) else tuple(float(number) for number in value)
            except (TypeError, ValueError):
                raise OptionError(
                    f"{name}={value!r} holds something that is not a number; give a tuple of numbers."
                ) from None
            object.__setattr__(self, name, numbers)
        for name, least in (("n_steps", 0), ("n_directions", 1), ("beam_width", BEAM_STEP)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
                raise OptionError(f"{name}={value!r} is not a whole number of at least {least}; give one.")
            object.__setattr__(self, name, int(value))  # NumPy's own would not pass into the JSON of a provenance
        if self.beam_width % BEAM_STEP:
            lower = self.beam_width - self.beam_width % BEAM_STEP
            raise OptionError(
                f"beam_width={self.beam_width} is not a multiple of {BEAM_STEP}; give {lower} or {lower + BEAM_STEP}."
            )
        for name in ("l1_weight", "margin", "density_weight", "change_cost", "step_size"):
            self._check_number(name)
        if self.category_cost is not None:
            self._check_number("category_cost")
        if not self.loss_weights or any(not number > 0.0 or math.isinf(number) for number in self.loss_weights):
            raise OptionError(f"loss_weights={self.loss_weights!r} needs at least one positive number (c); give some.")
        if any(not number > 0.0 or math.isinf(number) for number in self.smoothing):
            raise OptionError(f"smoothing={self.smoothing!r} needs positive numbers (μ); give some.")
        if len(self.smoothing) != len(self.loss_weights):
            raise OptionError(
                f"loss_weights has {len(self.loss_weights)} starts and smoothing {len(self.smoothing)}; "
                "give as many of one as of the other."
            )
        if self.score not in ("log", "probability"):
            raise OptionError(f'score={self.score!r} is unknown; use "log" or "probability".')
        for name in ("refine", "away_from_base"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name}={getattr(self, name)!r} is not a bool; use True or False.")

    def _check_number(self, name: str) -> None:
        value: Any = getattr(self, name)
        number = math.nan
        if isinstance(value, Real) and not isinstance(value, bool):
            with suppress(OverflowError):
                number = float(value)
        if not 0.0 <= number < math.inf:
            raise OptionError(f"{name}={value!r} is not a finite number of at least 0; give one.")
        object.__setattr__(self, name, number)

    def as_dict(self) -> dict[str, Any]:
        """The options by name, as the provenance of results records them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
