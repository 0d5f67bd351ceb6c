"""What the commands print and write: JSON on standard output, silence, provenance, and nothing about few people."""

import hashlib
import json
import os
import shlex

import click
import numpy as np
import pyarrow.parquet as pq
import pytest
from command_line import run

from pld_accountant import __version__
from pld_accountant.cli.commands import main
from pld_accountant.results import Status

PEOPLE = 30
OPTIONS = ("--noise-multiplier", 2, "--sample-rate", 0.05, "--max-grad-norm", 5, "--delta", 1e-5)
STEPS = ("--orientation", "steps")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("norms.npy", np.random.default_rng(0).gamma(2.0, 2.0, (20, PEOPLE)))
    np.save("labels.npy", np.array(["many"] * 21 + ["few"] * 9))
    return tmp_path


@pytest.mark.parametrize("command", ["epsilon", "compare"])
def test_json_on_standard_output_is_alone_there(folder, command):
    result = run(command, "norms.npy", *OPTIONS, "--json", "-", "--out", "eps.npz")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["num_examples"] == PEOPLE
    assert sorted(os.listdir()) == ["eps.npz", "labels.npy", "norms.npy"]


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_answers_in_json_and_in_silence(command):
    names = {name for parameter in main.commands[command].params for name in parameter.opts}
    assert {"--json", "--quiet", "--parameters"} <= names


