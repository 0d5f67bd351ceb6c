"""Options from a TOML file: the command line wins, and mistakes in the file are told."""

import pytest
from click.testing import CliRunner

from pld_accountant.cli.commands import main

WORDS = ("epsilon-of", "--parameters", "run.toml")
FILE = "noise-multiplier = 2\nsample_rate = 0.005\nsteps = 10000\ndelta = 1e-5\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(text, *words):
    with open("run.toml", "w", encoding="utf-8") as file:
        file.write(text)
    return CliRunner().invoke(main, words)


def test_a_file_gives_the_options_and_the_command_line_wins():
    assert "epsilon <= 1.004113" in run(FILE, *WORDS).stdout
    direct = ("--noise-multiplier", "2", "--sample-rate", "0.005", "--delta", "1e-5", "--steps", "5000")
    fewer = run(FILE, *WORDS, "--steps", "5000").stdout
    assert fewer == run("", "epsilon-of", *direct).stdout != run(FILE, *WORDS).stdout


def test_options_of_other_commands_are_ignored():
    assert run(FILE + 'orientation = "steps"\n', *WORDS).exit_code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE + "noises = 1\n", "no command has an option --noises"),
        (FILE + "x\n", "is no TOML"),
        (FILE + "[steps]\n", "is no TOML"),
        ("[steps]\nx = 1\n", "must be a value, not a table"),
        (FILE.replace("2\n", '"two"\n'), "not a valid float"),
        (FILE.replace("1e-5", "2"), "delta must lie in"),
        ("steps = 3\ndelta = 1e-5\n", "Missing option '--noise-multiplier', option '--sample-rate'."),
    ],
)
def test_mistakes(text, message):
    result = run(text, *WORDS)
    assert result.exit_code == 2 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert message in line


def test_the_shell_completes_commands(monkeypatch):
    monkeypatch.setenv("_PLD_ACCOUNTANT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "pld-accountant descr")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert "plain,describe" in CliRunner().invoke(main, [], prog_name="pld-accountant").stdout
