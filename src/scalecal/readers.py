"""Knowledge of the readers behind the labels, besides the votes of the cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalecal.cases import Cases
from scalecal.checks import Int, check_number
from scalecal.limits import check_count
from scalecal.panel import vote_moments


@dataclass(frozen=True)
class Readers:
    """Knowledge of the readers besides the votes of the cases.

    Attributes
    ----------
    kappa : float, optional
        Fleiss' kappa as published; None: that of the training votes stands in for it.
    vote_share : float or sequence, optional
        Share of all votes that are positive (one number per class for more than two); None: as
        `kappa`, and where that is given, unknown.
    panel_size : int, optional
        Readers behind each label, where that is not the number of its votes.
    """

    kappa: float | None = None
    vote_share: float | Sequence[float] | None = None
    panel_size: int | None = None

    def __post_init__(self) -> None:
        if self.kappa is not None:
            check_number(self.kappa, "kappa", "lie in [-1, 1]")
        if self.panel_size is not None:
            check_count(self.panel_size, "panel_size", "readers")

    def published(self, cases: Cases) -> tuple[float | None, Any]:
        """Kappa and share of positive votes: as given, else those of these cases' votes."""
        if self.kappa is not None or cases.votes is None:
            return self.kappa, self.vote_share
        kappa, share = vote_moments(cases.votes)
        # Readers who all agree, or one reader alone, leave kappa undefined.
        if not np.isfinite(kappa):
            return None, None
        if self.vote_share is not None:
            return kappa, self.vote_share
        if len(share) == 2:
            return kappa, float(share[1])
        return kappa, share

    def usual(self, cases: Cases) -> int | None:
        """The usual number of readers behind a label (the median over cases that have any), or None."""
        if self.panel_size is not None:
            return self.panel_size
        return cases.usual_readers

    def behind(self, cases: Cases) -> Int | None:
        """Readers behind each label (n,): its votes, the usual number where it has none; or None."""
        if self.panel_size is not None:
            return np.full(cases.n, self.panel_size)
        return cases.panel_sizes(cases.usual_readers)