def test_the_worst_case_in_json(folder):
    steps = ("--noise-multiplier", 2, "--sample-rate", 0.005, "--delta", 1e-5)
    told = json.loads(run("epsilon-of", *steps, "--steps", 10_000, "--json", "-").stdout)
    assert told["epsilon"]["lower"] < 1.0041127 < told["epsilon"]["upper"] + 1e-6
    assert (told["steps"], told["delta"], told["epsilon"]["status"]) == (10_000, 1e-5, "CERTIFIED")
    assert "bounds" in told["epsilon"]["meaning"] and "Poisson" in told["guarantee"]
    result = run("calibrate", *steps, "--target-epsilon", 1, "--json", "steps.json", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    told = json.loads((folder / "steps.json").read_text())
    assert told["calibrated"] == "steps" and told["steps"] == 9924
    assert told["epsilon"]["upper"] <= told["target_epsilon"] == 1


def test_a_bound_in_print_is_one_at_the_delta_beside_it(folder):
    """A delta in six digits is another one, at which neither bound was computed."""
    delta, people = 1 / 70_000, ("--noise-multiplier", 2, "--sample-rate", 0.05, "--max-grad-norm", 5)
    steps = ("--noise-multiplier", 2, "--sample-rate", 0.005, "--delta", delta)
    for command in (["epsilon-of", *steps, "--steps", 10], ["calibrate", *steps, "--target-epsilon", 1]):
        assert f"at delta = {delta!r}" in run(*command).output
    for command in ("epsilon", "compare"):
        told = run(command, "norms.npy", *people, "--delta", delta, "--min-delta", 1e-7 / 3)
        told = told if command == "compare" else run(command, "norms.npy", *people, "--delta", delta)
        assert f"epsilon at delta = {delta!r}" in told.output
    assert f"wherever delta is at least {1e-7 / 3!r}" in " ".join(told.output.split())


def test_json_of_the_page_and_of_the_demo(folder):
    assert run("record", "norms.npy", *OPTIONS[:-2], "--examples", PEOPLE, "--out", "l.npz").exit_code == 0
    told = json.loads(run("report", "l.npz", "--delta", 1e-5, "--out", "page.html", "--json", "-").stdout)
    assert told["num_examples"] == PEOPLE and (folder / "page.html").exists()
    told = json.loads(run("demo", "--steps", 2, "--json", "-").stdout)
    assert told["steps"] == 2 and "test_accuracy" in told


@pytest.mark.parametrize("command", ["epsilon", "compare"])
def test_quiet_prints_nothing_and_writes_all_the_same(folder, command):
    result = run(command, "norms.npy", *OPTIONS, *STEPS, "--quiet", "--out", "eps.npz")
    assert (result.exit_code, result.output) == (0, "")
    assert (folder / "eps.npz").exists()


@pytest.mark.parametrize("words", [(), STEPS, ("--examples", PEOPLE)])
def test_an_assumed_orientation_is_told_until_it_is_settled(folder, words):
    result = run("epsilon", "norms.npy", *OPTIONS, *words)
    assert result.exit_code == 0
    assert ("was read as 20 steps of 30 people" in result.stderr) == (not words)


def test_the_number_of_examples_is_checked(folder):
    result = run("epsilon", "norms.npy", *OPTIONS, "--examples", 31)
    assert (result.exit_code, result.stderr) == (2, "pld-accountant: norms.npy holds 30 people, not 31\n")
    np.save("turned.npy", np.load("norms.npy").T)
    assert "30 people, 20 steps" in run("epsilon", "turned.npy", *OPTIONS, "--examples", PEOPLE).stdout
    line = run("epsilon", "turned.npy", *OPTIONS, *STEPS, "--examples", PEOPLE).stderr
    assert "with the orientation people the log has 30 people" in line


def test_all_missing_options_are_named_at_once(folder):
    line = run("epsilon").stderr
    for name in ("NORMS", "--noise-multiplier", "--sample-rate", "--max-grad-norm", "--delta"):
        assert f"'{name}'" in line
    assert run("epsilon", "norms.npy", *OPTIONS[:-2]).stderr == "pld-accountant: Missing option '--delta'.\n"


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_help_has_an_example_whose_words_are_understood(folder, name):
    shown = run(name, "--help").stdout
    line = shown.split("Example:\n")[1].replace("\\\n", " ")
    program, command, *words = shlex.split(line)
    assert (program, command) == ("pld-accountant", name)
    context = main.commands[name].make_context(name, words)
    assert isinstance(context, click.Context)


@pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
def test_every_output_says_where_it_comes_from(folder, ending, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    files = ("--out", f"eps.{ending}", "--json", "s.json", "--figure", "h.png", "--ledger", "l.npz")
    result = run("epsilon", "norms.npy", *OPTIONS, *STEPS, *files)
    assert result.exit_code == 0, result.output
    digest = hashlib.sha256((folder / "norms.npy").read_bytes()).hexdigest()
    expected = {
        "package": "individual-pld-accountant",
        "version": __version__,
        "time": "2023-11-14T22:13:20Z",
        "source": {"name": "norms.npy", "sha256": digest},
    }
    summary = json.loads((folder / "s.json").read_text())
    if ending == "csv":
        facts = json.loads((folder / "eps.csv.meta.json").read_text())
        assert "eps.csv.meta.json" in result.stdout
    elif ending == "npz":
        with np.load("eps.npz") as table:
            facts = json.loads(str(table["summary"]))
    else:
        facts = json.loads(pq.read_schema("eps.parquet").metadata[b"pld_accountant"])
    for found in (summary, facts):
        assert found["provenance"] == expected
        assert found["delta"] == 1e-5 and found["parameters"]["noise_multiplier"] == 2
        assert found["guarantee"]["sentence"]
        assert found["status"] == {status.name: status.sentence for status in Status}
    assert digest in "".join(result.stdout.split())
    assert digest.encode() in (folder / "h.png").read_bytes()
    assert run("report", "l.npz", "--delta", 1e-5, "--out", "r.html").exit_code == 0
    page = (folder / "r.html").read_text()
    assert __version__ in page and "2023-11-14T22:13:20Z" in page
    assert hashlib.sha256((folder / "l.npz").read_bytes()).hexdigest() in page
    assert all(status.sentence in page for status in Status)


def test_the_file_beside_a_csv_is_checked_before_the_work(folder):
    (folder / "eps.csv.meta.json").mkdir()
    assert "eps.csv.meta.json: is a folder" in run("epsilon", "norms.npy", *OPTIONS, "--out", "eps.csv").stderr


@pytest.mark.parametrize(("words", "shown"), [((), False), (("--min-group", 9), True)])
def test_nothing_is_shown_about_few_people_unless_asked(folder, words, shown):
    groups = ("--groups", "labels.npy", *words)
    result = run("epsilon", "norms.npy", *OPTIONS, *groups, "--json", "s.json", "--ledger", "l.npz")
    assert result.exit_code == 0, result.output
    told = json.loads((folder / "s.json").read_text())
    assert [group["group"] for group in told["groups"]] == (["few", "many"] if shown else ["many"])
    assert told["groups_not_shown"] == (0 if shown else 1)
    assert ("1 group of fewer than 10 people is not shown" in result.stdout) == (not shown)
    assert run("report", "l.npz", "--delta", 1e-5, *groups, "--out", "r.html").exit_code == 0
    page = (folder / "r.html").read_text()
    assert ("<bdi>few</bdi>" in page) == shown
    assert ("1 group of fewer than 10 people is not shown" in page) == (not shown)


@pytest.mark.parametrize("option", ["--out", "--figure", "--ledger"])
def test_only_the_summary_goes_to_standard_output(folder, option):
    result = run("epsilon", "norms.npy", *OPTIONS, *STEPS, option, "-")
    assert result.exit_code == 2
    assert "only --json writes to standard output" in result.stderr
    assert not (folder / "-").exists()
