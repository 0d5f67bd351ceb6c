"""Steps that were proven to fit earlier: admission without an evaluation, and booking.

Legend
    i           person;  k = class of buckets, ascending in cost;  b = bucket of the coming step, -1 for a norm of 0
    cover       (buckets,): the first class whose bucket is at least b; it costs at least as much
    credit      (people, classes): further steps of each class, all of which fit together; a step may use any class
                that covers it
    sure        (people,): a step of this bucket or of a lower one is proven to fit, if it is the next step
    refused     (people,): a step of this bucket or of a higher one is refused; 0: every step is refused
    status      REFUSED, CREDIT, SURE or UNKNOWN

More steps never make the dominating mu smaller, so a refusal is final.  `filters.pld_state` states the invariants.
"""

import numpy as np

from ._jit import jit

REFUSED, CREDIT, SURE, UNKNOWN = 0, 1, 2, 3


@jit("void(i2[::1], i2[::1], i4[:, :], i2[::1], i2[::1], i1[::1])")
def sort_out(bucket, cover, credit, sure, refused, status):
    """Write status (people,); change nothing else."""
    classes = credit.shape[1]
    for i in range(bucket.size):
        b = bucket[i]
        if refused[i] == 0 or b >= refused[i]:
            status[i] = REFUSED
        elif b < 0:
            status[i] = CREDIT
        else:
            status[i] = SURE if b <= sure[i] else UNKNOWN
            for k in range(cover[b], classes):
                if credit[i, k] > 0:
                    status[i] = CREDIT
                    break


@jit("void(i2[::1], i2[::1], i1[::1], i4[:, :], i4[:, ::1], i8)")
def book(bucket, cover, status, credit, counts, offset):
    """Count the admitted steps; a step on credit uses the lowest class that covers it and has credit."""
    for i in range(bucket.size):
        b = bucket[i]
        if b < 0 or status[i] == REFUSED:
            continue
        counts[i, offset + b] += 1
        if status[i] == CREDIT:
            k = np.int64(cover[b])
            while credit[i, k] == 0:
                k += 1
            credit[i, k] -= 1
