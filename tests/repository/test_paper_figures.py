"""What the figures of the papers show, through the scripts' own functions; and that data are checked."""

import gzip
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

FIGURES = Path(__file__).parent.parent.parent / "figures"


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
    assert '"a": [1, 2.5]' in text and "[1, 2]" in text and json.loads(text)["b"] == {"c": [[1, 2], [3]]}


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


def small_data(datasets, people=60):
    rng = np.random.default_rng(0)
    x, x_test = (rng.normal(size=(n, 4)).astype(np.float32) for n in (people, 20))
    y, y_test = ((a[:, 0] > 0).astype(np.int64) for a in (x, x_test))
    return datasets.Data(x, y, x_test, y_test, ("no", "yes"))


def test_a_run_that_was_interrupted_goes_on_as_if_it_had_not(script, tmp_path, monkeypatch):
    sampled = script("sampled")
    data = small_data(script("datasets"))
    settings = sampled.Settings("small", (3,), 0.1, steps=12, sample_rate=0.2, watched=7)
    monkeypatch.setattr(sampled, "_CHUNK", 5)
    (tmp_path / "whole").mkdir()
    whole = sampled.run(settings, data, tmp_path / "whole")
    train, calls = sampled.train, []

    def failing(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(*arguments, **options)

    monkeypatch.setattr(sampled, "train", failing)
    with pytest.raises(KeyboardInterrupt):
        sampled.run(settings, data, tmp_path)
    resumed = sampled.run(settings, data, tmp_path)
    assert len(calls) == 4  # 5 steps, the interruption, 5 steps and 2
    assert resumed.accuracy == whole.accuracy and np.array_equal(resumed.log, whole.log)
    assert np.array_equal(resumed.ledger.counts, whole.ledger.counts) and resumed.ledger.steps == 12
    watched, log, accuracy = sampled.watch(settings, data, tmp_path)
    # The same training, its sums over other rows in single precision.
    assert np.array_equal(watched, whole.watched) and accuracy == pytest.approx(whole.accuracy, abs=0.051)
    np.testing.assert_allclose(log, whole.log, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("watched", [np.arange(40), np.array([3, 7, 39]), np.array([], dtype=int)])
def test_watching_some_trains_the_same_and_shows_their_norms(script, watched):
    sampled = script("sampled")
    settings = {"sample_rate": 0.3, "noise_multiplier": 2.0, "max_grad_norm": 0.5, "learning_rate": 0.1}
    rng = np.random.default_rng(0)
    network, x, y = sampled.Network((5, 4, 3)), rng.normal(size=(40, 5)), rng.integers(0, 3, 40)
    start, expected, found = network.initial(rng), [], []
    everybody = sampled.train(
        lambda theta: network.example_gradients(theta, x, y),
        start,
        steps=30,
        rng=np.random.default_rng(1),
        on_step=lambda step, norms: expected.append(norms[watched]),
        **settings,
    )
    some = sampled.train_watched(
        lambda theta, rows: network.example_gradients(theta, x[rows], y[rows]),
        start,
        watched,
        num_examples=40,
        steps=30,
        rng=np.random.default_rng(1),
        on_step=lambda step, norms: found.append(norms),
        **settings,
    )
    # The same sums over other rows: only their rounding differs.
    np.testing.assert_allclose(some, everybody, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_feldman_zrnic_settings_and_a_trial(script):
    """Their steps and what Gaussian accounting makes of them; nobody is spent before unfiltered accounting stops."""
    figure = script("feldman_zrnic")
    found = [figure.setting("mnist", "tuned", row) for row in range(3)]
    assert [s.gaussian_steps for s in found] == [134, 214, 495]
    # Their 0.3, 0.5 and 1.0 by the best conversion.
    assert [s.epsilon for s in found] == pytest.approx([0.2249, 0.3883, 0.8156], abs=5e-5)
    chosen = figure.Setting("small", (), 4.0, 0.2, 0.5, steps=20, extra=30)
    run = figure.trial(chosen, small_data(script("datasets")), 0)
    for kind, first in (("Renyi", 20), ("Gaussian", chosen.gaussian_steps)):
        steps, active = run[f"{kind} steps"], run[f"{kind} active"]
        assert steps[-1] == first + 30
        assert np.all(active[steps < first] == 1) and np.all(np.diff(active) <= 0) and active[-1] < 1
    common = run["Gaussian steps"] == 20
    assert run["Gaussian accuracy"][common][0] == run["Renyi accuracy"][0]


def answer(epsilon=None, status=None):
    return {"status": status} if epsilon is None else {"epsilon": epsilon, "lower": epsilon, "upper": epsilon}


def test_tails_beside_the_peers(script, tmp_path, monkeypatch):
    """An accountant ends where it says so, and is left out where it never answered; a missing file costs the peers."""
    tails = script("tails")
    names = ["dp-accounting", "prv-accountant 0.1"]
    rows = [
        {"steps": [list(tails.PART)], "delta": 1e-5, "answers": {names[0]: answer(1.0042), names[1]: answer(1.0046)}},
        {"steps": [list(tails.PART)], "delta": 1e-15, "answers": {names[0]: answer(status="inf")}},
    ]
    path = tmp_path / "accuracy.json"
    path.write_text(json.dumps({"tail": rows}))
    found = tails.others(path)
    assert found["exponents"] == [5, 15] and list(found["peers"]) == names
    assert found["peers"]["dp-accounting"] == {"epsilon": [1.0042, None], "ends with": "inf"}
    bounds = tails.ours(found["exponents"])
    # by tests/oracle.py
    np.testing.assert_allclose(bounds["upper"], [1.0041126508332616, 2.080961101282762], rtol=1e-9)
    assert np.all(bounds["lower"] <= bounds["upper"])
    arguments = ["tails.py", "--out", str(tmp_path), "--work", str(tmp_path), "--results", str(path)]
    monkeypatch.setattr(sys, "argv", arguments)
    tails.main()
    facts = json.loads((tmp_path / "tails.json").read_text())
    assert facts["log10 delta"] == [-5, -15] and facts["prv-accountant 0.1"]["epsilon"] == [1.0046, None]
    assert tails.others(tmp_path / "nothing.json")["peers"] == {}


def test_speed_per_person_and_per_second(script, tmp_path):
    speed = script("speed")
    row = {"upper": 0.5, "upper_cold": 2.0, "all": 1.0}
    base = {"people": 1000, "steps": 400, "buckets": 256, "delta": 1e-5}
    grown = {"people": {"10": row, "200": row}, "steps": {"400": row}, "buckets": {"64": row}, "delta": {"1e-05": row}}
    measured = {
        "growth": {"base": base, **grown},
        "speed": {**base, "people": 4000, "upper": {"cold": 8.0, "at_hand": 4.0}, "all": {"at_hand": 5.0}},
        "peers": {"ours_worst_error": 0.01, "individuals": 4, **{name: {} for name in speed.ACCOUNTANTS}},
        "machine": {"cores": 2},
    }
    measured["peers"]["dp-accounting"] = {"seconds_per_person": 0.4, "worst_error": 3e-3}
    found = speed.rates(measured)
    assert found["people"] == {
        "value": [10, 200, 4000], "upper": [20, 400, 1000], "upper_cold": [5, 100, 500], "all": [10, 200, 800]
    }  # fmt: skip
    assert found["delta"]["value"] == [1e-5] and found["delta"]["upper"] == [2000]
    rows = speed.compared(measured)
    assert rows["This package, upper bounds"] == {"seconds": 1e-3, "worst error": 0.01}
    assert rows["dp-accounting, grid 1e-4"] == {"seconds": 0.4, "worst error": 3e-3} and len(rows) == 3
    measured["speed"]["buckets"] = 64  # another setting: the million does not belong on the curve
    assert speed.rates(measured)["people"]["value"] == [10, 200]
    for name, figure in {"a": speed.draw_growth(found, base), "b": speed.draw_compared(rows, measured)}.items():
        script("common").keep(tmp_path, name, figure, {})


def test_cost_leaves_out_what_gave_no_bounds(script, tmp_path, monkeypatch):
    cost = script("cost")
    answers = [
        {"setting": 1024, "lower": 0.9, "upper": 1.0, "seconds": 0.1},
        {"setting": 4096, "lower": 1.98, "upper": 2.0, "seconds": 0.4},
        {"setting": 2048, "status": "not certified", "seconds": 0.2},
    ]
    case = {"steps": [[2.0, 0.005, 10_000]], "routes": {"characteristic": answers, "grid": answers[2:]}}
    path = tmp_path / "cost.json"
    path.write_text(json.dumps({"delta": 1e-5, "many steps": case, "few steps": case}))
    arguments = ["cost.py", "--out", str(tmp_path), "--work", str(tmp_path), "--results", str(path)]
    monkeypatch.setattr(sys, "argv", arguments)
    cost.main()
    facts = json.loads((tmp_path / "cost.json").read_text())["few steps"]
    assert facts["characteristic"]["setting"] == [1024, 4096] and facts["characteristic"]["seconds"] == [0.1, 0.4]
    assert facts["characteristic"]["distance"] == pytest.approx([0.1, 0.01])
    assert facts["grid"]["distance"] == facts["dp-accounting"]["distance"] == []


def test_widths_fall_faster_than_the_buckets_grow(script):
    found = script("widths").widths((64, 128))
    for name in ("median", "largest", "over the worst case"):
        wide, near = found[name]
        assert 0.2 < near / wide < 0.6, name
    # figures/widths.json
    assert found["median"] == pytest.approx([0.023215742, 0.0066380382], rel=1e-6)


def test_the_same_figure_is_the_same_files(script, tmp_path):
    """No dates: a picture that did not change is no change."""
    common = script("common")
    kept = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        figure, axes = common.panels()
        axes.plot([1, 2], label="line")
        common.legend(axes)
        common.keep(folder, "one", figure, {"a": 1.0})
        kept.append([(folder / f"one{end}").read_bytes() for end in (".png", ".pdf", ".json")])
    assert kept[0] == kept[1]


def test_every_picture_is_listed_and_whole():
    rows = re.findall(r"^\| `([\w-]+)` \| `(\w+\.py)` \|", (FIGURES / "README.md").read_text(), re.MULTILINE)
    listed = {name for name, _ in rows}
    pictures = {path.stem for path in FIGURES.glob("*.png")}
    assert len(rows) == len(listed) and pictures <= listed
    for name in pictures:
        assert all((FIGURES / f"{name}{end}").exists() for end in (".pdf", ".json")), name
    made = set(re.findall(r"figures/(\w+\.py)", (FIGURES.parent / "Makefile").read_text()))
    without_data = {name for _, name in rows if "datasets" not in (FIGURES / name).read_text()}
    assert made == without_data
