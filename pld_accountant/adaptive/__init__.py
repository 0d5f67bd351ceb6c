"""Algorithms under a filter: each step is chosen from earlier releases and charged to individual budgets.

In: a function of the people's records (gradients, query values) and a filter.  Out: released parameters or answers,
with the filter's guarantee.

    descent.py         noisy gradient descent
    stopping.py        stopping rules, charged to the same budgets
    linear_queries.py  sums over people with noise

May import: filters, notions, locked, results, validate.
"""
