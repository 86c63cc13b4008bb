"""The command: model files and tables in, explained rows and a report out, and what it says when it cannot."""

from __future__ import annotations

import errno
import inspect
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import FunctionType

import joblib
import numba
import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from macem import cli, files, result_files
from macem.adapters import model_files
from macem.errors import ModelError, UnsupportedModelError
from macem.explainer import Explainer
from macem.options import SearchOptions

pytest.importorskip("pyarrow")

COLUMNS = ["duration", "credit_amount", "age"]
ROOT = str(Path(__file__).parents[1])


@pytest.fixture
def folder(tmp_path: Path, german_credit: tuple[pd.DataFrame, pd.Series], monkeypatch: pytest.MonkeyPatch) -> Path:
    X, y = german_credit
    X.loc[:299, COLUMNS].assign(target=y).to_csv(tmp_path / "train.csv", index=False)
    X.loc[300:311, COLUMNS].to_csv(tmp_path / "rows.csv", index=False)
    model = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X.loc[:299, COLUMNS], y[:300])
    joblib.dump(model, tmp_path / "model.joblib")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def explain(*options: str, model: str = "model.joblib", output: str = "out.csv") -> int:
    fixed = ["explain", model, "rows.csv", "--background", "train.csv", "--output", output, "--trust-pickle"]
    return cli.main([*fixed, *options])


def test_explains_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("--report", "report.html") == cli.DONE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "12 rows explained" in captured.err
    table = files.read_table("out.csv")
    model = joblib.load("model.joblib")
    # The class of every example, on the values as written.
    shown = table[table["macem_status"] != "none exists"]
    shown = shown[shown[COLUMNS].notna().all(axis=1)]
    assert len(shown) >= 24
    assert list(model.predict(shown[COLUMNS])) == list(shown["macem_prediction"])
    assert "The model&#39;s decision is" in (folder / "report.html").read_text(encoding="utf-8")
    provenance = json.loads((folder / "out.csv.provenance.json").read_text(encoding="utf-8"))
    assert provenance["model_class"] == "sklearn.tree._classes.DecisionTreeClassifier"


def test_options_reach_the_explainer(folder: Path) -> None:
    options = ["--kinds", "negative", "--frozen", "age", "--directions", "duration=decrease", "--quiet"]
    assert explain(*options, "--no-away-from-base", "--ranges", "credit_amount=500:20000") == cli.DONE
    table = files.read_table("out.csv")
    assert set(table["macem_kind"]) == {"row", "negative"}
    own, negative = (table[table["macem_kind"] == kind].set_index("macem_row") for kind in ("row", "negative"))
    found = negative.index[negative["macem_status"] == "found"]
    assert len(found)
    assert (own.loc[found, "age"] == negative.loc[found, "age"]).all()
    assert (negative.loc[found, "duration"] <= own.loc[found, "duration"]).all()


