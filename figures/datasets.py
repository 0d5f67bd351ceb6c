"""The real data behind the figures: MNIST, Fashion-MNIST and Adult, checked byte by byte.

The files are not part of this repository.  ``--data DIR`` names a folder with ``mnist/`` and
``fashion-mnist/`` (the four ``.gz`` files of each) and ``adult/`` (``adult.data``, ``adult.test`` of the UCI
repository).  Without ``--data`` the images are fetched through scikit-learn from OpenML.  In both cases the
digests of pixels and labels are checked.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

__all__ = ["Data", "DataError", "load", "pooled"]

# SHA-256 of the pixels or labels of each part, after decompression and without the header.
_PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
_IMAGES = {
    "mnist": (
        "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    ),
    "fashion-mnist": (
        "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    ),
}
_OPENML = {"mnist": "mnist_784", "fashion-mnist": "Fashion-MNIST"}
_ADULT = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
_NUMBERS = {"age": 0, "education": 4, "capital gain": 10, "capital loss": 11, "hours": 12}
_WORDS = {
    "work class": 1,
    "marital status": 5,
    "occupation": 6,
    "relationship": 7,
    "race": 8,
    "sex": 9,
    "country": 13,
}
_INCOME = 14


class DataError(Exception):
    """Data that are missing or differ from the data of the figures."""


@dataclass(frozen=True)
class Data:
    """A classification problem.

    Attributes
    ----------
    x, x_test : ndarray of float32 of shape (examples, features)
    y, y_test : ndarray of int of shape (examples,)
    classes : tuple of str
        The name of each label.
    groups, groups_test : dict of str to ndarray of str of shape (examples,)
        Properties that divide the examples into groups.
    """

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[str, ...]
    groups: dict[str, np.ndarray] = field(default_factory=dict)
    groups_test: dict[str, np.ndarray] = field(default_factory=dict)


def load(name: str, folder: str | Path | None) -> Data:
    """The data set ``mnist``, ``fashion-mnist`` or ``adult``.

    Raises
    ------
    DataError
        If a file is missing or its checksum is not the expected one.
    """
    if name == "adult":
        return _adult(folder)
    parts = _from_openml(name) if folder is None else _from_files(name, Path(folder) / name)
    for part, found, expected in zip(_PARTS, parts, _IMAGES[name], strict=True):
        _check(found, expected, f"{part} of {name}")
    arrays = [np.frombuffer(part, dtype=np.uint8) for part in parts]
    x, x_test = (a.reshape(-1, 784).astype(np.float32) / 255 for a in arrays[::2])
    y, y_test = (a.astype(np.int64) for a in arrays[1::2])
    classes = tuple(map(str, range(10))) if name == "mnist" else _CLOTHES
    groups, groups_test = ({"class": np.array(classes)[labels]} for labels in (y, y_test))
    return Data(x, y, x_test, y_test, classes, groups, groups_test)


def pooled(data: Data) -> Data:
    """Images of 14 by 14 pixels, each the mean of four: a quarter of the work."""
    x, x_test = (a.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) for a in (data.x, data.x_test))
    return replace(data, x=np.ascontiguousarray(x), x_test=np.ascontiguousarray(x_test))


_CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")


def _check(found: bytes, expected: str, what: str) -> None:
    digest = hashlib.sha256(found).hexdigest()
    if digest != expected:
        raise DataError(f"{what} has SHA-256 {digest}, but {expected} is expected")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _from_files(name: str, folder: Path) -> list[bytes]:
    """Pixels and labels, without the headers of 16 and 8 bytes."""
    found = []
    for part in _PARTS:
        path = folder / f"{part}-ubyte.gz"
        try:
            found.append(gzip.decompress(_read(path))[16 if "images" in part else 8 :])
        except (EOFError, gzip.BadGzipFile) as error:
            raise DataError(f"{path} is not a whole gzip file of {name}: {error}") from error
    return found


def _from_openml(name: str) -> list[bytes]:
    """Pixels and labels from OpenML, where the test images follow the training images."""
    from sklearn.datasets import fetch_openml

    pixels, labels = fetch_openml(_OPENML[name], version=1, return_X_y=True, as_frame=False)
    pixels, labels = pixels.astype(np.uint8), labels.astype(np.uint8)
    cut = 60_000
    return [a.tobytes() for a in (pixels[:cut], labels[:cut], pixels[cut:], labels[cut:])]


def _adult(folder: str | Path | None) -> Data:
    """Census income: five numbers, standardised, and seven properties as one-hot columns.

    Capital gain and loss enter as logarithms.  The sampling weight is omitted, and so is the education in words, which
    repeats the number.  "?" is a separate category.  Means, deviations and categories are those of the training rows
    and are treated as public.
    """
    if folder is None:
        raise DataError("Adult needs --data DIR with adult/adult.data and adult/adult.test of the UCI repository")
    train, test = (_rows(Path(folder) / "adult" / name, digest) for name, digest in _ADULT.items())
    numbers, numbers_test = _numbers(train), _numbers(test)
    mean, deviation = numbers.mean(axis=0), numbers.std(axis=0)
    columns, columns_test = [(numbers - mean) / deviation], [(numbers_test - mean) / deviation]
    for place in _WORDS.values():
        kinds = np.unique(train[:, place])
        columns.append(train[:, place, None] == kinds)
        columns_test.append(test[:, place, None] == kinds)
    x, x_test = (np.concatenate(c, axis=1).astype(np.float32) for c in (columns, columns_test))
    y, y_test = ((rows[:, _INCOME] == ">50K").astype(np.int64) for rows in (train, test))
    classes = ("at most $50,000", "above $50,000")
    groups, groups_test = (
        {"sex": rows[:, 9], "race": rows[:, 8], "income": np.array(classes)[labels]}
        for rows, labels in ((train, y), (test, y_test))
    )
    return Data(x, y, x_test, y_test, classes, groups, groups_test)


def _rows(path: Path, digest: str) -> np.ndarray:
    """The table as strings, shape (people, 15)."""
    content = _read(path)
    _check(content, digest, str(path))
    lines = [line.rstrip(".").split(", ") for line in content.decode().splitlines()]
    return np.array([line for line in lines if len(line) == 15])


def _numbers(rows: np.ndarray) -> np.ndarray:
    numbers = rows[:, list(_NUMBERS.values())].astype(np.float64)
    numbers[:, 2:4] = np.log1p(numbers[:, 2:4])
    return numbers
