"""Cells made by simple recipes, so that the right verdict is known by construction."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scalecal.cases import Answers, Cases, Factor, Predictions


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def votes(n, *, n_raters=7, spread=2.0, unexplained=1.0, seed=0):
    """Cases whose readers agree more or less: (logit of the label's truth, hidden vote logit, counts)."""
    rng = np.random.default_rng(seed)
    seen = spread * rng.normal(size=n)
    hidden = seen + unexplained * rng.normal(size=n)
    positive = rng.binomial(n_raters, sigmoid(hidden))
    return seen, hidden, np.column_stack([n_raters - positive, positive])


def cell(
    methods: Mapping[str, object],
    n=977,
    *,
    dataset="mhist",
    encoder="uni",
    n_seeds=4,
    seed=0,
    jitter=0.1,
    panel=True,
    groups=None,
    meta=None,
):
    """A cell whose methods are functions (seen logit, hidden logit, y, rng) -> logits.

    All encoders of one data set share the cases (seed); seeds and encoders differ by a little noise.
    """
    seen, hidden, counts = votes(n, seed=seed)
    y = (counts[:, 1] > counts.sum(axis=1) / 2).astype(np.int64)
    noise = np.random.default_rng([seed, *encoder.encode()])
    predictions = {}
    shared = [jitter * noise.normal(size=n) for _ in range(n_seeds)]
    for name, recipe in methods.items():
        for s in range(n_seeds):
            logits = recipe(seen, hidden, y, np.random.default_rng(s)) + shared[s]
            predictions[name, s] = Answers(sigmoid(logits), rows=np.arange(n))
    return Predictions(
        dataset=dataset,
        encoder=encoder,
        cases=Cases(
            n=n,
            classes=("HP", "SSA"),
            ids=np.array([f"c{i:05d}" for i in range(n)]),
            y=y,
            votes=counts if panel else None,
            groups=None if groups is None else Factor.of([f"g{i % groups:03d}" for i in range(n)]),
        ).stratified(),
        answers=predictions,
        meta={"variants": {m: m.partition("@")[0] for m in methods if "@" in m}, **(meta or {})},
    )


def sharp(factor):
    """Label logits multiplied: 1.7 or so is calibrated here, more is over-confident."""
    return lambda seen, hidden, y, rng: factor * seen  # noqa: ARG005