def test_a_toml_file_and_flags_over_it(folder: Path) -> None:
    (folder / "run.toml").write_text('kinds = ["positive"]\nseed = 3\n[base]\nage = 40\n[options]\nn_steps = 10\n')
    assert explain("--config", "run.toml", "--seed", "4", "--quiet") == cli.DONE
    provenance = json.loads((folder / "out.csv.provenance.json").read_text(encoding="utf-8"))
    assert provenance["settings"]["seed"] == 4
    assert provenance["settings"]["base"] == {"age": 40}
    shown = files.read_table("train.csv")
    in_use = provenance["features"]
    assert in_use["age"] == {"base": 40, "range": [shown["age"].min(), shown["age"].max()]}
    assert in_use["duration"]["base"] == shown["duration"].median()
    assert provenance["options"]["n_steps"] == 10
    assert set(files.read_table("out.csv")["macem_kind"]) == {"row", "positive"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config", "bad.toml"], "'sead', which is no option; did you mean 'seed'?"),
        (["--config", "types.toml"], "frozen = 'age', which is not a list"),
        (["--chunk-rows", "0"], "chunk_rows=0"),
        (["--timeout", "3"], "--timeout is for a model service"),
        (["--adapter", "nowhere:Adapter"], "cannot be imported"),
        (["--config", "nothing.toml"], "cannot be read"),
        (["--base", "age"], "NAME=VALUE"),
        (["--ranges", "age=3"], "NAME=LOW:HIGH"),
        (["--drop", "tarrget"], "no such column"),
        (["--frozen", "agee"], "'age'"),
        (["--target", "great"], "no class of the model"),
        (["--cutoff", "great=0.2"], "no class of the model"),
        (["--cutoff", "bad=2"], "is not a number between 0 and 1"),
        (["--cutoff", "bad"], "NAME=VALUE"),
        (["--n-steps", "-1"], "n_steps=-1"),
    ],
)
def test_wrong_options_are_refused_before_any_work(
    folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.toml").write_text("sead = 1\n")
    (folder / "types.toml").write_text('frozen = "age"\n')
    assert explain(*options) == cli.REFUSED
    assert message in capsys.readouterr().err
    assert not (folder / "out.csv").exists()


@pytest.mark.parametrize(
    "line",
    [
        *("seed = true", "chunk_rows = 1.5", "resume = 1", "time_limit = '3'", "base = 3", "output = 5", "options = 3"),
        *("drop = [['age']]", "classes = [{ bad = 1 }]"),
    ],
)
def test_a_value_of_another_type_in_a_toml_file(folder: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.toml").write_text(line)
    assert explain("--config", "run.toml") == cli.REFUSED
    assert f"run.toml sets {line.partition(' ')[0]} = " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("n_steps = -1\nseed = 3", ["--seed", "4"], "of at least 0; give one. (run.toml sets n_steps.)"),
        ("[base]\nagee = 3", ["--base", "age=40"], "(run.toml sets base.)"),
        ("target = 'great'", [], "(run.toml sets target.)"),
        ("seed = 3", ["--seed", "-1"], "seed=-1 is not a whole number of at least 0; give one."),
    ],
)
def test_a_refusal_names_the_toml_file(
    folder: Path, text: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run.toml").write_text(text)
    assert explain("--quiet", "--config", "run.toml", *options) == cli.REFUSED
    refusal = capsys.readouterr().err.strip()
    assert message in refusal
    assert "seed" not in refusal.partition("(")[2]


def test_dates_in_a_toml_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.toml").write_text("kinds = [2026-11-29]\n")
    assert explain("--config", "run.toml") == cli.REFUSED
    assert "is not possible; give" in capsys.readouterr().err
    (folder / "run.toml").write_text("kinds = ['positive']\nn_steps = 2\n[names]\nage = 2026-11-29\n")
    assert explain("--config", "run.toml", "--quiet") == cli.DONE


def test_files_may_be_named_in_the_toml_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["explain", "model.joblib", "rows.csv", "--config", "run.toml"]
    (folder / "run.toml").write_text('background = "train.csv"\ntrust_pickle = true\nquiet = true\n')
    assert cli.main(given) == cli.REFUSED
    assert "no --output" in capsys.readouterr().err
    assert cli.main([*given, "--output", "out.csv"]) == cli.DONE


def test_a_cutoff(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("--cutoff", "bad=0.2") == cli.DONE
    assert "A row is 'bad' from a probability of 0.2 on." in capsys.readouterr().err
    table = files.read_table("out.csv")
    model = joblib.load("model.joblib")
    shown = table[table["macem_status"] != "none exists"]
    shown = shown[shown[COLUMNS].notna().all(axis=1)]
    bad = model.predict_proba(shown[COLUMNS])[:, 0] >= 0.2
    assert list(np.where(bad, "bad", "good")) == list(shown["macem_prediction"])
    assert (model.predict(shown[COLUMNS]) != shown["macem_prediction"]).any()
    (folder / "run.toml").write_text("[cutoff]\nbad = 0.3\n")
    assert explain("--config", "run.toml", "--resume") == cli.REFUSED
    assert "settings" in capsys.readouterr().err
    assert explain("--config", "run.toml", "--cutoff", "good=0.4") == cli.DONE
    assert "A row is 'good' from a probability of 0.4 on." in capsys.readouterr().err


def test_a_cutoff_of_a_model_that_names_no_classes_needs_them(
    folder: Path, german_credit: tuple[pd.DataFrame, pd.Series], capsys: pytest.CaptureFixture[str]
) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    X, y = german_credit
    model = lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(
        X.loc[:299, COLUMNS], (y[:300] == "bad").astype(int)
    )
    model.booster_.save_model("model.txt")
    assert explain("--cutoff", "bad=0.3", "--classes", "good,bad", model="model.txt") == cli.DONE
    table = files.read_table("out.csv")
    own = table[table["macem_kind"] == "row"]
    expected = model.predict_proba(own[COLUMNS])[:, 1] >= 0.3
    assert list(own["macem_prediction"]) == list(np.where(expected, "bad", "good"))


@pytest.mark.parametrize(
    "given",
    [
        ["--vers"],
        ["explain", "model.joblib", "rows.csv", "--n-step", "1"],
        ["report", "out.csv", "--output", "a.html", "--lim", "1"],
        ["demo", "--out", "x"],
    ],
)
def test_the_beginning_of_an_option_is_no_option(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(given)
    assert ended.value.code == cli.REFUSED
    assert "unrecognized arguments: --" in capsys.readouterr().err


def test_without_a_command_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == cli.REFUSED
    assert "explain a file of rows" in capsys.readouterr().err


def test_an_adapter_of_the_users_choice(folder: Path) -> None:
    assert explain("--adapter", "macem.adapters:BlackBoxAdapter", "--kinds", "positive", "--n-steps", "2") == cli.DONE
    provenance = json.loads((folder / "out.csv.provenance.json").read_text(encoding="utf-8"))
    assert provenance["path"].startswith("lockstep")


def test_a_pickle_is_refused_with_the_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixed = ["explain", "model.joblib", "rows.csv", "--background", "train.csv", "--output", "out.csv"]
    assert cli.main(fixed) == cli.REFUSED
    assert "runs whatever code" in capsys.readouterr().err


def test_bad_rows_give_their_own_exit_status(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open("rows.csv", "a") as stream:
        stream.write("twelve,1,2\n12,inf,30\n")
    assert explain("--quiet") == cli.SOME_ROWS_FAILED
    assert "out.csv.errors.csv" in capsys.readouterr().err
    errors = pd.read_csv("out.csv.errors.csv")
    assert list(errors["row"]) == [12, 13]


def test_interruption_can_be_resumed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain("--quiet", output="whole.csv") == cli.DONE
    full, calls = Explainer.explain, []

    def interrupted(self: Explainer, *arguments: object, **options: object) -> object:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return full(self, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Explainer, "explain", interrupted)
        assert explain("--quiet", "--chunk-rows", "3") == cli.INTERRUPTED
    assert "--resume" in capsys.readouterr().err
    assert explain("--chunk-rows", "3", "--resume") == cli.DONE
    assert "6 of them earlier" in capsys.readouterr().err
    assert (folder / "out.csv").read_bytes() == (folder / "whole.csv").read_bytes()


def test_it_says_once_when_it_compiles(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compiles(module: str) -> Callable[..., object]:
        def explain_after_compiling(self: Explainer, *arguments: object, **options: object) -> object:
            for _ in range(2):
                fresh = FunctionType((lambda number: number + 1).__code__, {"__name__": module})
                numba.njit(fresh)(1)
            return full(self, *arguments, **options)  # type: ignore[arg-type]

        return explain_after_compiling

    full = Explainer.explain
    assert explain("--quiet") == cli.DONE
    assert capsys.readouterr().err == ""
    for module, options, n_times in (("model", [], 0), ("macem.kernel", [], 1), ("macem.kernel", ["--quiet"], 0)):
        monkeypatch.setattr(Explainer, "explain", compiles(module))
        assert explain(*options) == cli.DONE
        assert capsys.readouterr().err.count("Compiling the search") == n_times


def test_report_of_a_result_file(folder: Path) -> None:
    assert explain("--quiet") == cli.DONE
    assert cli.main(["report", "out.csv", "--output", "report.html", "--title", "Mine", "--limit", "5"]) == cli.DONE
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "Mine" in text
    assert 'id="row-5"' in text
    assert 'id="row-6"' not in text
    assert cli.main(["report", "rows.csv", "--output", "report.html"]) == cli.REFUSED
    assert cli.main(["report", "out.csv", "--output", "report.html", "--labels", "good=granted now"]) == cli.DONE
    assert "granted now" in (folder / "report.html").read_text(encoding="utf-8")


def test_adapters_are_listed_and_broken_ones_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import macem.adapters

    broken = macem.adapters.InstalledAdapter("toyboost", "no_such_module:Adapter", "macem-toyboost", "1.0")
    monkeypatch.setattr(macem.adapters, "installed_adapters", lambda: (broken,))
    assert cli.main(["adapters"]) == cli.FAILED
    out = capsys.readouterr().out
    assert "macem-toyboost 1.0" in out
    assert "no_such_module" in out


def test_warnings_are_said_without_a_line_of_python(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macem.adapters.installed_adapters", lambda: (warnings.warn("it is late", stacklevel=1),)[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        cli.main(["adapters"])
    assert capsys.readouterr().err == "macem: UserWarning: it is late\n"


@pytest.mark.slow
def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert cli.main(["demo", "--output", str(tmp_path / "demo")]) == cli.DONE
    out = capsys.readouterr().out
    assert out.count("Application ") == 5
    assert out.count("It would still be refused") == 5
    assert out.count("It would be granted if") == 5
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {"report.html", "application.png"}


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["explain", "--help"]):
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        assert stop.value.code == 0
    out = capsys.readouterr().out
    for expected in ("exit status", "--resume", "--trust-pickle", "--n-directions", "pertinent positive"):
        assert expected in out


def parameters(function: Callable[..., object]) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_every_option_of_the_api_has_a_flag_and_a_page(tmp_path: Path) -> None:
    service = pytest.importorskip("macem.adapters.service")
    flags = set(vars(cli._parser().parse_args(["explain", "m", "r"])))
    asked = parameters(Explainer) | parameters(Explainer.explain) | parameters(SearchOptions)
    # Tables and models are arguments; `options` is the search options; `progress` is --quiet.
    assert asked - {"self", "model", "X_train", "X", "options", "progress"} <= flags
    # `output` is the result file's name; columns have their names from the table; the others are for tests.
    remote = parameters(service.RemoteModel) - {"url", "output", "columns", "sleep", "transport"}
    assert remote | {"output_name"} <= flags
    page = (Path(ROOT) / "docs" / "command.md").read_text(encoding="utf-8")
    (tmp_path / "run.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    assert cli._read_toml(str(tmp_path / "run.toml"), list(flags))["names"] == {"duration": "the term in months"}
    unsaid = {
        name
        for name in flags - {"command", "hint_when_stopped", "hint_when_refused", "model", "rows"}
        if f"`{name}`" not in page
    }
    assert not unsaid


def test_a_toml_file_knows_the_type_of_every_option() -> None:
    flags = vars(cli._parser().parse_args(["explain", "m", "r"]))
    known = [name for _, names in cli.TOML_TYPES.values() for name in names]
    assert set(known) <= set(flags)
    assert len(known) == len(set(known))


def test_model_files(tmp_path: Path, german_credit: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = german_credit
    X = X[COLUMNS]
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    skops = pytest.importorskip("skops.io")
    skops.dump(model, tmp_path / "m.skops")
    loaded = model_files.load(str(tmp_path / "m.skops"))
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert model_files.feature_names(loaded) == COLUMNS
    with pytest.raises(ModelError, match="no model file"):
        model_files.load(str(tmp_path / "none.skops"))
    with pytest.raises(UnsupportedModelError, match="no model files end in"):
        model_files.load("model.h5")
    (tmp_path / "m.json").write_text("{}")
    pytest.importorskip("xgboost")
    with pytest.raises(ModelError, match=r"cannot (be )?read"):
        model_files.load(str(tmp_path / "m.json"))


def test_skops_files_of_unknown_types_are_refused(tmp_path: Path) -> None:
    skops = pytest.importorskip("skops.io")
    skops.dump({"path": Path("x")}, tmp_path / "m.skops")
    with pytest.raises(UnsupportedModelError, match="--trust-type"):
        model_files.load(str(tmp_path / "m.skops"))


def test_onnx(tmp_path: Path, german_credit: tuple[pd.DataFrame, pd.Series]) -> None:
    pytest.importorskip("onnxruntime")
    to_onnx = pytest.importorskip("skl2onnx").to_onnx
    X, y = german_credit
    numbers = X[COLUMNS].to_numpy(np.float32)
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(numbers, y)
    (tmp_path / "m.onnx").write_bytes(to_onnx(model, numbers[:1]).SerializeToString())
    loaded = model_files.load(str(tmp_path / "m.onnx"))
    assert list(loaded.classes_) == ["bad", "good"]
    np.testing.assert_allclose(loaded.predict_proba(numbers), model.predict_proba(numbers), atol=1e-6)
    assert list(loaded.predict(numbers)) == list(model.predict(numbers))


def test_reasons_in_the_users_words(folder: Path) -> None:
    (folder / "run.toml").write_text(
        '[labels]\nbad = "refused"\n[templates]\ndecision = "Your application is {prediction}."\n'
    )
    names = [option for name in COLUMNS for option in ("--names", f"{name}=the {name.upper()} given")]
    options = ["--config", "run.toml", "--labels", "good=granted", *names, "--quiet"]
    assert explain(*options, "--report", "report.html") == cli.DONE
    reasons = files.read_table("out.csv")["macem_reason"].dropna()
    assert reasons.str.startswith(("Your application is refused.", "Your application is granted.")).all()
    assert reasons.str.contains(r"if the [A-Z_]+ given were").any()
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "Your application is <bdi>granted</bdi>." in text
    assert " given" in text


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--labels", "worse=refused"], "'worse' is no class of the model"),
        (["--names", "agee=age"], "'agee'"),
        (["--templates", "decison=x"], "no sentence"),
        (["--templates", "decision={score}"], "use the fields {prediction}"),
    ],
)
def test_impossible_words_are_refused(
    folder: Path, option: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(*option) == cli.REFUSED
    assert message in capsys.readouterr().err


def test_a_booster_gets_labels(folder: Path, german_credit: tuple[pd.DataFrame, pd.Series]) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    X, y = german_credit
    fitted = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(
        X.loc[:299, COLUMNS], (y[:300] == "good").astype(int)
    )
    fitted.booster_.save_model(folder / "model.txt")
    options = ["--classes", "bad,good", "--target", "good", "--quiet"]
    assert explain(*options, model="model.txt") == cli.DONE
    own = files.read_table("out.csv").query("macem_kind == 'row'")
    expected = fitted.predict(X.loc[300:311, COLUMNS])
    assert list(own["macem_prediction"]) == ["good" if one else "bad" for one in expected]
    provenance = json.loads((folder / "out.csv.provenance.json").read_text(encoding="utf-8"))
    assert provenance["model_class"] == "lightgbm.basic.Booster"


@pytest.mark.parametrize("dtype", ["str", "string"])
def test_a_booster_gets_texts_as_categories(
    folder: Path, german_credit: tuple[pd.DataFrame, pd.Series], dtype: str
) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    X, y = german_credit
    table = X.loc[:299, ["duration", "purpose"]].astype({"purpose": "category"})
    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(table, y[:300])
    joblib.dump(model, "texts.joblib")
    table.to_csv("train.csv", index=False)
    table.head(3).to_csv("rows.csv", index=False)
    assert explain("--dtypes", f"purpose={dtype}", "--kinds", "positive", "--quiet", model="texts.joblib") == cli.DONE
    own = files.read_table("out.csv").query("macem_kind == 'row'")
    assert list(own["macem_prediction"]) == list(model.predict(table.head(3)))


def test_a_column_that_the_model_does_not_take(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = pd.read_csv("train.csv")
    joblib.dump(DecisionTreeClassifier().fit(train[COLUMNS].to_numpy(), train["target"]), "nameless.joblib")
    pd.read_csv("rows.csv").assign(target="?").to_csv("rows.csv", index=False)
    assert explain(model="nameless.joblib") == cli.REFUSED
    assert "--drop NAME" in capsys.readouterr().err
    assert explain("--drop", "target", "--quiet", model="nameless.joblib") == cli.DONE


@pytest.mark.parametrize(
    ("dtype", "shown", "known"),
    [(float, "1", "0.0, 1.0"), (bool, "True", "False, True"), (int, "1", "0, 1")],
)
def test_labels_that_are_no_texts_come_back(
    folder: Path, dtype: type, shown: str, known: str, capsys: pytest.CaptureFixture[str]
) -> None:
    train = pd.read_csv("train.csv")
    model = DecisionTreeClassifier(max_depth=3).fit(train[COLUMNS], (train["target"] == "good").astype(dtype))
    joblib.dump(model, "other.joblib")
    assert explain("--quiet", "--report", "report.html", model="other.joblib") == cli.DONE
    assert f"decision is <bdi>{shown}</bdi> (probability" in (folder / "report.html").read_text(encoding="utf-8")
    again = ["report", "out.csv", "--output", "again.html", "--labels"]
    assert cli.main([*again, f"{dtype(1)}=granted"]) == cli.DONE
    assert "decision is <bdi>granted</bdi> (probability" in (folder / "again.html").read_text(encoding="utf-8")
    assert cli.main([*again, "good=granted"]) == cli.REFUSED
    assert f"'good', which is no class of the model; choose among [{known}]." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "made.csv"], "--output made.csv is a folder; name a file in it"),
        (["--output", "rows.csv/out.csv"], "rows.csv, which is a file; name another place"),
        (["--output", "rows.csv/deep/out.csv"], "rows.csv, which is a file; name another place"),
        (["--output", "/proc/out.csv"], "--output /proc/out.csv cannot be written (No such file or directory)"),
        (["--output", f"{'x' * 300}.csv"], "File name too long"),
        (["--report", "made.csv"], "--report made.csv is a folder"),
        (["--report", "rows.csv/report.html"], "--report rows.csv/report.html lies below"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(
    folder: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "/proc" in message and not Path("/proc/self").exists():
        pytest.skip("no /proc, where nothing can be written")
    (folder / "made.csv").mkdir()
    before = sorted(folder.iterdir())
    monkeypatch.setattr(model_files, "load", None)
    assert explain(*options) == cli.REFUSED
    assert message in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_a_report_that_cannot_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "rows.csv", "--output", "."]) == cli.REFUSED
    assert "--output . is a folder" in capsys.readouterr().err


def test_a_full_disk_is_no_refusal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cli, "TemporaryFile", full)
    assert explain() == cli.FAILED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "train.csv"], "--output train.csv is the file of the background, too"),
        (["--output", "./rows.csv"], "--output ./rows.csv is the file of the rows, too"),
        (["--report", "out.csv"], "--report out.csv is the file of the output, too"),
        (["--report", "model.joblib"], "--report model.joblib is the file of the model, too"),
        (["--config", "run.toml", "--report", "run.toml"], "--report run.toml is the file of the config, too"),
    ],
)
def test_no_file_is_written_over_one_that_is_read(
    folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run.toml").write_text("seed = 1\n")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert explain(*options) == cli.REFUSED
    assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_report_is_not_written_over_its_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "rows.csv", "--output", "rows.csv"]) == cli.REFUSED
    assert "the file of the results" in capsys.readouterr().err


