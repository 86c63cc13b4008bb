"""Results: what a person reads, in print, in a table, in words and in a notebook."""

from __future__ import annotations

import dataclasses
import html
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

from macem.errors import OptionError
from macem.reasons import listed, readable, readable_pair
from macem.results import Explanations, Status
from tests.hand_made import contrast, explanation, explanations, two_levels


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (12, "12"),
        (12.0, "12"),
        (11.9999999, "12"),
        (0.1 + 0.2, "0.3"),
        (np.float32(0.1), "0.1"),
        (1234567.25, "1234567.25"),
        (0.000123456789, "0.000123457"),
        (1e-9, "1e-09"),
        (-0.0, "0"),
        (np.int8(3), "3"),
        (True, "True"),
        (None, "missing"),
        (np.nan, "missing"),
        (pd.NA, "missing"),
        (pd.NaT, "missing"),
        ("nan", "nan"),
        ("", '""'),
        (np.inf, "inf"),
    ],
)
def test_readable(value: object, shown: str) -> None:
    assert readable(value) == shown


def test_numbers_that_differ_are_shown_to_differ() -> None:
    assert readable_pair(12.0, 11.9999999) == ("12", "11.9999999")
    assert readable_pair(12.0, 12.0) == ("12", "12")


def test_listed() -> None:
    assert [listed(parts) for parts in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


def test_reason() -> None:
    assert explanation().reason() == (
        "The model's decision is bad (probability 0.70). "
        "It would still be bad with only duration 36 (base value 18), and everything else at its base value. "
        'It would be good if purpose were "radio/tv" instead of "new car" and amount were 5000 instead of 9000.'
    )


def test_reason_of_every_outcome() -> None:
    at_base, out_of_budget, failed = explanations(0)
    assert "No feature is needed: the base values alone keep the class bad." in at_base.reason()
    assert "No allowed change would lead to another decision." in at_base.reason()
    assert "ended at its limit" in out_of_budget.reason()
    assert "found no allowed change" in out_of_budget.reason()
    assert failed.reason() == "This row could not be explained: The model raised ValueError: no such branch."


def test_reason_in_the_words_of_the_user() -> None:
    words = explanation().reason(
        {"decision": "Your application was {prediction}.", "positive_found": ""},
        names={"amount": "the amount"},
        labels={"bad": "refused", "good": "granted"},
    )
    assert words.startswith("Your application was refused.")
    assert words.endswith("the amount were 5000 instead of 9000.")
    assert "It would be granted if" in words


@pytest.mark.parametrize(
    ("templates", "message"),
    [({"decisions": ""}, "'decisions', which is no sentence"), ({"decision": "{predicted}"}, "use the fields")],
)
def test_a_wrong_template_is_named(templates: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        explanation().reason(templates)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            {"labels": {"God": "granted"}},
            r"'God', which is no class of the model; .*\['bad', 'good'\]",
        ),
        ({"names": {"amout": "the amount"}}, "'amout', which is no feature; .*'amount'"),
    ],
)
def test_words_for_nothing_are_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        explanation().reason(**words)
    explanation(error="no connection").reason(labels={"bad": "refused"})  # classes that are not known are not judged


def test_changes_are_ranked_by_importance_then_sensitivity() -> None:
    one = explanation().negative
    assert one is not None
    assert one.ranked == ["purpose", "amount"]
    sensitivity = pd.Series({"purpose": 0.1, "amount": 0.2})
    tied = dataclasses.replace(one, importance=one.importance * 0.0, sensitivity=sensitivity)
    assert tied.ranked == ["amount", "purpose"]


def test_to_frame_has_a_line_per_changed_feature() -> None:
    frame = explanations(2).to_frame()
    assert list(frame[["row", "kind", "feature", "from", "to"]].itertuples(index=False, name=None)) == [
        (row, *line)
        for row in (0, 1)
        for line in (
            ("positive", "duration", 18, 36),
            ("negative", "purpose", "new car", "radio/tv"),
            ("negative", "amount", 9000.0, 5000.0),
        )
    ]
    assert isinstance(frame["to"].iloc[0], int)


def test_summary_has_a_line_per_row_and_kind() -> None:
    summary = explanations(1).summary()
    assert list(summary["status"]) == [
        Status.FOUND,
        Status.FOUND,
        Status.FOUND,
        Status.NONE_EXISTS,
        Status.OUT_OF_BUDGET,
        Status.NOT_FOUND,
        None,
    ]
    assert list(summary["n_changed"].fillna(-1)) == [1, 2, 0, -1, -1, -1, -1]
    assert summary["changed"].iloc[1] == "purpose, amount"
    assert summary["error"].iloc[-1] == "The model raised ValueError: no such branch."


