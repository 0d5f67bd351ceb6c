"""What the figures of the papers show, through the scripts' own functions; and that data are checked."""

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

FIGURES = Path(__file__).parent.parent / "figures"


@pytest.fixture
def script(monkeypatch):
    """A function that imports a module of the figures folder, and forgets it afterwards."""
    monkeypatch.syspath_prepend(FIGURES)
    before = set(sys.modules)

    def load(name):
        return __import__(name)

    yield load
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FIGURES)):
            del sys.modules[name]


def test_koskela_figures_3_to_5(script):
    """To the digits printed: the curves, the steps at one epsilon, and the epsilons against steps."""
    found = script("koskela_steps").numbers()
    third, fourth, fifth = (found[f"figure {n}"] for n in (3, 4, 5))
    assert third["mu"] == pytest.approx(0.204939, abs=5e-7)
    assert third["epsilon by Renyi"] == pytest.approx(0.815623, abs=5e-7)
    assert third["epsilon by Gaussian"] == pytest.approx(0.745138, abs=5e-7)
    assert third["steps within the Renyi epsilon"] == {"Gaussian": 495, "Renyi": 420}
    assert third["steps within the Gaussian epsilon"] == {"Gaussian": 420, "Renyi": 355}
    curves = {
        "Gaussian": [-1.7058, -2.6187, -3.1994, -3.8679, -5.4790],
        "Renyi": [-1.4076, -2.2020, -2.7278, -3.3452, -4.8650],
    }
    for kind, expected in curves.items():
        np.testing.assert_allclose(third["log10 delta"][kind], expected, rtol=0, atol=5.1e-5)
    for figure, kind, expected in (
        (fourth, "Gaussian", [0.62000, 0.81973, 1.13177]),
        (fourth, "Renyi", [0.67962, 0.89661, 1.23493]),
        (fifth, "Gaussian", [0.34067, 0.49698, 0.62000, 0.72552, 0.81973, 0.90584]),
        (fifth, "Renyi", [0.37526, 0.54573, 0.67962, 0.79431, 0.89661, 0.99005]),
    ):
        np.testing.assert_allclose(figure["epsilon"][kind], expected, rtol=0, atol=5.1e-6)


def test_a_stage_is_kept_for_its_settings_only(script, tmp_path):
    stage = script("common").stage
    made = []

    def make(value):
        made.append(value)
        return {"value": np.array([value])}

    for settings, value in (({"a": 1}, 1.0), ({"a": 1}, 2.0), ({"a": 2}, 3.0)):
        found = stage(tmp_path / "stage.npz", settings, lambda value=value: make(value))
    assert made == [1.0, 3.0] and found["value"].tolist() == [3.0]


def test_numbers_are_written_one_list_a_line(script):
    text = script("common").as_json({"a": [1, 2.5], "b": {"c": [[1, 2], [3]]}, "d": "x"})
    assert '"a": [1, 2.5]' in text and "[1, 2]" in text and __import__("json").loads(text)["b"] == {"c": [[1, 2], [3]]}


def test_data_that_are_not_the_papers_are_refused(script, tmp_path):
    datasets = script("datasets")
    for name in ("mnist", "adult"):
        with pytest.raises(datasets.DataError, match="cannot be read"):
            datasets.load(name, tmp_path)
    (tmp_path / "mnist").mkdir()
    for part in datasets._PARTS:
        (tmp_path / "mnist" / f"{part}-ubyte.gz").write_bytes(gzip.compress(bytes(100)))
    with pytest.raises(datasets.DataError, match="SHA-256"):
        datasets.load("mnist", tmp_path)
    with pytest.raises(datasets.DataError, match="needs --data"):
        datasets.load("adult", None)
