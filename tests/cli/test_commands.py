"""The command line as a user meets it: answers, files, and one clear line for every mistake."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest
from command_line import fails, run

import pld_accountant as pa
from pld_accountant.results import Status

STEPS, PEOPLE = 30, 12
SETTINGS = {"noise_multiplier": 2.0, "sample_rate": 0.05, "max_grad_norm": 5.0}
OPTIONS = [
    "--orientation",
    "steps",
    "--noise-multiplier",
    "2",
    "--sample-rate",
    "0.05",
    "--max-grad-norm",
    "5",
    "--delta",
    "1e-5",
]
NORMS = np.random.default_rng(0).gamma(2.0, 2.0, (STEPS, PEOPLE))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder that holds a norm log and labels."""
    monkeypatch.chdir(tmp_path)
    np.save("norms.npy", NORMS)
    np.save("labels.npy", np.arange(PEOPLE) % 3)
    return tmp_path


def test_epsilon_writes_what_the_ledger_says(folder):
    result = run(
        "epsilon",
        "norms.npy",
        *OPTIONS,
        "--groups",
        "labels.npy",
        "--out",
        "eps.parquet",
        "--figure",
        "hist.png",
        "--json",
        "summary.json",
    )
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    ledger = pa.Ledger.from_norms(NORMS, **SETTINGS)
    bounds = ledger.epsilon(1e-5)
    table = pq.read_table("eps.parquet")
    for name in ("lower", "estimate", "upper"):
        assert np.array_equal(table[f"epsilon_{name}"], getattr(bounds, name))
    assert np.array_equal(table["rdp_epsilon"], ledger.rdp_epsilon(1e-5))
    assert table["id"].to_pylist() == list(range(PEOPLE))
    assert table["group"].to_pylist() == [i % 3 for i in range(PEOPLE)]
    told = json.loads((folder / "summary.json").read_text())
    assert told["guarantee"]["sentence"] == ledger.guarantee.sentence
    assert told["steps"] == STEPS and told["num_examples"] == PEOPLE
    assert told["worst_case"]["upper"] == ledger.worst_case().epsilon(1e-5).upper
    assert told["quantiles"][-1]["epsilon"] == bounds.upper.max()
    assert json.loads(table.schema.metadata[b"pld_accountant"])["guarantee"] == told["guarantee"]
    assert ledger.guarantee.sentence[:40] in " ".join(result.stdout.split())
    assert (folder / "hist.png").stat().st_size > 10_000
    assert not [name for name in os.listdir() if name.startswith(".")], "a temporary file was left"


@pytest.mark.parametrize("direction", ["add", "remove"])
def test_direction_and_quantiles_are_passed_on(folder, direction):
    words = ("--direction", direction, "--quantiles", "0,37.5", "--json", "s.json")
    assert run("epsilon", "norms.npy", *OPTIONS, *words).exit_code == 0
    told = json.loads((folder / "s.json").read_text())
    upper = pa.Ledger.from_norms(NORMS, **SETTINGS).epsilon(1e-5, direction=direction).upper
    expected = np.sort(upper)[[0, 4]]  # 0.375 of 12 people is 4.5 people
    assert [q["probability"] for q in told["quantiles"]] == [0.0, 0.375]
    assert [q["epsilon"] for q in told["quantiles"]] == expected.tolist()


def test_orientation_is_what_it_is_said_to_be(folder):
    np.save("turned.npy", np.ascontiguousarray(NORMS.T))
    for name, words in (("norms.npy", ()), ("turned.npy", ("--orientation", "examples-by-steps"))):
        assert run("epsilon", name, *OPTIONS, *words, "--out", f"{name}.csv").exit_code == 0
    assert (folder / "norms.npy.csv").read_bytes() == (folder / "turned.npy.csv").read_bytes()
    line = fails("epsilon", "turned.npy", *OPTIONS, "--groups", "labels.npy")
    assert "12 labels, but there are 30 people; with the orientation people the log has 12 people" in line


