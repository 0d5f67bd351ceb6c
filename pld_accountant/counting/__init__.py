"""Counting: how often each person took each step.

In: gradient norms, recorded in a `tally.Tally`.  Out: `counts.Counts`, the number of each person's steps in each bucket
of relative norms, whole or interpolated between the edges of a bucket.
May import: kernels, threads, validate.
"""
