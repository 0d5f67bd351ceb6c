"""The adaptive game of the sampled Gaussian, bounded from above: how large a budget a proven filter can have."""
