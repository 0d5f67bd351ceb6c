"""The demonstration: DP-SGD on handwritten digits, with every example's own epsilon.

In: a seed and a number of steps.  Out: gradient norms, epsilons and the output files of a run.

    digits.py   the run and its files
    dp_sgd.py   the training loop, which reports every example's gradient norm
    network.py  a small network with cheap per-example norms

May import: the public names of the package, report, files, validate.
"""
