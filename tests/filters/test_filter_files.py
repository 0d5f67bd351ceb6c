"""Files of filters: saved, loaded, altered, and after a crash."""

import numpy as np
import pytest

from pld_accountant.files import store
from pld_accountant.filters.gaussian import GaussianFilter, ZCDPFilter
from pld_accountant.filters.integer_budget import TOLERANCE
from pld_accountant.filters.renyi import RenyiFilter

PEOPLE = 5


def test_a_saved_filter_goes_on_where_it_stood(make, tmp_path):
    f, path = make(), tmp_path / "state"
    rng = np.random.default_rng(3)
    for _ in range(4):
        f.admit(rng.uniform(0, 0.05, PEOPLE))
    f.save(path)
    g = type(f).load(path)
    fresh = make()
    assert fresh.load(path) is fresh
    for h in (g, fresh):
        assert h.parameters == f.parameters
        np.testing.assert_array_equal(h.spent(), f.spent())
        np.testing.assert_array_equal(h.active, f.active)
    assert type(f).load(path, **f.parameters).parameters == f.parameters


def test_a_change_of_the_parameters_that_a_filter_tells_changes_nothing():
    f = RenyiFilter(1.0, 8.0, num_examples=2, noise_multiplier=4.0, shares=[0.5, 1.0])
    f.parameters["shares"][0] = 9.0
    assert f.parameters["shares"] == [0.5, 1.0]


def test_a_halted_filter_stays_halted_in_its_file(make, tmp_path):
    f = make(individual=False)
    while f.admit(2.0).all():
        pass
    f.save(tmp_path / "state")
    assert type(f).load(tmp_path / "state").halted


def test_other_parameters_are_refused(tmp_path, makers):
    path = tmp_path / "state"
    f = makers["gaussian"]()
    f.save(path)
    for name, value in {
        "mu": 0.51,
        "num_examples": 6,
        "noise_multiplier": 4.1,
        "max_grad_norm": 1.0,
        "individual": False,
    }.items():
        with pytest.raises(store.StoreError, match=name):
            GaussianFilter.load(path, **{name: value})
        if name == "mu":
            other = GaussianFilter(value, num_examples=PEOPLE, noise_multiplier=4.0, max_grad_norm=2.0)
        else:
            other = makers["gaussian"](**{name: value})
        with pytest.raises(store.StoreError, match=name):
            other.load(path)
    with pytest.raises(store.StoreError, match="GaussianFilter"):
        ZCDPFilter.load(path)
    with pytest.raises(TypeError, match="rho"):
        GaussianFilter.load(path, rho=1.0)


def test_an_altered_file_is_refused(tmp_path, makers):
    path = tmp_path / "state"
    f = makers["gaussian"]()
    f.admit(np.ones(PEOPLE))
    f.save(path)
    whole = path.read_bytes()
    place = whole.index(f.units_left.tobytes()) + 6
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(store.StoreError):
        GaussianFilter.load(path)


@pytest.mark.parametrize("stage", ["savez", "fsync", "replace"])
def test_a_crash_while_saving_leaves_the_old_file(tmp_path, monkeypatch, stage, makers):
    path = tmp_path / "state"
    f = makers["gaussian"]()
    f.admit(np.ones(PEOPLE))
    f.save(path)
    old = path.read_bytes()
    f.admit(np.ones(PEOPLE))

    def crash(*arguments, **keywords):
        raise KeyboardInterrupt

    monkeypatch.setattr(np if stage == "savez" else store.os, stage, crash)
    with pytest.raises(KeyboardInterrupt):
        f.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == old
    assert GaussianFilter.load(path).spent()[0] < f.spent()[0]


def test_a_crash_between_admission_and_release_only_overcounts(tmp_path, makers):
    """The order admit, save, release: wherever it stops, the file never says less than was released."""
    path = tmp_path / "state"
    makers["gaussian"]().save(path)
    rng = np.random.default_rng(9)
    released = np.zeros(PEOPLE)
    for _ in range(60):
        f = GaussianFilter.load(path)
        stop = rng.integers(4)
        norms = rng.uniform(0, 4, PEOPLE)
        if stop == 0:
            continue
        admitted = f.admit(norms)
        if stop == 1:
            continue
        f.save(path)
        if stop == 2:
            continue
        released += np.where(admitted, np.minimum(norms, 2) / 8.0, 0) ** 2
        assert np.all(GaussianFilter.load(path).spent() >= np.sqrt(released))
        assert np.all(np.sqrt(released) <= 0.5 * (1 + TOLERANCE))
    assert np.all(GaussianFilter.load(path).spent() > 0.45)
