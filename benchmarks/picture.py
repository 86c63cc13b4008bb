"""Draw the picture of the README and the docs: ``python benchmarks/picture.py``."""

from __future__ import annotations

from pathlib import Path

from sklearn.model_selection import train_test_split

import macem
from macem.datasets.models import credit_forest

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "explanation.png"
APPLICATION = 788  # one that the forest refuses, whose contrasts show a category and a number


def main() -> None:
    """Explain one application and draw it."""
    X, y = macem.datasets.load_german_credit()
    X_train, X_test, y_train, _ = train_test_split(X, y, random_state=0)
    explainer = macem.Explainer(credit_forest(X_train, y_train), X_train)
    axes = macem.plots.plot_explanation(explainer.explain(X_test.loc[[APPLICATION]])[0])
    axes.figure.savefig(PICTURE, dpi=120, bbox_inches="tight", metadata={"Software": None})


if __name__ == "__main__":
    main()
