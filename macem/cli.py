"""The command ``macem``: explain a file of rows by a model file, report, list the adapters, demonstrate."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import hashlib
import os
import re
import sys
import textwrap
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import urlsplit

from macem.errors import MacemError, ModelError, OptionError, OracleError
from macem.options import SearchOptions

__all__ = ["main"]

DONE, FAILED, REFUSED, SOME_ROWS_FAILED, INTERRUPTED = 0, 1, 2, 3, 130

EPILOG = """\
exit status:
  0    done
  1    ended early: a full disk, a dead model service, a file that cannot be written; go on with --resume
  2    refused before any work: a wrong option, file, column or model, or a second run on one output
  3    done, but some rows could not be explained: see OUTPUT.errors.csv
  130  Ctrl-C; go on with --resume (143, of SIGTERM, and 137, of SIGKILL, too)
"""

WORDS = ("templates", "names", "labels")
PAIRS = ("base", "ranges", "directions", "special_values", "cutoff", "dtypes", "headers", *WORDS)
SERVICE = ("protocol", "model_name", "output_name", "batch_size", "timeout", "retries", "headers")
#: What a run may change and still be the same run; `headers` are here since they hold secrets, too.
ASIDE = {
    *("model", "rows", "background", "output", "report", "resume", "quiet", "n_jobs", "chunk_rows"),
    *("headers", "batch_size", "timeout", "retries"),
}
#: What a value of a TOML file must be, by option; the other options are judged where they are used.
TOML_TYPES: Mapping[type, tuple[str, Sequence[str]]] = {
    dict: ("a table", PAIRS),
    list: (
        "a list of texts or numbers",
        ("categorical", "classes", "drop", "frozen", "kinds", "loss_weights", "smoothing", "trust_type"),
    ),
    bool: ("true or false", ("away_from_base", "quiet", "refine", "resume", "trust_pickle")),
    int: ("a whole number", ("batch_size", "chunk_rows", "n_jobs", "retries", "seed")),
    float: ("a number", ("time_limit", "timeout")),
    str: ("a text", ("adapter", "background", "id", "model_name", "output", "output_name", "protocol", "report")),
}
SEARCH_HELP = {
    "n_steps": "steps of each start",
    "n_directions": "random directions per gradient estimate",
    "l1_weight": "weight of the L1 distance: more is sparser",
    "margin": "how far the wanted class must lead, in units of the score",
    "loss_weights": "weight of the class for each start",
    "smoothing": "smoothing radius of each start; as many as loss weights",
    "density_weight": "weight of the density; needs --density",
    "change_cost": "price of each changed feature",
    "category_cost": "price of each changed category, in place of its step",
    "score": "what the margin is taken of: log or probability",
    "refine": "improve what the search finds; --no-refine is the paper as written",
    "away_from_base": "hold negatives away from the base values; --no-… gives ordinary counterfactuals",
    "step_size": "first step of the search",
    "beam_width": "states per round of the refinement, a multiple of 4: more is nearer and slower",
}
DEMO_LABELS = {"bad": "refused", "good": "granted"}
DEMO_WORDS = {
    "decision": "The application is {prediction} (probability {probability}).\n",
    "positive_found": "It would still be {prediction} with only {changes}.\n",
    "positive_base": "It would still be {prediction} with every feature at its base value.\n",
}

EXAMPLE = "macem explain model.skops rows.csv --background train.csv --output explained.csv --report report.html"
EXPLAIN = f"""\
Explain each row of a file: what little suffices for the model's decision (the pertinent positive), and what would have
changed it (the pertinent negative).

  {EXAMPLE}

MODEL is .json or .ubj (XGBoost), .txt (LightGBM), .skops (scikit-learn), .onnx, or the URL of a model service;
a pickle only with --trust-pickle. Tables are CSV, Parquet or JSON lines, by suffix. The background is the table whose
medians and most frequent categories count as "no information"; training data is the usual choice.

