"""Compiled kernels: pure array functions, one verb each; they import numpy, numba and each other only."""
