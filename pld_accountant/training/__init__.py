"""Individual accounting inside of training loops.

In: gradient norms at released models, and the steps as the training loop takes them.  Out: the clipping norm of every
person for the coming step, and a ledger of everybody's steps.

    individual.py     modes, refreshes, caps, the ledger and the filter of a run; no training library is imported
    journal.py        the log of a run: appended to before every step, whole up to its last whole step after a crash
    opacus.py         Opacus: a data loader that knows its people, clipping at caps, an accountant for `PrivacyEngine`
    people_loader.py  batches of torch's data loaders with the numbers of their records
    pytorch.py        PyTorch without Opacus: norms and clipped sums of per-example gradients in micro-batches
    jax.py            JAX: the same, and a transformation in the style of optax
    dp_event.py       events of dp-accounting
    histories.py      histories of Opacus and of prv-accountant

Each library is imported by its own module only.
"""
