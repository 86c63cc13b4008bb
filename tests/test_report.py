"""The HTML report: self-contained, escaped, small, and alive in a browser."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from macem.results import Explanations, Status
from tests.hand_made import explanation, explanations, two_levels

pytest.importorskip("jinja2")

from macem import report


class Reader(HTMLParser):
    """Collects tags and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))


def read(batch: Explanations, **options: Any) -> str:
    """The report without the tags that isolate a text, which nobody sees."""
    return re.sub("</?bdi>", "", html.unescape(report.render(batch, **options)))


def test_it_has_everything_and_asks_no_network() -> None:
    text = report.render(explanations(3), title="Tonight", labels={"bad": "refused"})
    reader = Reader(text)
    ids = [attributes.get("id") for _, attributes in reader.tags]
    assert [one for one in ids if one and one.startswith("row-")] == [f"row-{number}" for number in range(1, 7)]
    links = [attributes["href"] for tag, attributes in reader.tags if tag == "a"]
    assert all(link is not None and link.startswith("#") and link[1:] in ids for link in links)
    assert not [tag for tag, attributes in reader.tags if "src" in attributes or tag == "link"]
    assert "http" not in re.sub(r"http-equiv", "", text)
    for expected in ("Tonight", "refused", "No feature is needed", "no such branch", "hand-made"):
        assert expected in text
    assert "duration: 36" in read(explanations(3))
    assert "built-in method" not in text


def test_a_row_that_is_in_the_target_class_says_so() -> None:
    one = explanation()
    assert one.negative is not None
    nothing = {"values": None, "changes": {}, "prediction": None, "probabilities": None, "distance": None}
    there = replace(one.negative, status=Status.NONE_EXISTS, target=one.prediction, **nothing, n_changed=None)
    text = read(Explanations((replace(one, negative=there),)), labels={one.prediction: "refused"})
    assert re.search(r"<td[^>]*>\s*refused already\s*</td>", text)


def test_hostile_names_and_values_are_escaped() -> None:
    hostile = "</td><script>alert(1)</script>"
    batch = Explanations((explanation(hostile, purpose=hostile),), {hostile: hostile})
    text = report.render(batch, title=hostile, names={"purpose": hostile}, labels={"bad": hostile})
    assert sum(tag == "script" for tag, _ in Reader(text).tags) == 1
    assert "alert(1)</script>" not in text


def test_names_of_two_levels_are_read_with_a_slash() -> None:
    text = read(Explanations((two_levels(),)), names={("age", ""): "years"})
    assert text.count("loan / duration") > 3  # in the list, the frequencies, the reason and the table
    assert "years: 33" in text
    assert "('" not in text


def test_wide_rows_leave_out_their_values() -> None:
    wide = explanation(**{f"column {number}": number for number in range(100)})
    assert "column 99" not in report.render(Explanations((wide,)))


def test_the_first_rows_of_a_batch_say_so() -> None:
    first = explanations(3)
    counts = {"explained": 1200, "errors": 2}
    text = report.render(Explanations(first.rows, {"counts": counts, "options": {}}))
    assert f"{1200 - len(first):,} more in the result file" in text
    assert f"{2 + sum(row.error is not None for row in first)} not explained" in text
    assert "explained: 1200, errors: 2" in text
    assert "more in the result file" not in report.render(first)


def test_an_empty_batch(tmp_path: Path) -> None:
    path = report.write_report(Explanations(), tmp_path / "report.html")
    assert "<b>0</b> rows" in path.read_text(encoding="utf-8")


def test_a_row_with_an_error_is_shown_as_one() -> None:
    text = report.render(Explanations((explanation(), explanation(8, error="no <branch>"))))
    line = text.split('<a href="#row-2">8</a>')[1].split("</tr>")[0]
    assert '<td class="error">not explained</td>' in line
    assert '<td class="error" colspan="2">no &lt;branch&gt;</td>' in line
    assert 'Row <bdi>8</bdi>: <span class="error">not explained</span>' in text
    assert "<option>not explained</option>" in text
    assert "not explained" not in report.render(Explanations((explanation(),)))


def test_a_text_turns_nothing_around_it() -> None:
    turning = "new\u202eline\u2069\u2066"
    one = explanation(turning, purpose=turning)
    failed = explanation(8, error=turning)
    batch = Explanations((one, failed), {turning: turning})
    for text in (
        report.render(batch, title=turning, names={"duration": turning}, labels={"bad": turning}),
        batch._repr_html_(),
        one._repr_html_(),
        failed._repr_html_(),
    ):
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", text)
        assert "new\ufffdline" in text
    # Letters that run from right to left without a control stand in an element of their own.
    hebrew = "\u05e9\u05dd"
    text = report.render(Explanations((explanation(purpose=hebrew),)), names={"duration": hebrew})
    for part in (f"<bdi>{hebrew}</bdi> <bdi>36</bdi>", f"purpose</bdi>: <bdi>{hebrew}</bdi>"):
        assert part in text
    assert text.count("<bdi>") == text.count("</bdi>")


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def title_in_chromium(page: Path, script: str, folder: Path) -> str:
    """What a script makes of the page's title once the page is loaded."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    probe = f'<script>addEventListener("load", function () {{ {script} }});</script></body>'
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", probe), encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update"
    command = [CHROMIUM, *flags.split(), "--disable-sync", f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
    dumped = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, check=True, timeout=120).stdout
    title = re.search(r"<title>(.*?)</title>", dumped)
    assert title is not None
    return title[1]


@pytest.mark.slow
def test_long_words_stay_on_the_page(tmp_path: Path) -> None:
    long = "months_since_" * 40
    batch = Explanations((explanation(long, purpose=long), explanation(8, error=long)), {"model": long})
    page = report.write_report(batch, tmp_path / "r.html", title=long, names={"duration": long}, labels={"bad": long})
    script = """document.querySelectorAll("section.row").forEach(function (one) { one.style.display = "block"; });
      document.querySelectorAll("#list th")[4].click();
      var root = document.documentElement;
      document.title = [root.scrollWidth <= root.clientWidth, document.querySelector("#list td").textContent].join();"""
    assert title_in_chromium(page, script, tmp_path) == "true,8"


@pytest.mark.slow
def test_a_thousand_rows_in_chromium(tmp_path: Path) -> None:
    path = report.write_report(explanations(997), tmp_path / "report.html")
    assert path.stat().st_size < 10e6
    # The page tells its own load time, and what the search box leaves, once it is ready.
    script = """
      var search = document.getElementById("search");
      search.value = "none exists";
      search.dispatchEvent(new Event("input"));
      document.querySelector("#list th").click();
      var first = document.querySelector("#list tbody tr:not([hidden]) td").textContent;
      document.title = [document.getElementById("shown").textContent, first, performance.now() | 0].join("|");"""
    shown, first, milliseconds = title_in_chromium(path, script, tmp_path).split("|")
    assert (shown, first) == ("1 of 1000 rows", "997")
    assert int(milliseconds) < 2000
