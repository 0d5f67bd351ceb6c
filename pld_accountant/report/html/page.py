"""The report as one HTML page: `page` fills the template ``report.html``, `page_writer` writes the result."""

from __future__ import annotations

import math
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from ...results import Status
from ...rounding import exact, quantile_name, rounded_down, rounded_up, scientific
from ..content import Report
from ..histogram import Histogram, hidden_people, is_far, largest, shown_histograms
from ..individuals import Individuals
from ..outputs import Writer, text_writer
from ..provenance import provenance_line
from .charts import Mark, histogram_chart, small_chart
from .markup import Markup, escaped, joined, table

__all__ = ["page", "page_writer"]

_BINS, _SMALL_BINS = 50, 25
_CHARTS, _ROWS = 24, 200  # groups shown
_SCHEDULE_ROWS = 20
_LABEL = 80  # characters of a label shown
_WIDE, _NARROW = (760, 400), (360, 330)  # sizes of the chart on wide and on narrow screens


def page(report: Report, title: str) -> str:
    """The whole page; equal reports give equal pages."""
    people = report.summary.individuals
    template = resources.files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        title=escaped(title),
        lead=_lead(people),
        caution=_caution(people),
        headline=_headline(report),
        caveats=_caveats(people),
        histogram=_histogram(report),
        groups=_groups(report),
        extremes=_extremes(report),
        deltas=_deltas(report),
        promise=_promise(people),
        worst=_worst_case(people),
        parameters=_parameters(report),
        made=escaped(provenance_line(people.provenance)),
    )


def page_writer(report: Report, title: str = "Individual privacy loss") -> Writer:
    """A writer of the report as one HTML file that needs no script, no font and no network."""
    return text_writer(page(report, title))


def _lead(people: Individuals) -> Markup:
    sizes = f"{people.num_examples:,} people, {people.steps:,} steps"
    return Markup(f"{sizes}, &delta;&nbsp;=&nbsp;{_power(people.delta)}.")


def _upper(value: float, digits: int = 4) -> str:
    return rounded_up(value, digits) if math.isfinite(value) else "not certified"


def _power(value: float) -> Markup:
    """A delta as a power of ten."""
    factor, exponent = scientific(value)
    return Markup(f"{'' if factor == '1' else factor + ' &times; '}10<sup>&minus;{-exponent}</sup>")


def _label(value: Any) -> Markup:
    """The name of a group, from a user's file: escaped, cut if long, and isolated from the direction of other text."""
    text = str(value)
    return Markup(f"<bdi>{escaped(text if len(text) <= _LABEL else text[: _LABEL - 1] + '…')}</bdi>")


def _headline(report: Report) -> Markup:
    people, share = report.summary.individuals, report.summary.under_half
    median = report.summary.by_pld.values[report.summary.by_pld.probabilities.tolist().index(0.5)]
    promise, cards = people.guarantee.promise, []
    if promise is not None:
        words = f"The budget that the filter keeps, at delta = {exact(promise[1])}."
        cards.append(("Promised to everybody", rounded_up(promise[0]), words))
        clipped = f"The epsilon of a person {people.worst_person}, if there had been no filter."
    elif people.schedule_from_events:
        clipped = f"The epsilon of a person {people.worst_person} that was counted."
    else:
        clipped = f"The epsilon of a person {people.worst_person}. It holds for everybody."
    cards += [
        ("Worst case", _upper(people.worst_case.upper), clipped),
        ("Median", _upper(median), "Half of the people have at most this epsilon."),
    ]
    if share is not None:
        cards.append(("Under half the worst case", share.percent, f"{share.count:,} of {share.total:,} people."))
    return joined(
        Markup(
            f"<div><dt>{escaped(name)}</dt>"
            f"<dd><strong>{escaped(value)}</strong> <span>{escaped(words)}</span></dd></div>"
        )
        for name, value, words in cards
    )


