"""The filter on the dominating mu: admissions against new compositions, credits, files and the guarantee."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import pld_accountant as pa
from pld_accountant.counting.buckets import Buckets
from pld_accountant.files import store
from pld_accountant.filters import pld_state
from pld_accountant.kernels import credit
from pld_accountant.notions import zcdp

SAMPLED = {"noise_multiplier": 2.0, "sample_rate": 0.02, "max_grad_norm": 2.0}


def make(mu=0.1, min_delta=1e-5, *, num_examples=3, buckets=16, **more):
    return pa.PLDFilter(mu, min_delta, num_examples=num_examples, buckets=buckets, **{**SAMPLED, **more})


def rounded_up(norms, f):
    """Noise multipliers of steps with these norms, by the edges alone."""
    group = Buckets.make(f.noise_multiplier, f.sample_rate, f.parameters["buckets"])
    s = np.minimum(norms, f.max_grad_norm) / f.max_grad_norm
    return group.noise_multiplier / group.edges[np.searchsorted(group.edges, s * (1 - 1e-12))]


def afresh(norms, f):
    """Bounds of the dominating mu of one person's admitted norms."""
    sigma, times = np.unique(rounded_up(norms[norms > 0], f), return_counts=True)
    steps = [(pa.SampledGaussian(s, f.sample_rate), int(n)) for s, n in zip(sigma, times, strict=True)]
    return pa.compose(steps).mu(f.min_delta)


@settings(
    max_examples=15 if settings.get_current_profile_name() == "search" else 5,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
)
@given(
    seed=st.integers(0, 2**32 - 1),
    mu=st.floats(0.08, 0.1),
    min_delta=st.sampled_from([1e-3, 1e-5, 1e-8]),
    rate=st.sampled_from([0.02, 0.03]),
)
def test_the_dominating_mu_of_admitted_steps_never_exceeds_the_budget(seed, mu, min_delta, rate):
    rng = np.random.default_rng(seed)
    f = make(mu, min_delta, sample_rate=rate)
    base = np.array([2.0, 1.0, 0.5])
    taken = []
    for _ in range(220):
        norms = base * np.exp(rng.normal(0, 0.3, 3))
        taken.append(np.where(f.admit(norms), norms, 0.0))
    taken = np.array(taken)
    spent = f.spent()
    assert np.all(spent <= mu)
    for i in range(3):
        found = afresh(taken[:, i], f)
        assert found.lower <= mu
        # the two roundings of mu, by the chords, are not the same
        assert found.upper <= mu * (1 + 1e-4)
        assert found.lower <= spent[i] <= max(found.upper * (1 + 1e-4), mu)
    assert (taken[:, 0] == 0).any(), "the budget was reached"


def test_credits_change_no_decision(monkeypatch):
    rng = np.random.default_rng(1)
    norms = np.array([2.0, 1.5, 1.0, 0.8, 0.6, 0.4]) * np.exp(rng.normal(0, 0.4, (120, 6)))

    def run():
        f = make(0.2, 1e-3, num_examples=6, sample_rate=0.05)
        held, asked = f._pld_state._budget.holds, []
        monkeypatch.setattr(f._pld_state._budget, "holds", lambda counts: asked.append(len(counts)) or held(counts))
        return np.array([f.admit(row) for row in norms]), sum(asked)

    quick, few = run()
    monkeypatch.setattr(pld_state, "_PLAN_SIZES", (("rest", 0.0),))
    slow, many = run()
    np.testing.assert_array_equal(quick, slow)
    assert not quick[-50:].all() and quick[-50:].any()
    assert few < many / 4


def test_whatever_is_on_credit_fits_together_with_what_was_taken():
    """After every step, also those admitted from the headroom, and those of another rate."""
    f = make(0.2, 1e-3, num_examples=4, sample_rate=0.05)
    rng = np.random.default_rng(8)
    by_headroom = 0
    for t in range(150):
        norms = np.array([2.0, 1.0, 0.6, 0.3]) * np.exp(rng.normal(0, 0.4, 4))
        if t % 6 == 0:
            room = f.headroom()
            norms = np.where((room > 0) & (room < 2), room, norms)
        f.admit(norms, sample_rate=0.03 if t % 25 == 24 else None)
        state = f._pld_state
        total = state._counts.copy()
        for g, ends in enumerate(state._ends):
            total[:, state._offset(g) + ends.astype(int)] += state._credit[:, state._class_columns(g)]
        by_headroom += int(np.sum(~state._credit.any(axis=1)))
        # asked again the chords' rounding may differ
        many = total.sum(axis=1) >= 20  # fewer are not bounded for this
        assert np.all(state._budget.spent(total)[many] <= f.mu * (1 + 1e-4))
    assert by_headroom > 10 and len(state._groups) == 2


