"""Draw the pictures of the README and the docs: ``python benchmarks/picture.py``.

One explanation, a profile, a batch, and the paper's figures 1 to 3 of German Credit: an application that a tree
refuses, the frequency map of a feature, and the application's path in the tree beside its pertinent features.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exact import fitted_tree
from sklearn.model_selection import train_test_split

import macem
from macem import plots
from macem.datasets.models import credit_forest

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
APPLICATION = 788  # one that the forest refuses, whose contrasts show a category and a number


def main() -> None:
    """Explain applications and draw them."""
    X, y = macem.datasets.load_german_credit()
    X_train, X_test, y_train, _ = train_test_split(X, y, random_state=0)
    explainer = macem.Explainer(credit_forest(X_train, y_train), X_train)
    save("explanation", plots.plot_explanation(explainer.explain(X_test.loc[[APPLICATION]])[0]))
    save("profile", plots.plot_profile(explainer, X_test.loc[[APPLICATION]], "credit_amount"))
    save("batch", plots.plot_batch(explainer.explain(X_test.head(50)))[0])

    explainer = macem.Explainer(fitted_tree(X_train, y_train), X_train)
    row, explanation = telling(explainer, X_test)
    save("paper_figure_1", plots.plot_application(explanation)[0])
    save("paper_figure_2", plots.plot_frequency_map(explainer.features, "checking_status"))
    save("paper_figure_3", plots.plot_tree_path(plots.tree_path(explainer, row), explanation))


def telling(explainer: macem.Explainer, X: Any) -> tuple[Any, Any]:
    """A refused application whose contrasts both change much, for the picture's sake."""
    refused = [one for one in explainer.explain(X) if one.prediction == "bad"]
    chosen = max(refused, key=lambda one: sorted(contrast.n_changed or 0 for contrast in one.contrasts))
    return X.loc[[chosen.index]], chosen


def save(name: str, axes: Any) -> None:
    axes.figure.savefig(IMAGES / f"{name}.png", dpi=120, bbox_inches="tight", metadata={"Software": None})


if __name__ == "__main__":
    main()
