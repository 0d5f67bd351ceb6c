"""Rare losses: one large loss decides delta, and no single tilt serves.

In: a job of the engine.  Out: bounds from two parts of the composition, with small losses only and with some large
loss, each with a tilt of its own.  Used for rare steps and for deltas below 1e-20; `engine.schedule` is its only door.
May import: counting, mechanisms, results, tables, threads, and of the engine method, plancherel, question, tilting and
working.
"""
