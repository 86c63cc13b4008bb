"""Rows spread past one process through joblib: the same results as alone."""

from __future__ import annotations

import joblib
import pandas as pd
import pytest
from joblib.parallel import ThreadingBackend
from sklearn.tree import DecisionTreeClassifier

from macem import Explainer


class AllAtOnce(ThreadingBackend):
    """As the backends of Ray and Spark: it cannot hand results over one by one."""

    supports_return_generator = False


def test_a_backend_that_gives_all_results_at_once(german_credit: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = german_credit
    X = X[["duration", "credit_amount", "age"]]
    explainer = Explainer(DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y), X)
    joblib.register_parallel_backend("all-at-once", AllAtOnce)
    with joblib.parallel_config(backend="all-at-once"):
        spread = explainer.explain(X.head(12), n_jobs=2)
    pd.testing.assert_frame_equal(spread.to_frame(), explainer.explain(X.head(12)).to_frame())


# Dask's own loop and sockets are told about late, when it is gone.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_dask_cluster_gives_what_one_process_gives(
    german_credit: tuple[pd.DataFrame, pd.Series], processes: bool
) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed; pip install 'macem[dask]'")
    X, y = german_credit
    X = X[["duration", "credit_amount", "age"]]
    explainer = Explainer(DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y), X)
    alone = explainer.explain(X.head(12))
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=processes, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config(backend="dask"),
    ):
        spread = explainer.explain(X.head(12), n_jobs=-1)
        # Every worker took part: else this would show nothing.
        tasks = client.run(lambda dask_worker: len(dask_worker.state.log), nanny=False)
    assert len(tasks) == 2
    assert all(tasks.values())
    pd.testing.assert_frame_equal(spread.to_frame(), alone.to_frame())
    pd.testing.assert_frame_equal(spread.summary(), alone.summary())
