"""The command that writes the report, and the ledger that it reads."""

import os
from pathlib import Path

import numpy as np
import pytest
from command_line import run

import pld_accountant as pa
from pld_accountant.report.content import gather
from pld_accountant.report.html.page import page
from pld_accountant.report.individuals import assess

SETTINGS = {"noise_multiplier": 2.0, "sample_rate": 0.05, "max_grad_norm": 5.0}
PEOPLE = 60


@pytest.fixture(scope="module")
def ledger():
    made = pa.Ledger(PEOPLE, **SETTINGS)
    made.record(np.random.default_rng(3).gamma(2.0, 2.0, PEOPLE), repeat=30)
    return made


@pytest.fixture
def folder(tmp_path, monkeypatch, ledger):
    monkeypatch.chdir(tmp_path)
    ledger.save("ledger.npz")
    np.save("labels.npy", np.arange(PEOPLE) % 3)
    return tmp_path


def test_the_command_writes_the_page(folder, ledger, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    words = ("--delta", "1e-6", "--groups", "labels.npy", "--deltas", "1e-3, 1e-4", "--title", "Mine")
    result = run("report", "ledger.npz", *words, "--out", "r.html")
    assert (result.exit_code, result.stderr) == (0, "")
    found = assess(ledger, 1e-6, labels=np.arange(PEOPLE) % 3, source="ledger.npz")
    assert (folder / "r.html").read_text(encoding="utf-8") == page(gather(ledger, found, [1e-3, 1e-4]), "Mine")


def test_epsilon_writes_a_ledger_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    norms = np.random.default_rng(0).gamma(2.0, 2.0, (30, 5))
    np.save("norms.npy", norms)
    options = ("--noise-multiplier", 2, "--sample-rate", 0.05, "--max-grad-norm", 5, "--delta", 1e-5)
    assert run("epsilon", "norms.npy", *options, "--ledger", "ledger.npz").exit_code == 0
    expected = pa.Ledger.from_norms(norms, **SETTINGS)
    assert np.array_equal(pa.Ledger.load("ledger.npz").counts, expected.counts)
    question = ("report", "ledger.npz", "--delta", 1e-5, "--out", "r.html")
    refused = run(*question)
    assert refused.exit_code != 0 and "would show single people" in refused.stderr and not Path("r.html").exists()
    assert run(*question, "--min-group", 1).exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("absent.npz", "--delta", 1e-5, "--out", "r.html"), "absent.npz: No such file"),
        (("labels.npy", "--delta", 1e-5, "--out", "r.html"), "ledger file: it does not begin like one"),
        (("ledger.npz", "--delta", 2, "--out", "r.html"), "delta must lie in"),
        (("ledger.npz", "--delta", 1e-5, "--deltas", "1e-3,2", "--out", "r.html"), "delta must lie in"),
        (("ledger.npz", "--delta", 1e-5, "--deltas", "x", "--out", "r.html"), "must be numbers and commas"),
        (("ledger.npz", "--delta", 1e-5, "--out", "r.pdf"), "must end in .html"),
        (("ledger.npz", "--delta", 1e-5), "Missing option '--out'"),
        (("ledger.npz", "--delta", 1e-5, "--groups", "few.npy", "--out", "r.html"), "few.npy holds 2 labels"),
    ],
)
def test_mistakes(folder, words, message):
    np.save("few.npy", [1, 2])
    before = sorted(os.listdir())
    result = run("report", *words)
    assert result.exit_code == 2 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert message in line
    assert sorted(os.listdir()) == before
