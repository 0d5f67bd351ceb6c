"""The adaptive game of the sampled Gaussian, bounded from above: how large a budget a proven filter can have.

In: noise multiplier, sample rate and budget.  Out: `game.Game`, the charges of the steps and certified potentials.
docs/how/potential.rst is the proof.

    game.py            charges and potentials in both directions, built once for a run
    norms.py           the relative norms whose inequalities are checked
    order.py           the tilt of the charges
    multipliers.py     the tilted characteristic functions of one step
    series.py          what one step does to the potential
    supersolution.py   the certified upper bound
    check.py           checks at single points, by quadrature of the definition
    kept.py            games kept in memory and on disk

May import: kernels, mechanisms, files, threads, results, validate.
"""