def test_a_step_from_the_headroom_ends_what_was_proven_without_it():
    f = make()
    f.admit(np.full(3, 0.2))
    assert f._pld_state._credit.any(axis=1).all()
    assert np.all(f.headroom() == 2.0)
    assert f.admit(np.full(3, 2.0)).all()
    assert not f._pld_state._credit.any()


def test_on_credit_nobody_takes_more_than_was_proven():
    """The kernel alone: a step uses the lowest class that covers it, and no class twice."""
    cover = np.array([0, 0, 1, 1, 2], dtype=np.int16)
    left = np.array([[1, 0, 2]], dtype=np.int32)
    counts = np.zeros((1, 5), dtype=np.int32)
    sure, refused = np.full(1, -1, dtype=np.int16), np.full(1, 4, dtype=np.int16)
    status = np.empty(1, dtype=np.int8)
    seen = []
    for b in (1, 1, 3, 0, 4, -1):
        bucket = np.array([b], dtype=np.int16)
        credit.sort_out(bucket, cover, left, sure, refused, status)
        seen.append(int(status[0]))
        if status[0] != credit.UNKNOWN:
            credit.book(bucket, cover, status, left, counts, 0)
    assert seen == [credit.CREDIT] * 3 + [credit.UNKNOWN, credit.REFUSED, credit.CREDIT]
    assert left.tolist() == [[0, 0, 0]] and counts.tolist() == [[0, 2, 0, 1, 0]]


def test_a_refused_person_is_admitted_again_with_less_and_refusal_costs_nothing():
    f = make()
    while f.admit(np.full(3, 2.0)).all():
        pass
    before = f.spent()
    assert not f.admit(np.full(3, 2.0)).any()
    np.testing.assert_array_equal(f.spent(), before)
    assert f.admit(np.full(3, 0.1)).all()
    assert np.all(f.spent() > before)


@pytest.mark.parametrize("rate", [0.02, 1.0])
def test_admitted_at_the_headroom_and_no_more_above(rate):
    f = make(0.1 if rate < 1 else 4.0, sample_rate=rate, buckets=128)
    rng = np.random.default_rng(4)
    while f.admit(np.array([2.0, 1.9, 1.3]) * rng.uniform(0.9, 1, 3)).any():
        pass
    for _ in range(3):
        room = f.headroom()
        assert np.all(room < 2.0) and np.any(room > 0)
        assert np.array_equal(room > 0, f.active)
        assert not f.admit(room * (1 + 1e-9))[room > 0].any()
        np.testing.assert_array_equal(f.admit(room), room > 0)
    fresh = make()
    np.testing.assert_array_equal(fresh.headroom(), 2.0)
    assert np.all(fresh.headroom(max_grad_norm=1.0) == 1.0)


def test_nothing_fits_a_budget_that_is_too_small():
    f = make(1e-7, 1e-9, sample_rate=0.5)
    assert not f.admit(np.full(3, 2.0)).any()
    np.testing.assert_array_equal(f.headroom(), 0.0)
    assert not f.active.any() and np.all(f.spent() == 0)
    assert not f.admit(np.zeros(3)).any()


def test_one_budget_for_all_halts():
    together, one = make(individual=False), make(num_examples=1)
    rng = np.random.default_rng(5)
    for _ in range(40):
        norms = rng.uniform(0, 0.5, 3)
        assert together.admit(norms).tolist() == [bool(one.admit([norms.max()])[0])] * 3
    np.testing.assert_array_equal(together.spent(), np.repeat(one.spent(), 3))
    while together.admit(2.0).all():
        pass
    assert together.halted and not together.active.any() and not together.headroom().any()
    assert not together.admit(np.full(3, 1e-3)).any()


def test_full_batch_steps_are_the_gaussian_filter_up_to_the_buckets():
    rng = np.random.default_rng(6)
    f = make(1.0, sample_rate=1.0, buckets=512, num_examples=4)
    exact = pa.GaussianFilter(1.0, num_examples=4, noise_multiplier=2.0, max_grad_norm=2.0)
    for _ in range(60):
        norms = rng.uniform(0.2, 2.2, 4)
        mask = f.admit(norms)
        # nobody is admitted beyond what the exact filter can hold
        assert np.all(exact.admit(np.where(mask, norms, 0.0)) | (exact.spent() >= 1.0))
    assert np.all(exact.spent() <= f.spent() * (1 + 1e-12))
    assert np.all(exact.spent() >= f.spent() * (1 - 0.02)) and np.all(f.spent() > 0.9)
    assert f.guarantee.proven_adaptive and "GaussianFilter" in f.guarantee.sentence
    assert f.epsilon(1e-5) == exact.epsilon(1e-5) < make(1.0, sample_rate=0.5).epsilon(1e-5)
    with pytest.raises(ValueError, match="full-batch"):
        f.admit(np.ones(4), sample_rate=0.5)


