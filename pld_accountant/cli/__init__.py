"""The command ``pld-accountant``.

In: arguments and files.  Out: text on standard output, files that are whole or absent, and one line on standard error
with exit status 2 for a user error.

    commands.py  the commands
    options.py   their options and checks, and the reporting of user errors
    progress.py  progress bars on a terminal

May import: everything but kernels, engine, tables and counting; slow libraries inside the commands only.
"""
