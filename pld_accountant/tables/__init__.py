"""Tables: a step family and a tilt in, the rows of the inner product out.

In: a `mechanisms.base.StepFamily`, a tilt, a period and a band.  Out: a `Table`, whose product with a person's counts
gives the exponents that `engine.plancherel` needs, and the error terms that go with them.
`characteristic` serves families that know their characteristic function, `grid` every other family.
May import: kernels, mechanisms, threads.
"""
