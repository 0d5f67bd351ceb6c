"""`Guarantee`: what a number promises, in one sentence with its theorem, carried to wherever the number is shown."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Guarantee"]


@dataclass(frozen=True)
class Guarantee:
    """What is proven about a number.

    Attributes
    ----------
    kind : str
        A short name for programs, for example ``"fixed norms"`` or ``"adaptive, Gaussian DP"``.
    proven_adaptive : bool
        True where the promise holds although each step's norms depend on what was released before.
    sentence : str
        One or two sentences for the person who reads the number.
    reference : str
        The theorem it rests on.
    """

    kind: str
    proven_adaptive: bool
    sentence: str
    reference: str

    def __str__(self) -> str:
        return f"{self.sentence} [{self.reference}]"