def test_an_empty_batch() -> None:
    empty = Explanations()
    assert len(empty) == 0
    assert list(empty.summary().columns) == list(explanations().summary().columns)
    assert list(empty.to_frame().columns) == list(explanations().to_frame().columns)
    assert str(empty) == "0 rows"
    assert "0 rows" in empty._repr_html_()


def test_it_is_a_sequence() -> None:
    batch = explanations(3)
    assert len(batch) == 6
    assert batch[-1].error is not None
    assert [one.index for one in batch[1:3]] == [1, 2]
    assert isinstance(batch[1:3], Explanations)
    assert batch[1:3].provenance == batch.provenance
    assert batch[1] in batch


def test_names_of_two_levels_are_read_with_a_slash_and_are_tuples_in_the_data() -> None:
    one = two_levels()
    batch = Explanations((one,))
    assert batch.to_frame()["feature"].tolist() == [("loan", "duration"), ("loan", "purpose"), ("age", "")]
    assert batch.summary()["changed"].tolist() == ["loan / duration", "loan / purpose, age"]
    assert repr(one.negative) == "<Contrast negative: loan / purpose new car → radio/tv; age 33 → 50>"
    assert 'if loan / purpose were "radio/tv" instead of "new car" and age were 50' in one.reason()
    assert "years were 50 instead of 33" in one.reason(names={("age", ""): "years"})
    for text in (str(one), str(batch), one._repr_html_(), batch._repr_html_()):
        assert "loan / duration" in text
        assert "('" not in html.unescape(text)


def test_duplicate_and_tuple_labels() -> None:
    batch = Explanations((explanation(("a", 1)), explanation(("a", 1))))
    assert list(batch.summary()["row"]) == [("a", 1)] * 4
    assert len(batch.to_frame()) == 6


def test_pickles_alone() -> None:
    batch = pickle.loads(pickle.dumps(explanations()))
    assert str(batch) == str(explanations())
    pd.testing.assert_frame_equal(batch.to_frame(), explanations().to_frame())


def test_print_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    batch = explanations(40)
    for text in (str(batch), str(explanation(purpose="x" * 500, amount=1e9))):
        assert max(len(line) for line in text.split("\n")) <= 60
    assert "more rows" in str(batch)
    assert "\x1b" not in str(explanation(purpose="\x1b[31m\nred"))


def test_print_of_one() -> None:
    text = str(explanation())
    assert "row 7: bad (probability 0.70)" in text
    assert "duration  18        36" in text
    assert repr(explanation()) == "<Explanation of row 7: bad; positive found, negative found>"
    assert repr(explanation().negative) == "<Contrast negative: purpose new car → radio/tv; amount 9000 → 5000>"


def test_html_is_escaped_small_and_without_scripts() -> None:
    hostile = "<script>alert(1)</script>"
    one = explanation(hostile, purpose=hostile)
    for text in (one._repr_html_(), Explanations((one,))._repr_html_()):
        assert "<script" not in text
        assert "&lt;script&gt;" in text
    assert len(Explanations((one,) * 5000)._repr_html_()) < 20_000


def test_probability_of_a_bool_class() -> None:
    one = dataclasses.replace(explanation(), prediction=True, probabilities=pd.Series({False: 0.1, True: 0.9}))
    assert one.probability == 0.9
    assert contrast("positive", one.base, {}, True).found


def test_a_row_that_could_not_be_explained_has_no_decision() -> None:
    failed = explanation(error="no such branch")
    batch = Explanations((failed,))
    for shown in (repr(failed), str(failed), failed._repr_html_(), str(batch), batch._repr_html_()):
        assert "not explained" in shown
        assert "no such branch" in shown
        assert "missing" not in shown


def test_a_row_that_is_in_the_target_class_has_not_failed() -> None:
    one = explanations(0)[0]
    assert one.negative is not None
    one = dataclasses.replace(one, negative=dataclasses.replace(one.negative, target="bad"))
    assert "It is bad already." in one.reason()
    for shown in (str(one), str(Explanations((one,))), Explanations((one,))._repr_html_()):
        assert "bad already" in shown
        assert "none exists" not in shown