def test_the_folder_of_a_report_is_made(folder: Path) -> None:
    assert explain("--report", "new/report.html", "--quiet") == cli.DONE
    assert (folder / "new" / "report.html").is_file()
    assert cli.main(["report", "out.csv", "--output", "newer/report.html"]) == cli.DONE
    assert (folder / "newer" / "report.html").is_file()


def test_bad_lines_of_json_are_errors_of_their_rows(folder: Path) -> None:
    good = pd.read_csv("rows.csv").to_json(orient="records", lines=True)
    (folder / "rows.jsonl").write_text(good + '{"age": "\\ud800"}\n' + "[" * 100_000 + "\n")
    fixed = ["explain", "model.joblib", "rows.jsonl", "--background", "train.csv", "--trust-pickle", "--quiet"]
    assert cli.main([*fixed, "--output", "out.csv"]) == cli.SOME_ROWS_FAILED
    assert list(pd.read_csv("out.csv.errors.csv")["row"]) == [12, 13]


def test_labels_that_look_like_numbers_stay_texts(folder: Path) -> None:
    train = pd.read_csv("train.csv")
    model = DecisionTreeClassifier(max_depth=3).fit(train[COLUMNS], np.where(train["target"] == "good", "1.0", "2.0"))
    joblib.dump(model, "other.joblib")
    assert explain("--quiet", "--report", "report.html", model="other.joblib") == cli.DONE
    assert "decision is <bdi>1.0</bdi> (probability" in (folder / "report.html").read_text(encoding="utf-8")


