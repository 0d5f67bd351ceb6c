"""Mechanisms: the privacy loss of one step of one person.

In: the parameters of a step (noise multiplier, sample rate).  Out: a `StepFamily`, which knows the hockey-stick
divergence, the log-moments, the masses and, where there is one, the characteristic function of its steps.
To add a mechanism, implement `base.Mechanism` and `base.StepFamily` in one file here.
May import: kernels, notions, threads, results, validate.
"""
