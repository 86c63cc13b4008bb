"""Results: what was found for each row, as plain data that outlives the explainer and the model."""

from __future__ import annotations

import html
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, overload

import pandas as pd

from macem.errors import OptionError
from macem.lazy import cells_of, lazy, rows_of, shows_as_series
from macem.reasons import is_missing, listed, named, readable, readable_pair, sentence, undirected

__all__ = ["Contrast", "Explanation", "Explanations", "Status", "cells_of", "rows_of"]

SHOWN_ROWS = 20
ARROW = " → "


class Status(StrEnum):
    """How the search for a contrast ended.

    Attributes
    ----------
    FOUND : "found"
        There is an example.
    NOT_FOUND : "not found"
        The whole search ran and found none.
    OUT_OF_BUDGET : "out of budget"
        A limit (queries or time) ended the search first.
    NONE_EXISTS : "none exists"
        It is proved that there is none.
    """

    FOUND = "found"
    NOT_FOUND = "not found"
    OUT_OF_BUDGET = "out of budget"
    NONE_EXISTS = "none exists"


@shows_as_series("values", "importance", "sensitivity", "probabilities", "reference")
@dataclass(frozen=True, eq=False, repr=False)
class Contrast:
    """A pertinent positive or a pertinent negative of one row.

    Attributes
    ----------
    kind : {"positive", "negative"}
    status : Status
    values : Series or None
        The example itself, with the names and the index label of the row; None unless found.
    changes : dict
        ``{feature: (from, to)}``. A positive tells what the class needs, from the base to the example; a negative what
        would change the class, from the row to the example.
    importance : Series
        Distance moved per feature, in standard deviations; a category counts by its step in the encoding.
    sensitivity : Series
        Per feature, the largest change in the probability of the example's class that moving this feature alone,
        within its range (and to the row's own value), can cause; over numbers that float32 can hold, as examples are,
        and on tables of several trees over the 4096 most frequent levels.
    prediction : label or None
        Class of the example, by the model's own ``predict``.
    probabilities : Series or None
        Class probabilities of the example, by the user's own model.
    distance : float or None
        Elastic-net distance from `reference` in scaled units.
    n_changed : int or None
    n_queries : int
        How often the model was asked for this contrast.
    lower_bound : float or None
        A proved bound below which no example can lie, where one is known.
    reference : Series
        What the changes are measured from: the row for a negative, the base for a positive.
    target : label or None
        The class that a negative was to reach; None for any other than the row's.
    """

    kind: str
    status: Status
    values: pd.Series | None
    changes: Mapping[Any, tuple[Any, Any]]
    importance: pd.Series
    sensitivity: pd.Series
    prediction: Any
    probabilities: pd.Series | None
    distance: float | None
    n_changed: int | None
    n_queries: int
    lower_bound: float | None
    reference: pd.Series
    target: Any = None

    @property
    def found(self) -> bool:
        """Whether there is an example."""
        return self.status is Status.FOUND

    @lazy
    def ranked(self) -> list[Any]:
        """The changed features, the most important first."""
        importance, sensitivity = cells_of(self, "importance"), cells_of(self, "sensitivity")
        return sorted(
            self.changes,
            key=lambda name: (_number(importance.get(name)), _number(sensitivity.get(name))),
            reverse=True,
        )

    def __repr__(self) -> str:
        return f"<Contrast {self.kind}: {self._words()}>"

    def _words(self) -> str:
        """The changes in one line, or the status."""
        if not self.found:
            return str(self.status)
        if not self.changes:
            return "base values alone"
        pairs = [(name, readable_pair(*self.changes[name])) for name in self.ranked]
        return "; ".join(f"{named(name)} {start}{ARROW}{end}" for name, (start, end) in pairs)


