"""Values and reasons in words: how a number is shown, and the sentences that a user can replace."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from macem.errors import OptionError

__all__ = [
    "TEMPLATES",
    "check_templates",
    "is_missing",
    "listed",
    "named",
    "readable",
    "readable_pair",
    "sentence",
    "undirected",
]

TEMPLATES: Mapping[str, str] = MappingProxyType(
    {
        "decision": "The model's decision is {prediction} (probability {probability}).",
        "positive_change": "{feature} {to} (base value {from})",
        "negative_change": "{feature} were {to} instead of {from}",
        "positive_found": "It would still be {prediction} with only {changes}, and everything else at its base value.",
        "positive_base": "No feature is needed: the base values alone keep the class {prediction}.",
        "positive_not_found": "The search found no smaller set of features that keeps the class {prediction}.",
        "positive_out_of_budget": "The search for what suffices ended at its limit before it found an answer.",
        "positive_none_exists": "No allowed example nearer to the base values keeps the class {prediction}.",
        "negative_found": "It would be {contrast} if {changes}.",
        "negative_not_found": "The search found no allowed change that would lead to {target}.",
        "negative_out_of_budget": "The search for what would change it ended at its limit before it found an answer.",
        "negative_there": "It is {target} already.",
        "negative_none_exists": "No allowed change would lead to {target}.",
        "error": "This row could not be explained: {error}",
    }
)
"""The sentences of :meth:`macem.results.Explanation.reason`. Each is a ``str.format`` template; an unknown field raises
an error that names those there are."""

# Unicode's embeddings, overrides and isolates; the marks of a letter's own direction do no harm.
_DIRECTIONS = re.compile("[\u202a-\u202e\u2066-\u2069]")

_OUTCOME = ("prediction", "contrast", "changes", "target")
_FIELDS: Mapping[str, Sequence[str]] = {
    "decision": ("prediction", "probability"),
    "positive_change": ("feature", "from", "to"),
    "negative_change": ("feature", "from", "to"),
    "error": ("error",),
}


def is_missing(value: object) -> bool:
    """Whether a cell holds no value: None, NaN, NaT or pandas.NA."""
    # NA answers a comparison with itself by NA, whose truth is undefined; NaN and NaT answer False.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def readable(value: object, decimals: int | None = None) -> str:
    """Show a cell: whole numbers without a point, others with about six digits, a missing one as ``missing``.

    An empty text is shown as ``""``.

    Parameters
    ----------
    value : object
        A number, a text, a bool, or a missing value.
    decimals : int, optional
        Digits after the point, at most; by default so many that six digits matter, and two where a number is long.
    """
    if is_missing(value):
        return "missing"
    if not isinstance(value, (float, np.floating)):
        return str(value) or '""'
    if not np.isfinite(value):
        return str(float(value))
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(float(value))))
    if not -6 <= magnitude < 15:
        return f"{float(value):.6g}"
    if decimals is None:
        decimals = max(2, 5 - magnitude)
    # numpy knows that a float32 of 0.1 is written 0.1, where Python would show its double.
    text = np.format_float_positional(value, precision=decimals, unique=True, trim="-")
    return "0" if text == "-0" else text


def readable_pair(first: object, second: object) -> tuple[str, str]:
    """Show two cells with as many digits as it takes to tell them apart."""
    shown = readable(first), readable(second)
    for decimals in range(3, 18):
        if shown[0] != shown[1] or first == second:
            break
        shown = readable(first, decimals), readable(second, decimals)
    return shown


def named(name: object, names: Mapping[Any, str] | None = None) -> str:
    """Show the name of a feature: in the user's words, or as it is; one of several levels as ``loan / amount``."""
    if names and name in names:
        return names[name]
    return " / ".join(filter(None, map(str, name))) if isinstance(name, tuple) else str(name)


def undirected(text: str) -> str:
    """A text whose controls of direction, which could turn a page's own words around, are shown as ``�``."""
    return _DIRECTIONS.sub("�", text)


def listed(parts: Sequence[str]) -> str:
    """Join parts as a sentence does: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def sentence(templates: Mapping[str, str] | None, name: str, **fields: str) -> str:
    """Fill in one sentence, the user's own where there is one.

    Raises
    ------
    OptionError
        If the user's templates hold an unknown name, or one of them asks for an unknown field.
    """
    chosen: Mapping[str, str] = {**TEMPLATES, **(templates or {})}
    unknown = sorted(set(chosen) - set(TEMPLATES))
    if unknown:
        raise OptionError(f"templates holds {unknown[0]!r}, which is no sentence; choose among {', '.join(TEMPLATES)}.")
    try:
        return chosen[name].format(**fields)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        known = ", ".join("{" + field + "}" for field in fields)
        raise OptionError(
            f"templates[{name!r}] is {chosen[name]!r}, which cannot be filled in ({error!r}); use the fields {known}."
        ) from error


def check_templates(templates: Mapping[str, str]) -> None:
    """Refuse sentences that could not be filled in, before there is anything to fill in.

    Raises
    ------
    OptionError
        As :func:`sentence` would.
    """
    for name in templates:
        sentence(templates, name, **dict.fromkeys(_FIELDS.get(name, _OUTCOME), ""))
