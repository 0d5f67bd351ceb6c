"""The picture of the README: individual epsilons of the demonstration's run on handwritten digits.

Run ``python figures/histogram.py`` (a minute); it writes ``histogram.png``, ``histogram.pdf`` and the
numbers behind them, ``histogram.json``, beside itself.
"""

from pathlib import Path

from pld_accountant import demo
from pld_accountant.outputs import json_writer, write_all
from pld_accountant.pictures import draw_histogram, write_figure


def main() -> None:
    """Run the demonstration with its own settings and keep its picture."""
    done = demo.run()
    figure = draw_histogram(done.individuals)
    folder = Path(__file__).parent
    write_all(
        {
            folder / "histogram.png": lambda file: write_figure(figure, file, ".png"),
            folder / "histogram.pdf": lambda file: write_figure(figure, file, ".pdf"),
            folder / "histogram.json": json_writer(demo.facts(done)),
        }
    )


if __name__ == "__main__":
    main()
