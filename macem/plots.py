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

MARKS: dict[str, dict[str, Any]] = {
    "base": {"color": "#8C8C8C", "marker": "|", "markersize": 24, "markeredgewidth": 4},
    "row": {"color": "#000000", "marker": "o", "markersize": 16, "markeredgewidth": 2.2, "fillstyle": "none"},
    "positive": {"color": "#0072B2", "marker": "^", "markersize": 9},
    "negative": {"color": "#D55E00", "marker": "D", "markersize": 8.5},
}
COLOURS = {what: mark["color"] for what, mark in MARKS.items()}
KINDS = ("positive", "negative")
CLASS_COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#999999")
# Seven, where the colours are six: no two of the classes that are shown have the same of both.
HATCHES = ("", "//", "..", "xx", "--", "oo", "\\\\")
LINES = ("-", "--", ":", "-.")
MOST_FEATURES = 12
MOST_CLASSES = 12
MOST_LEVELS = 30


def plot_explanation(explanation: Explanation, ax: Axes | None = None) -> Axes:
    """Draw one explanation: a lane per changed feature with its base value, the row, and both contrasts.

    Each lane of numbers has its own scale, from the least to the largest value that it shows. Categories stand side by
    side, on a dotted lane.

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
        ax = ax or _new_axes(height=3.2)
        _write_error(ax, explanation, 84)
        return ax
    changed = explanation._changed()
    shown = changed[:MOST_FEATURES]
    ax = ax or _new_axes(height=2.4 + 0.95 * len(shown))
    for lane, name in enumerate(shown):
        _draw_lane(ax, -lane, name, explanation)
    ax.set_xlim(-0.12, 1.12)
    ax.set_ylim(0.38 - max(len(shown), 1), 0.55)
    ax.set_yticks([-lane for lane in range(len(shown))], [_plain(_wrapped(name)) for name in shown])
    ax.set_xticks([])
    _bare(ax, keep=())
    probability = explanation.probability
    _title(ax, _headline(explanation) + (f" (probability {probability:.2f})" if probability is not None else ""))
    unchanged = [contrast for contrast in explanation.contrasts if not contrast.changes]
    notes = [f"{contrast.kind}: {explanation._unchanged(contrast)}" for contrast in unchanged]
    notes += [f"and {len(changed) - len(shown)} more changed features"] if len(changed) > len(shown) else []
    _legend(ax, explanation, notes)
    return ax


def _draw_lane(ax: Axes, y: float, name: Any, explanation: Explanation) -> None:
    moves = {contrast.kind: contrast.changes[name] for contrast in explanation.contrasts if name in contrast.changes}
    values = {"base": explanation.base[name], "row": explanation.original[name]}
    values |= {kind: end for kind, (_, end) in moves.items()}
    # Categories stand as the contrasts do: a positive between base and row, a negative beyond the row.
    place = _places([values[what] for what in ("base", "positive", "row", "negative") if what in values])
    line = "-" if all(map(_is_number, place)) else (0, (0.1, 1.6))
    ax.plot([0, 1], [y, y], color="#DDDDDD", linewidth=6, linestyle=line, dash_capstyle="round", zorder=0)
    for kind, (start, end) in moves.items():
        offset = 0.07 if kind == "positive" else -0.07
        style = {"arrowstyle": "->", "color": COLOURS[kind], "linewidth": 2, "shrinkA": 8, "shrinkB": 5}
        ax.annotate("", (place[_key(end)], y + offset), (place[_key(start)], y + offset), arrowprops=style)
    for what, value in values.items():
        _mark(ax, what, [place[_key(value)]], [y])
    _label_values(ax, y, place)


def _mark(ax: Axes, what: str, x: Sequence[float] = (), y: Sequence[float] = (), **style: Any) -> Any:
    """Draw the mark of a base, a row or a contrast; without a place it is there for a legend."""
    return ax.plot(x, y, linestyle="none", zorder=4, **(MARKS[what] | style))[0]


def _label_values(ax: Axes, y: float, place: dict[Any, float]) -> None:
    """Write the values under their marks; above the lane where two would touch, and aside where both are taken."""
    taken = {-1: -np.inf, 1: -np.inf}  # how far to the right, under and above the lane
    for value, x in sorted(place.items(), key=lambda one: one[1]):
        text = _wrapped(readable(value), 20, 2)
        half = 0.0085 * max(map(len, text.split("\n")))
        side = min(taken, key=lambda one: max(taken[one], x - half))
        middle = max(taken[side] + half, x)
        taken[side] = middle + half
        ax.annotate(
            _plain(text),
            (middle, y),
            xytext=(0, 17 * side),
            textcoords="offset points",
            annotation_clip=False,  # one that went aside may stand beyond the lane
            ha="center",
            va="top" if side < 0 else "bottom",
            fontsize=11,
        )


def _key(value: Any) -> Any:
    return None if is_missing(value) else value


def _places(values: Sequence[Any]) -> dict[Any, float]:
    """Where each distinct value stands between 0 and 1: numbers to scale, anything else side by side."""
    distinct = list(dict.fromkeys(map(_key, values)))
    if len(distinct) == 1:
        return {distinct[0]: 0.5}
    numbers = [float(value) for value in distinct if _is_number(value)]
    if len(numbers) < len(distinct):
        return dict(zip(distinct, np.linspace(0, 1, len(distinct)).tolist(), strict=True))
    low, high = min(numbers), max(numbers)
    return {value: (number - low) / (high - low) for value, number in zip(distinct, numbers, strict=True)}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and not is_missing(value)


def _legend(ax: Axes, explanation: Explanation, notes: Sequence[str]) -> None:
    entries = [("base", "base value"), ("row", f"the row: {readable(explanation.prediction)}")]
    for contrast in explanation.contrasts:
        if contrast.changes:
            still = "still " if contrast.kind == "positive" else ""
            entries.append((contrast.kind, f"pertinent {contrast.kind}: {still}{readable(contrast.prediction)}"))
    handles = [_mark(ax, what, label=_plain(_wrapped(text, 34))) for what, text in entries]
    handles += [_nothing(ax, note) for note in notes]
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, 0), "borderaxespad": 0.2}
    ax.legend(handles=handles, ncols=2, frameon=False, fontsize=12.5, markerscale=0.8, **place)


def _nothing(ax: Axes, note: str) -> Any:
    """What a legend shows of a note: its words, and no mark."""
    return ax.plot([], [], linestyle="none", label=_plain(_wrapped(note, 44)))[0]


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
    titles = {"positive": f"Still {explanation._decision} with only this", "negative": "What would change it"}
    if explanation.negative is not None and explanation.negative.changes:
        titles["negative"] = f"It would be {readable(explanation.negative.prediction)} with this changed"
    n_lanes = max([2, *(len(contrast.ranked[:n_features]) for contrast in explanation.contrasts)])
    for ax, (kind, title) in zip(axes, titles.items(), strict=True):
        contrast = getattr(explanation, kind)
        if contrast is not None and contrast.changes:
            _draw_bars(ax, explanation, contrast, n_features, n_lanes)
        else:
            ax.set_axis_off()
            text = "not asked for" if contrast is None else explanation._unchanged(contrast)
            ax.text(0.02, 0.95, textwrap.fill(text, 40), va="top", fontsize=14, transform=ax.transAxes)
        _title(ax, title, COLOURS[kind], 46)
    return axes


def _draw_bars(ax: Axes, explanation: Explanation, contrast: Contrast, n_features: int, n_lanes: int) -> None:
    kind = contrast.kind
    for lane, name in enumerate(contrast.ranked[:n_features]):
        _draw_bar(ax, -lane, name, explanation, contrast)
    ax.axvline(0, color=COLOURS["base"], linewidth=3, zorder=0)
    ax.set_xlim(-1.2, 1.2)
    ax.set_ylim(0.4 - n_lanes, 0.75)
    ax.set_xticks([0], ["base value"])
    ax.set_yticks([])
    row = ax.plot([], [], "s", color=COLOURS["row"], fillstyle="none", markersize=12, markeredgewidth=1.8)[0]
    bar = ax.plot([], [], linewidth=4, **MARKS[kind])[0]
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.08)}
    ax.legend([row, bar], ["the row", f"pertinent {kind}"], ncols=2, frameon=False, fontsize=11, **place)
    _bare(ax, keep=("bottom",))


def _draw_bar(ax: Axes, y: float, name: Any, explanation: Explanation, contrast: Contrast) -> None:
    base, row, (_, end) = explanation.base[name], explanation.original[name], contrast.changes[name]
    row_at, end_at = _displacements(base, row, end)
    ax.barh(y, row_at, 0.34, facecolor="none", edgecolor=COLOURS["row"], linewidth=1.8)
    ax.barh(y, end_at, 0.1, color=COLOURS[contrast.kind])
    _mark(ax, contrast.kind, [end_at], [y], markersize=13, markeredgecolor="white")
    start, target = readable_pair(row, end)
    words = f"{start} → {target}" if contrast.kind == "negative" else f"{target} (base {readable(base)})"
    words = _plain(f"{_wrapped(name, 32, 1)}: {_wrapped(words, 54, 2)}")
    text = ax.text(-1.18, y + 0.22, words, fontsize=12, va="bottom")
    text.set_in_layout(False)
    text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})  # the base's line ends before the words


def _displacements(base: Any, row: Any, end: Any) -> tuple[float, float]:
    """How far row and contrast lie from the base, the farther being 1; another category than both stands at -1."""
    if _is_number(base) and _is_number(row) and _is_number(end):
        moves = (float(row) - float(base), float(end) - float(base))
        largest = max(map(abs, moves)) or 1.0
        return moves[0] / largest, moves[1] / largest
    base, row, end = _key(base), _key(row), _key(end)
    return float(row != base), 0.0 if end == base else 1.0 if end == row else -1.0


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
    words = [_wrapped(text, 32, 2) for text, _ in groups]
    counts = {kind: changes.loc[changes["kind"] == kind, "feature"].value_counts()[:MOST_FEATURES] for kind in KINDS}
    # The legend stands under the bars of the kind that has fewer; of two equal kinds, the positives.
    fewer = min(KINDS, key=lambda kind: len(counts[kind]))
    n_lines = 1 + sum(text.count("\n") + 1 for text in words)
    n_bars = max(4.0, *(len(counts[kind]) + (0.65 * n_lines if kind == fewer else 0.0) for kind in KINDS))
    if axes is None:
        axes = _new_figure((16, 1.5 + 0.42 * n_bars)).subplots(1, 3, width_ratios=(1, 1, 0.85))
    for ax, kind in zip(axes, KINDS, strict=False):
        of_kind, n_rows = changes[changes["kind"] == kind], int((summary["kind"] == kind).sum())
        bars = _draw_frequencies(ax, of_kind, list(counts[kind].index), [labels for _, labels in groups], n_rows)
        ax.set_ylim(n_bars - 0.4, -0.6)
        _title(ax, f"Pertinent {kind}s", COLOURS[kind])
        ax.set_xlabel("rows that need the feature, %" if kind == "positive" else "rows that change the feature, %")
        if kind == fewer and len(changes):
            # Given by hand: of labels that artists carry, matplotlib leaves out those that begin with an underscore.
            labels, style = [_plain(text) for text in words], {"fontsize": 12, "title_fontsize": 12}
            ax.legend(bars, labels, title="predicted class", frameon=False, loc="lower right", **style)
    most = max(ax.dataLim.x1 for ax in axes[:2]) if len(changes) else 100.0
    for ax in axes[:2]:
        ax.set_xlim(0, 1.05 * most)  # one scale, since they stand side by side
    _draw_distances(axes[2], summary)
    return axes


def _groups(predictions: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    """The most frequent classes with their words, in order, and all others as one."""
    classes = sorted(set(predictions), key=lambda label: (0, label, "") if _is_number(label) else (1, 0, str(label)))
    frequent = [label for label, _ in Counter(predictions).most_common(MOST_CLASSES)]
    others = [label for label in classes if label not in frequent]
    groups = [(readable(label), [label]) for label in classes if label in frequent]
    return [*groups, (f"{len(others)} other class{'' if len(others) == 1 else 'es'}", others)] if others else groups


def _draw_frequencies(
    ax: Axes, changes: pd.DataFrame, names: Sequence[Any], classes: Sequence[Sequence[Any]], n_rows: int
) -> list[Any]:
    """Draw in how many rows of each class a feature changes, in percent of all rows; the bars, by class."""
    left, bars = np.zeros(len(names)), []
    for position, labels in enumerate(classes):
        count = changes.loc[changes["prediction"].isin(labels), "feature"].value_counts()
        share = np.array([count.get(name, 0) for name in names]) / max(n_rows, 1) * 100
        bars.append(ax.barh(range(len(names)), share, left=left, edgecolor="white", **_filling(position)))
        left += share
    ax.set_yticks(range(len(names)), [_plain(_wrapped(name)) for name in names])
    if not names:
        ax.text(0.5, 0.95, "no feature is changed", ha="center", va="top", transform=ax.transAxes, fontsize=13)
    _bare(ax)
    return bars


def _filling(position: int) -> dict[str, Any]:
    """Colour and hatch of a class."""
    return {"color": CLASS_COLOURS[position % len(CLASS_COLOURS)], "hatch": HATCHES[position % len(HATCHES)]}


def _draw_distances(ax: Axes, summary: pd.DataFrame) -> None:
    farthest = np.nanmax([0.0, *summary["distance"]])
    end = farthest * 1.05 or 1.0  # each line goes on to it: what was not found is no nearer
    for kind, line in zip(KINDS, ("-", "--"), strict=True):
        of_kind = summary[summary["kind"] == kind]
        distances = np.sort(of_kind["distance"].dropna().to_numpy())
        if len(distances):
            share = np.array([*range(len(distances) + 1), len(distances)]) / len(of_kind) * 100
            style = {"color": COLOURS[kind], "linestyle": line, "linewidth": 2.5, "label": f"pertinent {kind}s"}
            ax.step([0, *distances, end], share, where="post", **style)
            ax.legend(edgecolor="none", framealpha=0.9, fontsize=12, loc="lower right")
    ax.set_ylim(0, 102)
    ax.set_xlim(0, end)
    ax.set_xlabel("distance, at most")
    ax.set_ylabel("rows, %")
    _title(ax, "How far")
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
        If there is no such feature, or if there are several rows.
    """
    features, oracle = explainer.features, explainer.oracle
    at = features.position(feature)
    name = features.names[at]
    frame = features.check(row)
    if len(frame) != 1:
        raise OptionError(f"row holds {len(frame)} rows; give the one to draw.")
    explanation = explanation or explainer.explain(frame)[0]
    cells = {"base": explanation.base, "row": explanation.original}
    cells |= {contrast.kind: contrast.values for contrast in explanation.contrasts if contrast.values is not None}
    values = {what: _key(of_all[name]) for what, of_all in cells.items()}
    notes = []

    grid, levels, n_left_out = _points_along(features, at, list(values.values()), n_points)
    if n_left_out:
        notes.append(f"{n_left_out:,} more categories")
    table = np.repeat(features.numbers(frame), len(grid), axis=0)
    table[:, at] = grid
    like = frame.iloc[np.zeros(len(grid), dtype=int)]
    probabilities = oracle.predict_proba(features.model_table(features.frame(table, like)))
    reached = [explanation.prediction, *(contrast.prediction for contrast in explanation.contrasts)]
    first = [position for position, label in enumerate(oracle.classes) if label in reached]
    likely = np.argsort(-probabilities.max(axis=0), kind="stable").tolist()
    drawn = sorted(list(dict.fromkeys([*first, *likely]))[:MOST_CLASSES])
    if len(drawn) < len(likely):
        highest = np.delete(probabilities, drawn, axis=1).max()
        notes.append(f"{len(likely) - len(drawn):,} more classes, {highest:.2f} at most")

    ax = ax or _new_axes(height=5.2)
    classes = [oracle.classes[position] for position in drawn]
    handles = _draw_classes(ax, grid, levels, probabilities[:, drawn], classes)
    for what, value in values.items():
        if value is not None and (levels is None or value in levels):
            x = float(value) if levels is None else levels.index(value)
            handles.append(_mark(ax, what, [x], [-0.05], label=_place_in_words(explanation, name, what, cells[what])))
            if levels is None:
                ax.axvline(x, color=COLOURS[what], linewidth=1, linestyle=":", zorder=0)
    for label, threshold in (explainer.cutoff or {}).items():
        words = _plain(_wrapped(f"{readable(label)} from {threshold:.3g} on", 34))
        handles.append(ax.axhline(threshold, color="0.35", linewidth=1, label=words, zorder=0))
    handles += [_nothing(ax, note) for note in notes]
    ax.legend(handles=handles, frameon=False, fontsize=11, loc="upper left", bbox_to_anchor=(1.01, 1), markerscale=0.6)
    ax.set_xlabel(_plain(_wrapped(name, 60, 2)))
    ax.set_ylabel("probability")
    ax.set_ylim(-0.1, 1.02)
    _title(ax, f"{_headline(explanation)}, along {_wrapped(name, 40, 1)}")
    _bare(ax)
    return ax


