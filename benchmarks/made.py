"""What the benchmarks of the experiment grid share: tables of embeddings, and which methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalecal.cases import Cases, Factor
from scalecal.io.features import Features
from scalecal.probes.methods import METHODS

EVERY = list(METHODS)
PAPER_WITHOUT_VOTES = [name for name, m in METHODS.items() if m.paper and not m.needs_votes]


def table(X: Any, y: Any, counts: Any, split: tuple[int, ...], parts: tuple[str, ...]) -> Features:
    """Embeddings with labels and, where there are any, seven readers' votes (the positive ones)."""
    cases = Cases(
        n=len(X),
        classes=("0", "1"),
        y=np.asarray(y, dtype=np.int64),
        votes=None if counts is None else np.column_stack([7 - counts, counts]),
        split=Factor.of(np.repeat(np.array(parts), split)),
    )
    return Features(X, cases, f"d{X.shape[1]}", fingerprint=f"{X.shape[0]}x{X.shape[1]}")


def operations() -> Any:
    """A context that counts, in its `done`, what torch is asked for besides views."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.done = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.done += not func.is_view
            return func(*args, **(kwargs or {}))

    return Count()