def _worst_case(people: Individuals) -> Markup:
    if people.schedule_from_events:
        said = "The worst case depends on people's data, too: its steps were counted from their records."
    elif people.of_mechanisms:
        said = (
            "The worst case is different: it depends only on the mechanisms and how often they ran, not on people's "
            "data. It is an ordinary (epsilon, delta) guarantee for everybody, and it may be published."
        )
    else:
        rate = "" if people.full_batches else ", the sample rate"
        sampled = "It" if people.full_batches else "With Poisson sampling it"
        said = (
            f"The worst case is different: it depends only on the noise{rate} and the number of steps, not on people's "
            f"data. {sampled} is an ordinary (epsilon, delta) guarantee for everybody, and it may be published."
        )
    return Markup(
        f"<p>{escaped(said)} The other numbers may be published only through a mechanism that releases them privately. "
        "This page is not such a mechanism.</p>"
    )


def _caution(people: Individuals) -> Markup:
    if people.guarantee.proven_adaptive:
        return Markup(
            "The guarantee stands below. The numbers of single people are a diagnostic, not a guarantee, unless their "
            "gradient norms were fixed or capped beforehand."
        )
    if people.schedule_from_events:
        return Markup(
            "No number of this page is a guarantee: the steps of the worst case were counted from people's records."
        )
    return Markup(
        "Only the worst case is a guarantee. All other numbers are a diagnostic, not a guarantee, unless "
        f"{'contributions' if people.of_mechanisms else 'the gradient norms'} were fixed or capped beforehand."
    )


def _caveats(people: Individuals) -> Markup:
    return joined(Markup(f'<p class="note">{escaped(sentence)}</p>') for sentence in people.caveats())


def _histogram(report: Report) -> Markup:
    people = report.summary.individuals
    worst = people.worst_case
    top = largest(np.concatenate([people.epsilon.upper, people.rdp_epsilon]))
    beyond = is_far(worst.upper, top)
    if not beyond:
        top = largest(np.array([top, worst.upper, people.worst_case_rdp]))
    pairs = [(people.epsilon.upper, worst.upper), (people.rdp_epsilon, people.worst_case_rdp)]
    pld, renyi = shown_histograms(pairs, top, _BINS, people.min_group)
    marks = [
        Mark(place, f"Worst case by {kind}: {rounded_up(place)}", style)
        for place, kind, style in (
            (people.worst_case_rdp, "Renyi", "worst dashed"),
            (worst.upper, "PLD", "worst"),
        )
        if math.isfinite(place) and not beyond
    ]
    share = report.summary.under_half
    half = (
        None
        if share is None or not worst.upper or beyond
        else (worst.upper / 2, f"{share.percent} under half the worst case")
    )
    low, _, _, middle, _, _, high = (_upper(value) for value in report.summary.by_pld.values)
    description = (
        f"By PLD the epsilons of {people.num_examples:,} people lie between {low} and {high}, with median {middle}; "
        f"the worst case is {_upper(worst.upper)} by PLD and {_upper(people.worst_case_rdp)} by Renyi accounting. "
        "The counts are in the tables below the chart."
    )
    title = "Histogram of individual epsilons, by PLD and by Renyi accounting"
    charts = []
    for name, size in (("wide", _WIDE), ("narrow", _NARROW)):
        chart = histogram_chart(pld, renyi, marks, half, size=size, name=name, title=title, description=description)
        charts.append(Markup(f'<div class="{name}">{chart}</div>'))
    tables = joined([_counts("counts-pld", "PLD", pld), _counts("counts-renyi", "Renyi accounting", renyi)])
    sentences = [hidden_people(pld.hidden, people.min_group)]
    if beyond:
        kinds = f"{_upper(worst.upper)} by PLD, {_upper(people.worst_case_rdp)} by Renyi accounting"
        sentences.append(f"The worst case lies beyond the axis: {kinds}.")
    below = _paragraph(" ".join(sentences).strip())
    return joined(
        [*charts, below, Markup(f"<details><summary>The numbers in the chart</summary>\n{tables}\n</details>")]
    )


def _paragraph(words: str) -> Markup:
    """A paragraph; nothing if there are no words."""
    return Markup(f"<p>{escaped(words)}</p>" if words else "")