def _points_along(
    features: Features, at: int, marked: Sequence[Any], n_points: int
) -> tuple[Any, list[Any] | None, int]:
    """Numbers of a feature to ask at, the marked ones among them; their categories, and how many more there are."""
    levels, counts = features.levels[at], features.counts[at]
    if levels is None or counts is None:
        finite = [float(value) for value in marked if value is not None]
        low, high = min([features.low[at], *finite]), max([features.high[at], *finite])
        grid = np.concatenate([np.linspace(low, high, n_points), finite])
        return np.unique(grid if features.decimals[at] < 0 else np.round(grid, int(features.decimals[at]))), None, 0
    numbered = {level: number for number, level in enumerate(levels)}
    frequent = np.argsort(-counts, kind="stable").tolist()
    first = [numbered[value] for value in marked if value in numbered]
    kept = sorted(list(dict.fromkeys([*first, *frequent]))[:MOST_LEVELS])
    return np.array(kept, dtype=float), list(levels[kept]), len(levels) - len(kept)


def _draw_classes(
    ax: Axes, grid: Any, levels: Sequence[Any] | None, probabilities: Any, classes: Sequence[Any]
) -> list[Any]:
    """Draw a line for each class over numbers, bars over categories; what the legend shows of them."""
    handles: list[Any] = []
    width = 0.8 / len(classes)
    for position, (label, of_class) in enumerate(zip(classes, probabilities.T, strict=True)):
        words = _plain(_wrapped(f"probability of {readable(label)}", 34))
        if levels is None:
            colour, line = CLASS_COLOURS[position % len(CLASS_COLOURS)], LINES[position % len(LINES)]
            handles += ax.step(grid, of_class, where="mid", color=colour, linewidth=2.5, linestyle=line, label=words)
        else:
            places = np.arange(len(levels)) + (position - (len(classes) - 1) / 2) * width
            handles.append(ax.bar(places, of_class, width, edgecolor="white", label=words, **_filling(position)))
    if levels is not None:
        texts = [_plain(_wrapped(readable(level), 22, 2)) for level in levels]
        many, long = len(texts) > 12, len(texts) > 4 or max(map(len, texts)) > 14
        rotation, side = (90, "center") if many else (30, "right") if long else (0, "center")
        ax.set_xticks(range(len(texts)), texts, rotation=rotation, ha=side)
    return handles


