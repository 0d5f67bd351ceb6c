"""The calls that do what the command line does: the same numbers, and the same files."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import pld_accountant as pa
from pld_accountant.cli.commands import main
from pld_accountant.files.fingerprint import fingerprint
from pld_accountant.report.comparison import compare

SETTINGS = {"noise_multiplier": 2.0, "sample_rate": 0.05, "max_grad_norm": 5.0}
OPTIONS = "--noise-multiplier 2 --sample-rate 0.05 --max-grad-norm 5 --delta 1e-5 --orientation steps"
NORMS = np.random.default_rng(0).gamma(2.0, 2.0, (30, 24))
LABELS = np.arange(24) % 2


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    np.save("norms.npy", NORMS)
    np.save("labels.npy", LABELS)
    return tmp_path


@pytest.fixture(scope="module")
def own():
    return pa.Ledger.from_norms(NORMS, **SETTINGS)


def test_a_call_writes_what_the_command_writes(folder, own):
    words = f"epsilon norms.npy {OPTIONS} --groups labels.npy --out a.csv --figure a.png --json a.json"
    assert CliRunner().invoke(main, words.split()).exit_code == 0
    told = json.loads((folder / "a.json").read_text())
    parameters = {name: value for name, value in told["parameters"].items() if name != "direction"}
    found = pa.summarise(own, 1e-5, labels=LABELS, parameters=parameters, source="norms.npy")
    written = pa.write_results(found, out="b.csv", figure="b.png", json="b.json")
    assert [path.name for path in written] == ["b.csv", "b.csv.meta.json", "b.png", "b.json"]
    for ending in ("csv", "csv.meta.json", "png", "json"):
        assert (folder / f"a.{ending}").read_bytes() == (folder / f"b.{ending}").read_bytes(), ending


def test_a_call_writes_the_page_of_the_command(folder, own):
    own.save("ledger.npz")
    words = "report ledger.npz --delta 1e-5 --groups labels.npy --deltas 1e-4 --out a.html"
    assert CliRunner().invoke(main, words.split()).exit_code == 0
    path = pa.write_report(own, "b.html", 1e-5, labels=LABELS, deltas=[1e-4], source="ledger.npz")
    assert (folder / "a.html").read_bytes() == path.read_bytes()


def test_a_comparison_is_drawn_and_written_as_well(folder, own):
    found = pa.compare(own, 1e-5)
    assert len(pa.draw_histogram(found).axes) == 2
    assert len(pa.draw_histogram(pa.summarise(own, 1e-5)).axes) == 1
    assert [path.name for path in pa.write_results(found, "c.npz")] == ["c.npz"]
    with np.load("c.npz") as table:
        assert np.array_equal(table["mu"], found.mu.upper)


def test_the_ledger_s_own_parameters_are_told(own):
    told = pa.summarise(own, 1e-5).as_dict()
    assert told["parameters"] == {**SETTINGS, "buckets": 256, "direction": "both"}
    assert told["schedule"] == [{"noise_multiplier": 2.0, "sample_rate": 0.05, "steps": 30}]
    varied = pa.Ledger(24, **SETTINGS)
    varied.record(NORMS[:10], noise_multiplier=3.0)
    told = pa.summarise(varied, 1e-5).as_dict()
    assert "noise_multiplier" not in told["parameters"]
    assert told["schedule"] == [{"noise_multiplier": 3.0, "sample_rate": 0.05, "steps": 10}]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda own: pa.summarise(own, 1e-5, labels=[1, 2]), "labels must have shape"),
        (lambda own: pa.summarise(own, 1e-5, min_group=0), "min_group must be"),
        (lambda own: pa.summarise(own, 2), "delta must lie in"),
        (lambda own: pa.write_report(own, "page.pdf", 1e-5), "must end in .html"),
        (lambda own: pa.write_results(pa.summarise(own, 1e-5), out="eps.txt"), "must end in"),
        (lambda own: pa.write_results(pa.summarise(own, 1e-5), json="absent/a.json"), "folder absent does not exist"),
        (lambda own: pa.write_results(pa.summarise(own, 1e-5)), "a file must be named: out, figure or json"),
    ],
)
def test_mistakes(folder, own, call, message):
    with pytest.raises(ValueError, match=message):
        call(own)


def test_labels_with_an_index_of_their_own_are_refused(own):
    pandas = pytest.importorskip("pandas")
    labels = pandas.Series(LABELS)
    assert pa.summarise(own, 1e-5, labels=labels).groups
    with pytest.raises(ValueError, match="labels: people are counted by position"):
        pa.summarise(own, 1e-5, labels=labels[::-1])


def test_a_folder_s_fingerprint_depends_on_names_and_contents(tmp_path):
    log = tmp_path / "log.zarr"
    (log / "a").mkdir(parents=True)
    (log / "a" / "0").write_bytes(b"one")
    found = [fingerprint(log)]
    (log / "a" / "0").rename(log / "a" / "1")
    found.append(fingerprint(log))
    (log / "a" / "1").write_bytes(b"two")
    found.append(fingerprint(log))
    assert {one.name for one in found} == {"log.zarr"} and len({one.sha256 for one in found}) == 3


@pytest.mark.parametrize(
    "labels",
    [
        ["a", None] * 12,
        ["a", "nan"] * 12,
        np.array([1.0, np.nan] * 12),
        np.ma.masked_array(np.arange(24), mask=np.arange(24) == 3),
        np.array(["a", float("nan")] * 12, dtype=object),
    ],
)
def test_labels_that_are_missing_are_refused(own, labels):
    with pytest.raises(ValueError, match="missing values"):
        pa.summarise(own, 1e-5, labels=labels)


def test_the_guarantee_of_a_filter_stands_in_every_output(folder, own):
    keep = pa.GaussianFilter(1.0, num_examples=24, noise_multiplier=20.0, max_grad_norm=5.0)
    found = pa.summarise(own, 1e-5, guarantee=keep.guarantee)
    told, text = found.as_dict(), " ".join(found.text().split())
    assert told["guarantee"]["sentence"] == keep.guarantee.sentence and keep.guarantee.sentence in told["meaning"]
    diagnostic = "The numbers of single people are a diagnostic, not a guarantee"
    caption = " ".join(pa.draw_histogram(found).texts[0].get_text().split())
    for output in (told["meaning"], text, caption):
        assert diagnostic in output and "themselves sensitive" in output
    assert keep.guarantee.reference in text and "worst case: clipped at every step " in text
    assert diagnostic not in pa.summarise(own, 1e-5).as_dict()["meaning"]
    page = pa.write_report(own, "report.html", 1e-5, guarantee=keep.guarantee).read_text()
    assert "The guarantee stands below." in page and "Only the worst case is a guarantee" not in page
    with pytest.raises(TypeError, match="guarantee must be a Guarantee"):
        pa.summarise(own, 1e-5, guarantee="proven")


def test_the_budget_of_a_filter_leads_the_outputs_and_must_hold(folder, own):
    def guarantee(epsilon):
        return pa.ApproximateDPFilter(epsilon, 1e-5, num_examples=3).guarantee

    found = pa.summarise(own, 1e-5, guarantee=guarantee(7.5))
    assert "Promised to everybody: epsilon <= 7.500 at delta = 1e-05" in found.text()
    assert "worst case: clipped at every step, no filter" in found.text()

    def lines(budget, delta):
        figure = pa.draw_histogram(pa.summarise(own, delta, guarantee=guarantee(budget)))
        legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        return legend, figure.axes[0].get_xlim()[1], figure.texts[0].get_text()

    legend, right, caption = lines(2.0, 1e-5)
    assert "Promised to everybody: 2.000" in legend and right > 2.0 and "without the filter" in caption
    legend, right, _ = lines(1e3, 1e-5)
    assert "Promised to everybody: 1000, beyond the axis" in legend and right < 100.0
    assert not any("Promised" in words for words in lines(7.5, 1e-6)[0])
    page = pa.write_report(own, folder / "page.html", 1e-5, guarantee=guarantee(7.5)).read_text()
    words = " ".join(page[page.index("<dl") : page.index("</dl>")].split())
    assert words.index("Promised to everybody") < words.index("Worst case") and "It holds for everybody" not in words
    pa.write_results(found, out=folder / "eps.parquet")
    assert pa.read_results(folder / "eps.parquet").individuals.guarantee == guarantee(7.5)
    for call in (pa.summarise, lambda *a, **b: pa.write_report(a[0], folder / "no.html", *a[1:], **b)):
        with pytest.raises(ValueError, match=r"guarantee promises an epsilon of 0\.001"):
            call(own, 1e-5, guarantee=guarantee(1e-3))
    assert not (folder / "no.html").exists()
    # at a smaller delta than the promise's nothing contradicts it
    pa.summarise(own, 1e-9, guarantee=guarantee(float(own.epsilon(1e-5).upper.max()) * 1.001))


def test_a_delta_that_is_not_below_one_over_the_number_of_people_is_told(own):
    people = own.num_examples
    assert "is not below 1 /" not in pa.summarise(own, 0.5 / people).text()
    assert f"is not below 1 / {people}" in pa.summarise(own, 1.5 / people).text()


@pytest.mark.parametrize("planned", [None, 12])
def test_a_ledger_of_mechanisms_has_every_output(tmp_path, planned):
    office = pa.MechanismLedger(30)
    office.record(pa.DiscreteGaussian(20), np.arange(30) % 13, planned=planned)
    office.record(pa.RandomizedResponse(0.5))
    office.people = [f"p{i}" for i in range(30)]
    found = pa.summarise(office, 1e-6, labels=np.arange(30) % 2)
    schedule = [
        {"mechanism": "DiscreteGaussian(20.0, 1)", "steps": 12},
        {"mechanism": "RandomizedResponse(0.5, 2, neighbours='replace-one')", "steps": 1},
    ]
    told = found.as_dict()
    assert told["schedule"] == schedule and told["neighbours"] == "as the mechanisms say" and told["steps"] == 13
    assert told["parameters"] == {"buckets": 64, "direction": "both"}
    text = found.text()
    assert "worst case: in every step" in text
    assert ("depends on people's data and is no guarantee" in " ".join(text.split())) == (planned is None)
    largest = float(found.individuals.epsilon.upper.max())
    assert largest == found.individuals.worst_case.upper == office.worst_case().epsilon(1e-6).upper
    table, _ = pa.write_results(found, out=tmp_path / "o.parquet", figure=tmp_path / "o.png")
    again = pa.read_results(table)
    assert again.as_dict() == told and again.individuals.people.tolist()[:2] == ["p0", "p1"]
    page = pa.write_report(office, tmp_path / "o.html", 1e-6, deltas=[]).read_text()
    assert "The epsilon of a person in every step" in page and "RandomizedResponse(0.5, 2" in page
    assert ("it may be published" in page) == (planned is not None)


def test_a_ledger_of_mechanisms_without_steps_has_a_page(tmp_path):
    page = pa.write_report(pa.MechanismLedger(30), tmp_path / "empty.html", 1e-5).read_text()
    assert "30 people, 0 steps" in page and "as the mechanisms say" in page


def test_what_needs_a_ledger_of_norms_says_so():
    office = pa.MechanismLedger(3)
    with pytest.raises(ValueError, match=r"must be a Ledger or a LaplaceLedger for Gaussian accounting, got Mechanism"):
        compare(office, 1e-5)
    with pytest.raises(ValueError, match=r"must be a Ledger or a LaplaceLedger, got MechanismLedger\(3"):
        pa.release(office, 1e-5, epsilon=1.0, edges=[1.0])
    laplace = pa.LaplaceLedger(3, noise_multiplier=2.0, sample_rate=1.0, max_grad_norm=1.0)
    with pytest.raises(ValueError, match="a LaplaceLedger cannot book a release, whose cost is that of a Gaussian"):
        pa.release(laplace, 1e-5, epsilon=1.0, edges=[1.0], book=True)
    with pytest.raises(TypeError, match="ledger must be a ledger, such as Ledger, got list"):
        pa.summarise([1.0], 1e-5)


def test_a_picture_without_renyi_bounds_has_no_line_for_them():
    bins = pa.MechanismLedger(20)
    bins.record(pa.RandomAllocation(1.0, 10))
    figure = pa.draw_histogram(pa.summarise(bins, 1e-5))
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert any("PLD" in label for label in labels) and not any("Renyi" in label for label in labels)


def test_pictures_have_a_limit_of_bins(own):
    with pytest.raises(ValueError, match="at most 10000"):
        pa.draw_histogram(pa.summarise(own, 1e-5), bins=10**9)


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_results_are_read_from_parquet(folder, own, ending):
    pa.write_results(pa.summarise(own, 1e-5, min_group=1), out=f"eps.{ending}")
    with pytest.raises(ValueError, match="are read from"):
        pa.read_results(f"eps.{ending}")