OUTPUT has, for each row, a line of kind "row" with its own values, the decision and the reason in words, then a line
per contrast with the values of the example. A killed run goes on with --resume and explains no row twice. The first
run on a machine compiles the search, which may take a minute; it says so.

Options that take NAME=… or NAME may be given many times.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns
    -------
    int
        The exit status; ``macem --help`` lists them.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help(sys.stderr)
        return REFUSED
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _say_warning
            return int(chosen.command(chosen))
    except KeyboardInterrupt:
        print(f"macem: interrupted{chosen.hint_when_stopped}", file=sys.stderr)
        return INTERRUPTED
    except MacemError as error:
        failed = isinstance(error, RuntimeError)
        print(f"macem: {error}{'' if failed else chosen.hint_when_refused}", file=sys.stderr)
        return FAILED if failed else REFUSED
    except OSError as error:
        print(f"macem: {error}{chosen.hint_when_stopped}", file=sys.stderr)
        return FAILED


def _say_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Print a warning without the line of Python that it comes from."""
    print(f"macem: {category.__name__}: {message}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """A parser, and those of its commands, that take options by their whole names only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)


def _parser() -> argparse.ArgumentParser:
    from macem import __version__

    parser = _Parser(
        prog="macem",
        description="Contrastive explanations of a classifier's decisions (MACEM).",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"macem {__version__}")
    parser.set_defaults(command=None, hint_when_stopped="", hint_when_refused="")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_explain(commands)

    report = commands.add_parser("report", help="write an HTML report of a result file")
    report.add_argument("results", metavar="RESULTS", help="a file that `macem explain --output` wrote")
    report.add_argument("--output", required=True, metavar="REPORT.html", help="where to write the report")
    report.add_argument("--title", help='(default: "Contrastive explanations")')
    report.add_argument(
        "--limit", type=int, default=5000, metavar="N", help="rows in the report, at most (default: %(default)s)"
    )
    _add_words(report)
    report.set_defaults(command=_report)

    adapters = commands.add_parser("adapters", help="list the adapters that are installed, and what is wrong with any")
    adapters.set_defaults(command=_adapters)

    demo = commands.add_parser("demo", help="explain five credit applications and write a report and a picture")
    demo.add_argument("--output", default="macem-demo", metavar="FOLDER", help="(default: ./%(default)s)")
    demo.set_defaults(command=_demo)
    return parser


