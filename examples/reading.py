"""MNIST from its four ``.gz`` files."""

import gzip
from pathlib import Path

import numpy as np


def mnist(folder: Path) -> tuple[np.ndarray, ...]:
    """Pixels in 0 to 1 and labels of the training set, then of the test set."""
    parts = []
    for name in ("train", "t10k"):
        for kind, header in (("images-idx3", 16), ("labels-idx1", 8)):
            content = gzip.decompress((folder / f"{name}-{kind}-ubyte.gz").read_bytes())
            parts.append(np.frombuffer(content, dtype=np.uint8, offset=header))
    x, y, x_test, y_test = parts
    return (
        x.reshape(-1, 784).astype(np.float32) / 255,
        y.astype(np.int64),
        x_test.reshape(-1, 784).astype(np.float32) / 255,
        y_test.astype(np.int64),
    )
