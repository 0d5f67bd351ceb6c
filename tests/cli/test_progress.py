"""Bars appear on a terminal only, only for long work, also while nothing is reported, and leave nothing
behind."""

import io
import time

import pytest

from pld_accountant.cli import progress


class Terminal(io.StringIO):
    """A standard error that says it is a terminal."""

    def isatty(self):
        return True

    def screen(self):
        """What is left on the last line."""
        return self.getvalue().split("\r")[-1].strip()


def attached(monkeypatch, shown_after=0.2):
    """A terminal in the place of standard error; not a fixture, since pytest puts its own there before the
    test."""
    monkeypatch.setattr(progress, "_SHOWN_AFTER", shown_after)
    monkeypatch.setattr(progress, "_REDRAWN_EVERY", 0.05)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    return terminal


def test_short_work_shows_nothing(monkeypatch):
    terminal = attached(monkeypatch, shown_after=60.0)
    with progress.progress_bar("Reading", "steps") as report:
        report(5, 10)
        report(10, 10)
    assert terminal.screen() == ""
    assert "Reading" not in terminal.getvalue()


def test_long_work_shows_how_far_it_is_and_clears_the_line(monkeypatch):
    terminal = attached(monkeypatch)
    with progress.progress_bar("Reading", "steps") as report:
        for done in range(40):
            report(done, 80)
            time.sleep(0.01)
        time.sleep(0.15)
        assert "39.0/80.0" in terminal.getvalue()
    assert terminal.screen() == ""


def test_it_is_shown_before_the_first_report_and_cleared_when_the_work_fails(monkeypatch):
    terminal = attached(monkeypatch)
    with pytest.raises(RuntimeError), progress.progress_bar("Accounting", "people"):
        time.sleep(0.4)
        assert "Accounting" in terminal.getvalue()
        raise RuntimeError
    assert terminal.screen() == ""


def test_nothing_is_drawn_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(progress, "_SHOWN_AFTER", 0.05)
    monkeypatch.setattr("sys.stderr", plain := io.StringIO())
    with progress.progress_bar("Reading", "steps") as report:
        time.sleep(0.2)
        report(1, 2)
    assert plain.getvalue() == ""
