"""Filters and odometers: who may still take part in a step.

In: the norms (or epsilons) of the coming step, before anything is released.  Out: a mask of the admitted people, whose
step is then booked; headroom, spent budgets and a `Guarantee` that says what is proven.

    base.py                           the interface
    integer_budget.py                 budgets as integers, charges rounded up
    gaussian.py, pure_dp.py           Gaussian DP and zCDP; steps of pure DP
    renyi.py, renyi_charges.py        Renyi DP, full-batch or sampled
    potential.py                      sampled Gaussian steps, by the certified potentials of `potential`
    pld.py, pld_state.py, pld_budget.py  dominating mu by privacy loss distributions (not proven for adaptive runs)
    odometers.py                      filters one after another: bounds instead of refusals

May import: engine, counting, mechanisms, notions, files, results, validate, kernels.  Never: ledger, composition.
"""