def test_other_noise_rate_and_clip_for_one_step():
    f = make(0.3)
    for noise, rate, clip in ((2.0, 0.02, 2.0), (1.0, 0.02, 2.0), (1.5, 0.01, 1.0), (3.0, 0.02, 4.0)):
        for _ in range(40):
            f.admit(np.array([5.0, 0.0, 0.0]), noise_multiplier=noise, sample_rate=rate, max_grad_norm=clip)
    steps = [(pa.SampledGaussian(s, q), 40) for s, q in ((2.0, 0.02), (1.0, 0.02), (1.5, 0.01), (3.0, 0.02))]
    exact = pa.compose(steps).mu(1e-5)
    assert exact.lower <= f.spent()[0] <= exact.upper * 1.1
    assert np.all(f.spent()[1:] == 0)
    while f.admit(np.array([5.0, 0.0, 0.0]), noise_multiplier=1.0)[0]:
        pass
    assert f.spent()[0] <= 0.3 and f.active.all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
@pytest.mark.parametrize("individual", [True, False])
def test_bad_norms_and_shapes_book_nothing(bad, individual):
    f = make(individual=individual)
    f.admit(np.full(3, 0.5))
    before = f._pld_state._counts.copy()
    with pytest.raises(ValueError, match="example 1"):
        f.admit([0.1, bad, 0.1])
    for wrong in (np.ones(4), np.ones((2, 3)), ["a"] * 3):
        with pytest.raises(ValueError, match="norms"):
            f.admit(wrong)
    with pytest.raises(ValueError, match="noise_multiplier"):
        f.admit(np.ones(3), noise_multiplier=0.0)
    np.testing.assert_array_equal(f._pld_state._counts, before)


def test_a_failing_evaluation_books_nothing(monkeypatch):
    f = make()
    f.admit(np.full(3, 0.5))
    before = {name: array.copy() for name, array in f._state().items()}

    def fail(counts):
        raise MemoryError

    f._pld_state._credit[:] = before["credit"][:] = 0
    monkeypatch.setattr(f._pld_state._budget, "holds", fail)
    with pytest.raises(MemoryError):
        f.admit(np.full(3, 0.5))
    for name, array in f._state().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("changes", [{"mu": 0.0}, {"min_delta": 1.0}, {"buckets": 1}, {"max_grad_norm": 1e200}])
def test_parameters_out_of_range_are_refused(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        make(**changes)


def test_a_saved_filter_goes_on_where_it_stood(tmp_path):
    rng = np.random.default_rng(7)
    f = make()
    for t in range(60):
        f.admit(rng.uniform(0, 2, 3), sample_rate=0.01 if t % 3 == 0 else None)
    f.save(tmp_path / "state")
    g = pa.PLDFilter.load(tmp_path / "state")
    fresh = make()
    assert fresh.load(tmp_path / "state") is fresh
    for h in (g, fresh):
        assert h.parameters == f.parameters
        # tables that were filled in another order differ by round-off
        np.testing.assert_allclose(h.spent(), f.spent(), rtol=1e-12)
    for _ in range(60):
        norms = rng.uniform(0, 2, 3)
        mask = f.admit(norms)
        np.testing.assert_array_equal(g.admit(norms), mask)
        np.testing.assert_array_equal(fresh.admit(norms), mask)
    np.testing.assert_array_equal(g.headroom(), f.headroom())


def test_other_parameters_and_altered_files_are_refused(tmp_path):
    path = tmp_path / "state"
    f = make()
    f.admit(np.ones(3))
    f.save(path)
    for name, value in {"mu": 0.11, "min_delta": 1e-6, "buckets": 17, "sample_rate": 0.01, "individual": False}.items():
        with pytest.raises(store.StoreError, match=name):
            make(**{name: value}).load(path)
        with pytest.raises(store.StoreError, match=name):
            pa.PLDFilter.load(path, **{name: value})
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(store.StoreError):
        make().load(path)
    assert np.array_equal(f.spent(), f.spent())


def test_what_it_promises():
    f = make()
    promise = f.guarantee
    assert not promise.proven_adaptive
    for words in ("Nothing is proven", "fixed beforehand", "1e-05", "every epsilon >= 0", "PotentialFilter is proven"):
        assert words in promise.sentence
    assert f.epsilon(1e-6) == zcdp.zcdp_epsilon(0.1**2 / 2, 1e-6)


def test_against_the_proven_renyi_filter_of_the_same_epsilon_and_delta():
    """What the derived (epsilon, delta) would buy: at full norm less than Renyi accounting itself."""
    steps = {"noise_multiplier": 2.0, "sample_rate": 0.02, "max_grad_norm": 1.0}
    f = pa.PLDFilter(0.3, 1e-6, num_examples=2, **steps)
    proven = pa.RenyiFilter.for_epsilon(f.epsilon(1e-5), 1e-5, num_examples=2, **steps)
    norms = np.array([1.0, 0.5])
    admitted = [np.sum([k.admit(norms) for _ in range(3500)], axis=0) for k in (f, proven)]
    assert np.all(np.abs(admitted[0] / admitted[1] - 1) < 0.2), admitted
