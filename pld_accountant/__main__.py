"""``python -m pld_accountant`` is the command ``pld-accountant``."""

from pld_accountant.cli import main

if __name__ == "__main__":
    main()
