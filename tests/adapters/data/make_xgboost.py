"""Write small models of the installed XGBoost, and its own answers, to ``xgboost-<version>.json`` beside this file.

Run once under each version whose layout the tests should know; needs XGBoost, NumPy and scikit-learn only.
"""

import json
from pathlib import Path

import numpy as np
import xgboost

rng = np.random.default_rng(0)
X = np.round(rng.normal(size=(300, 4)), 2)
X[rng.random(X.shape) < 0.1] = np.nan
X[:, 3] = rng.integers(0, 6, len(X))  # a category, where a case asks for one
score = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) * np.nan_to_num(X[:, 2]) + (X[:, 3] % 3)
binary = (score > np.median(score)).astype(int)
three = np.digitize(score, np.quantile(score, [0.3, 0.7]))

COMMON = {"n_estimators": 4, "max_depth": 3, "random_state": 0, "n_jobs": 1}
HIST = {"tree_method": "hist"}
CASES = {
    "binary": (binary, {}),
    "base_score": (binary, {"base_score": 0.3}),
    "hinge": (binary, {"objective": "binary:hinge"}),
    "three classes": (three, {}),
    "softmax": (three, {"objective": "multi:softmax"}),
    "dart": (binary, {"booster": "dart", "rate_drop": 0.5}),
    "forest": (three, {"num_parallel_tree": 2, "n_estimators": 2, "subsample": 0.5}),
    "vector leaves": (three, {"multi_strategy": "multi_output_tree"} | HIST),
    "categories": (
        binary,
        {"feature_types": ["q", "q", "q", "c"], "enable_categorical": True, "max_cat_to_onehot": 1} | HIST,
    ),
}


def rows(dump):
    """Rows on the model's own thresholds and beside them, and of special numbers."""
    thresholds = np.array([t for tree in trees(dump) for t in tree["split_conditions"]], dtype=np.float32)
    step = np.nextafter(thresholds, np.float32(np.inf))
    pool = np.concatenate([thresholds, step, [np.nan, -0.0, 1e-44, 1e39, -1e39, 2.0, 4.0, 5.0]]).astype(float)
    table = rng.choice(pool, (40, 4))
    table[:, 3] = rng.choice([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -0.5, 1.9999, np.nan], 40)
    return table


def trees(dump):
    booster = dump["learner"]["gradient_booster"]
    return booster.get("gbtree", booster)["model"]["trees"]


def answers(y, options):
    model = xgboost.XGBClassifier(**(COMMON | options)).fit(X, y)
    dump = json.loads(model.get_booster().save_raw("json"))
    table = rows(dump)
    return {
        "model": dump,
        "rows": table.tolist(),
        "margins": model.predict(table, output_margin=True).reshape(len(table), -1).tolist(),
        "probabilities": model.predict_proba(table).tolist(),
    }


stored = {}
for name, (y, options) in CASES.items():
    if name == "vector leaves" and xgboost.__version__ < "2":
        continue
    stored[name] = answers(y, options)
Path(__file__).with_name(f"xgboost-{xgboost.__version__}.json").write_text(json.dumps(stored, separators=(",", ":")))
