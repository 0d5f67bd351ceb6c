"""Markup escapes every value that is not markup."""

from pld_accountant.report.html.markup import escaped, table


def test_markup_escapes_whatever_is_not_markup():
    assert escaped("<b>") + "" == "&lt;b&gt;"
    assert escaped(escaped("<b>")) == "&lt;b&gt;"
    assert "<i>" not in table("n", "<i>", ["<i>"], [["<i>", "<i>"]])
