"""Pictures of explanations: axes in, axes out; matplotlib is imported when the first is drawn.

Colours are from Okabe and Ito's palette, and every mark also has a shape of its own. Long names are wrapped.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from macem.errors import MacemError, OptionError
from macem.reasons import is_missing, named, readable, readable_pair
from macem.results import Contrast, Explanation, Explanations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from macem.explainer import Explainer
    from macem.features import Features

__all__ = [
    "plot_application",
    "plot_batch",
    "plot_explanation",
    "plot_frequency_map",
    "plot_profile",
    "plot_tree_path",
    "tree_path",
]

BASE, ROW, POSITIVE, NEGATIVE = "#8C8C8C", "#000000", "#0072B2", "#D55E00"
COLOURS = {"positive": POSITIVE, "negative": NEGATIVE}
CLASS_COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#999999")
# Seven, where the colours are six: no two of the classes that are shown have the same of both.
HATCHES = ("", "//", "..", "xx", "--", "oo", "\\\\")
LINES = ("-", "--", ":", "-.")
MOST_FEATURES = 12
MOST_CLASSES = 12
MOST_LEVELS = 30
MOST_LABELS = 20


def plot_explanation(explanation: Explanation, ax: Axes | None = None) -> Axes:
    """Draw one explanation: a lane per changed feature with its base value, the row, and both contrasts.

    Each lane has its own scale, from the least to the largest value that it shows; categories stand side by side.

    Parameters
    ----------
    explanation : Explanation
    ax : Axes, optional
        A new figure of slide size by default.

    Returns
    -------
    Axes
    """
    if explanation.error is not None:
        ax = ax if ax is not None else _new_axes(height=3.2)
        _write_error(ax, explanation, 84)
        return ax
    found = [contrast for contrast in explanation.contrasts if contrast.found]
    changed = list(dict.fromkeys(name for contrast in found for name in contrast.ranked))
    shown = changed[:MOST_FEATURES]
    ax = ax if ax is not None else _new_axes(height=2.4 + 0.95 * max(len(shown), 1))
    for lane, name in enumerate(shown):
        _draw_lane(ax, -lane, name, explanation)
    ax.set_xlim(-0.12, 1.12)
    ax.set_ylim(-max(len(shown) - 1, 0) - 0.62, 0.55)
    ax.set_yticks([-lane for lane in range(len(shown))], [_plain(_wrapped(name)) for name in shown])
    ax.set_xticks([])
    _bare(ax, keep=())
    probability = explanation.probability
    _title(ax, _headline(explanation) + (f" (probability {probability:.2f})" if probability is not None else ""))
    hidden = len(changed) - len(shown)
    notes = [f"{contrast.kind}: {_note(contrast)}" for contrast in explanation.contrasts if not contrast.changes]
    notes += [f"and {hidden} more changed features"] if hidden else []
    _legend(ax, explanation, found, notes)
    return ax


def _draw_lane(ax: Axes, y: float, name: Any, explanation: Explanation) -> None:
    marks: list[tuple[Any, str, Any]] = [
        (explanation.base[name], BASE, {"marker": "|", "markersize": 26, "markeredgewidth": 4}),
        (
            explanation.original[name],
            ROW,
            {"marker": "o", "markersize": 17, "fillstyle": "none", "markeredgewidth": 2.2},
        ),
    ]
    arrows = []
    for contrast in explanation.contrasts:
        if contrast.found and name in contrast.changes:
            start, end = contrast.changes[name]
            shape = {"marker": "^" if contrast.kind == "positive" else "D", "markersize": 8.5}
            marks.append((end, COLOURS[contrast.kind], shape))
            arrows.append((start, end, contrast.kind))
    # Categories stand as the contrasts do: a positive between base and row, a negative beyond the row.
    ends = {kind: end for _, end, kind in arrows}
    base, row = marks[0][0], marks[1][0]
    place = _places([base, ends.get("positive", base), row, ends.get("negative", row)])
    ax.plot([0, 1], [y, y], color="#DDDDDD", linewidth=6, solid_capstyle="round", zorder=0)
    for start, end, kind in arrows:
        offset = 0.07 if kind == "positive" else -0.07
        style = {"arrowstyle": "->", "color": COLOURS[kind], "linewidth": 2, "shrinkA": 8, "shrinkB": 5}
        ax.annotate("", (place[_key(end)], y + offset), (place[_key(start)], y + offset), arrowprops=style)
    for value, colour, style in marks:
        ax.plot([place[_key(value)]], [y], color=colour, linestyle="none", zorder=3, **style)
    _label_values(ax, y, {key: readable(key) for key in place}, place)


def _label_values(ax: Axes, y: float, texts: dict[Any, str], place: dict[Any, float]) -> None:
    """Write the values under their marks; where two would touch, the second goes above the lane."""
    last_end = -np.inf
    for key in sorted(place, key=lambda one: place[one]):
        text = _wrapped(texts[key], 20, 2)
        half = 0.0085 * max(len(line) for line in text.split("\n"))
        x = place[key]
        below = x - half > last_end
        if below:
            last_end = x + half
        ax.annotate(
            _plain(text),
            (x, y),
            xytext=(0, -17 if below else 17),
            textcoords="offset points",
            ha="center",
            va="top" if below else "bottom",
            fontsize=11,
        )


def _key(value: Any) -> Any:
    return None if is_missing(value) else value


def _places(values: Sequence[Any]) -> dict[Any, float]:
    """Where each distinct value stands between 0 and 1: numbers to scale, anything else side by side."""
    distinct = list(dict.fromkeys(_key(value) for value in values))
    if all(_is_number(value) for value in distinct):
        low, high = float(min(distinct)), float(max(distinct))
        return {value: (float(value) - low) / (high - low) if high > low else 0.5 for value in distinct}
    if len(distinct) == 1:
        return {distinct[0]: 0.5}
    return {value: position / (len(distinct) - 1) for position, value in enumerate(distinct)}


def _note(contrast: Contrast) -> str:
    return "no feature is needed, the base values keep the class" if contrast.found else str(contrast.status)


def _legend(ax: Axes, explanation: Explanation, found: Sequence[Contrast], notes: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    def handle(colour: str, label: str, **style: Any) -> Line2D:
        return Line2D([], [], color=colour, linestyle="none", label=_plain(_wrapped(label, 34)), **style)

    handles = [
        handle(BASE, "base value", marker="|", markersize=15, markeredgewidth=4),
        handle(ROW, f"the row: {readable(explanation.prediction)}", marker="o", markersize=12, fillstyle="none"),
    ]
    for contrast in found:
        if contrast.changes:
            still = "still " if contrast.kind == "positive" else ""
            label = f"pertinent {contrast.kind}: {still}{readable(contrast.prediction)}"
            marker = "^" if contrast.kind == "positive" else "D"
            handles.append(handle(COLOURS[contrast.kind], label, marker=marker, markersize=9))
    handles += [handle("none", note) for note in notes]
    ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        ncols=2,
        frameon=False,
        fontsize=12.5,
        borderaxespad=0.2,
    )


def plot_application(
    explanation: Explanation, axes: Sequence[Axes] | None = None, n_features: int = 5
) -> Sequence[Axes]:
    """Draw the paper's figure 1: how far the pertinent features of one application lie from their base values.

    The left axes show the pertinent positive, the right axes the pertinent negative. Bars start at the base value; the
    outline is the row, the filled bar the contrast, each feature to its own scale.

    Parameters
    ----------
    explanation : Explanation
    axes : two Axes, optional
    n_features : int
        So many of the most important features, at most.

    Returns
    -------
    sequence of two Axes
    """
    if axes is None:
        axes = _new_figure((13, 5)).subplots(1, 2)
    if explanation.error is not None:
        _write_error(axes[0], explanation, 44)
        axes[1].set_axis_off()
        return axes
    decision = readable(explanation.prediction)
    titles = {"positive": f"Still {decision} with only this", "negative": "What would change it"}
    for ax, (kind, title) in zip(axes, titles.items(), strict=True):
        contrast = getattr(explanation, kind)
        ax.set_xlim(-1.2, 1.2)
        ax.set_yticks([])
        if contrast is None or not contrast.changes:
            _title(ax, title, COLOURS[kind], 46)
            ax.set_axis_off()
            ax.text(
                -1.15, 0.8, textwrap.fill("not asked for" if contrast is None else _note(contrast), 40), fontsize=14
            )
            continue
        if kind == "negative":
            title = f"It would be {readable(contrast.prediction)} with this changed"
        _title(ax, title, COLOURS[kind], 46)
        names = contrast.ranked[:n_features]
        for lane, name in enumerate(names):
            _draw_bar(ax, -lane, name, explanation, contrast)
        ax.axvline(0, color=BASE, linewidth=3, zorder=0)
        ax.set_ylim(-max(len(names), 2) + 0.4, 0.75)
        ax.set_xticks([0], ["base value"])
        ax.legend(
            [
                ax.plot([], [], "s", color=ROW, fillstyle="none", markersize=12, markeredgewidth=1.8)[0],
                ax.plot([], [], "^" if kind == "positive" else "D", color=COLOURS[kind], linewidth=4, ls="-")[0],
            ],
            ["the row", f"pertinent {kind}"],
            frameon=False,
            fontsize=11,
            ncols=2,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.08),
        )
        _bare(ax, keep=("bottom",))
    return axes


def _draw_bar(ax: Axes, y: float, name: Any, explanation: Explanation, contrast: Contrast) -> None:
    assert contrast.values is not None
    values = (explanation.base[name], explanation.original[name], contrast.values[name])
    row, end = _displacements(*values)
    colour, marker = COLOURS[contrast.kind], "^" if contrast.kind == "positive" else "D"
    ax.barh(y, row, 0.34, facecolor="none", edgecolor=ROW, linewidth=1.8)
    ax.barh(y, end, 0.1, color=colour)
    ax.plot([end], [y], marker, color=colour, markeredgecolor="white", markersize=13, zorder=3)
    start, target = readable_pair(values[1], values[2])
    words = f"{start} → {target}" if contrast.kind == "negative" else f"{target} (base {readable(values[0])})"
    words = _plain(f"{_wrapped(name, 32, 1)}: {_wrapped(words, 54, 2)}")
    text = ax.text(-1.18, y + 0.22, words, fontsize=12, va="bottom")
    text.set_in_layout(False)
    text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})  # the base's line ends before the words


def _displacements(base: Any, row: Any, end: Any) -> tuple[float, float]:
    """How far row and contrast lie from the base, the farther being 1; another category than both stands at -1."""
    if _is_number(base) and _is_number(row) and _is_number(end):
        moves = (float(row) - float(base), float(end) - float(base))
        largest = max(abs(move) for move in moves)
        return (moves[0] / largest, moves[1] / largest) if largest > 0 else (0.0, 0.0)
    base, row, end = _key(base), _key(row), _key(end)
    return float(row != base), 0.0 if end == base else 1.0 if end == row else -1.0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and not is_missing(value)


def plot_batch(explanations: Explanations, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draw a batch: which features are pertinent how often, by predicted class, and how far the contrasts lie.

    Parameters
    ----------
    explanations : Explanations
    axes : three Axes, optional
        For the positives, the negatives, and the distances.

    Returns
    -------
    sequence of three Axes
    """
    changes, summary = explanations.to_frame(), explanations.summary()
    summary = summary[summary["kind"].notna()]
    groups = _groups(summary["prediction"].dropna().tolist())
    bars = [min(changes.loc[changes["kind"] == kind, "feature"].nunique(), MOST_FEATURES) for kind in COLOURS]
    n_bars = max(4, *bars)
    if axes is None:
        axes = _new_figure((16, 3.2 + 0.42 * n_bars + 0.25 * len(groups))).subplots(1, 3, width_ratios=(1, 1, 0.85))
    for ax, kind in zip(axes, COLOURS, strict=False):
        rows = summary[summary["kind"] == kind]
        _draw_frequencies(ax, changes[changes["kind"] == kind], rows, groups, n_bars)
        _title(ax, f"Pertinent {kind}s", COLOURS[kind])
        ax.set_xlabel("rows that need the feature, %" if kind == "positive" else "rows that change the feature, %")
    _draw_distances(axes[2], summary)
    return axes


