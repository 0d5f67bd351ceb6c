"""The page is for everybody: it fetches nothing, screen readers can use it, and its colours can be told apart."""

import re
from importlib import resources


def test_nothing_is_fetched_and_nothing_runs(read):
    for tag, attributes in read.elements:
        assert tag != "script"
        for name in ("src", "href", "srcset", "action", "style", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:,")), (tag, attributes)
    style = template()
    assert "url(" not in style and "@import" not in style
    (policy,) = (a["content"] for t, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_structure_for_screen_readers(read):
    assert dict(read.elements)["html"] == {"lang": "en"}
    headings = [tag for tag, _ in read.elements if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == "h1" and set(headings[1:]) == {"h2"}
    assert len(read.ids) == len(set(read.ids))
    for tag, attributes in read.elements:
        for name in attributes.get("aria-labelledby", "").split():
            assert name in read.ids
        if attributes.get("href", "").startswith("#"):
            assert attributes["href"][1:] in read.ids
        if tag == "th":
            assert attributes["scope"] in ("col", "row")
        if tag == "svg":
            assert attributes.get("role") == "img" or attributes["aria-hidden"] == "true"
        if "scroll" in attributes.get("class", "").split():
            assert attributes["tabindex"] == "0" and attributes["role"] == "region"
    tags = [tag for tag, _ in read.elements]
    assert tags.count("main") == tags.count("header") == tags.count("footer") == 1
    assert tags.count("table") == tags.count("caption") > 5
    first_link = next(attributes for tag, attributes in read.elements if tag == "a")
    assert first_link == {"class": "skip", "href": "#content"}


def template():
    return resources.files("pld_accountant.report.html").joinpath("report.html").read_text(encoding="utf-8")


def palettes():
    """The colours in light, in dark, and on paper."""
    blocks = re.findall(r":root \{(.*?)\}", template(), flags=re.S)
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in blocks]


def contrast(one, other):
    """The ratio of WCAG 2.1."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast():
    assert round(contrast("#777777", "#ffffff"), 2) == 4.48
    assert len(palettes()) == 3
    for colours in palettes():
        for front in ("text", "quiet", "link"):
            for back in ("page", "panel"):
                assert contrast(colours[front], colours[back]) >= 4.5, (front, back)
        for front in ("text", "link"):
            assert contrast(colours[front], colours["note"]) >= 4.5
        for front in ("pld", "renyi", "quiet", "note-edge"):
            assert contrast(colours[front], colours["page"]) >= 3.0, front
        assert contrast(colours["pld"], colours["panel"]) >= 3.0
