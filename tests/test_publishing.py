"""A release costs what it says: one person changes one count by one, and the noise has the stated size."""

import json
import math
import re

import mpmath
import numpy as np
import pytest
from click.testing import CliRunner

import pld_accountant as pa
from pld_accountant import publishing
from pld_accountant.cli.commands import main
from pld_accountant.files.formats import ReadError

STEP = {"noise_multiplier": 1.0, "sample_rate": 0.05, "max_grad_norm": 1.0}
EDGES = [0.5, 1.0, 1.5, 2.0, 4.0]


def ledger_of(people, seed=0):
    rng, ledger = np.random.default_rng(seed), pa.Ledger(people, **STEP)
    for _ in range(7):
        ledger.record(rng.gamma(1.5, 0.4, people), repeat=30)
    return ledger


def test_no_other_person_changes_a_released_value_by_a_bit():
    """A plain matrix product changes some last bits in blocks of five."""
    ledger = ledger_of(1000)
    together = ledger.rdp_epsilon(1e-5, orders=publishing.ORDERS)
    mixed = np.random.default_rng(1).permutation(1000)
    for some in ([0], mixed[:333], np.delete(np.arange(1000), 7), *mixed.reshape(200, 5)):
        alone = ledger.select(some).rdp_epsilon(1e-5, orders=publishing.ORDERS)
        assert np.array_equal(alone, together[some])


def test_a_neighbouring_ledger_changes_one_count_by_one():
    ledger, labels = ledger_of(200), np.arange(200) % 3

    def exact(who):
        values = ledger.select(who).rdp_epsilon(1e-5, orders=publishing.ORDERS)
        return np.histogram2d(labels[who], np.searchsorted(EDGES, values), bins=[np.arange(4), np.arange(7)])[0]

    ledger.rdp_epsilon(1e-5, orders=publishing.ORDERS)  # the selected ledgers share its tables
    everybody = exact(np.arange(200))
    for one in range(0, 200, 7):
        change = everybody - exact(np.delete(np.arange(200), one))
        assert np.abs(change).sum() == 1 == change.max()


def test_the_value_at_public_orders_is_an_upper_bound_and_close():
    ledger = ledger_of(50)
    ledger.record(np.zeros(50), repeat=3)
    found = ledger.rdp_epsilon(1e-5, orders=publishing.ORDERS)
    assert np.all(found >= ledger.rdp_epsilon(1e-5)) and np.all(found >= ledger.epsilon(1e-5).upper)
    assert np.all(found <= 1.02 * ledger.rdp_epsilon(1e-5))
    nobody = pa.Ledger(2, **STEP)
    assert nobody.rdp_epsilon(1e-5, orders=[2.0]).tolist() == [0.0, 0.0]
    nobody.record([0.0, 1.0])
    assert nobody.rdp_epsilon(1e-5, orders=[2.0])[0] == 0.0
    for orders in ([], [1.0], [np.inf], [[2.0]]):
        with pytest.raises(ValueError, match="orders must be"):
            nobody.rdp_epsilon(1e-5, orders=orders)


def test_what_a_release_tells_is_not_less_than_its_cost():
    found = pa.Release(np.array([1 / 3]), ("everybody",), np.array([[3, 4]]), 1 / 70_000, 2 / 3, 1.5)
    text = " ".join(found.text().split())
    epsilon, mu, rho = re.search(r"epsilon ([\d.]+) \(mu ([\d.]+), rho ([\d.]+)\)", text).groups()
    assert float(epsilon) == found.epsilon and float(mu) >= found.mu and float(rho) >= found.rho
    assert f"with {2 / 3!r}-differential privacy" in text and found.sentence in text
    assert f"epsilon at delta = {1 / 70_000!r}" in text
    assert f"at most {1 / 3!r} " in text and f"above {1 / 3!r} " in text


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 30.0])
def test_the_booked_step_is_at_least_as_costly_as_the_release(epsilon):
    """In forty digits: the trade-off function of the mu-GDP step lies below that of epsilon-DP."""
    with mpmath.workdps(40):
        mu, e = mpmath.mpf(publishing.booked_mu(epsilon)), mpmath.exp(epsilon)

        def normal(x):
            return mpmath.erfc(-x / mpmath.sqrt(2)) / 2

        def quantile(p):
            return mpmath.findroot(lambda x: mpmath.log(normal(x) / p), -mpmath.sqrt(2 * mpmath.log(1 / p)) + 0.3)

        for p in [1 / (1 + e), *(mpmath.mpf(10) ** -k for k in (1, 3, 9))]:
            promised = max(0, 1 - e * p, (1 - p) / e)
            assert normal(-quantile(p) - mu) <= promised
        # and no larger than it must be
        p = 1 / (1 + e)
        assert normal(-quantile(p) - mu * (1 - mpmath.mpf(10) ** -8) + mpmath.mpf(10) ** -12) > p


