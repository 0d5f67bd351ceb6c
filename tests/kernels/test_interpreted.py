"""Small calls of kernels before there is machine code: Python runs them, with the same bits."""

import numba
import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.kernels import _jit
from pld_accountant.kernels.tilt import choose_tilts

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


@pytest.fixture
def new(monkeypatch):
    """Makes a kernel that nobody has called yet, in a process that has all of its patience."""
    monkeypatch.setattr(_jit.Kernel, "seconds_interpreted", 0.0)
    monkeypatch.setattr(_jit.Kernel, "_load", lambda self, signature: False)

    def make(function, signature="void(f8[::1], f8[::1])", rows=4):
        kernel = _jit.Kernel(function, (signature,), rows)
        _jit.KERNELS.remove(kernel)
        return kernel

    return make


def double(values, out):
    for i in range(values.size):
        out[i] = 2.0 * values[i]


def test_python_and_machine_code_agree_to_the_bit(monkeypatch):
    seen = set()
    compiled = _jit.Kernel.__call__

    def both(self, *args):
        if not self._rows or len(args[0]) > self._rows or sum(np.size(a) for a in args) > _jit._SMALL:
            return compiled(self, *args)
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        with np.errstate(all="ignore"):
            _jit._plain(self._compiled.py_func)(*copies)
        compiled(self, *args)
        for own, other in zip(args, copies, strict=True):
            assert np.array_equal(own, other, equal_nan=True), self.__name__
        seen.add(self.__name__)

    monkeypatch.setattr(_jit, "_PATIENCE", -1.0)
    monkeypatch.setattr(_jit.Kernel, "__call__", both)
    rng = np.random.default_rng(11)
    for _ in range(6):
        sigma, rate = np.exp(rng.uniform(np.log([0.4, 1e-4]), np.log([8.0, 0.5])))
        steps = int(np.exp(rng.uniform(0.0, np.log(1e5))))
        composed = pa.compose([(pa.SampledGaussian(sigma, rate), steps)])
        composed.epsilon(10.0 ** -rng.integers(2, 12))
        composed.delta(float(rng.uniform(0.0, 4.0)))
    sums = {"near_moments", "taylor", "spread"}
    assert seen == {"interval", "log_moments", "choose_tilts", "weigh", "envelope", "bound_people", *sums}


def test_a_small_call_is_interpreted_until_the_patience_is_spent(new, monkeypatch):
    kernel, out = new(double), np.zeros(3)
    assert kernel(np.arange(3.0), out) is None
    assert out.tolist() == [0.0, 2.0, 4.0]
    assert not kernel._compiled.signatures
    assert _jit.Kernel.seconds_interpreted > 0.0
    monkeypatch.setattr(_jit, "_PATIENCE", 0.0)
    kernel(np.ones(3), out)
    assert out.tolist() == [2.0, 2.0, 2.0]
    assert kernel._compiled.signatures


@pytest.mark.parametrize("rows, size", [(0, 3), (4, 5), (10**6, _jit._SMALL)])
def test_other_calls_are_compiled(new, rows, size):
    kernel, out = new(double, rows=rows), np.zeros(size)
    kernel(np.ones(size), out)
    assert np.all(out == 2.0)
    assert kernel._compiled.signatures


def test_where_python_raises_the_kernel_is_compiled_and_finds_its_arguments_as_they_were(new):
    def add_inverse(values, out):
        for i in range(values.size):
            out[i] += 1.0
            out[i] += 1.0 / float(values[i])

    kernel, out = new(add_inverse), np.zeros(2)
    kernel(np.array([2.0, 0.0]), out)
    assert out.tolist() == [1.5, np.inf]
    assert kernel._compiled.signatures


def test_machine_code_on_disk_is_used_at_once(monkeypatch):
    """`choose_tilts` is on disk after its first compilation, and loading it is faster than interpreting it."""
    choose_tilts.warm_up()
    kernel = _jit.Kernel(choose_tilts._compiled.py_func, choose_tilts._signatures, choose_tilts._rows)
    _jit.KERNELS.remove(kernel)
    if _jit._CACHE:
        assert kernel._on_disk
        assert kernel._compiled.signatures
