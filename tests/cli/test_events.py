"""An event table on the command line: ids of people reach every output."""

import csv
import json
import os

import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest
from command_line import fails, run

import pld_accountant as pa

PEOPLE = ["ann", "bob", "<b>", "dan"]
STEP = {"noise_multiplier": 2.0, "sample_rate": 0.05}
TABLE = {
    "person": ["dan", "bob", "ann", "<b>", "ann"],
    "norm": [1.0, 0.5, 0.25, 9.0, 2.0],
    "count": [50, 40, 30, 20, 10],
    "group": ["y", "x", "x", "y", "x"],
}
STEPS = ["--noise-multiplier", 2, "--sample-rate", 0.05]
QUESTION = ["--max-grad-norm", 1, "--delta", 1e-5]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder that holds an event table."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pyarrow.table(TABLE), "events.parquet")
    return tmp_path


def expected():
    return pa.Ledger.from_events(TABLE, max_grad_norm=1.0, **STEP)


def test_ids_and_groups_reach_every_table(folder):
    outputs = ("--out", "eps.parquet", "--ledger", "ledger.npz", "--json", "s.json", "--min-group", 1)
    result = run("epsilon", "events.parquet", *STEPS, *QUESTION, *outputs)
    assert result.exit_code == 0, result.output
    ledger, back = expected(), pa.read_results("eps.parquet").individuals
    assert back.people.tolist() == ledger.people.tolist() == sorted(PEOPLE)
    assert np.array_equal(back.epsilon.upper, ledger.epsilon(1e-5).upper)
    assert back.labels.tolist() == ["y", "x", "x", "y"]
    assert back.provenance["source"]["name"] == "events.parquet"
    assert pa.Ledger.load("ledger.npz").people.tolist() == sorted(PEOPLE)
    told = json.loads((folder / "s.json").read_text())
    assert [group["group"] for group in told["groups"]] == ["x", "y"]
    for ending in ("csv", "npz"):
        assert run("epsilon", "events.parquet", *STEPS, *QUESTION, "--out", f"eps.{ending}").exit_code == 0
    with (folder / "eps.csv").open(newline="") as lines:
        assert [row["id"] for row in csv.DictReader(lines)] == sorted(PEOPLE)
    with np.load("eps.npz", allow_pickle=False) as file:
        assert file["id"].tolist() == sorted(PEOPLE)
    assert run("report", "ledger.npz", "--delta", 1e-5, "--min-group", 1, "--out", "page.html").exit_code == 0
    page = (folder / "page.html").read_text()
    assert "ann" in page and "&lt;b&gt;" in page and "<b>" not in page


def test_columns_hold_the_steps_or_have_other_names(folder):
    table = {"user": TABLE["person"], "norm": TABLE["norm"], "count": TABLE["count"]}
    table |= {name: [value] * 5 for name, value in STEP.items()}
    pq.write_table(pyarrow.table(table), "own.parquet")
    assert run("epsilon", "own.parquet", "--columns", "person=user", *QUESTION, "--out", "a.parquet").exit_code == 0
    upper = pa.read_results("a.parquet").individuals.epsilon.upper
    assert np.array_equal(upper, expected().epsilon(1e-5).upper)


def test_a_partitioned_folder_is_an_event_table(folder):
    for part in range(2):
        os.makedirs(f"parts/day={part}")
        rows = {name: values[2 * part : 2 * part + 2 + part] for name, values in TABLE.items()}
        pq.write_table(pyarrow.table(rows), f"parts/day={part}/x.parquet")
    assert run("epsilon", "parts", *STEPS, *QUESTION, "--out", "a.parquet").exit_code == 0
    upper = pa.read_results("a.parquet").individuals.epsilon.upper
    assert np.array_equal(upper, expected().epsilon(1e-5).upper)


def test_some_people_are_compared(folder):
    words = ("--people", 2, "--out", "few.parquet")
    assert run("compare", "events.parquet", *STEPS, *QUESTION, *words).exit_code == 0
    few = pa.read_results("few.parquet")
    assert set(few.individuals.people) < set(PEOPLE) and len(few.mu) == 2
    of = dict(zip(sorted(PEOPLE), ["y", "x", "x", "y"], strict=True))
    assert few.individuals.labels.tolist() == [of[one] for one in few.individuals.people]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (QUESTION, "noise_multiplier must be given"),
        ((*STEPS, *QUESTION, "--orientation", "steps"), "takes no --orientation"),
        ((*STEPS, *QUESTION, "--groups", "events.parquet"), "column 'group' holds the groups"),
        ((*STEPS, *QUESTION, "--columns", "person"), "pairs NAME=COLUMN"),
        ((*STEPS, *QUESTION, "--columns", "who=person"), "columns must name some of"),
        ((*STEPS, *QUESTION, "--columns", "norm=size"), "no column 'size'"),
    ],
)
def test_mistakes_in_an_event_table(folder, words, message):
    assert message in fails("epsilon", "events.parquet", *words, "--out", "eps.csv")


def test_a_log_of_norms_still_needs_its_parameters(folder):
    np.save("norms.npy", np.ones((3, 2)))
    line = fails("epsilon", "norms.npy", *QUESTION, "--orientation", "steps")
    assert "Missing option '--noise-multiplier', option '--sample-rate'." in line
    assert "no event table" in fails("epsilon", "norms.npy", *STEPS, *QUESTION, "--columns", "person=x")
