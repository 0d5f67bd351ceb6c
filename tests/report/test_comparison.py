"""The comparison holds what the ledger says three times, and does not claim more for the Gaussian than is proven."""

import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from command_line import run

import pld_accountant as pa
from pld_accountant.notions import gdp
from pld_accountant.report.comparison import check_min_delta, compare
from pld_accountant.report.figures import COLOURS, draw_comparison
from pld_accountant.report.histogram import aligned_histogram
from pld_accountant.results import Status
from pld_accountant.rounding import rounded_up

STEPS, PEOPLE, DELTA = 40, 15, 1e-5
SETTINGS = {"noise_multiplier": 2.0, "sample_rate": 0.2, "max_grad_norm": 5.0}
OPTIONS = (
    "--orientation",
    "steps",
    "--min-group",
    1,
    "--noise-multiplier",
    2,
    "--sample-rate",
    0.2,
    "--max-grad-norm",
    5,
    "--delta",
    DELTA,
)
NORMS = np.random.default_rng(0).gamma(2.0, 2.0, (STEPS, PEOPLE))


@pytest.fixture(scope="module")
def ledger():
    return pa.Ledger.from_norms(NORMS, **SETTINGS)


@pytest.fixture(scope="module")
def found(ledger):
    return compare(ledger, DELTA, min_group=1)


def test_three_times_what_the_ledger_says(ledger, found):
    people = found.individuals
    assert np.array_equal(people.epsilon.upper, ledger.epsilon(DELTA).upper)
    assert np.array_equal(people.rdp_epsilon, ledger.rdp_epsilon(DELTA))
    mu = ledger.mu(1e-10).upper
    assert np.array_equal(found.mu.upper, mu)
    assert np.array_equal(found.gaussian_epsilon, gdp.epsilon(DELTA, mu))
    assert found.worst_case_gaussian == gdp.epsilon(DELTA, ledger.worst_case().mu(1e-10).upper)


def test_the_gaussian_curve_lies_above_the_true_one(found):
    assert np.all(found.gaussian_epsilon >= found.individuals.epsilon.lower)
    assert np.all(found.gaussian_epsilon >= found.individuals.epsilon.upper * (1 - 1e-9))
    assert found.worst_case_gaussian >= found.individuals.worst_case.lower


def test_a_larger_min_delta_is_nearer(ledger, found):
    near = compare(ledger, DELTA, min_delta=DELTA)
    assert np.all(near.gaussian_epsilon <= found.gaussian_epsilon * (1 + 1e-9))
    assert near.gaussian_epsilon.sum() < 0.999 * found.gaussian_epsilon.sum()
    assert "wherever delta is at least 1e-05" in near.gaussian_sentence


def test_words_say_what_is_not_proven(found):
    told = " ".join(found.text().split())
    assert "descriptive" in told and "not mu-GDP" in told and "No central limit theorem is used" in told
    assert found.individuals.guarantee.sentence in told
    row = next(line for line in found.text().splitlines() if line.startswith("median"))
    kinds = (found.individuals.epsilon.upper, found.gaussian_epsilon, found.individuals.rdp_epsilon)
    assert row.split()[1:] == [rounded_up(np.sort(values)[7]) for values in kinds]
    for kind, values in (("Gaussian", kinds[1]), ("Renyi", kinds[2])):
        assert f"{kind} over PLD: {np.median(values / kinds[0]):.3f} in the median" in told
    assert max(map(len, found.text().splitlines())) <= 110


def test_full_batches_are_gaussian():
    ledger = pa.Ledger(2, noise_multiplier=10.0, sample_rate=1.0, max_grad_norm=1.0)
    ledger.record(np.array([0.5, 1.0]), repeat=25)
    found = compare(ledger, DELTA)
    assert "are mu-GDP" in found.gaussian_sentence and "descriptive" not in found.gaussian_sentence
    assert found.worst_case_mu == pytest.approx(0.5, rel=1e-9)
    # the buckets may cost half a percent of the worst case
    assert np.all((found.mu.upper >= [0.25, 0.5]) & (found.mu.upper <= np.array([0.25, 0.5]) + 0.0025))


@pytest.mark.parametrize(
    ("given", "delta", "expected"), [(None, 1e-5, 1e-10), (None, 1e-20, 1e-20), (1e-5, 1e-5, 1e-5)]
)
def test_min_delta(given, delta, expected):
    assert check_min_delta(given, delta) == expected


def test_min_delta_above_delta_is_refused(ledger):
    with pytest.raises(ValueError, match="min_delta must be above 0 and at most delta"):
        compare(ledger, 1e-5, min_delta=1e-4)