def _add_explain(commands: Any) -> None:
    parser = commands.add_parser(
        "explain",
        usage="macem explain MODEL ROWS --background TRAIN --output OUT [--report REPORT.html] [options]",
        help="explain a file of rows",
        description=EXPLAIN,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=_explain, hint_when_stopped="; what is done is kept: add --resume to go on")
    parser.add_argument("model", metavar="MODEL", help="a model file, or the URL of a model service")
    parser.add_argument("rows", metavar="ROWS", help="the rows to explain")

    files = parser.add_argument_group("files")
    files.add_argument("--background", metavar="TRAIN", help="table that base values and ranges come from")
    files.add_argument("--output", metavar="OUT", help="result file (.csv, .parquet, .jsonl); its folder is made")
    files.add_argument("--report", metavar="REPORT.html", help="also write an HTML report")
    files.add_argument(
        "--config", metavar="FILE.toml", help="options by their names here (n-steps as n_steps); flags win"
    )
    files.add_argument(
        "--drop", action="append", metavar="NAME", help="a background column that the model does not take"
    )
    files.add_argument("--id", metavar="NAME", help="column of ROWS that names the rows (default: their position)")
    files.add_argument(
        "--dtypes",
        action="append",
        metavar="NAME=DTYPE",
        help="read a column so: str, int64, Int64, float64, bool, category, …",
    )
    files.add_argument("--trust-pickle", action="store_true", default=None, help="load a pickle, which runs its code")
    files.add_argument("--trust-type", action="append", metavar="TYPE", help="a type that a .skops file may create")
    files.add_argument("--classes", metavar="A,B", help="labels of a model that does not know its own")
    files.add_argument(
        "--adapter", metavar="MODULE:CLASS", help="read the model by this one of `macem adapters`, not by the usual one"
    )

    service = parser.add_argument_group("where MODEL is the URL of a service")
    service.add_argument(
        "--headers",
        action="append",
        metavar="'NAME: VALUE'",
        help="sent with every request; ${VARIABLE} is read from the environment and recorded nowhere: "
        "'Authorization: Bearer ${TOKEN}'",
    )
    service.add_argument("--protocol", help="v2 (Open Inference) or mlflow (default: told from the URL)")
    service.add_argument("--model-name", metavar="NAME", help="for v2, where the URL is the server's")
    service.add_argument("--output-name", metavar="NAME", help="for v2, the output that holds the probabilities")
    service.add_argument("--batch-size", type=int, metavar="N", help="rows per request (default: 1000)")
    service.add_argument("--timeout", type=float, metavar="SECONDS", help="to wait for an answer (default: 30)")
    service.add_argument("--retries", type=int, metavar="N", help="how often to ask a busy service again (default: 4)")

    question = parser.add_argument_group("what to explain")
    question.add_argument("--kinds", metavar="KINDS", help="positive,negative (default: both)")
    question.add_argument("--target", metavar="CLASS", help="class that a negative must reach (default: any other)")
    question.add_argument(
        "--cutoff", action="append", metavar="CLASS=P", help="a row is in this one of two classes from probability P on"
    )

    _add_words(parser)

    rules = parser.add_argument_group("what may change")
    rules.add_argument(
        "--categorical", action="append", metavar="NAME", help="a column of categories though of numbers"
    )
    rules.add_argument("--base", action="append", metavar="NAME=VALUE", help="base value (default: median or mode)")
    rules.add_argument(
        "--ranges", action="append", metavar="NAME=LOW:HIGH", help="allowed range (default: of the data)"
    )
    rules.add_argument("--frozen", action="append", metavar="NAME", help="a feature that must not change")
    rules.add_argument("--directions", action="append", metavar="NAME=DIRECTION", help="increase or decrease only")
    rules.add_argument(
        "--special-values", action="append", metavar="NAME=CODES", help='codes that mean "no information": *=-9,-8,-7'
    )
    rules.add_argument("--encoding", help="of categories: fma (default) or ssa")
    rules.add_argument("--density", help="prefer likely examples: kde or copula; set --density-weight too")

    search = parser.add_argument_group("search")
    for field in dataclasses.fields(SearchOptions):
        _add_option(search, field)

    running = parser.add_argument_group("running")
    running.add_argument("--seed", type=int, help="(default: 0)")
    running.add_argument("--n-jobs", type=int, metavar="N", help="processes or threads (default: 1)")
    running.add_argument("--max-queries", type=int, metavar="N", help="model calls per row, at most")
    running.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="per chunk; results then depend on the clock"
    )
    running.add_argument("--chunk-rows", type=int, metavar="N", help="rows written at a time (default: 500)")
    running.add_argument("--resume", action="store_true", default=None, help="go on where an earlier run ended")
    running.add_argument("--quiet", action="store_true", default=None, help="no progress on stderr")


def _add_words(parser: argparse.ArgumentParser) -> None:
    wording = parser.add_argument_group("the reason in words")
    wording.add_argument("--labels", action="append", metavar="CLASS=WORD", help="a word for a class: bad=refused")
    wording.add_argument(
        "--names", action="append", metavar="NAME=WORDS", help='words for a feature: duration="the term in months"'
    )
    wording.add_argument(
        "--templates",
        action="append",
        metavar="SENTENCE=TEXT",
        help="a sentence in place of macem's own (see the docs)",
    )


