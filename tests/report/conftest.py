"""A ledger of sixty people, its page, and a reader of pages."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.report.content import AtDelta, Extremes, Report, gather
from pld_accountant.report.histogram import Quantiles
from pld_accountant.report.html.page import page
from pld_accountant.report.individuals import assess
from pld_accountant.report.summary import summarise

SETTINGS = {"noise_multiplier": 2.0, "sample_rate": 0.05, "max_grad_norm": 5.0}
PEOPLE, STEPS = 60, 30
VOID = {"meta", "link", "rect", "path", "br"}


class Page(HTMLParser):
    """Elements, ids, tables and words; unbalanced tags are an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.ids, self.words, self.tables = [], [], [], [], {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag == "caption":
            self.rows = self.tables[attributes["id"]] = []
        if tag == "tr" and "thead" not in self.open:
            self.rows.append([])
        if tag in ("th", "td") and "tbody" in self.open:
            self.rows[-1].append("")
        if tag not in VOID or (tag == "rect" and not self.get_starttag_text().endswith("/>")):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.words.append(data)
        if "tbody" in self.open and ("td" in self.open or "th" in self.open):
            self.rows[-1][-1] += data

    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="session")
def ledger():
    norms = np.random.default_rng(3).gamma(2.0, 2.0, PEOPLE)
    norms[:3] = 50.0  # clipped, as some others are
    norms[10:12] = 0.0
    made = pa.Ledger(PEOPLE, **SETTINGS)
    made.record(norms, repeat=STEPS)
    return made


@pytest.fixture(scope="session")
def found(ledger):
    labels = np.array(["north", "south", "west"])[np.arange(PEOPLE) % 3]
    return assess(ledger, 1e-5, labels=labels, min_group=1)


@pytest.fixture(scope="session")
def read(ledger, found):
    return Page(page(gather(ledger, found), "A title"))


@pytest.fixture(scope="session")
def read_page():
    """A function from the text of a page to its elements, tables and words."""
    return Page


@pytest.fixture(scope="session")
def made_up():
    """A function from individuals to a report without a ledger."""

    def make(individuals):
        numbers = Quantiles(np.array([0.05, 0.5, 0.95]), np.array([1.0, 2.0, 3.0]))
        upper = individuals.epsilon.upper
        settings = {"max_grad_norm": 1.0, "buckets": 256, **individuals.parameters}
        individuals = replace(individuals, parameters=settings, schedule=((1.5, 0.01, 1000),))
        return Report(
            summarise(individuals, (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)),
            Extremes(np.argsort(-upper)[:20], np.array([], dtype=int), 1, 1),
            (AtDelta(1e-5, 4.0, 4.4, numbers, 0),),
        )

    return make