def test_the_picture_shows_the_counts_and_the_ratios(found):
    figure = draw_comparison(found)
    upper, lower = figure.axes
    people = found.individuals
    top = max(people.rdp_epsilon.max(), found.gaussian_epsilon.max(), people.epsilon.upper.max())
    kinds = (
        (people.epsilon.upper, people.worst_case.upper),
        (found.gaussian_epsilon, found.worst_case_gaussian),
        (people.rdp_epsilon, people.worst_case_rdp),
    )
    for patch, (values, worst) in zip(upper.patches, kinds, strict=True):
        assert np.array_equal(np.nan_to_num(patch.get_data().values), aligned_histogram(values, worst, top, 50).counts)
    dots = {line.get_color(): line.get_ydata() for line in lower.lines}
    assert np.array_equal(dots[COLOURS["Renyi"]], people.rdp_epsilon / people.epsilon.upper)
    assert np.array_equal(dots[COLOURS["Gaussian"]], found.gaussian_epsilon / people.epsilon.upper)
    words = " ".join(figure.texts[0].get_text().split())
    assert found.gaussian_sentence in words and people.guarantee.sentence in words


def test_a_picture_of_nobody_certified(found):
    from dataclasses import replace

    nothing = np.full(PEOPLE, np.inf)
    epsilon = pa.Bounds(np.zeros(PEOPLE), nothing, nothing, np.full(PEOPLE, Status.NOT_CERTIFIED, dtype=np.uint8))
    people = replace(found.individuals, epsilon=epsilon, rdp_epsilon=nothing)
    bare = replace(found, individuals=people, gaussian_epsilon=nothing)
    draw_comparison(bare)
    assert "Not certified: 15 of 15 people" in bare.text()
    assert "Without a certified mu: 15 of 15 people" in bare.text()
    json.dumps(bare.as_dict(), allow_nan=False)


# ---------------------------------------------------------------------- the command


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("norms.npy", NORMS)
    np.save("labels.npy", np.arange(PEOPLE) % 3)
    return tmp_path


def test_the_command(folder, found):
    files = ("--out", "c.parquet", "--figure", "c.png", "--json", "c.json")
    result = run("compare", "norms.npy", *OPTIONS, "--groups", "labels.npy", *files)
    assert (result.exit_code, result.stderr) == (0, "")
    table = pq.read_table("c.parquet")
    assert np.array_equal(table["gaussian_epsilon"], found.gaussian_epsilon)
    assert np.array_equal(table["mu"], found.mu.upper)
    assert np.array_equal(table["epsilon_upper"], found.individuals.epsilon.upper)
    assert table["group"].to_pylist() == [i % 3 for i in range(PEOPLE)]
    told = json.loads((folder / "c.json").read_text())
    assert told["gaussian"] == found.gaussian_sentence
    assert told["by"]["Gaussian"]["quantiles"][-1]["epsilon"] == found.gaussian_epsilon.max()
    assert json.loads(table.schema.metadata[b"pld_accountant"])["gaussian"] == found.gaussian_sentence
    assert (folder / "c.png").read_bytes().startswith(b"\x89PNG")
    assert "Gaussian" in result.stdout


def test_some_people_are_the_same_people(folder):
    assert run("compare", "norms.npy", *OPTIONS, "--out", "all.npz").exit_code == 0
    some = run("compare", "norms.npy", *OPTIONS, "--groups", "labels.npy", "--people", 4, "--out", "some.npz")
    assert some.exit_code == 0 and "sample 4 of 15 people" in some.stdout
    with np.load("all.npz") as everybody, np.load("some.npz") as few:
        who = few["id"]
        assert len(set(who)) == 4 and np.all(np.diff(who) > 0)
        assert np.array_equal(few["group"], who % 3)
        for name in ("epsilon_upper", "rdp_epsilon", "gaussian_epsilon"):
            assert np.allclose(few[name], everybody[name][who], rtol=1e-4), name  # orders are picked for all together
    assert run("compare", "norms.npy", *OPTIONS, "--people", 99, "--out", "more.npz").exit_code == 0
    with np.load("all.npz") as everybody, np.load("more.npz") as more:
        assert np.array_equal(everybody["epsilon_upper"], more["epsilon_upper"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--min-delta", 1e-3), "min_delta must be above 0 and at most"),
        (("--min-delta", 2), "min_delta must lie in"),
        (("--people", 0), "--people"),
        (("--out", "c.txt"), "must end in"),
        (("--figure", "c.svg"), "must end in"),
        (("--groups", "absent.npy"), "absent.npy does not exist"),
    ],
)
def test_mistakes(folder, words, message):
    before = sorted(os.listdir())
    result = run("compare", "norms.npy", *OPTIONS, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert message in line
    assert sorted(os.listdir()) == before
