"""Linear queries: who is counted, the noise, the accuracy that is stated, and adaptivity."""

import copy

import numpy as np
import pytest
from scipy import stats

from pld_accountant.adaptive.linear_queries import LinearQueries, row_norms
from pld_accountant.files.store import StoreError
from pld_accountant.filters.gaussian import ZCDPFilter
from pld_accountant.notions import zcdp


class Silent:
    """A generator whose noise is zero, so that a sum can be read."""

    def normal(self, mean, deviation, size):
        return np.zeros(size)


def test_a_person_is_counted_while_the_squares_stay_within_the_budget():
    rng = np.random.default_rng(3)
    people, budget = 60, 4.0
    q = LinearQueries(budget, 0.3, num_examples=people, rng=Silent())
    spent = np.zeros(people)
    for _ in range(40):
        rows = rng.normal(size=(people, 3)) * rng.uniform(0, 1, (people, 1))
        square = (rows**2).sum(axis=1)
        counted = spent + square <= budget
        np.testing.assert_allclose(q.answer(rows), rows[counted].sum(axis=0), atol=1e-12)
        spent += np.where(counted, square, 0)
    assert 0 < counted.sum() < people
    np.testing.assert_allclose(q.filter.spent(), spent / budget * 0.3, rtol=1e-9)


def test_zero_one_queries_count_a_person_s_times():
    """B_norm = s: sparse questions, far more of them than s."""
    people, often, kinds = 500, 8, 20
    label = np.random.default_rng(0).integers(0, kinds, people)
    q = LinearQueries(often, 0.1, num_examples=people, rng=Silent())
    for _ in range(often):
        for kind in range(kinds):
            assert q.answer(label == kind)[0] == np.sum(label == kind)
    assert q.answer(label == 0)[0] == 0


def test_nobody_may_exceed_the_budget_in_one_query():
    q = LinearQueries(2.0, 0.1, num_examples=2, rng=Silent())
    assert q.answer([1.5, 1.0])[0] == 1.0
    assert q.filter.active.all()


@pytest.mark.parametrize(("dimension", "failure"), [(1, 0.2), (5, 0.2), (40, 0.01)])
def test_the_stated_accuracy_holds_and_is_not_idle(dimension, failure):
    q = LinearQueries(1e6, 0.5, num_examples=2, rng=np.random.default_rng(7))
    bound = q.error_bound(dimension, failure)
    exact = 1 - (1 - 2 * stats.norm.sf(bound / q.noise)) ** dimension
    assert 0.05 * failure < exact <= failure
    runs = 4000
    errors = np.array([np.abs(q.answer(np.zeros((2, dimension)))).max() for _ in range(runs)])
    assert np.mean(errors > bound) <= failure + 4 * np.sqrt(failure / runs)
    assert np.mean(errors > bound / 3) > failure


def test_noise_and_promise_fit_together():
    q = LinearQueries(42000.0, 0.021, num_examples=3)
    assert q.noise == pytest.approx(1000.0)
    assert q.epsilon(1e-5) == zcdp.zcdp_epsilon(0.021, 1e-5)
    assert "zCDP" in q.guarantee.sentence
    rng = np.random.default_rng(0)
    q = LinearQueries(9.0, 0.5, num_examples=1, rng=rng)
    draws = np.concatenate([q.answer(np.zeros((1, 500))) for _ in range(20)])
    assert np.std(draws) == pytest.approx(3.0, rel=0.03)


def test_an_adaptive_analyst_does_not_exceed_rho():
    """Each question depends on the answers; the exact sum of what one person gave away stays within rho."""
    people = 50
    q = LinearQueries(1.0, 0.25, num_examples=people, rng=np.random.default_rng(5))
    given = np.zeros(people)
    answer = 0.0
    for _ in range(200):
        rows = np.tanh(np.arange(people) / people + answer)
        before = q.filter.spent()
        answer = q.answer(rows)[0] / 10
        counted = q.filter.spent() > before
        given += np.where(counted, rows**2, 0) / (2 * q.noise**2)
    assert given.max() <= 0.25 * (1 + 1e-12)
    assert given.min() > 0.1


def test_norms_are_not_below_the_exact_ones():
    rng = np.random.default_rng(2)
    for scale in (1.0, 1e-180, 1e180):
        rows = rng.normal(size=(300, 37)) * scale
        norms = row_norms(rows)
        exact = np.sqrt((rows.astype(np.longdouble) ** 2).sum(axis=1))
        assert np.all(norms >= exact)
        np.testing.assert_allclose(norms, exact.astype(float), rtol=1e-14)
    assert row_norms(np.zeros((2, 3))).tolist() == [0, 0]


def test_bad_values_spend_nothing(tmp_path):
    q = LinearQueries(1.0, 0.25, num_examples=3, journal=tmp_path / "journal")
    for values in ([1, 2], [1, np.nan, 0], [1, np.inf, 0], np.zeros((3, 2, 2)), 0.5):
        with pytest.raises(ValueError, match="values"):
            q.answer(values)
    assert not q.filter.spent().any()
    assert not (tmp_path / "journal").exists()


def test_the_journal_is_written_before_the_answer(tmp_path):
    path = tmp_path / "journal"

    class Crash:
        def normal(self, *arguments):
            raise KeyboardInterrupt

    q = LinearQueries(1.0, 0.25, num_examples=2, rng=Crash(), journal=path)
    with pytest.raises(KeyboardInterrupt):
        q.answer([0.5, 0.0])
    np.testing.assert_array_equal(ZCDPFilter.load(path).spent(), q.filter.spent())
    assert q.filter.spent()[0] > 0


def test_a_service_that_starts_again_has_the_budgets_of_its_journal(tmp_path):
    path = tmp_path / "journal"
    for budget in (True, False):
        queries = LinearQueries(2.0, 0.5, num_examples=2, journal=path)
        copied = copy.copy(queries)
        if budget:
            queries.answer([1, 0])
            queries.answer([1, 0])
        spent = queries.filter.spent().copy()
        assert spent.tolist() == [0.5, 0.0]
        copied.answer([0, 1])  # a copy has budgets of its own, and writes nowhere
        np.testing.assert_array_equal(ZCDPFilter.load(path).spent(), spent)
    with pytest.raises(StoreError):
        LinearQueries(3.0, 0.5, num_examples=2, journal=path)
