"""The command ``pld-accountant``.

In: arguments and files.  Out: text on standard output, files that are whole or absent, and one line on standard error
with exit status 2 for a user error.

    commands.py     the program, and the list of its commands
    individuals.py  commands on many people: epsilon, compare, report
    ledgers.py      commands on files of ledgers and of other kinds: record, merge, verify, describe
    worst_case.py   commands on the worst case: epsilon-of, compose, calibrate
    publishing.py   release
    machine.py      commands that need no data: demo, warm-up
    running.py      what they share: reading a log, text, files
    kinds.py        what a file holds
    options.py      their options and checks, and the reporting of user errors
    progress.py     progress bars on a terminal

May import: everything but kernels, engine, tables and counting; slow libraries inside the commands only.
"""
