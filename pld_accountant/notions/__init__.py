"""Privacy notions in closed form: what a number means, without mechanisms and without tables.

In: parameters of Gaussian DP (mu), Renyi DP (rho, alpha) and zCDP (rho), deltas and epsilons, as floats or arrays.
Out: the converted numbers, rounded to the side that a promise needs.

    gdp.py, _gaussian_curve.py  delta, epsilon and mu of Gaussian DP
    dp.py                       pure and (epsilon, delta)-DP to every other notion, and groups of records
    rdp.py                      Renyi DP and log-moments to (epsilon, delta), and budgets back
    zcdp.py                     zCDP to (epsilon, delta), and budgets back
    tradeoff.py                 trade-off functions of all of them, and of any hockey-stick curve
    _rounding.py                arguments and rounding that rdp and zcdp share

May import: validate.
"""
