"""A report of a batch: one HTML file that opens from disk, needs no network, and works without JavaScript."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from macem.errors import MacemError
from macem.reasons import named, readable, undirected
from macem.result_files import atomically
from macem.results import Contrast, Explanation, Explanations

__all__ = ["render", "write_report"]

MOST_VALUES = 60  # columns up to which a row's page lists all its values
MOST_FREQUENT = 15

# Around a text of the user's inside a line of ours; the template's filter makes tags of them.
_START, _END = "\u2068", "\u2069"
_TAGS = {ord(_START): "<bdi>", ord(_END): "</bdi>"}


def write_report(explanations: Explanations, path: str | Path, **options: Any) -> Path:
    """Write the report of a batch.

    Parameters
    ----------
    explanations : Explanations
    path : path
        Of the HTML file.
    **options
        As :func:`render` takes them.

    Returns
    -------
    Path
        The file.
    """
    path = Path(path)
    with atomically(path) as temporary:
        temporary.write_text(render(explanations, **options), encoding="utf-8")
    return path


def render(
    explanations: Explanations,
    *,
    title: str | None = None,
    templates: Mapping[str, str] | None = None,
    names: Mapping[Any, str] | None = None,
    labels: Mapping[Any, str] | None = None,
) -> str:
    """The report of a batch, as HTML.

    Parameters
    ----------
    explanations : Explanations
    title : str, optional
    templates, names, labels : dict, optional
        Sentences, words for features and words for classes, as
        :meth:`macem.results.Explanation.reason` takes them.

    Returns
    -------
    str
        Every value in it is escaped.
    """
    try:
        from jinja2 import Environment, PackageLoader
        from markupsafe import escape
    except ImportError as error:
        raise MacemError('The report needs Jinja2; install it with: pip install "macem[plot]"') from error
    environment = Environment(
        loader=PackageLoader("macem"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: undirected(value) if type(value) is str else value,
    )
    environment.filters["isolated"] = lambda text: escape(text).translate(_TAGS)
    names, labels = names or {}, labels or {}
    words = {"templates": templates, "names": names, "labels": labels}
    summary = explanations.summary()
    counts = explanations.provenance.get("counts", {})  # of a whole batch, of which these may be the first rows
    predictions = Counter(_label(row, labels) for row in explanations if row.error is None)
    return environment.get_template("report.html").render(
        title=title or "Contrastive explanations",
        rows=[_row(explanation, words) for explanation in explanations],
        n_left_out=max(0, counts.get("explained", 0) - len(explanations)),
        n_errors=sum(row.error is not None for row in explanations) + counts.get("errors", 0),
        classes=sorted(predictions.items()),
        kinds=[_kind(kind, summary[summary["kind"] == kind]) for kind in ("positive", "negative")],
        frequencies=_frequencies(explanations, names),
        n_queries=int(summary["n_queries"].sum()),
        provenance=[(name, _text(value)) for name, value in explanations.provenance.items()],
    )


def _label(one: Explanation | Contrast, labels: Mapping[Any, str]) -> str:
    return labels.get(one.prediction, readable(one.prediction))


def _isolated(text: str) -> str:
    """A text of the user's whose direction is its own: Hebrew before a number would take it to its other side."""
    return f"{_START}{undirected(text)}{_END}"


def _row(explanation: Explanation, words: Mapping[str, Any]) -> dict[str, Any]:
    names, labels = words["names"], words["labels"]
    found = [contrast for contrast in explanation.contrasts if contrast.found]
    few = len(explanation.original) <= MOST_VALUES
    return {
        "index": explanation.index,
        "error": explanation.error,
        "prediction": "" if explanation.error is not None else _label(explanation, labels),
        "probability": "" if explanation.probability is None else f"{explanation.probability:.2f}",
        "reason": explanation._reason(words["templates"], names, labels, _isolated),
        "positive": _short(explanation, explanation.positive, words),
        "negative": _short(explanation, explanation.negative, words),
        "found": [contrast.kind for contrast in found],
        "changes": [_cells(name, explanation, found, names) for name in explanation._changed()],
        "outcomes": [_outcome(contrast, labels) for contrast in explanation.contrasts],
        "all_values": _pairs(explanation.original.items(), names) if few else "",
    }


def _cells(
    name: Any, explanation: Explanation, found: list[Contrast], names: Mapping[Any, str]
) -> list[dict[str, Any]]:
    """A line of a row's table: the feature, its base value, the row's, and that of each contrast found."""
    cells: list[dict[str, Any]] = [
        {"text": text}
        for text in (named(name, names), readable(explanation.base[name]), readable(explanation.original[name]))
    ]
    for contrast in found:
        value = contrast.values[name] if contrast.values is not None else None
        cells.append({"text": readable(value), "kind": contrast.kind, "changed": name in contrast.changes})
    return cells


def _short(explanation: Explanation, contrast: Contrast | None, words: Mapping[str, Any]) -> str:
    """A contrast in a cell of the list."""
    if contrast is None:
        return ""
    if explanation._is_there(contrast):
        return f"{_isolated(words['labels'].get(contrast.target, readable(contrast.target)))} already"
    if not contrast.found:
        return str(contrast.status)
    if not contrast.changes:
        return "the base values alone"
    return _pairs(((name, contrast.changes[name][1]) for name in contrast.ranked), words["names"])


def _pairs(cells: Iterable[tuple[Any, Any]], names: Mapping[Any, str]) -> str:
    """Names and values in one line."""
    return "; ".join(f"{_isolated(named(name, names))}: {_isolated(readable(value))}" for name, value in cells)


def _outcome(contrast: Contrast, labels: Mapping[Any, str]) -> str:
    parts = [f"{contrast.kind}: {contrast.status}"]
    if contrast.found and contrast.probabilities is not None:
        probability = contrast.probabilities[contrast.prediction]
        parts.append(f"leads to {_isolated(_label(contrast, labels))} with probability {probability:.2f}")
    if contrast.distance is not None:
        parts.append(f"distance {contrast.distance:.3g}")
    if contrast.lower_bound is not None:
        parts.append(f"proved that none is nearer than {contrast.lower_bound:.3g}")
    parts.append(f"{contrast.n_queries:,} model calls")
    return ", ".join(parts)


def _kind(kind: str, lines: Any) -> dict[str, Any]:
    found = lines[lines["status"] == "found"]
    changed = f"{float(found['n_changed'].mean()):.1f}" if len(found) else None
    return {"kind": kind, "asked": len(lines), "found": len(found), "changed": changed}


def _frequencies(explanations: Explanations, names: Mapping[Any, str]) -> list[dict[str, Any]]:
    """The features that most rows need or change, with the share of rows."""
    changes = explanations.to_frame()
    shares = {kind: changes.loc[changes["kind"] == kind, "feature"].value_counts() for kind in ("positive", "negative")}
    most = changes["feature"].value_counts().index[:MOST_FREQUENT]
    n = max(sum(row.error is None for row in explanations), 1)
    return [
        {"feature": named(name, names), **{kind: float(counts.get(name, 0)) / n for kind, counts in shares.items()}}
        for name in most
    ]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(inner)}" for name, inner in value.items()) or "none"
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