@shows_as_series("original", "probabilities", "base")
@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """What was found for one row.

    Attributes
    ----------
    index : label
        The row's label in the table that was explained.
    original : Series
        The row as it was given.
    prediction : label
        Class of the row, by the model's own ``predict``.
    probabilities : Series
        Class probabilities of the row.
    base : Series
        The base values of this row (a missing cell or a special code stays as it is).
    positive, negative : Contrast or None
        None where the kind was not asked for, or where the row has an `error`.
    error : str or None
        Why the row could not be explained.
    """

    index: Any
    original: pd.Series
    prediction: Any
    probabilities: pd.Series | None
    base: pd.Series
    positive: Contrast | None = None
    negative: Contrast | None = None
    error: str | None = None

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """The contrasts that were asked for, the positive first."""
        return tuple(contrast for contrast in (self.positive, self.negative) if contrast is not None)

    @property
    def probability(self) -> float | None:
        """Probability of the predicted class."""
        probability = cells_of(self, "probabilities").get(self.prediction)
        return None if probability is None else float(probability)

    def reason(
        self,
        templates: Mapping[str, str] | None = None,
        *,
        names: Mapping[Any, str] | None = None,
        labels: Mapping[Any, str] | None = None,
    ) -> str:
        """The reason for the decision in plain English: what sufficed, and what would have changed it.

        Parameters
        ----------
        templates : dict, optional
            Sentences that replace those of ``macem.reasons.TEMPLATES``, by name.
        names : dict, optional
            Words for features, ``{"duration": "the term in months"}``.
        labels : dict, optional
            Words for classes, ``{"bad": "refused"}``.

        Raises
        ------
        OptionError
            If a template has an unknown name or field, or if there are words for an unknown feature or class.
        """
        return self._reason(templates, names, labels, str)

    def _reason(
        self,
        templates: Mapping[str, str] | None,
        names: Mapping[Any, str] | None,
        labels: Mapping[Any, str] | None,
        shown: Callable[[str], str],
    ) -> str:
        """The reason, with names, cells and classes as `shown` gives them back."""
        names, labels = names or {}, labels or {}
        _refuse_unknown("names", names, cells_of(self, "original"), "feature")
        if classes := cells_of(self, "probabilities"):
            _refuse_unknown("labels", labels, classes, "class of the model")

        def label(value: Any) -> str:
            return shown(labels.get(value, readable(value)))

        if self.error is not None:
            return sentence(templates, "error", error=shown(self.error))
        probability = "unknown" if self.probability is None else f"{self.probability:.2f}"
        sentences = [sentence(templates, "decision", prediction=label(self.prediction), probability=probability)]
        for contrast in self.contrasts:
            changes = []
            for name in contrast.ranked:
                start, end = _quoted_pair(*contrast.changes[name])
                words = {"feature": shown(named(name, names)), "from": shown(start), "to": shown(end)}
                changes.append(sentence(templates, f"{contrast.kind}_change", **words))
            outcome = "base" if contrast.kind == "positive" and contrast.found and not changes else contrast.status.name
            if self._is_there(contrast):
                outcome = "there"
            sentences.append(
                sentence(
                    templates,
                    f"{contrast.kind}_{outcome.lower()}",
                    prediction=label(self.prediction),
                    contrast=label(contrast.prediction),
                    changes=listed(changes),
                    target="another decision" if contrast.target is None else label(contrast.target),
                )
            )
        return " ".join(sentences)

    def __repr__(self) -> str:
        outcome = self.error or ", ".join(f"{contrast.kind} {contrast.status}" for contrast in self.contrasts)
        return f"<Explanation of row {self.index}: {self._decision}; {outcome}>"

    def __str__(self) -> str:
        lines = [self._headline(), *_columns(self._table(), indent=2)]
        lines += [f"  {contrast.kind}: {self._outcome(contrast)}" for contrast in self.contrasts]
        lines += [f"  {_printable(self.error)}"] if self.error is not None else []
        return _fit(lines)

    def _repr_html_(self) -> str:
        table = _html_table(self._table())
        return f"<div><p><b>{_html(self._headline())}</b></p>{table}<p>{_html(self.reason())}</p></div>"

    @property
    def _decision(self) -> str:
        """The predicted class in words; a row that could not be explained has none."""
        return readable(self.prediction) if self.error is None else "not explained"

    def _headline(self) -> str:
        probability = "" if self.probability is None else f" (probability {self.probability:.2f})"
        return f"row {self.index}: {self._decision}{probability}"

    def _is_there(self, contrast: Contrast) -> bool:
        """Whether the row is in the class that the contrast was to reach."""
        return contrast.target is not None and bool(contrast.target == self.prediction)

    def _unchanged(self, contrast: Contrast) -> str:
        """Why a contrast changes nothing."""
        if contrast.found:
            return "no feature is needed: the base values alone keep the class"
        return f"{readable(contrast.target)} already" if self._is_there(contrast) else str(contrast.status)

    def _outcome(self, contrast: Contrast) -> str:
        """How the search for a contrast ended, what it reached, and what it took."""
        reached = f"{readable(contrast.prediction)} with {contrast.n_changed} changed"
        parts = [reached if contrast.changes else self._unchanged(contrast)]
        if contrast.distance is not None:
            parts.append(f"distance {contrast.distance:.3g}")
        if contrast.lower_bound is not None:
            parts.append(f"none below {contrast.lower_bound:.3g}")
        parts.append(f"{contrast.n_queries:,} model calls")
        return ", ".join(parts)

    def _changed(self) -> list[Any]:
        """The features that a contrast changes: first the positive's, the most important first."""
        return list(dict.fromkeys(name for contrast in self.contrasts for name in contrast.ranked))

    def _table(self) -> list[list[str]]:
        """A header, and a line for each changed feature: its base, the row, the contrasts."""
        examples = {contrast.kind: contrast.values for contrast in self.contrasts if contrast.values is not None}
        columns = [self.base, self.original, *examples.values()]
        lines = ([named(name), *(readable(column[name]) for column in columns)] for name in self._changed())
        return [["feature", "base", "row", *examples], *lines]