def test_equal_inputs_give_equal_files_if_the_time_is_fixed(folder, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("a", "b"):
        run(
            "epsilon",
            "norms.npy",
            *OPTIONS,
            "--out",
            f"{name}.npz",
            "--figure",
            f"{name}.pdf",
            "--json",
            f"{name}.json",
        )
    for ending in ("npz", "pdf", "json"):
        assert (folder / f"a.{ending}").read_bytes() == (folder / f"b.{ending}").read_bytes()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--noise-multiplier", "0", "noise_multiplier must be a finite number above 0"),
        ("--noise-multiplier", "-1", "noise_multiplier must be"),
        ("--noise-multiplier", "nan", "noise_multiplier must be"),
        ("--noise-multiplier", "two", "not a valid float"),
        ("--sample-rate", "0", "sample_rate must lie in"),
        ("--sample-rate", "1.01", "sample_rate must lie in"),
        ("--delta", "0", "delta must lie in"),
        ("--delta", "1", "delta must lie in"),
        ("--max-grad-norm", "inf", "max_grad_norm must be"),
        ("--buckets", "0", "--buckets"),
        ("--direction", "up", "--direction"),
        ("--orientation", "rows", "--orientation"),
        ("--quantiles", "5,a", "--quantiles"),
        ("--quantiles", "101", "between 0 and 100"),
        ("--groups", "absent.npy", "absent.npy does not exist"),
        ("--out", "eps.txt", "must end in .parquet or .csv or .npz"),
        ("--out", "absent/eps.csv", "the folder absent does not exist"),
        ("--out", "norms.npy", "must end in"),
        ("--figure", "hist.jpg", "must end in .png or .pdf"),
        ("--json", "norms.npy", "is named twice, or is an input"),
        ("--json", ".", "is a folder"),
        ("--nonsense", "1", "No such option"),
    ],
)
def test_mistakes_in_options(folder, option, value, message):
    words = [*OPTIONS, "--out", "eps.csv"]
    if option in words:
        words[words.index(option) + 1] = value
    else:
        words += [option, value]
    assert message in fails("epsilon", "norms.npy", *words)