def _add_option(group: Any, field: dataclasses.Field[Any]) -> None:
    """A flag for a field of SearchOptions: its name, its default, and its type by the default."""
    name, default = "--" + field.name.replace("_", "-"), field.default
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    shown = f"{SEARCH_HELP[field.name]} (default: {shown})"
    if isinstance(default, bool):
        group.add_argument(name, action=argparse.BooleanOptionalAction, default=None, help=shown)
    elif isinstance(default, tuple):
        group.add_argument(name, type=_numbers, metavar="A,B,…", help=shown)
    else:
        kind = float if default is None else type(default)
        group.add_argument(name, type=kind, metavar=kind.__name__.upper(), help=shown)


def _numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not numbers with commas between them") from None


def _settings(chosen: argparse.Namespace) -> dict[str, Any]:
    """All settings of a run by name: those of the TOML file, then the flags, which win."""
    aside = ("command", "hint_when_stopped", "hint_when_refused", "config")
    flags = {name: value for name, value in vars(chosen).items() if name not in aside}
    settings = _read_toml(chosen.config, list(flags)) if chosen.config else {}
    from_file = [name for name in settings if flags[name] is None or name in PAIRS]
    if from_file:
        chosen.hint_when_refused = f" ({chosen.config} sets {', '.join(from_file)}.)"
    for name in PAIRS:
        pairs = dict(_pair(name, text) for text in flags[name] or [])
        replaced = name == "cutoff" and pairs  # of which there is one; of the others a flag changes single entries
        flags[name] = {**({} if replaced else settings.get(name, {})), **pairs} or None
    for name in ("kinds", "classes"):
        flags[name] = flags[name].split(",") if flags[name] else None
    settings |= {name: value for name, value in flags.items() if value is not None}
    for name in ("background", "output"):
        if name not in settings:
            raise OptionError(f"There is no --{name}; name the file, as in: {EXAMPLE}")
    return settings


def _read_toml(path: str, known: Sequence[str]) -> dict[str, Any]:
    """The settings of a TOML file; each is a known one, and of the type that it must be."""
    try:
        with open(path, "rb") as stream:
            settings = tomllib.load(stream)
    except (OSError, ValueError) as error:  # ValueError: no TOML, or no UTF-8
        raise OptionError(f"--config {path} cannot be read ({error}); correct it.") from error
    options = settings.pop("options", {})
    if not isinstance(options, dict):
        raise OptionError(f"{path} sets options = {options!r}; make it a table, [options].")
    settings |= options
    for name, value in settings.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"choose among {', '.join(sorted(known))}."
            raise OptionError(f"{path} sets {name!r}, which is no option; {remedy}")
        for kind, (words, names) in TOML_TYPES.items():
            fits = isinstance(value, (int, float) if kind is float else kind) and isinstance(value, bool) == (
                kind is bool
            )
            nested = kind is list and fits and any(isinstance(one, (dict, list)) for one in value)
            if name in names and (nested or not fits):
                raise OptionError(f"{path} sets {name} = {value!r}, which is not {words}; make it one.")
    return settings


