"""Pictures: axes in, axes out, in the user's units; long and hostile names do no harm."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

from macem.errors import OptionError
from macem.results import Explanations
from tests.hand_made import explanation, explanations, two_levels

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

from macem import plots  # noqa: E402


@pytest.fixture(autouse=True)
def _close() -> Any:
    yield
    pyplot.close("all")


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.findobj(matplotlib.text.Text) if text.get_text()]


def test_explanation_shows_values_in_the_users_units() -> None:
    _, ax = pyplot.subplots()
    assert plots.plot_explanation(explanation(), ax) is ax
    shown = texts(ax)
    for expected in ("duration", "purpose", "amount", "18", "36", "new car", "radio/tv", "2319.5", "5000", "9000"):
        assert expected in shown
    assert "Row 7: bad (probability 0.70)" in shown


def test_every_outcome_is_drawn() -> None:
    for one in explanations(1):
        ax = plots.plot_explanation(one)
        ax.figure.canvas.draw()
        assert any(f"Row {one.index}" in text for text in texts(ax))
        for part in plots.plot_application(one):
            part.figure.canvas.draw()


def test_long_names() -> None:
    ax = plots.plot_explanation(explanation(purpose="a <b>" * 30))
    ax.figure.canvas.draw()
    assert max(len(line) for text in texts(ax)[:12] for line in text.split("\n")) < 200


def test_a_text_with_dollars_is_shown_as_it_is_written_in_every_picture() -> None:
    import macem

    money, no_formula, name = "$0-$50k", "$1_$2^{", "$price_$b^{"
    X = pd.DataFrame({name: [money, money, no_formula] * 10, "_$n_$": np.arange(30)})
    X.index = pd.Index([f"{money} {number}" for number in range(30)])

    class Model:
        classes_ = np.array([money, no_formula])

        def predict_proba(self, table: pd.DataFrame) -> Any:
            first = 0.2 + 0.6 * (table[name] == money).to_numpy()
            return np.column_stack([first, 1 - first])

        def predict(self, table: pd.DataFrame) -> Any:
            return self.classes_[self.predict_proba(table).argmax(axis=1)]

    explainer = macem.Explainer(Model(), X)
    rows = X.head(3)
    batch = explainer.explain(rows)
    failed = dataclasses.replace(batch[2], error=f"{no_formula}: {money}", positive=None, negative=None)
    assert any(contrast.changes for one in batch for contrast in one.contrasts)
    drawn = [
        [ax for one in (*batch, failed) for ax in (plots.plot_explanation(one), *plots.plot_application(one))],
        plots.plot_batch(batch),
        [plots.plot_profile(explainer, rows.tail(1), feature) for feature in X],
        [plots.plot_frequency_map(explainer.features, name)],
        [plots.plot_tree_path([(name, f"is {money}")], one) for one in (*batch, failed)],
    ]
    for axes in drawn:
        for ax in axes:
            ax.figure.canvas.draw()
        shown = [text for ax in axes for text in texts(ax)]
        assert any(r"\$0-\$50k" in text for text in shown)
        # matplotlib shows an escaped dollar as a dollar, and reads a formula between two others.
        assert not [text for text in shown if text.count("$") > text.count(r"\$")]


def test_a_row_with_an_error_says_so() -> None:
    error = "The model raised ValueError: no such branch. " * 9 + "x" * 200
    failed = explanation(error=error)
    for axes in ([plots.plot_explanation(failed)], plots.plot_application(failed)):
        axes[0].figure.canvas.draw()
        shown = " ".join(text for ax in axes for text in texts(ax))
        assert "Row 7: not explained" in shown
        assert "no such branch" in shown
        assert "missing" not in shown
        box = axes[0].texts[0].get_window_extent()
        figure, limit = axes[0].figure.bbox, axes[-1].get_window_extent()
        assert 0 <= box.y0 < box.y1 < figure.y1
        assert box.x1 <= (limit.x0 if len(axes) == 2 else figure.x1)
    shown = " ".join(texts(plots.plot_tree_path([("age", "> 30")], failed)))
    assert "Row 7: not explained" in shown
    assert "missing" not in shown


def test_names_of_two_levels_are_drawn_with_a_slash() -> None:
    one = two_levels()
    for ax in (plots.plot_explanation(one), plots.plot_application(one)[0], plots.plot_batch(Explanations((one,)))[0]):
        shown = " ".join(texts(ax))
        assert "loan / duration" in shown
        assert "('" not in shown


def test_names_break_between_their_words() -> None:
    assert plots._wrapped("od280/od315_of_diluted_wines") == "od280/od315_of_\ndiluted_wines"
    assert plots._wrapped("a_name_of_24_letters_now") == "a_name_of_24_letters_now"
    assert plots._wrapped("x" * 80).split("\n")[0] == "x" * 24


def test_the_legend_of_a_batch_covers_no_bar() -> None:
    long = "a class with a long name " * 3
    many = [dataclasses.replace(explanation(n), prediction=f"{long} {n}") for n in range(9)]
    for batch in (explanations(8), Explanations(tuple(many))):
        ax = plots.plot_batch(batch)[0]  # fewer features are needed than changed
        ax.figure.canvas.draw()
        legend = ax.get_legend().get_window_extent()
        assert all(bar.get_window_extent().y0 > legend.y1 for bar in ax.patches if bar.get_width())
        assert legend.y0 > ax.get_window_extent().y0


def test_the_lines_of_distances_go_on_to_the_end() -> None:
    distances = plots.plot_batch(explanations(8))[2]
    for line, share in zip(distances.lines, (90.0, 80.0), strict=True):
        assert line.get_xdata()[-1] == distances.get_xlim()[1] > 0.25
        assert line.get_ydata()[-2:] == pytest.approx([share, share])


def test_classes_that_are_numbers_are_listed_by_size() -> None:
    batch = Explanations(tuple(dataclasses.replace(explanation(label), prediction=label) for label in (10, 9, 100)))
    legend = plots.plot_batch(batch)[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["9", "10", "100"]


@pytest.mark.parametrize("values", [(2319.5, 2380.5, 2450.5, 9000.5), (2319.5, 800000.25, 805000.25, 810000.25)])
def test_values_of_a_lane_do_not_cover_each_other(values: tuple[float, ...]) -> None:
    from tests.hand_made import contrast

    base, nearer, row, farther = values
    one = explanation(amount=row)
    assert one.base["amount"] == base
    ends = {"positive": contrast("positive", one.base, {"amount": nearer}, "bad")}
    ends["negative"] = contrast("negative", one.original, {"amount": farther}, "good")
    ax = plots.plot_explanation(dataclasses.replace(one, **ends))
    ax.figure.canvas.draw()
    drawn = [text for text in ax.texts if text.get_text()]
    boxes = [matplotlib.text.Text.get_window_extent(text) for text in drawn]
    assert len(boxes) == 4
    assert not [1 for at, box in enumerate(boxes) for other in boxes[:at] if box.overlaps(other)]
    for text, box in zip(drawn, boxes, strict=True):
        assert text.get_tightbbox().width > 0  # it is drawn
        assert box.x1 <= ax.figure.bbox.x1


def test_a_row_that_is_in_the_target_class_has_not_failed() -> None:
    one = explanations(0)[0]
    assert one.negative is not None
    one = dataclasses.replace(one, negative=dataclasses.replace(one.negative, target="bad"))
    axes = [plots.plot_explanation(one), plots.plot_application(one)[1], plots.plot_tree_path([("age", "> 30")], one)]
    for shown in ("\n".join(texts(ax)) for ax in axes):
        assert "bad already" in shown
        assert "none exists" not in shown


def test_a_missing_value_has_a_place() -> None:
    plots.plot_explanation(explanation(duration=np.nan)).figure.canvas.draw()
    for ax in plots.plot_application(explanation(duration=None)):
        ax.figure.canvas.draw()


def test_batch_counts_rows() -> None:
    axes = plots.plot_batch(explanations(8))
    positives, negatives, _ = axes
    widths = [bar.get_width() for bar in negatives.patches]
    # 8 of the 10 rows that were asked for a negative change purpose, and amount.
    assert widths == pytest.approx([80.0, 80.0])
    assert [bar.get_width() for bar in positives.patches] == pytest.approx([80.0])


def test_batch_without_any_change() -> None:
    for batch in (Explanations(), explanations(0)):
        for ax in plots.plot_batch(batch):
            ax.figure.canvas.draw()


def test_tree_path_picture_marks_what_matches() -> None:
    path = [("duration", "> 22"), ("housing", "is own")]
    ax = plots.plot_tree_path(path, explanation())
    ax.figure.canvas.draw()
    shown = texts(ax)
    assert "duration\n> 22" in shown
    arrows = [text for text in ax.texts if getattr(text, "arrow_patch", None) is not None]
    # Two along the path, and one from the positive's feature that is on it.
    assert len(arrows) == 3


def test_profile_path_and_frequency_map_of_a_tree(german_credit: tuple[pd.DataFrame, pd.Series]) -> None:
    from sklearn.tree import DecisionTreeClassifier

    import macem

    X, y = german_credit
    X = X[["duration", "credit_amount", "age"]]
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    explainer = macem.Explainer(model, X)
    row = X.iloc[[3]]
    made = explainer.explain(row)[0]
    ax = plots.plot_profile(explainer, row, "duration", explanation=made)
    line = ax.lines[0]
    ask = row.loc[[row.index[0]] * 2].assign(duration=[int(line.get_xdata()[0]), int(line.get_xdata()[-1])])
    assert line.get_ydata()[[0, -1]] == pytest.approx(model.predict_proba(ask)[:, 0])
    assert any("the row: " in text for text in texts(ax))
    cut = macem.Explainer(model, X, cutoff={"bad": 0.2})
    assert "bad from 0.2 on" in texts(plots.plot_profile(cut, row, "duration", explanation=made))
    with pytest.raises(OptionError, match="durationn"):
        plots.plot_profile(explainer, row, "durationn")
    with pytest.raises(OptionError, match="2 rows"):
        plots.plot_profile(explainer, X.head(2), "duration")
    path = plots.tree_path(explainer, row)
    visited = model.tree_.feature[model.decision_path(row).indices]
    assert [name for name, _ in path] == [X.columns[at] for at in visited if at >= 0]
    with pytest.raises(OptionError, match="numeric"):
        plots.plot_frequency_map(explainer.features, "duration")


@pytest.mark.parametrize(("base", "at_a"), [("A", 0.0), ("B", -0.5)])
def test_frequency_map_covers_the_interval(base: str, at_a: float) -> None:
    from macem.features import Features

    features = Features.fit(pd.DataFrame({"letter": ["A"] * 11 + ["B"] * 6 + ["C"]}), base={"letter": base})
    ax = plots.plot_frequency_map(features, 0)
    # The paper's figure 2: A, B and C with frequencies 11, 6 and 1 stand at 0, 0.5 and 1.
    ranges = [segment[:, 0] for segment in ax.collections[0].get_segments()]
    end = max(1.0, at_a + 1)
    assert np.concatenate(ranges) == pytest.approx([at_a, at_a + 0.25, at_a + 0.25, at_a + 0.75, at_a + 0.75, end])
    assert ax.lines[0].get_xdata() == pytest.approx([at_a, at_a + 0.5, at_a + 1])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["A (11)", "B (6)", "C (1)"]
    assert ax.get_xlim()[0] < at_a
    assert ax.get_title(loc="left") == "Frequency map of letter"


def test_tree_path_needs_a_single_tree() -> None:
    class Explainer:
        oracle = None

    with pytest.raises(OptionError, match="single tree"):
        plots.tree_path(Explainer(), None)


def test_a_positive_stands_between_base_and_row() -> None:
    from tests.hand_made import contrast

    plain = explanation()
    nearer = contrast("positive", plain.base, {"purpose": "used car"}, "bad")
    ax = plots.plot_explanation(dataclasses.replace(plain, positive=nearer, negative=None))
    places = {text.get_text(): text.xy[0] for text in ax.texts}
    assert places["radio/tv"] < places["used car"] < places["new car"]


def test_classes_of_a_batch_can_be_told_apart() -> None:
    def batch(n: int) -> Explanations:
        rows = [dataclasses.replace(explanation(number), prediction=f"_{number:02d}") for number in range(n)]
        return Explanations((*rows, *rows[:9]))

    for n, words in ((9, "_08"), (30, "18 other classes")):
        positives, ax, _ = plots.plot_batch(batch(n))
        styles = {(bars[0].get_facecolor(), bars[0].get_hatch()) for bars in ax.containers}
        assert len(styles) == len(ax.containers) == min(n, 13)
        assert [text.get_text() for text in positives.get_legend().get_texts()][-1] == words
        purpose = [bar for bars in ax.containers for bar in bars if bar.get_y() < 0]
        assert sum(bar.get_width() for bar in purpose) == pytest.approx(100)


class _Wide:
    """Forty classes and eight hundred categories; the fifth class is likely for the rarest category alone."""

    classes_ = np.arange(40)
    X = pd.DataFrame({"zip": [f"z{number % 799:03d}" for number in range(1600)] + ["z799"]})

    def predict_proba(self, table: pd.DataFrame) -> Any:
        answer = np.full((len(table), 40), 0.01)
        answer[:, 0] = 0.61
        answer[(table["zip"] == "z799").to_numpy()] = answer[0, [1, 2, 3, 4, 0, *range(5, 40)]]
        return answer

    def predict(self, table: pd.DataFrame) -> Any:
        return self.predict_proba(table).argmax(axis=1)


def test_a_profile_shows_the_categories_and_classes_that_matter_and_counts_the_others() -> None:
    import macem

    explainer = macem.Explainer(_Wide(), _Wide.X)
    ax = plots.plot_profile(explainer, _Wide.X.tail(1), "zip")
    ax.figure.canvas.draw()
    shown = [label.get_text() for label in ax.get_xticklabels()]
    assert len(shown) == 30
    at = shown.index("z799")
    marks = {line.get_label(): line.get_xdata()[0] for line in ax.lines if len(line.get_xdata())}
    assert marks["the row: z799"] == at
    assert all(0 <= x < 30 for x in marks.values())
    heights = {bars.get_label(): bars[at].get_height() for bars in ax.containers}
    assert len(heights) == 12
    assert heights["probability of 4"] == pytest.approx(0.61)
    legend = ax.get_legend()
    assert {"770 more categories", "28 more classes, 0.01 at most"} <= {text.get_text() for text in legend.get_texts()}
    box, figure = legend.get_window_extent(), ax.figure.bbox
    assert box.x1 <= figure.x1
    assert 0 <= box.y0 < box.y1 <= figure.y1


def test_a_frequency_map_of_many_categories_shows_the_most_frequent_and_counts_them() -> None:
    from macem.features import Features

    ax = plots.plot_frequency_map(Features.fit(_Wide.X), "zip")
    ax.figure.canvas.draw()
    assert "the 30 most frequent of 800 categories" in ax.get_xlabel()
    assert [label.get_text() for label in ax.get_yticklabels()][:2] == ["z000 (3)", "z001 (3)"]
    assert len(ax.collections[0].get_segments()) == len(ax.get_yticks()) == 30


def test_long_words_leave_legend_and_title_inside_the_figure() -> None:
    words = "a class with a long name " * 8
    one = dataclasses.replace(explanation(), prediction=words)
    for ax in (plots.plot_explanation(one), plots.plot_batch(Explanations((one,)))[0]):
        ax.figure.canvas.draw()
        long = [text for text in ax.findobj(matplotlib.text.Text) if "long name" in text.get_text()]
        assert long
        assert all(text.get_window_extent().x1 <= ax.figure.bbox.x1 for text in long)
