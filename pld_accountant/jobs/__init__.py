"""Jobs over tables of people: many people's counts, and results by id.

In: event tables and ledgers.  Out: packed counts, and Parquet files with a row per person.

    sparse.py     counts of many people in the memory that they use
    results.py    result files: typed columns, and what the numbers mean in the metadata

May import: results, validate, locked, files, events, ledger, composition, counting, report, version.
"""