def _place_in_words(explanation: Explanation, name: Any, what: str, cells: Any) -> str:
    words = {"base": "base value", "row": "the row"}.get(what, f"pertinent {what}")
    text = _wrapped(f"{words}: {readable(cells[name])}", 34)
    pairs = zip(explanation.original.drop(name), cells.drop(name), strict=True)
    n_others = sum(_key(own) != _key(other) for own, other in pairs)
    if what in KINDS and n_others:
        text += f"\n({n_others} other feature{' differs' if n_others == 1 else 's differ'})"
    return _plain(text)


def plot_frequency_map(features: Features, feature: Any, ax: Axes | None = None) -> Axes:
    """Draw the paper's figure 2: where FMA puts the categories of a feature, and the range that maps back to each.

    Parameters
    ----------
    features : Features
        ``explainer.features``.
    feature : name
        A categorical feature. Of many categories, the 30 most frequent are drawn.
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
    place = place[order]
    bounds = np.concatenate([place[:1], (place[1:] + place[:-1]) / 2, [max(1.0, place[-1])]])
    n_shown = min(len(order), MOST_LEVELS)
    lanes = range(n_shown)
    ax = ax or _new_axes(height=2.2 + 0.32 * n_shown)
    label = "what maps back to the category, h(·)"
    ax.hlines(lanes, bounds[:n_shown], bounds[1 : n_shown + 1], color="#009E73", linewidth=5, label=label)
    ax.plot(place[:n_shown], lanes, "k|", markersize=16, markeredgewidth=2.5, label="the category itself")
    texts = [f"{_wrapped(readable(levels[level]), 26, 1)} ({counts[level]:,})" for level in order[:n_shown]]
    ax.set_yticks(lanes, [_plain(text) for text in texts])
    ax.set_ylim(n_shown - 0.4, -0.6)
    ax.set_xlim(min(0.0, place[0]) - 0.03, bounds[-1] + 0.03)
    few = f"; the {n_shown} most frequent of {len(order):,} categories" if n_shown < len(order) else ""
    ax.set_xlabel("working coordinate (0 = base value)" + few)
    ax.set_ylabel("category (frequency)")
    _title(ax, f"Frequency map of {_wrapped(features.names[at], 40, 1)}")
    ax.legend(frameon=False, fontsize=11, loc="lower right", bbox_to_anchor=(1, 1))
    _bare(ax)
    return ax


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
    ax = ax or _new_axes(height=max(4.0, 1.6 + 0.95 * max(len(path), n_features)))
    boxes: dict[Any, Any] = {}
    above = None
    for depth, (name, test) in enumerate([*path, (None, explanation._decision)]):
        text = test if name is None else f"{_wrapped(name, 24, 2)}\n{_wrapped(test, 26, 1)}"
        box = _box(ax, 0.0, -float(depth), text, COLOURS["row"], filled=name is None)
        boxes.setdefault(name, box)
        if above is not None:
            _arrow(ax, above, box, COLOURS["row"])
        above = box
    for column, contrast in ((-1.1, explanation.positive), (1.1, explanation.negative)):
        if contrast is None:
            continue
        # The paper lists a positive's features by falling importance, a negative's by rising.
        names, order = _leading(contrast, n_features), "first"
        if contrast.kind == "negative":
            names, order = names[::-1], "last"
        colour = COLOURS[contrast.kind]
        ax.text(column, 0.62, f"pertinent {contrast.kind}", color=colour, ha="center", fontsize=13)
        words = f"most important {order}" if contrast.found else explanation._unchanged(contrast)
        ax.text(column, 0.57, words, color=colour, ha="center", va="top", fontsize=11)
        step = len(path) / max(len(names) - 1, 1)
        for position, name in enumerate(names):
            box = _box(ax, column, -position * step, _wrapped(name, 24, 2), colour)
            if name in boxes:
                _arrow(ax, box, boxes[name], colour, curve=0.08 if column > 0.0 else -0.08)
    ax.set_xlim(-1.55, 1.55)
    ax.set_ylim(-len(path) - 0.5, 1.0)
    ax.text(0.0, 0.62, "path in the tree", ha="center", fontsize=13)
    _title(ax, _headline(explanation))
    ax.set_axis_off()
    return ax


def _leading(contrast: Contrast, n: int) -> list[Any]:
    """The features that matter most to a contrast: by importance, and where that ties by sensitivity."""
    keys = pd.DataFrame({"importance": contrast.importance, "sensitivity": contrast.sensitivity}).fillna(0.0)
    return list(keys[(keys > 0).any(axis=1)].nlargest(n, ["importance", "sensitivity"]).index)


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


def _headline(explanation: Explanation) -> str:
    return f"Row {explanation.index}: {explanation._decision}"


def _write_error(ax: Axes, explanation: Explanation, width: int) -> None:
    """Why there is nothing to draw, in the place of the picture."""
    _title(ax, _headline(explanation))
    ax.set_axis_off()
    text = _plain(_wrapped(explanation.error, width, 9))
    ax.text(0, 0.95, text, va="top", fontsize=13, transform=ax.transAxes)


def _title(ax: Axes, text: str, colour: str = COLOURS["row"], width: int = 64) -> None:
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
