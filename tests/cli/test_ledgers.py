"""`merge`, `verify` and `describe` of files that the program wrote, and of files that it did not."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest
from command_line import run

import pld_accountant as pa
from pld_accountant.files import store
from pld_accountant.files.fingerprint import fingerprint
from pld_accountant.training.journal import Journal

STEP = {"noise_multiplier": 2.0, "sample_rate": 0.05, "max_grad_norm": 1.0}


def ledger_of(people, norms, count=50):
    return pa.Ledger.from_events({"person": people, "norm": norms, "count": [count] * len(people)}, **STEP)


def journal_of(norms, steps, cut=False):
    with Journal("run.journal", len(norms), max_grad_norm=1.0) as journal:
        journal.row(np.array(norms))
        for _ in range(steps + cut):
            journal.step(2.0, 0.05, 1.0)
    if cut:
        os.truncate("run.journal", os.path.getsize("run.journal") - 1)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with two ledgers, the results of the first, events, and a log."""
    place = tmp_path_factory.mktemp("written")
    first = ledger_of(["a", "b"], [0.5, 1.0])
    first.save(place / "first.npz")
    ledger_of(["b", "c"], [0.5, 1.0]).save(place / "second.npz")
    pa.write_results(pa.summarise(first, 1e-5), out=place / "eps.parquet")
    pq.write_table(pyarrow.table({"person": [1], "norm": [0.5]}), place / "events.parquet")
    np.save(place / "norms.npy", np.ones((3, 2)))
    return place


