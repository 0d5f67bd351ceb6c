"""``python -m pld_accountant`` is the command ``pld-accountant``."""

from .cli.commands import main

if __name__ == "__main__":
    main()
