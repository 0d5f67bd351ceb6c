"""Bytes in and out: norm logs, labels, saved states.

In: paths.  Out: arrays and headers, checked as a whole; a file that is damaged or of another kind raises an error that
names it.

    atomic.py       output files that are whole or absent
    npy.py          arrays in the format .npy, checked before memory is allocated
    store.py        files of arrays and a JSON header, with checksum and version
    kept.py         results that are kept between processes, with checks of who wrote them
    saved_state.py  base class of objects that are saved and resumed; checks of the arrays in their files
    norm_log.py     norm logs, read in blocks of steps
    formats.py      the file formats of norm logs
    cells.py        texts in cells of CSV tables
    groups.py       the group of every person
    fingerprint.py  names and digests of input files

May import: locked, validate.
"""