def _groups(predictions: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    """The most frequent classes with their words, in order, and all others as one."""
    classes = sorted(set(predictions), key=str)
    frequent = [label for label, _ in Counter(predictions).most_common(MOST_CLASSES)]
    others = [label for label in classes if label not in frequent]
    groups = [(readable(label), [label]) for label in classes if label in frequent]
    return [*groups, (f"{len(others)} other class{'' if len(others) == 1 else 'es'}", others)] if others else groups


def _draw_frequencies(
    ax: Axes,
    changes: pd.DataFrame,
    rows: pd.DataFrame,
    groups: Sequence[tuple[str, Sequence[Any]]],
    n_bars: int,
) -> None:
    counts = changes["feature"].value_counts(sort=True)
    names = list(counts.index[:MOST_FEATURES])
    left = np.zeros(len(names))
    bars = []
    for position, (_, labels) in enumerate(groups):
        per_feature = changes.loc[changes["prediction"].isin(labels), "feature"].value_counts()
        share = np.array([per_feature.get(name, 0) for name in names]) / max(len(rows), 1) * 100
        bar = ax.barh(range(len(names)), share, left=left, edgecolor="white", **_filling(position))
        bars.append(bar)
        left += share
    ax.set_yticks(range(len(names)), [_plain(_wrapped(name)) for name in names])
    # Room for the legend under the bars, since the shortest of them may be long.
    ax.set_ylim(n_bars - 0.4 + 0.6 * (len(groups) + 1), -0.6)
    if names:
        # Given by hand: of labels that artists carry, matplotlib leaves out those that begin with an underscore.
        labels = [_plain(_wrapped(words, 32, 2)) for words, _ in groups]
        ax.legend(
            bars, labels, title="predicted class", frameon=False, fontsize=12, title_fontsize=12, loc="lower right"
        )
    else:
        ax.text(0.5, 0.5, "no feature is changed", ha="center", va="center", transform=ax.transAxes, fontsize=13)
    _bare(ax)


def _filling(position: int) -> dict[str, Any]:
    """Colour and hatch of a class."""
    return {"color": CLASS_COLOURS[position % len(CLASS_COLOURS)], "hatch": HATCHES[position % len(HATCHES)]}


def _draw_distances(ax: Axes, summary: pd.DataFrame) -> None:
    for kind, colour in COLOURS.items():
        distances = np.sort(
            summary.loc[(summary["kind"] == kind) & (summary["status"] == "found"), "distance"].to_numpy(float)
        )
        asked = int((summary["kind"] == kind).sum())
        if len(distances):
            share = np.arange(len(distances) + 1) / asked * 100
            style = "-" if kind == "positive" else "--"
            ax.step(
                [0, *distances],
                share,
                where="post",
                color=colour,
                linestyle=style,
                linewidth=2.5,
                label=f"pertinent {kind}s",
            )
    ax.set_ylim(0, 102)
    ax.set_xlim(left=0)
    ax.set_xlabel("distance, at most")
    ax.set_ylabel("rows, %")
    _title(ax, "How far")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(edgecolor="none", framealpha=0.9, fontsize=12, loc="lower right")
    _bare(ax)


def plot_profile(
    explainer: Explainer,
    row: Any,
    feature: Any,
    ax: Axes | None = None,
    *,
    explanation: Explanation | None = None,
    n_points: int = 201,
) -> Axes:
    """Draw the class probabilities along one feature, all others held, with base, row and contrasts marked.

    A contrast that changes other features too has another probability than the curve at its value; the legend says so.

    Parameters
    ----------
    explainer : Explainer
    row : table of one row
    feature : name
    ax : Axes, optional
    explanation : Explanation, optional
        Of this row; it is made if it is not given.
    n_points : int
        Points at which the model is asked, for a number. Of a categorical feature, at most 30 categories are asked:
        those of base, row and contrasts, and the most frequent. At most 12 classes are drawn. The legend says how many
        are left out.

    Returns
    -------
    Axes

    Raises
    ------
    OptionError
        If there is no such feature.
    """
    features = explainer.features
    at = features.position(feature)
    frame = features.check(row)
    if len(frame) != 1:
        raise OptionError(f"row holds {len(frame)} rows; give the one to draw.")
    explanation = explanation if explanation is not None else explainer.explain(frame)[0]
    name = features.names[at]
    shown = [explanation.original[name], explanation.base[name]]
    shown += [contrast.values[name] for contrast in explanation.contrasts if contrast.values is not None]
    numbers = features.numbers(frame)[0]
    levels, counts = features.levels[at], features.counts[at]
    left_out = []
    if levels is None or counts is None:
        finite = [float(value) for value in shown if not is_missing(value)]
        low, high = min([features.low[at], *finite]), max([features.high[at], *finite])
        grid = np.unique(np.concatenate([np.linspace(low, high, n_points), finite]))
        if features.decimals[at] >= 0:
            grid = np.unique(np.round(grid, int(features.decimals[at])))
    else:
        numbered = {level: number for number, level in enumerate(levels)}
        marked = [numbered[value] for value in shown if value in numbered]
        frequent = np.argsort(-counts, kind="stable").tolist()
        kept = sorted(list(dict.fromkeys([*marked, *frequent]))[:MOST_LEVELS])
        if len(kept) < len(levels):
            left_out.append(f"{len(levels) - len(kept):,} more categories")
        grid, levels = np.array(kept, dtype=float), levels[kept]
    table = np.repeat(numbers[None, :], len(grid), axis=0)
    table[:, at] = grid
    like = frame.iloc[np.zeros(len(grid), dtype=int)]
    probabilities = explainer.oracle.predict_proba(features.model_table(features.frame(table, like)))
    ax = ax if ax is not None else _new_axes(height=5.2)
    classes = explainer.oracle.classes
    reached = [explanation.prediction, *(contrast.prediction for contrast in explanation.contrasts)]
    first = [position for position, label in enumerate(classes) if label in reached]
    likely = np.argsort(-probabilities.max(axis=0), kind="stable").tolist()
    drawn = sorted(list(dict.fromkeys([*first, *likely]))[:MOST_CLASSES])
    if len(drawn) < len(classes):
        highest = np.delete(probabilities, drawn, axis=1).max()
        left_out.append(f"{len(classes) - len(drawn):,} more classes, {highest:.2f} at most")
    at_x = grid if levels is None else np.arange(len(grid))
    texts = None if levels is None else [readable(level) for level in levels]
    _draw_profile(ax, at_x, probabilities[:, drawn], [classes[position] for position in drawn], texts)
    _mark_profile(ax, explanation, name, levels)
    ax.set_xlabel(_plain(_wrapped(name, 60, 2)))
    ax.set_ylabel("probability")
    ax.set_ylim(-0.02, 1.02)
    _title(ax, f"{_headline(explanation)}, along {_wrapped(name, 40, 1)}")
    handles, labels = ax.get_legend_handles_labels()
    handles += [ax.plot([], [], linestyle="none")[0] for _ in left_out]
    ax.legend(handles, labels + left_out, frameon=False, fontsize=11, loc="upper left", bbox_to_anchor=(1.01, 1))
    _bare(ax)
    return ax


def _draw_profile(ax: Axes, grid: Any, probabilities: Any, classes: Sequence[Any], texts: Sequence[str] | None) -> None:
    for position, label in enumerate(classes):
        legend = _plain(_wrapped(f"probability of {readable(label)}", 34))
        if texts is None:
            ax.step(
                grid,
                probabilities[:, position],
                where="mid",
                color=CLASS_COLOURS[position % len(CLASS_COLOURS)],
                linewidth=2.5,
                linestyle=LINES[position % len(LINES)],
                label=legend,
            )
        else:
            width = 0.8 / len(classes)
            ax.bar(
                grid + (position - (len(classes) - 1) / 2) * width,
                probabilities[:, position],
                width,
                edgecolor="white",
                label=legend,
                **_filling(position),
            )
    if texts is not None:
        long = len(texts) > 4 or max(map(len, texts)) > 14
        ax.set_xticks(
            grid,
            [_plain(_wrapped(text, 22, 2)) for text in texts],
            rotation=(90 if len(texts) > 12 else 30) if long else 0,
            ha="center" if len(texts) > 12 or not long else "right",
        )


def _mark_profile(ax: Axes, explanation: Explanation, name: Any, levels: Any) -> None:
    """Mark the base, the row and the contrasts on the axis of the feature."""
    order = None if levels is None else {level: position for position, level in enumerate(levels)}
    base, row = explanation.base[name], explanation.original[name]
    marks = [
        (_wrapped(f"base value: {readable(base)}", 34), base, BASE, "|", 22),
        (_wrapped(f"the row: {readable(row)}", 34), row, ROW, "o", 15),
    ]
    for contrast in explanation.contrasts:
        if contrast.values is not None:
            marker = "^" if contrast.kind == "positive" else "D"
            value = contrast.values[name]
            pairs = [(explanation.original[other], contrast.values[other]) for other in contrast.values.index]
            moved = sum(_key(own) != _key(end) for own, end in pairs) - (
                _key(explanation.original[name]) != _key(value)
            )
            label = _wrapped(f"pertinent {contrast.kind}: {readable(value)}", 34)
            label += f"\n(moves {moved} more)" if moved else ""
            marks.append((label, value, COLOURS[contrast.kind], marker, 9))
    for label, value, colour, marker, size in marks:
        x = None if is_missing(value) else float(value) if order is None else order.get(value)
        if x is not None:
            ax.plot(
                [x],
                [0.0],
                color=colour,
                linestyle="none",
                marker=marker,
                markersize=size,
                markeredgewidth=3 if marker == "|" else 2,
                fillstyle="none" if marker == "o" else "full",
                label=_plain(label),
                clip_on=False,
                zorder=4,
            )
            if levels is None:
                ax.axvline(x, color=colour, linewidth=1, linestyle=":", zorder=0)


def plot_frequency_map(features: Features, feature: Any, ax: Axes | None = None) -> Axes:
    """Draw the paper's figure 2: where FMA puts the categories of a feature, and the range that maps back to each.

    Parameters
    ----------
    features : Features
        ``explainer.features``.
    feature : name
        A categorical feature.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    OptionError
        If the feature is unknown or not categorical.
    """
    from macem.strategies.encodings import FrequencyMap

    at = features.position(feature)
    levels, counts = features.levels[at], features.counts[at]
    if levels is None or counts is None:
        raise OptionError(f"{feature!r} is numeric; choose a categorical feature, whose categories have frequencies.")
    plan = FrequencyMap().fit(features).plan
    place = plan.level["place"][plan.feature["first_level"][at] : plan.feature["first_level"][at + 1]]
    order = np.argsort(place)
    bounds = np.concatenate(
        [[place[order[0]]], (place[order][1:] + place[order][:-1]) / 2, [max(1.0, place[order[-1]])]]
    )
    ax = ax if ax is not None else _new_axes(height=5.6)
    for position, level in enumerate(order):
        start, end = bounds[position], bounds[position + 1]
        known = "h(·): what maps back to the category" if position == 0 else None
        ax.plot([start, end], [counts[level]] * 2, color="#CC3311", linewidth=3.5, solid_capstyle="butt", label=known)
        ax.plot([place[level]], [counts[level]], "o", color=ROW, markersize=8, zorder=3)
    texts = [f"{_wrapped(readable(levels[level]), 26, 1)} ({counts[level]:,})" for level in order]
    n_labels = _label_points(ax, place[order], counts[order] / (counts.max() * 1.16), texts)
    ax.set_xlim(-0.03, 1.03)
    ax.set_ylim(0, counts.max() * 1.16)
    few = f"; labels for the {n_labels} most frequent of {len(order):,} categories" if n_labels < len(order) else ""
    ax.set_xlabel("working coordinate (0 = base value)" + few)
    ax.set_ylabel("frequency in the background")
    _title(ax, f"Frequency map of {_wrapped(feature, 40, 1)}")
    ax.legend(frameon=False, fontsize=11, loc="upper right")
    _bare(ax)
    return ax


def _label_points(ax: Axes, x: Any, y: Any, texts: Sequence[str]) -> int:
    """Write a label above each point, or above so many of the first as there is room for; how many those are."""
    n, places = MOST_LABELS, None
    while places is None:
        places = _label_places(x, y, texts[:n])
        n -= 1
    for at_x, at_y, text, (left, height) in zip(x, y, texts, places, strict=False):
        moved = height > at_y + 0.035
        ax.annotate(
            _plain(text),
            (at_x, at_y),
            xytext=(left, height),
            xycoords=("data", "axes fraction"),
            textcoords=("data", "axes fraction"),
            fontsize=11.5,
            arrowprops={"arrowstyle": "-", "color": "#BBBBBB"} if moved else None,
        )
    return len(places)


def _label_places(x: Any, y: Any, texts: Sequence[str]) -> list[tuple[float, float]] | None:
    """Where labels of the first points stand, higher where one would cover another; None if that is above the axes.

    All in shares of the axes.
    """
    taken = [(one - 0.01, one + 0.01, other - 0.02) for one, other in zip(x, y, strict=True)]
    taken.append((0.55, 1.0, 0.95))  # the legend
    places = []
    for at_x, at_y, text in reversed(list(zip(x, y, texts, strict=False))):
        width = 0.0105 * len(text)
        left = at_x if at_x + width < 1.0 else 1.0 - width
        height = at_y + 0.03
        while any(
            left < right and start < left + width and abs(height - other) < 0.05 for start, right, other in taken
        ):
            height += 0.01
        if height > 0.96:
            return None
        taken.append((left, left + width, height))
        places.append((left, height))
    return places[::-1]


def tree_path(explainer: Explainer, row: Any) -> list[tuple[Any, str]]:
    """The tests that a row passes in a single decision tree, from the root to the leaf.

    Parameters
    ----------
    explainer : Explainer
        Of a model that is one tree, alone or at the end of a pipeline.
    row : table of one row

    Returns
    -------
    list of (feature, test)
        Such as ``("duration", "> 22.5")``.

    Raises
    ------
    OptionError
        If the model is not read as one tree.
    """
    oracle: Any = explainer.oracle
    members = getattr(oracle, "members", [])
    if len(members) != 1 or len(members[0].trees) != 1:
        raise OptionError("tree_path needs a model that is read as a single tree; draw a decision tree.")
    tree, features = members[0].trees[0], explainer.features
    frame = features.check(row)
    codes = oracle.read(features.model_table(frame))[0]
    path, node = [], 0
    while tree.feature[node] >= 0:
        at, code = int(tree.feature[node]), codes[tree.feature[node]]
        name, value = features.names[at], frame.iloc[0, at]
        if np.isnan(code):
            left, test = bool(tree.missing_left[node]), "is missing"
        elif node in tree.categories:
            left, test = code in tree.categories[node], f"is {readable(value)}"
        else:
            left = code <= tree.threshold[node]
            test = f"{'≤' if left else '>'} {readable(float(tree.threshold[node]))}"
        path.append((name, test))
        node = int(tree.left[node] if left else tree.right[node])
    return path


def plot_tree_path(
    path: Sequence[tuple[Any, str]], explanation: Explanation, ax: Axes | None = None, n_features: int = 3
) -> Axes:
    """Draw the paper's figure 3: the path of a row in a tree between its pertinent features; arrows show which match.

    Parameters
    ----------
    path : sequence of (feature, test)
        From the root to the leaf; :func:`tree_path` reads it off a tree.
    explanation : Explanation
    ax : Axes, optional
    n_features : int
        So many pertinent features of each kind, by importance, then by sensitivity.

    Returns
    -------
    Axes
    """
    ax = ax if ax is not None else _new_axes(height=max(4.0, 1.6 + 0.95 * max(len(path), n_features)))
    boxes: dict[Any, Any] = {}
    above = None
    for depth, (name, test) in enumerate([*path, (None, _decision(explanation))]):
        text = test if name is None else f"{_wrapped(name, 24, 2)}\n{_wrapped(test, 26, 1)}"
        box = _box(ax, 0.0, -float(depth), text, ROW, filled=name is None)
        boxes.setdefault(name, box)
        if above is not None:
            _arrow(ax, above, box, POSITIVE)
        above = box
    for column, contrast in ((-1.1, explanation.positive), (1.1, explanation.negative)):
        if contrast is None:
            continue
        # The paper lists a positive's features by falling importance, a negative's by rising.
        names = _leading(contrast, n_features)
        names = names if contrast.kind == "positive" else names[::-1]
        ax.text(column, 0.62, f"pertinent {contrast.kind}", color=COLOURS[contrast.kind], ha="center", fontsize=13)
        if not contrast.found:
            ax.text(column, -0.1, str(contrast.status), ha="center", fontsize=12)
        step = len(path) / max(len(names) - 1, 1)
        for position, name in enumerate(names):
            box = _box(ax, column, -position * step, _wrapped(name, 24, 2), COLOURS[contrast.kind])
            if name in boxes:
                _arrow(ax, box, boxes[name], "#CC3311", curve=0.08 if column > 0.0 else -0.08)
    ax.set_xlim(-1.55, 1.55)
    ax.set_ylim(-len(path) - 0.5, 1.0)
    ax.text(0.0, 0.62, "path in the tree", ha="center", fontsize=13)
    _title(ax, _headline(explanation))
    ax.set_axis_off()
    return ax


def _leading(contrast: Contrast, n: int) -> list[Any]:
    """The features that matter most to a contrast: by importance, and where that ties by sensitivity."""
    keys = pd.DataFrame({"importance": contrast.importance, "sensitivity": contrast.sensitivity}).fillna(0.0)
    return list(
        keys[(keys > 0).any(axis=1)]
        .sort_values(["importance", "sensitivity"], ascending=False, kind="stable")
        .index[:n]
    )


def _box(ax: Axes, x: float, y: float, text: str, colour: str, filled: bool = False) -> Any:
    face = "#EEEEEE" if filled else "white"
    box = {"boxstyle": "round,pad=0.35", "edgecolor": colour, "facecolor": face, "linewidth": 2}
    return ax.text(x, y, _plain(text), ha="center", va="center", fontsize=12, bbox=box, zorder=3)


def _arrow(ax: Axes, start: Any, end: Any, colour: str, curve: float = 0.0) -> None:
    """Draw an arrow from box to box."""
    style = {
        "arrowstyle": "-|>",
        "color": colour,
        "linewidth": 1.8,
        "connectionstyle": f"arc3,rad={curve}",
        "patchA": start.get_bbox_patch(),
        "patchB": end.get_bbox_patch(),
    }
    ax.annotate("", end.get_position(), start.get_position(), arrowprops=style)


def _new_figure(size: tuple[float, float]) -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MacemError('Pictures need matplotlib; install it with: pip install "macem[plot]"') from error
    return pyplot.figure(figsize=size, layout="constrained")


def _new_axes(height: float) -> Axes:
    axes: Axes = _new_figure((11, height)).subplots()
    return axes


def _bare(ax: Axes, keep: Sequence[str] = ("left", "bottom")) -> None:
    for side in ("left", "right", "top", "bottom"):
        ax.spines[side].set_visible(side in keep)
    ax.tick_params(labelsize=13, length=0 if not keep else 3)
    ax.xaxis.label.set_fontsize(13)
    ax.yaxis.label.set_fontsize(13)


def _decision(explanation: Explanation) -> str:
    return readable(explanation.prediction) if explanation.error is None else "not explained"


def _headline(explanation: Explanation) -> str:
    return f"Row {explanation.index}: {_decision(explanation)}"


def _write_error(ax: Axes, explanation: Explanation, width: int) -> None:
    """Why there is nothing to draw, in the place of the picture."""
    _title(ax, _headline(explanation))
    ax.set_axis_off()
    text = _plain(_wrapped(explanation.error, width, 9))
    ax.text(0, 0.95, text, va="top", fontsize=13, transform=ax.transAxes)


def _title(ax: Axes, text: str, colour: str = ROW, width: int = 64) -> None:
    ax.set_title(_plain(_wrapped(text, width, 2)), loc="left", color=colour, fontsize=15)


def _plain(text: str) -> str:
    """A text as matplotlib must get it to show it as it is: between two dollar signs it would read a formula.

    Whatever holds a user's word passes here once, last, where it is given to matplotlib.
    """
    return text.replace("$", r"\$")


def _wrapped(text: Any, width: int = 24, n_lines: int = 3) -> str:
    """A text on a few lines."""
    text = " ".join(named(text).split())
    if n_lines == 1 or len(text) <= width:
        lines = [text if len(text) <= width else text[: width - 1] + "…"]
    else:
        # Names have no spaces: a mark with one says where else a line may end.
        marked = re.sub(r"(?<=\w[_/.])(?=\w)", "\0 ", text)
        lines = textwrap.wrap(marked, width, max_lines=n_lines, placeholder="…")
    return "\n".join(lines).replace("\0 ", "").replace("\0", "")