@dataclass(frozen=True, eq=False, repr=False)
class Explanations(Sequence[Explanation]):
    """The explanations of a table of rows, in its order.

    Attributes
    ----------
    rows : sequence of Explanation
    provenance : dict
        What they came from: model, versions, options, seed, seconds, number of model calls, background fingerprint.
    """

    rows: Sequence[Explanation] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self.rows)

    @overload
    def __getitem__(self, item: int) -> Explanation: ...
    @overload
    def __getitem__(self, item: slice) -> Explanations: ...
    def __getitem__(self, item: int | slice) -> Explanation | Explanations:
        if isinstance(item, slice):
            return Explanations(self.rows[item], self.provenance)
        return self.rows[item]

    def to_frame(self) -> pd.DataFrame:
        """One line per row, kind and changed feature, the most important first.

        Returns
        -------
        DataFrame
            Columns ``row, kind, status, feature, from, to, importance, sensitivity, prediction, contrast_prediction``.
            A contrast that changes nothing (or was not found) has no line here; it has one in :meth:`summary`.
        """
        lines = []
        for explanation in self:
            for contrast in explanation.contrasts:
                importance, sensitivity = cells_of(contrast, "importance"), cells_of(contrast, "sensitivity")
                lines += [
                    (
                        explanation.index,
                        contrast.kind,
                        contrast.status.value,
                        name,
                        *contrast.changes[name],
                        _number(importance.get(name)),
                        _number(sensitivity.get(name)),
                        explanation.prediction,
                        contrast.prediction,
                    )
                    for name in contrast.ranked
                ]
        return _frame(
            lines,
            row=None,
            kind=object,
            status=object,
            feature=object,
            # Values of many columns: inference would turn whole numbers beside a fraction into floats.
            **{"from": object, "to": object},
            importance=float,
            sensitivity=float,
            prediction=None,
            contrast_prediction=None,
        )

    def summary(self) -> pd.DataFrame:
        """One line per row and kind.

        Returns
        -------
        DataFrame
            Columns ``row, kind, status, prediction, contrast_prediction, distance, n_changed, changed, n_queries,
            lower_bound, error``; `changed` names the changed features, the most important first. A row with an
            error has one line, without a kind.
        """
        lines: list[tuple[Any, ...]] = []
        for explanation in self:
            row, prediction = explanation.index, explanation.prediction
            if explanation.error is not None:
                lines.append((row, None, None, prediction, None, None, None, "", 0, None, explanation.error))
            for contrast in explanation.contrasts:
                changed = ", ".join(map(named, contrast.ranked))
                lines.append(
                    (
                        row,
                        contrast.kind,
                        contrast.status.value,
                        prediction,
                        contrast.prediction,
                        contrast.distance,
                        contrast.n_changed,
                        changed,
                        contrast.n_queries,
                        contrast.lower_bound,
                        explanation.error,
                    )
                )
        return _frame(
            lines,
            row=None,
            kind=object,
            status=object,
            prediction=None,
            contrast_prediction=object,
            distance=float,
            n_changed="Int64",
            changed=object,
            n_queries=int,
            lower_bound=float,
            error=object,
        )

    def __repr__(self) -> str:
        return f"<Explanations: {self._headline()}>"

    def __str__(self) -> str:
        lines = [self._headline(), *_columns(self._table())]
        if len(self) > SHOWN_ROWS:
            lines.append(f"… and {len(self) - SHOWN_ROWS:,} more rows; .summary() has them all")
        return _fit(lines)

    def _repr_html_(self) -> str:
        more = f"<p>… and {len(self) - SHOWN_ROWS:,} more rows</p>" if len(self) > SHOWN_ROWS else ""
        return f"<div><p><b>{html.escape(self._headline())}</b></p>{_html_table(self._table())}{more}</div>"

    def _headline(self) -> str:
        parts = [f"{len(self):,} row{'' if len(self) == 1 else 's'}"]
        for kind in ("positive", "negative"):
            asked = [contrast for row in self for contrast in row.contrasts if contrast.kind == kind]
            if asked:
                parts.append(f"{kind} found for {sum(contrast.found for contrast in asked):,} of {len(asked):,}")
        errors = sum(row.error is not None for row in self)
        if errors:
            parts.append(f"{errors:,} with an error")
        return ", ".join(parts)

    def _table(self) -> list[list[str]]:
        """A header, and a line for each of the first rows and kinds."""
        table = [["row", "prediction", "kind", "leads to", "changes"]]
        for explanation in self.rows[:SHOWN_ROWS]:
            start = [str(explanation.index), explanation._decision]
            if explanation.error is not None:
                table.append([*start, "", "", explanation.error])
            for contrast in explanation.contrasts:
                leads_to = readable(contrast.prediction) if contrast.found else ""
                words = contrast._words() if contrast.found else explanation._unchanged(contrast)
                table.append([*start, contrast.kind, leads_to, words])
                start = ["", ""]
        return table


