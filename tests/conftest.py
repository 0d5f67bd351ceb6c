"""What several test modules share."""

import json
import logging
import os

import numpy as np
import pytest
from hypothesis import settings

from pld_accountant.report.individuals import Individuals
from pld_accountant.report.outputs import digest
from pld_accountant.results import Bounds, Guarantee, Status
from pld_accountant.tables import spectra

# The examples are the same every time, so that a change is judged by what it changed.  New ones are looked for by
# pytest --hypothesis-profile=search
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("steady")

# Otherwise the first test that compiles a kernel would find a notice on standard error.
logging.getLogger("pld_accountant").setLevel(logging.ERROR)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Budgets that take seconds to certify are kept for this run of the tests only, for all its workers.

    Tables are not: a test that breaks a function would hand its wrong numbers on to others.
    """
    spectra._WORTH = np.inf
    folder = tmp_path_factory.getbasetemp()
    os.environ["PLD_ACCOUNTANT_CACHE"] = str(
        (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "kept"
    )


@pytest.fixture
def make_individuals():
    """A function that makes individuals from upper bounds; inf stands for what is not certified."""

    def make(upper, *, labels=None, worst=4.0, delta=1e-5, min_group=1):
        upper = np.asarray(upper, dtype=np.float64)
        certified = np.isfinite(upper)
        status = np.where(certified, Status.CERTIFIED, Status.NOT_CERTIFIED).astype(np.uint8)
        lower = np.where(certified, upper * 0.98, 0.0)
        return Individuals(
            delta=delta,
            epsilon=Bounds(lower, np.where(certified, upper * 0.99, np.nan), upper, status),
            rdp_epsilon=np.where(certified, upper * 1.1, 5.0),
            worst_case=Bounds(worst * 0.98, worst * 0.99, worst),
            worst_case_rdp=4.4,
            guarantee=Guarantee("test", False, "What is proven and what is not.", "Somebody, Theorem 1"),
            steps=1000,
            labels=labels,
            parameters={"noise_multiplier": 1.5, "direction": "both"},
            min_group=min_group,
        )

    return make


@pytest.fixture
def forge():
    """A function that writes results with other facts and a digest that fits them, as a deceiver could."""
    pq = pytest.importorskip("pyarrow.parquet")

    def write(table, path, **facts):
        about = json.dumps(json.loads(table.schema.metadata[b"pld_accountant"]) | facts)
        columns = {name: np.asarray(table[name].to_numpy()) for name in table.schema.names}
        columns = {name: v.astype(np.str_) if v.dtype.kind == "O" else v for name, v in columns.items()}
        metadata = {b"pld_accountant": about, b"pld_accountant_sha256": digest(columns, about)}
        pq.write_table(table.replace_schema_metadata(metadata), path)

    return write