@pytest.fixture
def folder(written, tmp_path, monkeypatch):
    """The present folder, a copy of what was written."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_record_counts_events_and_logs(folder):
    table = {"person": ["a", "b"], "norm": [0.5, 1.0], "count": [50, 20]}
    pq.write_table(pyarrow.table(table), "march.parquet")
    words = ("--schedule", "2:0.05:60", "--max-grad-norm", 1, "--compressed", "--out", "march.npz")
    result = run("record", "march.parquet", *words)
    assert result.exit_code == 0 and "2 people, 60 steps" in result.stdout, result.output
    found = pa.Ledger.load("march.npz")
    expected = pa.Ledger.from_events(table, schedule=[(2, 0.05, 60)], max_grad_norm=1)
    assert found.compressed and np.array_equal(found.counts, expected.counts)
    assert found.schedule == expected.schedule == ((2.0, 0.05, 60),)
    steps = ("--noise-multiplier", 2, "--sample-rate", 0.05, "--max-grad-norm", 1)
    told = run("record", "norms.npy", *steps, "--examples", 2, "--out", "log.npz", "--json", "-").stdout
    assert json.loads(told)["provenance"]["source"] == vars(fingerprint("norms.npy"))
    assert np.array_equal(pa.Ledger.load("log.npz").counts, pa.Ledger.from_norms(np.ones((3, 2)), **STEP).counts)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("events.parquet", "--schedule", "2:0.05"), "must be NOISE:RATE:STEPS"),
        (("events.parquet", "--schedule", "2:1.5:10"), "sample_rate must lie in"),
        (("events.parquet", "--schedule", "2:0.05:9,1:0.05:9"), "noise_multiplier must be given"),
        (("norms.npy", "--schedule", "2:0.05:9"), "so it takes no --schedule"),
        (("norms.npy", "--compressed"), "so it takes no --compressed"),
    ],
)
def test_mistakes_in_record(folder, words, message):
    before = sorted(os.listdir())
    result = run("record", *words, "--max-grad-norm", 1, "--out", "new.npz")
    assert result.exit_code == 2 and message in result.stderr, result.output
    assert sorted(os.listdir()) == before


def test_a_ledger_and_a_journal_have_epsilons(folder):
    """What `record` and `merge` leave, and what a training run leaves, is asked like a log."""
    question = ("--delta", 1e-5, "--min-group", 1)
    assert run("epsilon", "first.npz", *question, "--out", "again.parquet").exit_code == 0
    upper = pa.Ledger.load("first.npz").epsilon(1e-5).upper
    found = pa.read_results("again.parquet").individuals
    assert np.array_equal(found.epsilon.upper, upper) and found.people.tolist() == ["a", "b"]
    journal_of([0.5, 1.0], 50)
    assert run("epsilon", "run.journal", *question, "--out", "run.parquet").exit_code == 0
    assert np.array_equal(pa.read_results("run.parquet").individuals.epsilon.upper, upper)
    assert run("merge", "run.journal", "--out", "run.npz").exit_code == 0
    assert pa.Ledger.load("run.npz").steps == 50
    assert run("report", "run.journal", *question, "--out", "page.html").exit_code == 0
    (folder / "run.journal").unlink()
    journal_of([0.5, 1.0], 30, cut=True)
    result = run("verify", "run.journal")
    assert "2 people, 30 steps" in result.stdout and "half-written" in result.stderr
    for words in (("--max-grad-norm", 1), ("--sample-rate", 0.1), ("--buckets", 64), ("--examples", 2)):
        result = run("epsilon", "first.npz", *question, *words)
        assert result.exit_code == 2 and f"takes no {words[0]}" in result.stderr
    for file in ("events.parquet", "norms.npy"):
        result = run("epsilon", file, *question, "--noise-multiplier", 2, "--sample-rate", 0.1)
        assert result.exit_code == 2 and "Missing option '--max-grad-norm'" in result.stderr


def test_merge_and_verify_say_the_same_as_json(folder):
    told = json.loads(run("merge", "first.npz", "second.npz", "--out", "both.npz", "--json", "-").stdout)
    assert (told["num_examples"], told["steps"]) == (3, 100)
    assert run("verify", "first.npz", "--results", "eps.parquet", "--json", "v.json").exit_code == 0
    told = json.loads((folder / "v.json").read_text())
    assert told["provenance"]["source"] == {"name": "first.npz", "sha256": fingerprint("first.npz").sha256}
    agreed = {"same": 2, "overlap": 0, "contradict": 0, "below": 0}
    assert told["whole"] and told["results"] == {"file": "eps.parquet", "other": None, **agreed}
    result = run("verify", "second.npz", "--results", "eps.parquet", "--json", "-")
    assert result.exit_code == 1 and json.loads(result.stdout)["results"]["other"] == "other people"


def test_merge_adds_steps_of_the_same_people(folder):
    result = run("merge", "first.npz", "second.npz", "--out", "both.npz")
    assert result.exit_code == 0 and "3 people, 100 steps" in result.stdout, result.output
    expected = pa.Ledger.load("first.npz")
    expected.merge(pa.Ledger.load("second.npz"))
    assert pa.Ledger.load("both.npz").people.tolist() == ["a", "b", "c"]
    assert np.array_equal(pa.Ledger.load("both.npz").counts, expected.counts)


def test_merge_of_parts_refuses_people_in_both(folder):
    before = sorted(os.listdir())
    result = run("merge", "first.npz", "second.npz", "--same-steps", "--out", "both.npz")
    assert result.exit_code == 2 and "1 people are in both" in result.stderr and "both tables" in result.stderr
    assert sorted(os.listdir()) == before
    ledger_of(["c"], [0.25]).save("other.npz")
    assert run("merge", "first.npz", "other.npz", "--same-steps", "--out", "both.npz").exit_code == 0
    assert pa.Ledger.load("both.npz").steps == 50
    assert run("merge", "first.npz", "second.npz", "--out", "first.npz").exit_code == 2
    twice = run("merge", "first.npz", "./first.npz", "--out", "both.npz")
    assert twice.exit_code == 2 and "names a file twice" in twice.stderr


def test_a_guarantee_that_is_not_the_ledger_s_is_printed(folder, forge):
    table = pq.read_table("eps.parquet")
    facts = json.loads(table.schema.metadata[b"pld_accountant"])
    forge(table, "less.parquet", guarantee=facts["guarantee"] | {"sentence": "Everything is promised."})
    result = run("verify", "first.npz", "--results", "less.parquet", "--json", "v.json")
    assert result.exit_code == 0
    assert "a guarantee that a ledger cannot confirm: Everything is promised." in result.stdout
    assert json.loads((folder / "v.json").read_text())["results"]["guarantee"] == "Everything is promised."


def test_results_are_no_ledger(folder):
    for words in (("verify", "eps.parquet"), ("report", "eps.parquet", "--delta", 1e-5, "--out", "r.html")):
        result = run(*words)
        assert result.exit_code == 2 and "holds results; a ledger is what --ledger" in result.stderr, result.output


def test_verify_accepts_what_was_written_and_finds_what_was_changed(folder, forge):
    result = run("verify", "first.npz", "--results", "eps.parquet")
    assert (result.exit_code, result.stdout.count("2 people")) == (0, 2), result.output
    table = pq.read_table("eps.parquet")
    upper = table["epsilon_upper"].to_numpy() * 0.9
    place = table.schema.get_field_index("epsilon_upper")
    lower = table.schema.get_field_index("epsilon_lower")
    changed = table.set_column(place, table.schema.field(place), pyarrow.array(upper))
    changed = changed.set_column(lower, table.schema.field(lower), pyarrow.array(upper * 0.5))
    pq.write_table(changed, "less.parquet")
    result = run("verify", "first.npz", "--results", "less.parquet")
    assert result.exit_code == 2 and "altered or damaged" in result.stderr
    metadata = {key: value for key, value in table.schema.metadata.items() if key != b"pld_accountant_sha256"}
    pq.write_table(changed.replace_schema_metadata(metadata), "less.parquet")
    result = run("verify", "first.npz", "--results", "less.parquet")
    assert result.exit_code == 2 and "its digest is missing" in result.stderr
    forge(changed, "less.parquet")
    result = run("verify", "first.npz", "--results", "less.parquet")
    assert result.exit_code == 1 and "of 0 differ but agree, of 2 contradict" in result.stdout
    assert run("verify", "second.npz", "--results", "eps.parquet", "--quiet").exit_code == 1
    assert "other people" in run("verify", "second.npz", "--results", "eps.parquet").stdout
    data = bytearray((folder / "first.npz").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "first.npz").write_bytes(data)
    assert run("verify", "first.npz").exit_code == 2


def scaled(table, name, factor):
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), pyarrow.array(table[name].to_numpy() * factor))


FORGED = {
    "a smaller worst case": lambda f: {"worst_case": f["worst_case"] | {"lower": 0.1, "upper": 0.2}},
    "other parameters": lambda f: {"parameters": f["parameters"] | {"max_grad_norm": 9.0}},
    "another origin of the schedule": lambda f: {"schedule_from_events": not f["schedule_from_events"]},
}
SHRUNK = {"smaller Renyi bounds": ("rdp_epsilon", 0.1), "are below what is proven": ("epsilon_upper", 1.0 - 1e-5)}


@pytest.mark.parametrize("case", [*FORGED, *SHRUNK])
def test_verify_finds_results_that_promise_more_than_the_ledger_proves(folder, forge, case):
    table = pq.read_table("eps.parquet")
    forge(table, "less.parquet")
    assert run("verify", "first.npz", "--results", "less.parquet").exit_code == 0
    if case in FORGED:
        forge(table, "less.parquet", **FORGED[case](json.loads(table.schema.metadata[b"pld_accountant"])))
    else:
        forge(scaled(table, *SHRUNK[case]), "less.parquet")
    result = run("verify", "first.npz", "--results", "less.parquet")
    assert result.exit_code == 1 and case in result.stdout, result.output


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("first.npz", ["kind: pld-accountant ledger", "sample rate: 0.05", "num examples: 2"]),
        ("eps.parquet", ["kind: results", "delta: 1e-05", "num examples: 2"]),
        ("events.parquet", ["kind: event table", "events: 1", "person; norm"]),
        ("norms.npy", ["kind: log of norms", "people: 2", "assumed"]),
        ("eps.csv", ["kind: results", "delta: 1e-05", "num examples: 2"]),
        ("eps.npz", ["kind: results", "delta: 1e-05", "num examples: 2"]),
        ("summary.json", ["kind: results", "delta: 1e-05", "num examples: 2"]),
        ("facts.json", ["kind: facts of a ledger", "num examples: 2", "steps 50"]),
        ("run.journal", ["kind: journal of a training run", "num examples: 2", "steps: 30", "half-written"]),
        ("worst.json", ["kind: worst case", "steps: 10"]),
    ],
)
def test_describe_says_what_a_file_is(folder, file, words):
    summary = pa.summarise(pa.Ledger.load("first.npz"), 1e-5)
    pa.write_results(summary, out="eps.csv", json="summary.json")
    pa.write_results(summary, out="eps.npz")
    journal_of([0.5, 1.0], 30, cut=True)
    steps = ("--noise-multiplier", 2, "--sample-rate", 0.1, "--steps", 10, "--delta", 1e-5)
    assert run("epsilon-of", *steps, "--json", "worst.json").exit_code == 0
    assert run("verify", "first.npz", "--json", "facts.json").exit_code == 0
    result = run("describe", file)
    assert result.exit_code == 0, result.output
    assert all(word in result.stdout for word in words), result.stdout
    assert json.loads(run("describe", file, "--json", "-").stdout)["kind"] in result.stdout


def test_a_ledger_of_mechanisms_has_commands(folder):
    office = pa.MechanismLedger(12)
    office.record(pa.DiscreteGaussian(20), np.arange(12), planned=12)
    office.save("office.npz")
    told = run("describe", "office.npz").stdout
    assert "kind: ledger of mechanisms" in told and "schedule: mechanism DiscreteGaussian(20.0, 1), steps 12" in told
    result = run("epsilon", "office.npz", "--delta", 1e-6, "--out", "office.parquet")
    assert result.exit_code == 0 and "worst case: in every step" in result.stdout, result.output
    result = run("verify", "office.npz", "--results", "office.parquet", "--json", "-", "--quiet")
    told = json.loads(result.stdout)
    assert result.exit_code == 0 and told["results"]["same"] == 12 and told["results"]["other"] is None
    assert told["schedule"] == [{"mechanism": "DiscreteGaussian(20.0, 1)", "steps": 12}]
    result = run("report", "office.npz", "--delta", 1e-6, "--out", "office.html")
    assert result.exit_code == 0 and "DiscreteGaussian(20.0, 1)" in (folder / "office.html").read_text()
    office.record(pa.DiscreteGaussian(20), np.arange(12), planned=12)
    office.save("other.npz")
    result = run("merge", "office.npz", "other.npz", "--out", "both.npz")
    assert result.exit_code == 0 and "12 people, 36 steps" in result.stdout, result.output
    result = run("verify", "other.npz", "--results", "office.parquet")
    assert result.exit_code == 1 and "another schedule" in result.stdout


@pytest.mark.parametrize(
    "words, message",
    [
        (("compare", "--delta", 1e-6), "must be a Ledger or a LaplaceLedger for Gaussian accounting"),
        (("release", "--delta", 1e-6, "--epsilon", 1, "--edges", "1"), "must be a Ledger or a LaplaceLedger, got Mech"),
        (("merge", "first.npz", "--out", "all.npz"), "other must be a MechanismLedger"),
    ],
)
def test_what_a_ledger_of_mechanisms_cannot_do_is_told(folder, words, message):
    pa.MechanismLedger(12).save("office.npz")
    command, *others = words
    result = run(command, "office.npz", *others)
    assert result.exit_code == 2 and message in result.stderr and "Traceback" not in result.stderr, result.output


def test_describe_of_a_filter_and_of_nothing(folder):
    pa.GaussianFilter(0.5, num_examples=2, noise_multiplier=4.0).save("filter.npz")
    assert "GaussianFilter" in run("describe", "filter.npz").stdout
    (folder / "x.txt").write_text("nothing")
    (folder / "other.json").write_text("[1]")
    for file in ("x.txt", "absent.npz", "other.json"):
        result = run("describe", file)
        assert result.exit_code == 2 and result.stdout == "" and len(result.stderr.splitlines()) == 1


def zipped(**members):
    """A compressed archive of arrays."""
    with zipfile.ZipFile("crafted.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, np.asarray(content))
    return "crafted.npz"


def damaged_directory():
    file = zipped(norms=np.ones((2, 3)))
    content = bytearray(Path(file).read_bytes())
    content[content.index(b"PK\1\2") + 6] = 123  # the version that is needed to read it
    Path(file).write_bytes(content)
    return file


def nested(file):
    deep = b"[" * 100_000
    if file == "table.parquet":
        pq.write_table(pyarrow.table({"id": [1]}).replace_schema_metadata({b"pld_accountant": deep}), file)
    else:
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_bytes(deep)
    return file if file != "parts/_manifest.json" else "parts"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (damaged_directory, "zip file version"),
        (lambda: zipped(summary=np.zeros(10**7, "U1")), "larger than the file"),
        (lambda: saved("pld-accountant ledger", 2, schedule=5), "not iterable"),
        (lambda: nested("results.json"), "is no JSON"),
        (lambda: nested("table.parquet"), "recursion"),
        (lambda: nested("parts/_manifest.json"), "recursion"),
    ],
)
def test_describe_refuses_crafted_files_in_one_line(folder, make, message):
    result = run("describe", make())
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, result.exception
    assert message in result.stderr


def saved(kind, version, **header):
    store.save("crafted.npz", kind, version, header, {})
    return "crafted.npz"


@pytest.mark.parametrize(
    "words", [("epsilon", "--delta", "1e-5"), ("record", "--max-grad-norm", "1", "--out", "y.npz")]
)
def test_a_missing_file_is_told_first(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(words[0], "absent.npy", *words[1:])
    assert (result.exit_code, result.stderr) == (2, "pld-accountant: absent.npy does not exist\n")
