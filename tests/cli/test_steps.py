"""The command `compose`: steps as texts, in arguments and files."""

import json
import math
import re

import pytest
from command_line import fails, run

import pld_accountant as pa
from pld_accountant.mechanisms.text import _MAKERS, parsed, written
from pld_accountant.rounding import rounded_down, rounded_up


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Laplace(8)", [(pa.Laplace(8.0), 1)]),
        ("10 * DiscreteGaussian(20, sensitivity=2)", [(pa.DiscreteGaussian(20.0, 2), 10)]),
        (
            " 2*DiscreteGaussian(50, sqrt(5), coordinates=1000) ",
            [(pa.DiscreteGaussian(50.0, math.sqrt(5), coordinates=1000), 2)],
        ),
        ("3 * PoissonSampled(Laplace(5.0), 0.1)", [(pa.PoissonSampled(pa.Laplace(5.0), 0.1), 3)]),
        ("GaussianMixture(2.0, [0, 1], [0.5, 0.5])", [(pa.GaussianMixture(2.0, [0, 1], [0.5, 0.5]), 1)]),
        ("2 * TreeAggregation(16, 5.0)", [(step, 2 * n) for step, n in pa.TreeAggregation(16, 5.0)]),
        ("0 * Gaussian(1)", [(pa.Gaussian(1.0), 0)]),
        ("Laplace(8) * 3", [(pa.Laplace(8.0), 3)]),
    ],
)
def test_texts_are_steps(text, expected):
    assert parsed(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a step must be"),
        ("3", "a step must be"),
        ("Laplace", "a step must be"),
        ("Laplace(2) * Laplace(3)", "a step must be"),
        ("Laplace(2) * 1.5", "count must be a whole number"),
        ("Laplace(2) + Laplace(3)", "a step must be"),
        ("(" * 300 + ")" * 300, "a step must be"),
        ("Laplace()", "noise_multiplier"),
        ("Laplace(**{'noise_multiplier': 2})", "Laplace"),
        ("Laplace(-1)", "noise_multiplier must be"),
        ("SampledGaussian(1, sample_rate=0.1, sample_rate=0.01)", "sample_rate is given twice"),
        ("1.5 * Laplace(2)", "count must be a whole number"),
        ("True * Laplace(2)", "count must be"),
        ("compose([])", "'compose' is no mechanism"),
        ("__import__('os').system('ls')", "is no mechanism"),
        ("Laplace(open('secret'))", "'open' is no mechanism"),
        ("Laplace(x)", "is no number, list or mechanism"),
        ("Laplace(1 if True else 2)", "is no number, list or mechanism"),
    ],
)
def test_other_texts_are_refused(text, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        parsed(text)


@pytest.mark.parametrize(
    "step",
    [
        pa.Gaussian(2.0),
        pa.PoissonSampled(pa.Laplace(3.0), 0.1),
        pa.PoissonSampled(pa.PureDP(0.3), 0.2),
        pa.RandomAllocation(1.0, 5, 2),
        pa.TruncatedPoisson(1.0, 0.1, 5, 9, norm=0.3),
        pa.DiscreteGaussian(9.0, 2.5, coordinates=4),
        pa.DiscreteLaplace(1e-5, 300_000),
        pa.GroupGaussian(1.0, 0.1, 3),
    ],
    ids=repr,
)
def test_a_mechanism_is_made_again_from_its_text(step):
    assert parsed(written(step)) == [(step, 1)]


@pytest.mark.parametrize(
    "step", [pa.DiscretePair([0.5, 0.5], [0.4, 0.6]), pa.RenyiDP([2.0, 4.0], [0.1, 0.2])], ids=repr
)
def test_a_mechanism_without_a_text_is_told(step):
    with pytest.raises(ValueError, match="no text from which it could be made again"):
        written(step)


def test_every_mechanism_of_the_package_can_be_written():
    kinds = {name for name in pa.__all__ if name[0].isupper() and "mechanisms" in getattr(pa, name).__module__}
    # made of Python objects: functions, and compositions
    assert kinds - set(_MAKERS) == {"DensityPair", "RepeatedSelection"}
    assert set(_MAKERS) <= kinds


def test_the_command_answers_as_compose_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "releases.txt").write_text("# this year\n10 * DiscreteGaussian(20)  # counts\n\n", encoding="utf-8")
    words = (
        "compose",
        "500 * SampledGaussian(2, 0.01)",
        "--file",
        "releases.txt",
        "--delta",
        "1e-5",
        "--json",
        "it.json",
    )
    result = run(*words)
    bounds = pa.compose([(pa.SampledGaussian(2.0, 0.01), 500), (pa.DiscreteGaussian(20.0), 10)]).epsilon(1e-5)
    assert result.stdout.startswith(f"epsilon <= {rounded_up(bounds.upper, 7)} at delta = 1e-05 (certified; ")
    assert f"at least {rounded_down(bounds.lower, 7)};" in result.stdout
    told = json.loads((tmp_path / "it.json").read_text())
    assert (told["steps"], told["epsilon"]["upper"]) == (510, bounds.upper)
    assert [one["count"] for one in told["mechanisms"]] == [10, 500]
    assert "every sample is drawn as its mechanism says" in told["guarantee"]


def test_the_command_refuses_what_compose_warns_of_and_nothing():
    mixed = fails("compose", "FixedSizeBatch(4.0, 10, 1000)", "SampledGaussian(2, 0.01)", "--delta", "1e-5")
    assert "their composition holds for neither" in mixed
    assert "give at least one step" in fails("compose", "--delta", "1e-5")
    assert "no such file" in fails("compose", "--file", "nowhere.txt", "--delta", "1e-5").lower()
