"""The report as one HTML page without scripts, fonts or network.

In: `report.content.Report`.  Out: the page as text, or a writer of it.

    page.py      the sections of the page
    charts.py    histograms as SVG
    markup.py    escaping and tables
    report.html  the template, with the style sheet

May import: the other modules of report.
"""
