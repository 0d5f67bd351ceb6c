"""Reports on many people: statistics, tables, pictures and an HTML page.

In: a `Ledger`, through its public methods.  Out: `Individuals` (the ledger's own numbers), their summary and
comparison, and writers of files that are whole or absent.  No bound is changed here; printed bounds are rounded to the
safe side.

    calls.py                   the work of the command line, one call each
    individuals.py             each person's epsilon, and the worst case's
    histogram.py               bins, quantiles, groups
    summary.py, comparison.py  text and JSON
    content.py, html/          the HTML page
    figures.py                 pictures, and the style of every picture
    outputs.py, provenance.py  files; the version, the time and the input file that stand in each
    reading.py, folder.py      results read back from Parquet; results in parts

May import: results, rounding, version, validate, notions, files, and the public methods of ledger and composition.
"""