def _counts(name: str, kind: str, counted: Histogram) -> Markup:
    rows = [
        (f"{rounded_up(low)} to {rounded_up(high)}", f"{count:,}")
        for low, high, count in zip(counted.edges[:-1], counted.edges[1:], counted.counts, strict=True)
        if count
    ]
    if counted.outside:
        rows.append(("without a certified bound", f"{counted.outside:,}"))
    return table(
        name,
        f"Number of people by epsilon, by {kind}; empty ranges are omitted",
        ["Epsilon", "People"],
        rows,
    )


def _groups(report: Report) -> Markup:
    groups, hidden = report.summary.groups, report.summary.hidden_sentence
    if not groups and not hidden:
        return Markup("")
    if not groups:
        return Markup(
            f'<section aria-labelledby="groups">\n<h2 id="groups">Groups</h2>\n{_paragraph(hidden)}\n</section>'
        )
    omitted = [
        f"{len(groups) - shown:,} more groups are not in the {where}."
        for shown, where in ((_CHARTS, "charts"), (_ROWS, "table"))
        if len(groups) > shown
    ]
    return Markup(
        '<section aria-labelledby="groups">\n<h2 id="groups">Groups</h2>\n'
        "<p>The distribution of epsilon in each group, with the median marked. All charts share the axis of epsilon; "
        "heights cannot be compared between charts.</p>\n"
        f'<div class="charts">\n{_group_charts(report)}\n</div>\n{_group_table(report)}\n'
        f"{joined(_paragraph(words) for words in [*omitted, hidden])}\n</section>"
    )


def _group_charts(report: Report) -> Markup:
    people = report.summary.individuals
    upper, worst = people.epsilon.upper, people.worst_case.upper
    top = largest(upper)
    top = top if is_far(worst, top) else largest(np.array([top, worst]))
    charts = []
    for number, group in enumerate(report.summary.groups[:_CHARTS]):
        (counted,) = shown_histograms(
            [(upper[people.labels == group.label], worst)], top, _SMALL_BINS, people.min_group
        )
        low, median, _, high = group.quantiles.values
        title = f"Histogram of {group.people:,} people"
        description = f"From {_upper(low)} to {_upper(high)}, median {_upper(median)}."
        chart = small_chart(counted, median, top, name=f"group{number}", title=title, description=description)
        count = f"{group.people:,} {'person' if group.people == 1 else 'people'}"
        caption = f"{_label(group.label)} <span>{count}</span>"
        charts.append(Markup(f"<figure>{chart}<figcaption>{caption}</figcaption></figure>"))
    return joined(charts)


def _group_table(report: Report) -> Markup:
    groups = report.summary.groups
    names = [quantile_name(p).capitalize() for p in groups[0].quantiles.probabilities]
    rows = [
        (
            _label(group.label),
            f"{group.people:,}",
            *(_upper(value) for value in group.quantiles.values),
            group.under_half.percent if group.under_half else "-",
        )
        for group in groups[:_ROWS]
    ]
    caption = "Epsilon by group: upper bounds, rounded up; and the share of people under half the worst case"
    return table("by-group", caption, ["Group", "People", *names, "Under half"], rows)


def _extremes(report: Report) -> Markup:
    people, ends = report.summary.individuals, report.extremes
    if people.min_group > 1:
        return _paragraph(
            f"Rows about single people are not shown, because min_group, the least number of people shown, is "
            f"{people.min_group}; 1 shows the rows. Smallest and largest values in the tables are still one person's."
        )
    head = [
        "Id",
        *(["Group"] if people.labels is not None else []),
        "At least",
        "At most",
        "Renyi",
        "Share of worst",
    ]
    if not len(ends.smallest):
        return _people(people, ends.largest, "everybody", "Everybody, from the largest epsilon to the smallest", head)
    words = {
        "most": ("The largest epsilons", ends.tied_largest),
        "least": ("The smallest epsilons", ends.tied_smallest),
    }
    captions = {
        name: text + (f"; {tied:,} people share the first value" if tied > 1 else "")
        for name, (text, tied) in words.items()
    }
    both = zip(("most", "least"), (ends.largest, ends.smallest), strict=True)
    inside = joined(_people(people, who, name, captions[name], head) for name, who in both)
    return Markup(f'<div class="columns">\n{inside}\n</div>')