def test_an_option_refused_late_leaves_no_parts(folder: Path) -> None:
    assert explain("--kinds", "neg") == cli.REFUSED
    assert explain("--kinds", "negative", "--quiet") == cli.DONE


def test_a_limit_below_zero(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("--quiet") == cli.DONE
    assert cli.main(["report", "out.csv", "--output", "report.html", "--limit", "-1"]) == cli.REFUSED
    assert "limit=-1 is not" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["rows.csv", "train.csv", "run.toml"])
def test_files_in_another_encoding_are_refused(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.toml").write_text("# grün\n", encoding="latin-1")
    if name != "run.toml":
        (folder / name).write_text((folder / name).read_text().replace("age", "âge", 1), encoding="latin-1")
    assert explain(*(["--config", "run.toml"] if name == "run.toml" else [])) == cli.REFUSED
    assert name in capsys.readouterr().err


def test_it_is_a_module_that_runs() -> None:
    command = [sys.executable, "-m", "macem", "--version"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ROOT})
    assert told.stdout.startswith("macem ")


def test_numbers_with_commas(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        explain("--loss-weights", "1,x")
    assert "'1,x' is not numbers with commas between them" in capsys.readouterr().err


def test_a_result_is_read_as_far_as_wanted(folder: Path) -> None:
    for output in ("out.csv", "out.parquet", "out.jsonl"):
        assert explain("--quiet", "--chunk-rows", "2", output=output) == cli.DONE
        back = result_files.read_explanations(Path(output), limit=5)
        assert len(back) == 5
        assert [one.reason() for one in back] == [one.reason() for one in result_files.read_explanations(Path(output))][
            :5
        ]


@pytest.mark.parametrize("fault", ["no first line", "details", "probabilities", "provenance"])
def test_a_damaged_result_is_refused(folder: Path, capsys: pytest.CaptureFixture[str], fault: str) -> None:
    assert explain("--quiet", output="out.csv") == cli.DONE
    path = Path("out.csv.provenance.json" if fault == "provenance" else "out.csv")
    text = path.read_text(encoding="utf-8")
    if fault == "provenance":
        text = text[:-9]
    elif fault == "probabilities":
        text = text.replace('""good"": ', '""great"": ')
    elif fault == "details":
        text = text.replace("probabilities", "prob")
    else:
        header, _, rest = text.split("\n", 2)
        text = f"{header}\n{rest}"
    path.write_text(text, encoding="utf-8")
    assert cli.main(["report", "out.csv", "--output", "out.html"]) == cli.REFUSED
    assert f"{path} is damaged (" in capsys.readouterr().err
    assert not Path("out.html").exists()


class Service(ThreadingHTTPServer):
    """A model behind the Open Inference Protocol v2 on this machine; it may fall silent after some requests."""

    def __init__(self, model: DecisionTreeClassifier, dead_after: float = float("inf")) -> None:
        self.model, self.left = model, dead_after
        self.token: str | None = None
        super().__init__(("127.0.0.1", 0), Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v2/models/credit"


class Answer(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self.say({"name": "credit", "outputs": [{"name": "predict_proba", "datatype": "FP64", "shape": [-1, 2]}]})

    def do_POST(self) -> None:
        token = self.server.token
        sent = (self.headers["Authorization"], self.path.partition("?")[2])
        if token is not None and sent != (f"Bearer {token}", f"code={token}"):
            self.send_error(401)
            return
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.left -= 1
        if self.server.left < 0:
            self.send_error(500)
            return
        (tensor,) = asked["inputs"]
        rows = np.array(tensor["data"]).reshape(tensor["shape"])
        answer = self.server.model.predict_proba(pd.DataFrame(rows, columns=COLUMNS))
        output = {"name": "predict_proba", "datatype": "FP64", "shape": answer.shape, "data": answer.ravel().tolist()}
        self.say({"outputs": [output]})

    def say(self, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *message: object) -> None:
        pass


def test_a_service_by_url_that_dies_and_comes_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("httpx")
    model = joblib.load("model.joblib")
    options = ["--drop", "target", "--classes", "bad,good", "--n-steps", "2", "--chunk-rows", "4", "--quiet"]
    with Service(model) as service:
        worker = Thread(target=service.serve_forever)
        worker.start()
        try:
            service.left = 10_000
            assert explain(*options, model=service.url, output="whole.csv") == cli.DONE
            # It answers while the explainer is made and the first chunk is explained, and then no more.
            service.left = (10_000 - service.left) * 2 // 3
            assert explain(*options, model=service.url) == cli.FAILED
            assert "does not answer any more" in (said := capsys.readouterr().err)
            assert "--resume" in said
            assert not (folder / "out.csv").exists()
            service.left = float("inf")
            assert explain(*options, "--resume", model=service.url) == cli.DONE
        finally:
            service.shutdown()
            worker.join()
    assert (folder / "out.csv").read_bytes() == (folder / "whole.csv").read_bytes()
    table = files.read_table("out.csv")
    shown = table[table[COLUMNS].notna().all(axis=1)]
    assert list(model.predict(shown[COLUMNS])) == list(shown["macem_prediction"])


@pytest.mark.parametrize("where", ["flag", "toml"])
def test_a_token_reaches_the_service_and_nothing_else(
    folder: Path, where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("httpx")
    options = ["--drop", "target", "--classes", "bad,good", "--n-steps", "2", "--kinds", "positive"]
    if where == "flag":
        header = ["--headers", "Authorization: Bearer ${CREDIT_TOKEN}"]
    else:
        (folder / "run.toml").write_text('[headers]\nAuthorization = "Bearer ${CREDIT_TOKEN}"\n')
        header = ["--config", "run.toml"]
    with Service(joblib.load("model.joblib")) as service:
        service.token = "not-to-be-seen"
        url = f"{service.url}?code=not-to-be-seen"
        worker = Thread(target=service.serve_forever)
        worker.start()
        try:
            assert explain(*options, model=url) == cli.FAILED
            assert "401" in (said := capsys.readouterr().err)
            assert "not-to-be-seen" not in said
            assert explain(*options, *header, model=url) == cli.REFUSED
            assert "${CREDIT_TOKEN}, which is not set" in capsys.readouterr().err
            monkeypatch.setenv("CREDIT_TOKEN", "not-to-be-seen\n")
            assert explain(*options, *header, "--report", "report.html", model=url) == cli.DONE
        finally:
            service.shutdown()
            worker.join()
    assert "not-to-be-seen" not in "".join(capsys.readouterr())
    written = [path for path in folder.iterdir() if path.suffix in (".csv", ".json", ".html")]
    assert {path.name for path in written} >= {"out.csv", "out.csv.provenance.json", "report.html"}
    assert not [path for path in written if b"not-to-be-seen" in path.read_bytes()]
    record = json.loads((folder / "out.csv.provenance.json").read_text(encoding="utf-8"))
    assert record["model"] == f"{service.url}?code=…"


@pytest.mark.parametrize(
    ("model", "header", "message"),
    [
        ("http://127.0.0.1:9/v2/models/m", "Authorization=x", "one has no colon"),
        ("http://127.0.0.1:9/v2/models/m", "Authorization: two\nlines", "line break"),
        ("http://127.0.0.1:9/v2/models/m", "X-é: b", "The header 'X-é' has a name"),
        ("http://127.0.0.1:9/v2/models/m", "Bad Name: b", "The header 'Bad Name' has a name"),
        ("http://me:secret@127.0.0.1:9/v2/models/m", "A: b", "holds a password"),
        ("http://127.0.0.1:9/model", "A: b", "protocol"),
        ("http://[127.0.0.1:9/v2/models/m", "A: b", "is no address"),
    ],
)
def test_services_that_cannot_be_asked(
    folder: Path, model: str, header: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain("--headers", header, model=model) == cli.REFUSED
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("classes", ["bad", "bad,good,x", "bad,bad"])
def test_classes_that_do_not_fit_a_service(folder: Path, classes: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("httpx")
    with Service(joblib.load("model.joblib")) as service:
        worker = Thread(target=service.serve_forever)
        worker.start()
        try:
            assert explain("--drop", "target", "--classes", classes, model=service.url) == cli.REFUSED
        finally:
            service.shutdown()
            worker.join()
    said = capsys.readouterr().err
    assert "--classes" in said
    assert str(classes.split(",")) in said


# A process that dies at a call of macem's own code, wherever it falls: of explaining, of writing, or of joining.
KILLED = """
import os, signal, sys
import sklearn.tree
from macem import batch, cli, explainer
left = int(sys.argv[1])
def count(frame, event, argument):
    global left
    if event == "call" and "macem" in frame.f_code.co_filename:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(count)
status = cli.main(sys.argv[2:])
sys.setprofile(None)
print(-left)
sys.exit(status)
"""


@pytest.mark.slow
def test_killed_at_random_and_resumed_is_byte_for_byte_the_same(
    folder: Path, german_credit: tuple[pd.DataFrame, pd.Series]
) -> None:
    X, _ = german_credit
    X.loc[300:, COLUMNS].head(120).astype({"age": object}).replace({"age": {23: "young"}}).to_csv(
        "rows.csv", index=False
    )
    options = ["model.joblib", "rows.csv", "--background", "train.csv", "--trust-pickle", "--quiet", "--n-steps", "5"]

    def run(output: str, calls: int) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-c",
            KILLED,
            str(calls),
            "explain",
            *options,
            "--chunk-rows",
            "10",
            "--output",
            output,
        ]
        return subprocess.run(
            [*command, "--resume"], check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ROOT}
        )

    whole = run("whole.csv", 0)
    assert whole.returncode == cli.SOME_ROWS_FAILED
    total = int(whole.stdout)
    for calls in np.random.default_rng(0).uniform(0.1, 0.35, 3) * total:
        assert run("out.csv", int(calls)).returncode == -signal.SIGKILL
        assert not Path("out.csv").exists()
    assert run("out.csv", 0).returncode == cli.SOME_ROWS_FAILED
    for name in ("out.csv", "out.csv.errors.csv"):
        assert Path(name).read_bytes() == Path(f"whole{name[3:]}").read_bytes()
