"""Fits the models that the service tests ask for; run by the Python of the servers' environment: servers.py FOLDER."""

import json
import sys
from pathlib import Path

import joblib
import mlflow.sklearn
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

folder = Path(sys.argv[1])
numbers = np.random.default_rng(0).normal(size=(60, 3))
labels = (numbers[:, 0] + numbers[:, 1] > 0.0).astype(int)
numeric = RandomForestClassifier(10, random_state=0).fit(numbers, labels)

table = pd.DataFrame({"amount": numbers[:, 0], "months": np.arange(60) % 7, "purpose": ["car", "house", "radio"] * 20})
encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["purpose"]), remainder="passthrough")
mixed = make_pipeline(encoder, RandomForestClassifier(10, random_state=0)).fit(table, labels)

for name, model in (("numeric", numeric), ("mixed", mixed)):
    (folder / "mlserver" / name).mkdir(parents=True)
    joblib.dump(model, folder / "mlserver" / name / "model.joblib")
    settings = {
        "name": name,
        "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": "./model.joblib"},
    }
    (folder / "mlserver" / name / "model-settings.json").write_text(json.dumps(settings))
    path = folder / "mlflow" / name
    options = {"serialization_format": "cloudpickle", "pip_requirements": []}  # to work them out takes a minute
    mlflow.sklearn.save_model(model, path, pyfunc_predict_fn="predict_proba", **options)

expected = {
    "numbers": numbers.tolist(),
    "numeric": numeric.predict_proba(numbers).tolist(),
    "table": table.to_dict("list"),
    "mixed": mixed.predict_proba(table).tolist(),
}
(folder / "expected.json").write_text(json.dumps(expected))
