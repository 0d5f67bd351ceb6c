"""The picture of the README: individual epsilons of the demonstration on handwritten digits.

Run ``python figures/histogram.py`` (seconds; needs no data but scikit-learn's).
"""

import common

from pld_accountant.demo import digits
from pld_accountant.report.figures import draw_histogram


def main() -> None:
    """Run the demonstration with its default settings and keep the picture."""
    given = common.arguments(__doc__)
    done = digits.run()
    common.keep(given.out, "histogram", draw_histogram(done.individuals), digits.facts(done))


if __name__ == "__main__":
    main()
