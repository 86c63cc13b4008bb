"""Explanations made by hand, and an explainer whose answers can be told beforehand; for tests of what a person sees."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pandas as pd

from macem.errors import DataError, OracleError
from macem.results import Contrast, Explanation, Explanations, Status

BASE = {"duration": 18, "purpose": "radio/tv", "amount": 2319.5, "age": 33}
CLASSES = np.array(["bad", "good"])


def contrast(
    kind: str,
    reference: pd.Series,
    changes: dict[Any, Any],
    prediction: Any,
    status: Status = Status.FOUND,
    **fields: Any,
) -> Contrast:
    """A contrast that moves features of the reference to the given values."""
    found = status is Status.FOUND
    values = reference.copy()
    values.update(pd.Series(changes, dtype=object))
    importance = pd.Series(0.0, index=reference.index)
    for position, name in enumerate(changes):
        importance[name] = 2.0 - position / 4
    return Contrast(
        kind=kind,
        status=status,
        values=values if found else None,
        changes={name: (reference[name], value) for name, value in changes.items()} if found else {},
        importance=importance,
        sensitivity=importance / 10,
        prediction=prediction if found else None,
        probabilities=pd.Series({"bad": 0.4, "good": 0.6}) if found else None,
        distance=0.25 if found else None,
        n_changed=len(changes) if found else None,
        n_queries=120,
        lower_bound=None,
        **{"reference": reference, **fields},
    )


def explanation(index: Any = 7, error: str | None = None, **row: Any) -> Explanation:
    """A rejected application: the positive needs the duration, the negative changes purpose and amount."""
    original = pd.Series(
        {**BASE, "duration": 36, "purpose": "new car", "amount": 9000.0, **row}, name=index, dtype=object
    )
    base = pd.Series(BASE, name=index, dtype=object)
    probabilities = pd.Series({"bad": 0.7, "good": 0.3})
    if error is not None:
        return Explanation(index, original, None, None, base, error=error)
    positive = contrast("positive", base, {"duration": original["duration"]}, "bad")
    negative = contrast("negative", original, {"purpose": "radio/tv", "amount": 5000.0}, "good")
    return Explanation(index, original, "bad", probabilities, base, positive, negative)


def two_levels() -> Explanation:
    """The rejected application in a table whose columns have two levels, of which the second may be empty."""
    names = {"duration": ("loan", "duration"), "purpose": ("loan", "purpose"), "amount": ("loan", "amount")}
    names |= {"age": ("age", "")}
    columns = pd.MultiIndex.from_tuples([names[name] for name in BASE])
    plain = explanation()
    original, base = plain.original.set_axis(columns), plain.base.set_axis(columns)
    positive = contrast("positive", base, {names["duration"]: 36}, "bad")
    negative = contrast("negative", original, {names["purpose"]: "radio/tv", names["age"]: 50}, "good")
    return Explanation(plain.index, original, "bad", plain.probabilities, base, positive, negative)


def explanations(n: int = 3) -> Explanations:
    """A batch with every outcome: found, the base alone, none, out of budget, an error."""
    rows = [explanation(index) for index in range(n)]
    plain = explanation(n)
    at_base = Explanation(
        n,
        plain.original,
        "bad",
        plain.probabilities,
        plain.base,
        contrast("positive", plain.base, {}, "bad"),
        contrast("negative", plain.original, {}, None, Status.NONE_EXISTS),
    )
    out = Explanation(
        n + 1,
        plain.original,
        "bad",
        plain.probabilities,
        plain.base,
        contrast("positive", plain.base, {}, None, Status.OUT_OF_BUDGET),
        contrast("negative", plain.original, {}, None, Status.NOT_FOUND),
    )
    failed = explanation(n + 2, error="The model raised ValueError: no such branch.")
    return Explanations(
        (*rows, at_base, out, failed), {"model": "hand-made", "seed": 0, "seconds": 0.5, "n_queries": 240}
    )


class ThresholdExplainer:
    """Refuses amounts below zero, fails on ages above 90, and explains by a threshold on duration.

    Parameters
    ----------
    kill_after : int, optional
        The process kills itself when it is to explain one row more.
    dead_after : int, optional
        The model does not answer any more after so many rows.
    log : path, optional
        Each explained row's label is appended to this file.
    """

    def __init__(self, kill_after: int | None = None, dead_after: int | None = None, log: Any = None) -> None:
        self.kill_after, self.dead_after, self.log = kill_after, dead_after, log
        self.n_explained = 0

    def check(self, frame: pd.DataFrame) -> pd.DataFrame:
        bad = frame["amount"] < 0
        if bad.any():
            raise DataError(f"Column 'amount', row {frame.index[bad][0]}: below zero; correct it.")
        return frame

    def explain(self, frame: pd.DataFrame) -> Explanations:
        rows = []
        for label, row in zip(frame.index, frame.to_dict("records"), strict=True):
            if self.n_explained == self.kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
            self.n_explained += 1
            if self.log:
                with open(self.log, "a") as stream:
                    stream.write(f"{label}\n")
            rows.append(explanation(label, "The model raised: too old." if self._fails(row) else None, **row))
        return Explanations(tuple(rows))

    def _fails(self, row: dict[str, Any]) -> bool:
        return row["age"] > 90 or (self.dead_after is not None and self.n_explained > self.dead_after)

    def probe(self) -> None:
        if self.dead_after is not None and self.n_explained > self.dead_after:
            raise OracleError("no connection to http://localhost:1.")


def rows(n: int) -> pd.DataFrame:
    """Rows that a `ThresholdExplainer` takes."""
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "duration": generator.integers(4, 72, n),
            "purpose": generator.choice(["radio/tv", "new car", 'a "quoted", one', ""], n),
            "amount": np.round(generator.uniform(200, 9000, n), 2),
            "age": generator.integers(18, 75, n),
        }
    )
