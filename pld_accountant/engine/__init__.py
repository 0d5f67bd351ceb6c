"""The engine: counts of steps and a step family in, certified bounds of epsilon or delta out.

In: `counting.counts.Counts` and `tables.makers.TableMakers`, and a `question.Question`.  Out: `results.Bounds`.
Read `solver` first: closed forms, then the methods of `schedule` in their order, then the Renyi bound.

Glossary.  K(theta): log-moment, log E[exp(theta L)].  Tilt: theta, the exponent of the Esscher transform.  Period P:
frequencies are multiples of 2 pi / P.  Band: the frequencies that are kept.  Q: the expectation E_theta[g(S - epsilon)]
that the inner product gives, delta = exp(K - theta epsilon) Q.  Reach: standard deviations; Phi(-reach) of a step's
mass lies beyond.  Width: upper bound less lower bound.

May import: kernels, tables, counting, mechanisms, notions, results, threads.
"""