class TestWithOpenDP:
    @pytest.fixture(autouse=True)
    def opendp(self):
        pytest.importorskip("opendp")

    def test_a_thousand_releases_have_the_stated_error_and_no_bias(self):
        ledger = ledger_of(300)
        values = ledger.rdp_epsilon(1e-5, orders=publishing.ORDERS)
        exact = np.bincount(np.searchsorted(EDGES, values), minlength=6)
        found = [pa.release(ledger, 1e-5, epsilon=0.5, edges=EDGES) for _ in range(1000)]
        noise = np.array([one.histogram() for one in found]) - exact
        a, stated = math.exp(-1.0 / found[0].scale), found[0].error(0.95)
        assert found[0].epsilon <= 0.5 and found[0].scale == pytest.approx(2.0, rel=1e-6)
        beyond = 2.0 * a ** (stated + 1) / (1.0 + a)
        assert beyond <= 0.05 < 2.0 * a**stated / (1.0 + a)
        # five standard deviations of 6,000 independent draws
        outside, variance = np.mean(np.abs(noise) > stated), 2.0 * a / (1.0 - a) ** 2
        assert abs(outside - beyond) < 5.0 * math.sqrt(beyond * (1.0 - beyond) / noise.size)
        assert abs(noise.mean()) < 5.0 * math.sqrt(variance / noise.size)
        assert abs(noise.var() / variance - 1.0) < 5.0 * math.sqrt(5.0 / noise.size)

    def test_what_follows_from_the_counts_is_right_with_little_noise(self):
        ledger, labels = ledger_of(400), np.array(["a", "b", "c", "zz"])[np.arange(400) % 4]
        values = ledger.rdp_epsilon(1e-5, orders=publishing.ORDERS)
        found = pa.release(ledger, 1e-5, epsilon=60.0, edges=EDGES, labels=labels, groups=["a", "b"])
        assert found.groups == ("a", "b", publishing.OTHERS)
        raised = np.append(EDGES, EDGES[-1])[np.searchsorted(EDGES, values)]
        assert found.means().tolist() == pytest.approx(
            [raised[labels == "a"].mean(), raised[labels == "b"].mean(), raised[labels >= "c"].mean()]
        )
        assert found.share_below(2.0) == np.mean(values <= 2.0)
        expected = [min(edge for edge in [*EDGES, np.inf] if np.mean(values <= edge) >= p) for p in (0.1, 0.5, 0.9)]
        assert found.quantiles([0.1, 0.5, 0.9]).tolist() == expected
        with pytest.raises(ValueError, match="one of the edges"):
            found.share_below(1.9)

    def test_the_cost_is_booked_for_everybody(self):
        ledger, before = ledger_of(5), ledger_of(5)
        found = pa.release(ledger, 1e-5, epsilon=0.5, edges=EDGES, book=True)
        assert ledger.steps == before.steps + 1
        least = math.sqrt(0.0 + found.mu**2)
        assert np.all(ledger.epsilon(1e-5).upper > before.epsilon(1e-5).upper)
        only = pa.Ledger(1, **STEP)
        only.record([1.0], noise_multiplier=ledger.schedule[-1][0], sample_rate=1.0)
        assert only.mu(1e-6).upper[0] >= least
        pa.release(before, 1e-5, epsilon=0.5, edges=EDGES)
        assert before.steps == ledger.steps - 1

    @pytest.mark.parametrize("rho", [1e-4, 0.125, 3.0])
    def test_a_release_within_rho_costs_no_more(self, rho):
        found = pa.release(ledger_of(5), 1e-5, rho=rho, edges=EDGES)
        assert rho * (1.0 - 1e-6) < found.epsilon**2 / 2.0 <= found.rho <= rho

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"edges": []}, "edges must be"),
            ({"edges": [0.0, 1.0]}, "edges must be"),
            ({"edges": [1.0, 1.0]}, "edges must be"),
            ({"epsilon": 0.0}, "epsilon must be"),
            ({"epsilon": None}, "one of epsilon and rho"),
            ({"rho": 0.1}, "one of epsilon and rho"),
            ({"epsilon": None, "rho": -1.0}, "rho must be"),
            ({"labels": [1, 2]}, "given together"),
            ({"labels": [1], "groups": [1]}, "labels must have shape"),
            ({"labels": [1, 1], "groups": [1, "1"]}, "groups must be distinct"),
            ({"delta": 2.0}, "delta must lie"),
            ({"epsilon": 1e-7}, "epsilon must lie between 1e-06 and 1000"),
            ({"epsilon": None, "rho": 1e-30}, "epsilon of rho, .* must lie between"),
            ({"epsilon": 1e300}, "epsilon must lie between"),
        ],
    )
    def test_mistakes(self, changed, message):
        ledger = ledger_of(2)
        words = {"delta": 1e-5, "epsilon": 1.0, "edges": EDGES, "book": True, **changed}
        with pytest.raises(ValueError, match=message):
            pa.release(ledger, **words)
        assert ledger.steps == 210

    def test_the_command(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        ledger_of(40).save("l.npz")
        np.save("labels.npy", np.arange(40) % 2)
        words = ["release", "l.npz", "--delta", "1e-5", "--epsilon", "0.5", "--edges", "0.5,1,2"]
        more = ["--groups", "labels.npy", "--group-names", "0,1", "--json", "r.json", "--book", "after.npz"]
        result = CliRunner().invoke(main, [*words, *more])
        assert result.exit_code == 0, result.output
        told = json.loads((tmp_path / "r.json").read_text())
        assert told["cost"]["epsilon"] <= 0.5 and len(told["counts"]) == 4
        assert [group["group"] for group in told["groups"]] == ["0", "1", publishing.OTHERS]
        assert pa.Ledger.load("after.npz").steps == 211 and "Cost to everybody" in result.stdout
        assert "given together" in CliRunner().invoke(main, [*words, "--groups", "labels.npy"]).stderr
        assert "one of epsilon and rho" in CliRunner().invoke(main, [*words, "--rho", "0.1"]).stderr


def test_without_opendp_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opendp", None)
    monkeypatch.setitem(__import__("sys").modules, "opendp.prelude", None)
    with pytest.raises(ReadError, match=r"\[release\]"):
        pa.release(ledger_of(2), 1e-5, epsilon=1.0, edges=EDGES)