def _people(people: Individuals, who: np.ndarray, name: str, caption: str, head: list[str]) -> Markup:
    worst = people.worst_case.upper
    rows = []
    for index in who.tolist():
        lower, upper = people.epsilon.lower[index], people.epsilon.upper[index]
        share = f"{100 * upper / worst:.0f} %" if worst and math.isfinite(worst) and math.isfinite(upper) else "-"
        group = [] if people.labels is None else [_label(people.labels[index])]
        person = index if people.people is None else _label(people.people[index])
        rows.append((person, *group, rounded_down(lower), _upper(upper), _upper(people.rdp_epsilon[index]), share))
    return table(name, caption, head, rows)


def _deltas(report: Report) -> Markup:
    rows = [
        (
            _power(at.delta),
            _upper(at.worst_case),
            *(_upper(v) for v in at.quantiles.values[::-1]),
            _upper(at.worst_case_rdp),
        )
        for at in report.at_deltas
    ]
    head = [
        Markup("&delta;"),
        "Worst case",
        *(quantile_name(p).capitalize() for p in (0.95, 0.5, 0.05)),
        "Worst case by Renyi",
    ]
    shown = table("at-deltas", "Epsilon at several deltas: upper bounds, rounded up", head, rows)
    people = report.summary.individuals.num_examples
    loose = [
        Markup(
            f'<p class="note">At delta = {exact(at.delta)}, {at.loose:,} of {people:,} people have no tight bound.</p>'
        )
        for at in report.at_deltas
        if at.loose
    ]
    return joined([shown, *loose])


def _promise(people: Individuals) -> Markup:
    proven = people.guarantee
    return joined(
        Markup(f"<p>{escaped(words)}</p>")
        for words in (
            proven.sentence,
            Markup(f"<cite>{escaped(proven.reference)}</cite>"),
        )
    )


def _parameters(report: Report) -> Markup:
    people = report.summary.individuals
    neighbours = {"both": "one record added or removed", "remove": "one record removed", "add": "one record added"}
    entries = [
        ("People", f"{people.num_examples:,}"),
        ("Steps", f"{people.steps:,}"),
        ("Delta", _power(people.delta)),
        ("Buckets of relative norms", f"{people.parameters['buckets']:,}"),
        ("Least number of people shown", f"{people.min_group:,}"),
    ]
    norm = people.parameters.get("max_grad_norm")
    if norm is None:
        entries.append(("Neighbouring data sets", "as the mechanisms say"))
    else:
        entries += [
            ("Clipping norm (max_grad_norm)", exact(norm)),
            ("Noise", str(people.parameters.get("noise", "Gaussian")).capitalize()),
            ("Neighbouring data sets", neighbours.get(str(people.parameters.get("direction")), "-")),
            ("Sampling", "none: everybody takes part" if people.full_batches else "Poisson, as assumed"),
        ]
    listed = joined(Markup(f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>") for name, value in entries)
    shown, more = people.schedule[:_SCHEDULE_ROWS], len(people.schedule) - _SCHEDULE_ROWS
    head = ["Steps", "Mechanism"] if people.of_mechanisms else ["Steps", "Noise multiplier", "Sample rate"]
    rows = [(f"{steps:,}", *(v if isinstance(v, str) else exact(v) for v in step)) for *step, steps in shown]
    schedule = table("schedule", "Steps and their noise", head, rows, words=people.of_mechanisms)
    rest = Markup(f"<p>{more:,} more kinds of steps are not in the table.</p>" if more > 0 else "")
    statuses = [
        (status.name, f"{count:,}", status.sentence) for status, count in zip(Status, people.by_status(), strict=True)
    ]
    meaning = table("statuses", "Statuses of the people", ["Status", "People", "Meaning"], statuses, words=True)
    return joined([Markup(f'<dl class="list">\n{listed}\n</dl>'), schedule, rest, meaning])
