"""A small log of gradient norms: 1,000 steps of 200 people, and a group for each person."""

import numpy as np

rng = np.random.default_rng(0)
typical = rng.lognormal(mean=0.3, sigma=0.7, size=200)  # of each person, over all steps
norms = typical * rng.lognormal(sigma=0.2, size=(1000, 200))  # a row per step, a column per person
np.save("norms.npy", norms.astype(np.float32))
np.save("labels.npy", np.where(typical > 2.0, "long", "short"))
