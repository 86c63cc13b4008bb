"""The HTML report: self-contained, escaped, small, and alive in a browser."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from macem.results import Explanations
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


def test_it_has_everything_and_asks_no_network() -> None:
    text = report.render(explanations(3), title="Tonight", labels={"bad": "refused"})
    reader = Reader(text)
    ids = [attributes.get("id") for _, attributes in reader.tags]
    assert [one for one in ids if one and one.startswith("row-")] == [f"row-{number}" for number in range(1, 7)]
    links = [attributes["href"] for tag, attributes in reader.tags if tag == "a"]
    assert all(link is not None and link.startswith("#") and link[1:] in ids for link in links)
    assert not [tag for tag, attributes in reader.tags if "src" in attributes or tag == "link"]
    assert "http" not in re.sub(r"http-equiv", "", text)
    for expected in ("Tonight", "refused", "No feature is needed", "no such branch", "hand-made", "duration: 36"):
        assert expected in text
    assert "built-in method" not in text


def test_hostile_names_and_values_are_escaped() -> None:
    hostile = "</td><script>alert(1)</script>"
    batch = Explanations((explanation(hostile, purpose=hostile),), {hostile: hostile})
    text = report.render(batch, title=hostile, names={"purpose": hostile}, labels={"bad": hostile})
    assert sum(tag == "script" for tag, _ in Reader(text).tags) == 1
    assert "alert(1)</script>" not in text


def test_names_of_two_levels_are_read_with_a_slash() -> None:
    text = html.unescape(report.render(Explanations((two_levels(),)), names={("age", ""): "years"}))
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


@pytest.mark.slow
def test_a_thousand_rows_in_chromium(tmp_path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here")
    path = report.write_report(explanations(997), tmp_path / "report.html")
    assert path.stat().st_size < 10e6
    # The page tells its own load time, and what the search box leaves, once it is ready.
    probe = """<script>addEventListener("load", function () {
      var search = document.getElementById("search");
      search.value = "none exists";
      search.dispatchEvent(new Event("input"));
      document.querySelector("#list th").click();
      var first = document.querySelector("#list tbody tr:not([hidden]) td").textContent;
      document.title = [document.getElementById("shown").textContent, first, performance.now() | 0].join("|");
    });</script></body>"""
    path.write_text(path.read_text(encoding="utf-8").replace("</body>", probe), encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update"
    command = [chromium, *flags.split(), "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    page = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, check=True, timeout=120).stdout
    title = re.search(r"<title>(.*?)</title>", page)
    assert title is not None
    shown, first, milliseconds = title[1].split("|")
    assert (shown, first) == ("1 of 1000 rows", "997")
    assert int(milliseconds) < 2000