def _refuse_unknown(what: str, words: Mapping[Any, str], known: Mapping[Any, Any], kind: str) -> None:
    """Refuse words for what the explanation does not have, which would change nothing."""
    for name in words:
        if name not in known:
            raise OptionError(f"{what} holds {name!r}, which is no {kind}; choose among {list(known)}.")


def _number(value: Any) -> float:
    return 0.0 if value is None or is_missing(value) else float(value)


def _frame(lines: Sequence[tuple[Any, ...]], **dtypes: Any) -> pd.DataFrame:
    """A frame of these lines; None leaves a dtype to pandas, but for an empty frame."""
    # A column at a time: labels that are tuples must stay labels, and an empty batch keeps its columns.
    columns = {
        name: pd.Series([line[position] for line in lines], dtype=dtype if lines else dtype or object)
        for position, (name, dtype) in enumerate(dtypes.items())
    }
    return pd.DataFrame(columns)


def _quoted_pair(start: Any, end: Any) -> tuple[str, str]:
    """Two cells for a sentence: texts in quotation marks, so that "none" or an empty text can be told from prose."""
    first, second = readable_pair(start, end)
    return (
        f'"{start}"' if isinstance(start, str) else first,
        f'"{end}"' if isinstance(end, str) else second,
    )


def _fit(lines: Sequence[str]) -> str:
    """Lines cut to the width of the terminal."""
    width = shutil.get_terminal_size((100, 24)).columns
    return "\n".join(line if len(line) <= width else line[: width - 1] + "…" for line in lines)


def _columns(table: Sequence[Sequence[str]], indent: int = 0, limit: int = 28) -> list[str]:
    """Lay a table out in columns, of which all but the last are cut to a limit; nothing of a header alone."""
    if len(table) == 1:
        return []
    clean = [[_printable(cell) for cell in line] for line in table]
    cut = [[c if len(c) <= limit else c[: limit - 1] + "…" for c in line[:-1]] + [line[-1]] for line in clean]
    widths = [max(len(line[column]) for line in cut) for column in range(len(cut[0]))]
    return [
        " " * indent + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cut
    ]


def _printable(text: str) -> str:
    """On one line, and without characters that would steer a terminal."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def _html(text: str) -> str:
    return html.escape(undirected(text))


def _html_table(table: Sequence[Sequence[str]]) -> str:
    """A bare table, every cell escaped; nothing of a header alone."""
    header, *cells = table
    if not cells:
        return ""
    left = ' style="text-align:left"'  # a notebook would align cells to the right
    head = "".join(f"<th{left}>{html.escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td{left}>{_html(cell)}</td>" for cell in line) + "</tr>" for line in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