@pytest.mark.parametrize("place", [(0, 0), (STEPS - 1, PEOPLE - 1), (17, 5)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_a_bad_norm_is_named_with_its_place(folder, place, value):
    bad = NORMS.copy()
    bad[place] = value
    np.save("bad.npy", bad)
    line = fails("epsilon", "bad.npy", *OPTIONS, "--out", "eps.parquet", "--json", "s.json")
    assert f"step {place[0]}, example {place[1]}" in line
    np.save("turned.npy", np.ascontiguousarray(bad.T))
    line = fails("epsilon", "turned.npy", *OPTIONS, "--orientation", "examples-by-steps")
    assert f"step {place[0]}, example {place[1]}" in line


def test_mistakes_in_the_log(folder):
    np.save("flat.npy", NORMS[0])
    (folder / "text.npy").write_text("1 2 3")
    assert "absent.npy does not exist" in fails("epsilon", "absent.npy", *OPTIONS)
    assert "two-dimensional" in fails("epsilon", "flat.npy", *OPTIONS)
    assert "cannot be read as a .npy file" in fails("epsilon", "text.npy", *OPTIONS)
    assert "Missing option '--delta'" in fails("epsilon", "norms.npy", *OPTIONS[:-2])
    assert "Missing argument 'NORMS'" in fails("epsilon", *OPTIONS)


@pytest.mark.parametrize("kind", ["log", "events"])
def test_laplace_noise(folder, kind):
    """L1 norms of a log or of an event table, and everywhere the word in what is left."""
    settings = {"noise_multiplier": 20.0, "sample_rate": 1.0, "max_grad_norm": 5.0}
    words = ["--noise", "laplace", "--noise-multiplier", 20, "--sample-rate", 1, "--max-grad-norm", 5]
    if kind == "log":
        ledger, source = pa.LaplaceLedger.from_norms(NORMS, **settings), ["norms.npy", "--orientation", "steps"]
    else:
        table = {"person": ["ann", "bob", "ann"], "norm": [1.0, 7.0, 2.0], "count": [3, 5, 2]}
        pq.write_table(pyarrow.table(table), "events.parquet")
        ledger, source = pa.LaplaceLedger.from_events(table, **settings), ["events.parquet"]
    out = ["--delta", "1e-5", "--out", "eps.parquet", "--ledger", "ledger.npz", "--json", "eps.json"]
    result = run("epsilon", *source, *words, *out)
    assert result.exit_code == 0, result.output
    assert "noise laplace, noise multiplier 20" in result.stdout
    assert json.loads((folder / "eps.json").read_text())["parameters"]["noise"] == "laplace"
    assert np.array_equal(pq.read_table("eps.parquet")["epsilon_upper"], ledger.epsilon(1e-5).upper)
    assert pa.LaplaceLedger.load("ledger.npz").epsilon(0) == ledger.epsilon(0)
    assert run("report", "ledger.npz", "--delta", "1e-5", "--min-group", 1, "--out", "page.html").exit_code == 0
    assert "<dt>Noise</dt><dd>Laplace</dd>" in (folder / "page.html").read_text()
    assert "takes no --noise" in run("epsilon", "ledger.npz", "--noise", "laplace", "--delta", "1e-5").stderr


def test_what_is_not_proven_in_time_says_so(folder):
    result = run("epsilon", "norms.npy", *OPTIONS, "--seconds", 1e-9, "--json", "-")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["parameters"]["seconds"] == 1e-9
    whole = json.loads(run("epsilon", "norms.npy", *OPTIONS, "--json", "-").stdout)
    assert (
        whole["quantiles"][0]["epsilon"] <= found["quantiles"][0]["epsilon"] <= 1.5 * whole["quantiles"][0]["epsilon"]
    )
    assert "seconds must be" in fails("epsilon", "norms.npy", *OPTIONS, "--seconds", 0)
    cut = json.loads(run("compare", "norms.npy", *OPTIONS, "--seconds", 1e-9, "--json", "-").stdout)
    full = json.loads(run("compare", "norms.npy", *OPTIONS, "--json", "-").stdout)
    for kind in ("PLD", "Gaussian"):
        quick, slow = (one["by"][kind]["quantiles"][-1]["epsilon"] for one in (cut, full))
        assert slow < quick < 100 * slow
    run("epsilon", "norms.npy", *OPTIONS, "--ledger", "some.npz")
    run("report", "some.npz", "--delta", 1e-5, "--min-group", 1, "--seconds", 1e-9, "--out", "cut.html")
    assert (folder / "cut.html").read_text().count("people have no tight bound") == 5


def test_a_full_disk_leaves_nothing(folder, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pld_accountant.files.store.os.fsync", full)
    line = fails("epsilon", "norms.npy", *OPTIONS, "--out", "eps.csv", "--json", "s.json")
    assert "No space left on device" in line


@pytest.mark.skipif(os.name != "posix", reason="descriptors are closed by a shell")
def test_a_closed_standard_output_is_no_error(folder):
    pa.Ledger(2, noise_multiplier=2, sample_rate=0.01, max_grad_norm=1).save("ledger.npz")
    command = f"{sys.executable} -m pld_accountant verify ledger.npz >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["--help"], ["epsilon-of", "--help"]])
def test_output_on_a_full_disk_is_one_line(words):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "pld_accountant", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == ["pld-accountant: standard output: No space left on device"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_input(folder):
    os.mkfifo("pipe.npy")
    for words in (
        ["epsilon", "pipe.npy", *OPTIONS],
        ["epsilon", "norms.npy", *OPTIONS, "--groups", "pipe.npy"],
        ["describe", "pipe.npy"],
        ["report", "pipe.npy", "--delta", 1e-5, "--out", "page.html"],
        ["verify", "pipe.npy"],
    ):
        assert "pipe.npy is a pipe" in fails(*words)


def test_epsilon_of_is_one_line_that_holds_the_truth():
    result = run("epsilon-of", "--noise-multiplier", 2, "--sample-rate", 0.005, "--steps", 10000, "--delta", 1e-5)
    assert result.exit_code == 0 and result.stderr == ""
    (line,) = result.stdout.splitlines()
    upper, delta, lower, renyi = map(float, re.findall(r"\d[\d.e-]*\d", line))
    assert (delta, lower <= 1.0041127 <= upper) == (1e-5, True)
    assert upper / lower - 1 < 1e-4
    assert 1.0986 < renyi < 1.0988


def test_a_sample_rate_may_be_a_fraction():
    words = ["epsilon-of", "--noise-multiplier", "1.1", "--steps", "1000", "--delta", "1e-5", "--sample-rate"]
    one, other = (run(*words, rate) for rate in ("3/512", "0.005859375"))
    assert one.exit_code == 0 and one.stdout == other.stdout
    for rate, message in (("3/0", "nor a fraction"), ("3/2", "must lie in (0, 1], got 1.5"), ("1/2/3", "nor a")):
        found = run(*words, rate)
        assert found.exit_code == 2 and message in found.stderr


@pytest.mark.parametrize("status", [Status.RENYI_ONLY, Status.NOT_CERTIFIED])
def test_epsilon_of_adds_a_line_if_not_both_bounds_are_certified(monkeypatch, status):
    upper = 1.5 if status == Status.RENYI_ONLY else np.inf
    monkeypatch.setattr(pa.Composition, "epsilon", lambda *_, **__: pa.Bounds(0.0, np.nan, upper, status))
    words = ("--noise-multiplier", 2, "--sample-rate", 0.005, "--steps", 100, "--delta", 1e-5)
    result = run("epsilon-of", *words)
    assert result.exit_code == 0, result.output
    answer, sentence = result.stdout.splitlines()
    assert sentence == Status.RENYI_ONLY.sentence
    most = pa.compose([(pa.SampledGaussian(2, 0.005), 100)]).rdp_epsilon(1e-5)
    shown = float(re.match(r"epsilon <= (\S+) at", answer)[1])
    assert most <= shown <= most * 1.00001


@pytest.mark.parametrize("steps", ["0", "-1", "1.5", "nan", "many"])
def test_epsilon_of_refuses_bad_steps(steps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--noise-multiplier", 2, "--sample-rate", 0.005, "--steps", steps, "--delta", 1e-5)
    assert "--steps" in fails("epsilon-of", *words)


def test_more_steps_than_a_double_counts(folder):
    words = ("--noise-multiplier", 2, "--sample-rate", 0.01, "--delta", 1e-5)
    assert "steps must be at most" in fails("epsilon-of", "--steps", 1e16, *words)


def test_numbers_and_names_that_cannot_be_meant(folder):
    assert "range 2<=x<=4096" in fails("epsilon", "norms.npy", *OPTIONS, "--buckets", 1)
    told = fails("epsilon", "norms.npy", *OPTIONS, "--dataset", "other")
    assert "holds one array without a name, not 'other'" in told


def test_demo_writes_all_its_files(tmp_path):
    result = run("demo", "--out", tmp_path / "new" / "folder", "--steps", 60)
    assert result.exit_code == 0, result.output
    assert sorted(os.listdir(tmp_path / "new" / "folder")) == [
        "epsilon.parquet",
        "histogram.pdf",
        "histogram.png",
        "labels.npy",
        "ledger.npz",
        "norms.npy",
        "report.html",
        "summary.json",
    ]


def test_demo_refuses_a_folder_that_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")
    assert "taken" in fails("demo", "--out", "taken", "--steps", 1)
    assert "taken" in fails("demo", "--out", "taken/in", "--steps", 1)


def test_help_is_shown_without_arguments_and_names_the_commands():
    for words in ((), ("--help",)):
        result = run(*words)
        assert result.exit_code == 0
        assert {"demo", "epsilon", "epsilon-of"} <= set(result.stdout.split())


def test_the_program_itself(folder):
    """One real process: exit status, streams, and no traceback."""
    program = [sys.executable, "-m", "pld_accountant"]
    good = subprocess.run([*program, "epsilon", "norms.npy", *OPTIONS], check=False, capture_output=True, text=True)
    # the first process of a machine compiles the kernels, and says so in one line
    notice = re.sub(r"\Apld-accountant: compiling kernels [^\n]*\n", "", good.stderr)
    assert (good.returncode, notice) == (0, "")
    assert "What is proven" in good.stdout
    bad = subprocess.run([*program, "epsilon", "absent.npy", *OPTIONS], check=False, capture_output=True, text=True)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "pld-accountant: absent.npy does not exist\n"
    version = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"pld-accountant, version \d+\.\d+\.\d+\n", version.stdout)


def test_a_limit_of_time():
    """What is not there in time is the Renyi bound, or no answer; a limit that suffices changes nothing."""
    asked = ("epsilon-of", "--noise-multiplier", 2, "--sample-rate", 0.005, "--steps", 10000, "--delta", 1e-5)
    assert run(*asked, "--seconds", 1000).stdout == run(*asked).stdout
    cut = run(*asked, "--seconds", 1e-9)
    assert cut.exit_code == 0 and Status.RENYI_ONLY.sentence in cut.stdout
    wanted = ("calibrate", "--target-epsilon", 1e-3, "--delta", 1e-5, "--sample-rate", 0.1, "--steps", 1000)
    assert "allow more seconds" in fails(*wanted, "--seconds", 1e-9)
    assert run(*wanted, "--seconds", 1000).stdout == run(*wanted).stdout
    assert "seconds must be a finite number above 0" in fails(*wanted, "--seconds", 0)


def test_a_warning_is_one_line_without_a_path(folder):
    rng = np.random.default_rng(0)
    np.save("sampled.npy", np.where(rng.random((100, 60)) < 0.05, rng.uniform(0.5, 4.0, (100, 60)), 0.0))
    done = subprocess.run(
        [sys.executable, "-m", "pld_accountant", "epsilon", "sampled.npy", *OPTIONS],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (line,) = [one for one in done.stderr.splitlines() if "as if only sampled people" in one]
    assert line.startswith("pld-accountant: note: ") and ".py" not in done.stderr
    assert "a ledger needs everybody's norm at every step" in " ".join(done.stdout.split())
