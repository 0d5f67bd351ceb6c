"""Event tables: who took part in which query, with what norm.

In: Parquet, Arrow, pandas or polars with a row per event.  Out: `table.Events`, the rows in order of people, checked,
with the norms of one step added up; `ids` holds the ids of people.

    ids.py      ids of people: integers, texts, UUIDs
    source.py   any kind of table as an Arrow table
    table.py    the checks, and the sums over the records of one person in one step

May import: validate, files.
"""
