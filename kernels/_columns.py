"""Names of the columns that the kernels share with the Python code which fills and reads them.

A row of exponents belongs to a person, a row of a table to a bucket; both have the same columns.  The first `HEAD`
columns are scalars.  Blocks over the frequencies f follow, at the places that `blocks` gives.

Numba compiles these constants into its callers: after an edit here, delete the compiled kernels.
"""

# Scalars of a row.
LOG_MOMENT = 0  # K(theta)
MEAN = 1  # tilted mean of the loss
ENVELOPE = 2  # log sup |phi| beyond the band
ERROR = 3  # error of phi at every frequency, absolute
LOG_MOMENT_ERROR = 4  # error of K
INFINITE = 5  # -log1p(-mass at +infinity)
OFFSET = 6  # offset of the grid of losses
ERROR_SLOPE = 7  # error of phi per unit of frequency, absolute
RELATIVE_ERROR = 8  # `ERROR` relative to |phi|
RELATIVE_SLOPE = 9  # `ERROR_SLOPE` relative to |phi|
HEAD = 10

# Scalars of a table: the array `setting`.
THETA = 0
SPACING = 1  # of the frequencies, 2 pi / period
PERIOD = 2
BAND_COEFFICIENT = 3  # multiplies exp(ENVELOPE): error of Q by the frequencies beyond the band
GRID_STEP = 4  # 0 if the loss is not confined to a grid
PRODUCT_ROUNDING = 5  # relative round-off of the matrix product
SETTINGS = 6

# A person's two helper tilts, which bound the aliasing: the array `helper`.
TILT_ABOVE = 0
CHERNOFF_ABOVE = 1  # K + log c at the tilt above
TILT_BELOW = 2
CHERNOFF_BELOW = 3

# A person's result: the array `out`.
LOWER = 0
ESTIMATE = 1
UPPER = 2
BAND = 3  # what the band left out, relative to Q
ALIAS = 4  # what the period added, relative to Q
RESULTS = 5

# Moments of one bucket's tilted loss: the array `moments` of `characterise.weigh`.
M_LOG_MOMENT = 0
M_MEAN = 1
M_UNITS = 2  # round-off of K in units of 2^-53
M_SPREAD = 3  # E|d|, d the centred loss
M_WEIGHTED = 4  # E[|d| times the error of a node's weight in units]
M_LEFT_OUT = 5  # mass of the nodes left out
M_LOW = 6  # ends of an interval of x outside of which the tilted mass is at most 1e-11
M_HIGH = 7
MOMENTS = 8


def blocks(m):
    """First columns of the blocks of a row with m frequencies.

    Re log phi at f = 1..m; Im log phi at f = 1..m, centred at the mean; for interpolated steps m + 2 columns: the error
    of the exponent at f = 0, the log of what interpolation multiplies |phi| by at most, the error at f = 1..m; for
    large losses 3 (m + 1) + 1 columns: Re R, Im R and the error of R at f = 0..m, and R at most beyond the band.
    """
    return HEAD, HEAD + m, HEAD + 2 * m, HEAD + 3 * m + 2