def _pair(name: str, text: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE``; the last equals sign divides, since a column may be called ``a=b``, but no sentence is."""
    if name == "headers":
        header, colon, value = text.partition(":")
        if not colon or not header.strip():
            raise OptionError("--headers takes 'NAME: VALUE', and one has no colon; write it so.")
        return header.strip(), value.strip()
    feature, equals, value = text.partition("=") if name == "templates" else text.rpartition("=")
    if not equals or not feature:
        raise OptionError(f"--{name.replace('_', '-')} {text!r} is not of the form NAME=VALUE; write it so.")
    if name == "ranges":
        low, colon, high = value.partition(":")
        if not colon:
            raise OptionError(f"--ranges {text!r} is not of the form NAME=LOW:HIGH; write it so.")
        return feature, (_literal(low), _literal(high))
    if name == "special_values":
        return feature, [_literal(code) for code in value.split(",")]
    return feature, value if name in ("directions", "dtypes", *WORDS) else _literal(value)


def _literal(text: str) -> Any:
    """A number where it is one, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class _Asked:
    """An explainer with the arguments of its call, as a batch wants it."""

    def __init__(self, explainer: Any, background: Any, call: dict[str, Any]) -> None:
        self.explainer, self.call = explainer, call
        self.known_row = background.iloc[:1]

    def check(self, frame: Any) -> object:
        return self.explainer.features.check(frame)

    def explain(self, frame: Any) -> Any:
        return self.explainer.explain(frame, **self.call)

    def probe(self) -> object:
        return self.explainer.oracle.predict_proba(self.explainer.features.model_table(self.check(self.known_row)))


def _explain(chosen: argparse.Namespace) -> int:
    from macem.files import format_of

    settings = _settings(chosen)
    format_of(settings["output"])  # refuses an unknown suffix
    _check_written({**settings, "config": chosen.config})

    def say(text: str) -> None:
        if not settings.get("quiet"):
            _say(text)

    with _told_when_compiling(say):
        return _explain_file(settings, say)


def _say(text: str) -> None:
    """Say it on stderr, above a progress bar."""
    from tqdm import tqdm

    tqdm.write(text, file=sys.stderr)


@contextmanager
def _told_when_compiling(say: Callable[[str], None]) -> Iterator[None]:
    """Say once that the search is being compiled, where numba does not find it on disk."""
    from numba.core import event

    from macem import kernel

    class Listener(event.Listener):
        told = False

        def on_start(self, compiling: Any) -> None:
            if not self.told and compiling.data["dispatcher"].py_func.__module__ == kernel.__name__:
                self.told = True
                say("Compiling the search, as the first run on a machine does; it may take a minute …")

        def on_end(self, compiling: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield


def _explain_file(settings: dict[str, Any], say: Callable[[str], None]) -> int:
    from tqdm import tqdm

    from macem import batch, files
    from macem.adapters import model_files
    from macem.explainer import Explainer

    output = Path(settings["output"])
    model = _model(settings)
    background = files.read_table(settings["background"], settings.get("dtypes"))
    background = _columns_of(model, background, settings)
    options = SearchOptions(**_some(settings, [field.name for field in dataclasses.fields(SearchOptions)]))
    rules = ["categorical", "base", "ranges", "frozen", "directions", "special_values", "encoding", "density"]
    try:
        read = model_files.with_classes(_as_read(model, settings.get("adapter")), settings.get("classes"))
        explainer = Explainer(
            read, background, options=options, cutoff=_cutoff(settings, read), **_some(settings, rules)
        )
    except OracleError as error:
        if not Path(settings["model"]).exists():  # a service
            raise
        raise ModelError(
            f"{error} Does the background hold a column that the model does not take? Leave it out: --drop NAME. Or "
            "texts that read as numbers, such as 007? Say so: --dtypes NAME=str."
        ) from error
    classes = explainer.classes
    words = _words(settings, classes.tolist())
    for name in words["names"]:
        explainer.features.position(name)
    call = _some(settings, ["kinds", "seed", "n_jobs", "max_queries", "time_limit"])
    if "target" in settings:
        call["target"] = _label(settings["target"], classes.tolist())
    rows = files.RowFile(settings["rows"], background, settings.get("id"))
    labels = ", ".join(map(str, classes))
    say(f"{_n_rows(rows.n_rows)} of {settings['rows']}, by {type(model).__name__} with the classes {labels}")
    say(explainer.describe())
    quiet = settings.get("quiet", False)
    with tqdm(total=rows.n_rows, unit=" rows", disable=quiet, file=sys.stderr, mininterval=0.5) as bar:
        outcome = batch.run(
            _Asked(explainer, background, call),
            rows,
            output,
            classes=classes,
            identity=_identity(settings, explainer, model),
            chunk_rows=settings.get("chunk_rows", 500),
            resume=settings.get("resume", False),
            progress=bar.update,
            words=words,
        )
    resumed = f", {outcome.n_resumed:,} of them earlier," if outcome.n_resumed else ""
    say(
        f"{_n_rows(outcome.n_explained)} explained{resumed} with {outcome.n_queries:,} model calls "
        f"in {outcome.seconds:.1f} s: {outcome.output}"
    )
    if settings.get("report"):
        _write_report(output, Path(settings["report"]))
        say(f"report: {settings['report']}")
    if outcome.n_errors:
        print(f"macem: {_n_rows(outcome.n_errors)} could not be explained; see {outcome.errors}", file=sys.stderr)
        return SOME_ROWS_FAILED
    return DONE


def _check_written(paths: Mapping[str, Any]) -> None:
    """Refuse an output over another file of the run, or where none can be written, before the work and not after it."""
    from macem.batch import FULL

    written = [name for name in ("output", "report") if paths.get(name)]
    others = [name for name in ("model", "rows", "background", "config", "results") if paths.get(name)]
    for name in written:
        path = Path(paths[name])
        for other in others:
            if path.resolve() == Path(paths[other]).resolve():
                raise OptionError(f"--{name} {paths[name]} is the file of the {other}, too; name another.")
        others.append(name)
        try:
            if path.is_dir():
                raise OptionError(f"--{name} {path} is a folder; name a file in it.")
            folder = next(folder for folder in path.absolute().parents if folder.exists())  # the others will be made
            if not folder.is_dir():
                raise OptionError(f"--{name} {path} lies below {folder}, which is a file; name another place.")
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            if error.errno in FULL:  # which may pass, and is no reason to give up a run
                raise
            raise OptionError(
                f"--{name} {path} cannot be written ({error.strerror}); name another place, or allow it."
            ) from error


def _n_rows(n: int) -> str:
    return f"{n:,} row{'' if n == 1 else 's'}"


def _model(settings: dict[str, Any]) -> Any:
    """The model of a file, or a service that answers at a URL."""
    from macem.adapters import model_files

    if not settings["model"].startswith(("http://", "https://")):
        for name in SERVICE:
            if name in settings:
                raise OptionError(
                    f"--{name.replace('_', '-')} is for a model service, and {settings['model']} is none; leave it out."
                )
        return model_files.load(
            settings["model"],
            trust_pickle=settings.get("trust_pickle", False),
            trusted_types=settings.get("trust_type", ()),
            classes=settings.get("classes"),
        )
    from macem.adapters.service import RemoteModel

    model = RemoteModel(
        settings["model"],
        output=settings.get("output_name"),
        headers={name: _from_environment(name, text) for name, text in settings.get("headers", {}).items()},
        **_some(settings, ["classes", "protocol", "model_name", "batch_size", "timeout", "retries"]),
    )
    if urlsplit(model.url).password:
        raise OptionError(
            "The URL holds a password, which the shell's history and the list of processes show; leave it out, and "
            "send it as --headers 'Authorization: Basic ${BASIC}' with user:password in base64."
        )
    return model


def _from_environment(header: str, text: Any) -> str:
    """A header's value, with ``${VARIABLE}`` as the environment has it; messages never show it."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise OptionError(f"The header {header!r} asks for ${{{match[1]}}}, which is not set; export {match[1]}.")
        return os.environ[match[1]].strip()

    filled = re.sub(r"\$\{(\w+)\}", value, str(text))
    if not (filled.isascii() and filled.isprintable()):
        raise OptionError(f"The header {header!r} holds a line break or a letter beyond ASCII; correct its value.")
    return filled


def _as_read(model: Any, adapter: str | None) -> Any:
    """The model, or its oracle where the user names the adapter."""
    if adapter is None:
        return model
    from importlib.metadata import EntryPoint

    from macem.adapters import GROUP, oracle_for

    try:
        chosen = EntryPoint("adapter", adapter, GROUP).load()
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(
            f"--adapter {adapter!r} cannot be imported ({error}); give MODULE:CLASS, as `macem adapters` lists them."
        ) from error
    return oracle_for(model, chosen)


def _some(settings: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: settings[name] for name in names if name in settings}


def _columns_of(model: Any, background: Any, settings: dict[str, Any]) -> Any:
    """The background's columns that the model takes; texts as categories where the model wants them so."""
    from pandas.api.types import is_string_dtype

    from macem.adapters import model_files

    dropped = settings.get("drop", [])
    for name in dropped:
        if name not in background:
            raise OptionError(f"--drop {name}: the background has no such column; it has {list(background.columns)}.")
    background = background.drop(columns=dropped)
    names = model_files.feature_names(model)
    if names is not None and set(names) <= set(background.columns):
        background = background[names]
    elif settings.get("id") in background.columns:
        background = background.drop(columns=settings["id"])
    if model_files.wants_categories(model):
        texts = [name for name, dtype in background.dtypes.items() if is_string_dtype(dtype)]  # object as well
        background = background.astype(dict.fromkeys(texts, "category"))
    return background


def _label(text: Any, classes: Any) -> Any:
    """The class that a text names."""
    for label in classes:
        if str(label) == str(text):
            return label
    raise OptionError(f"{text!r} is no class of the model; its classes are {list(classes)}.")


def _cutoff(settings: dict[str, Any], model: Any) -> dict[Any, Any] | None:
    """The cutoff, under the model's own label."""
    from macem.adapters import oracle_for

    if "cutoff" not in settings:
        return None
    classes = oracle_for(model).classes.tolist()
    return {_label(label, classes): threshold for label, threshold in settings["cutoff"].items()}


def _words(settings: dict[str, Any], classes: Sequence[Any]) -> dict[str, Any]:
    """What the reasons are written with; every class and sentence that it names is known."""
    from macem.reasons import check_templates

    words = {name: {key: str(word) for key, word in settings.get(name, {}).items()} for name in WORDS}
    check_templates(words["templates"])
    words["labels"] = {_label(label, classes): word for label, word in words["labels"].items()}
    return words


def _identity(settings: dict[str, Any], explainer: Any, model: Any) -> dict[str, Any]:
    """What the results depend on, for the provenance and to refuse a resumption by another run."""
    from importlib.metadata import PackageNotFoundError, version

    from macem import __version__
    from macem.adapters.service import RemoteModel, shown_address

    where = settings["model"]
    versions = {"macem": __version__, "python": sys.version.split()[0]}
    for package in ("numba", "numpy", "pandas", "pyarrow", type(model).__module__.partition(".")[0]):
        try:
            versions[package] = version({"sklearn": "scikit-learn"}.get(package, package))
        except PackageNotFoundError:
            continue
    return {
        "model": shown_address(where) if isinstance(model, RemoteModel) else where,
        "path": explainer.describe(),
        "model_class": f"{type(model).__module__}.{type(model).__qualname__}",
        "model_sha256": _digest(settings["model"]),
        "rows": settings["rows"],
        "rows_sha256": _digest(settings["rows"]),
        "background": settings["background"],
        "background_fingerprint": explainer.features.fingerprint,
        "seed": settings.get("seed", 0),
        "settings": {name: value for name, value in sorted(settings.items()) if name not in ASIDE},
        "features": _in_use(explainer.features),
        "options": dataclasses.asdict(explainer.options),
        "versions": versions,
    }


def _in_use(features: Any) -> dict[str, dict[str, Any]]:
    """Base values of features and the ranges of numbers, those that were given and those of the background alike."""
    in_use: dict[str, dict[str, Any]] = {}
    for at, name in enumerate(features.names):
        levels, numbers = features.levels[at], [float(of[at]) for of in (features.base, features.low, features.high)]
        if levels is None:
            base, *ends = [int(one) if features.decimals[at] == 0 else one for one in numbers]
            in_use[str(name)] = {"base": base, "range": ends}
        else:
            level = levels[int(numbers[0])]
            in_use[str(name)] = {"base": level.item() if hasattr(level, "item") else level}
    return in_use


def _digest(path: str) -> str | None:
    if not Path(path).is_file():
        return None
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _report(chosen: argparse.Namespace) -> int:
    words = {name: dict(_pair(name, text) for text in getattr(chosen, name) or []) for name in WORDS}
    _check_written({"output": chosen.output, "results": chosen.results})
    _write_report(Path(chosen.results), Path(chosen.output), title=chosen.title, limit=chosen.limit, words=words)
    print(f"report: {chosen.output}", file=sys.stderr)
    return DONE


def _write_report(
    results: Path, output: Path, *, title: str | None = None, limit: int = 5000, words: Mapping[str, Any] | None = None
) -> None:
    """Write a report in the words of the run, and those given now, which win."""
    from macem import report, result_files

    explanations = result_files.read_explanations(results, limit=limit)
    then = explanations.provenance.get("settings", {})
    chosen = {name: {**then.get(name, {}), **(words or {}).get(name, {})} for name in WORDS}
    classes = {label for row in explanations if row.probabilities is not None for label in row.probabilities.index}
    label_of = {str(label): label for label in classes}
    chosen["labels"] = {label_of.get(text, text): word for text, word in chosen["labels"].items()}
    output.parent.mkdir(parents=True, exist_ok=True)
    report.write_report(explanations, output, title=title, **chosen)


def _adapters(chosen: argparse.Namespace) -> int:
    from macem.adapters import installed_adapters

    broken = False
    print(f"{'models of':<12} {'are read by':<50} {'which came with':<20} and is")
    for adapter in installed_adapters():
        state = "ready"
        try:
            adapter.load()
        except MacemError as error:
            broken = True
            state = f"broken: {error}"
        print(f"{adapter.package:<12} {adapter.value:<50} {f'{adapter.distribution} {adapter.version}':<20} {state}")
    return FAILED if broken else DONE


def _demo(chosen: argparse.Namespace) -> int:
    import time

    from macem.datasets import load_german_credit
    from macem.datasets.models import credit_forest
    from macem.explainer import Explainer

    X, y = load_german_credit()
    order = X.sample(frac=1.0, random_state=0).index
    train, test = order[:750], order[750:]
    print("A random forest of 100 trees learns who repays, from 750 applications (German Credit) …", flush=True)
    model = credit_forest(X.loc[train], y.loc[train])
    refused = [label for label, decision in zip(test, model.predict(X.loc[test]), strict=True) if decision == "bad"][:5]
    with _told_when_compiling(_say):
        explainer = Explainer(model, X.loc[train])
        explainer.explain(X.loc[refused[:1]])  # machine code is made on the first call, once per machine
    started = time.perf_counter()
    explanations = explainer.explain(X.loc[refused])
    seconds = time.perf_counter() - started
    for explanation in explanations:
        print(f"\nApplication {explanation.index}")
        print(textwrap.indent(explanation.reason(DEMO_WORDS, labels=DEMO_LABELS).replace("\n ", "\n").strip(), "  "))
        print(f"  ({sum(contrast.n_queries for contrast in explanation.contrasts):,} model calls)")
    n_queries = sum(contrast.n_queries for explanation in explanations for contrast in explanation.contrasts)
    print(f"\n{len(explanations)} applications, {n_queries:,} model calls, {seconds:.2f} s. {explainer.describe()}")
    return _demo_files(explanations, Path(chosen.output))


def _demo_files(explanations: Any, folder: Path) -> int:
    """Write the report and the picture, where the libraries for them are installed."""
    try:
        import matplotlib

        from macem import plots, report

        folder.mkdir(parents=True, exist_ok=True)
        report.write_report(explanations, folder / "report.html", title="Five credit applications", labels=DEMO_LABELS)
        matplotlib.use("Agg")
        from matplotlib import pyplot

        plots.plot_explanation(explanations[0])
        pyplot.savefig(folder / "application.png", dpi=150)
    except (ImportError, MacemError) as error:
        print(f"No report and picture: {error}. Install what they need: pip install 'macem[plot]'", file=sys.stderr)
        return DONE
    print(f"Report: {folder / 'report.html'}   Picture: {folder / 'application.png'}")
    return DONE
