"""Steps that were proven to fit beforehand: who is admitted without being evaluated, and booking them.

Legend
    i           person;  k = class of buckets, ascending in cost;  b = bucket of the coming step, -1 for a norm of 0
    cover       (buckets,): the first class whose bucket is at least b; it costs at least as much
    credit      (people, classes): so many more steps of each class fit all at once; a step may use any class that
                covers it
    sure        (people,): a step of this bucket or a lower one surely fits now, if it is the next one
    refused     (people,): a step of this bucket or a higher one surely does not fit any more; 0: none does
    status      REFUSED, CREDIT, SURE or UNKNOWN

More steps never make the range-mu smaller, so a refusal holds for good.
"""

import numpy as np

from ._jit import jit

REFUSED, CREDIT, SURE, UNKNOWN = 0, 1, 2, 3


@jit("void(i2[::1], i2[::1], i4[:, :], i2[::1], i2[::1], i1[::1])")
def sort_out(bucket, cover, credit, sure, refused, status):
    """Fill status (people,); nothing else is changed."""
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
    """Count the admitted steps, those on credit from the lowest class that covers them."""
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
