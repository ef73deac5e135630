"""One method fitted to embeddings, and the predictions of a saved probe."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from scalecal.calibrators import PanelCalibrator
from scalecal.cases import Cases, Features, Predictions, leakage_note, rows_of
from scalecal.checks import InputError, Int, ScalecalWarning, check_positive_int
from scalecal.io.store import plain
from scalecal.metrics.arguments import blocks, of_two
from scalecal.panel import PRIOR_SD_SHIFTED
from scalecal.probes import CrossFit, Job, LinearProbe, Recipe, ScaleProbe, fit_many
from scalecal.probes.estimators import as_json
from scalecal.probes.methods import find_method
from scalecal.readers import Readers
from scalecal.runs.grid import (
    applicable,
    best_recipe,
    chance_note,
    fit_calibrator,
    held_out,
    on_device,
    out_of_sample,
    shared_arrays,
)
from scalecal.synthesis import plan
from scalecal.votes import check_sides

CHUNK_ROWS = 65_536


def fit_method(
    data: Features,
    method: str,
    *,
    seed: int = 0,
    preset: str | None = None,
    readers: Readers | None = None,
    class_weight: str | None = None,
    allow_leakage: bool = False,
    dataset: str = "",
    advance: Callable[[float], object] = lambda _: None,
) -> LinearProbe | ScaleProbe:
    """Fit one method to all cases marked train (to all cases where none is marked).

    Parameters
    ----------
    data
        Embeddings with labels and, where known, votes, groups and split.
    method
        A name in `METHODS`.
    seed
        Decides the held-out part, initial weights and batch order.
    preset
        "paper" or "default"; None: the method's own.
    readers
        Knowledge of the readers besides the votes: published kappa, the panel's size.
    class_weight
        "balanced": every class counts alike in training; see `scalecal.LinearProbe`.
    allow_leakage
        Do not warn of groups with cases in both train and test.
    dataset
        Name of the data, noted in the probe.

    Returns
    -------
    LinearProbe or ScaleProbe
        The latter for methods with synthetic cases. `about_` says what made it.

    Examples
    --------
    >>> from scalecal.datasets import load_lidc
    >>> probe = fit_method(load_lidc(), "temperature")
    >>> probe.coef_.shape, type(probe.calibrator_).__name__
    ((1, 5), 'TemperatureScaling')
    """
    check_positive_int(seed, "seed", least=0)
    cases = data.cases.labelled()
    record = find_method(method)
    if record.needs_votes and cases.votes is None:
        raise InputError(
            f"{method} needs readers' votes: add votes and n_raters to the features, or give --votes FILE"
        )
    if cases.votes is not None and cases.y is not None:
        check_sides(cases.y, cases.votes)
    # Weighted classes shift the logits, which a narrow prior of the panel's intercept would resist.
    if class_weight is not None and isinstance(record.calibrator, PanelCalibrator):
        shifted = clone(record.calibrator).set_params(prior_sd=PRIOR_SD_SHIFTED)
        record = replace(record, calibrator=shifted)
    known = readers or Readers()
    applicable([method], data, known)
    data = replace(data, X=on_device(data.X, "cpu"))
    y, split = data.cases.labels, data.split
    labelled = y >= 0
    rows, val = np.flatnonzero(labelled), None
    if split is not None:
        rows = np.flatnonzero(labelled & (split == "train"))
        part = np.flatnonzero(labelled & (split == "val"))
        if len(part):
            val = part
    if len(rows) == 0:
        raise InputError("no case has split = 'train': nothing to fit")
    shared = shared_arrays(data, rows, val)
    recipes = record.recipes(known.usual(data.cases), preset)
    jobs = [Job(recipe=r, seed=seed, class_weight=class_weight, **shared) for r in recipes]
    crossfit, every = None, list(jobs)
    if record.crossfitted(preset):
        crossfit = CrossFit.of(jobs[0])
        every += crossfit.jobs
    fits = fit_many(data.X, every, advance=advance)
    again = None
    if crossfit is not None:
        again = crossfit, fits[len(jobs) :]
    best = best_recipe(fits[: len(jobs)])
    trained, recipe = fits[best], jobs[best].recipe
    held, doubts, calibrator = held_out(trained, val), [], None
    if not allow_leakage:
        doubts.append(leakage_note(cases))
    if record.calibrator is not None or held is not None:
        outside, logits = out_of_sample(trained, data, val, again)
        doubts.append(chance_note(y[outside], logits))
        calibrator = fit_calibrator(record, data, outside, logits, known)
    for doubt in filter(None, doubts):
        warnings.warn(doubt, ScalecalWarning, stacklevel=2)
    counts = {"train": len(trained.rows), "validation": 0, "synthetic": 0}
    if held is not None:
        counts["validation"] = len(held)
    # Synthetic cases are what only a ScaleProbe knows of.
    estimator: type[LinearProbe | ScaleProbe] = LinearProbe
    if trained.plan is not None:
        estimator, counts["synthetic"] = ScaleProbe, len(trained.plan)
    about = {
        "method": method,
        "label": record.label,
        "recipe": plain({k: as_json(v) for k, v in asdict(recipe).items()}),
        "seed": seed,
        "encoder": data.encoder,
        "dataset": dataset,
        "data_sha256": data.fingerprint,
        "notes": list(cases.notes),
        "counts": counts,
    }
    options = _estimator_options(estimator, recipe)
    options |= {"class_weight": class_weight, "preset": preset or record.preset}
    probe = estimator(**options, random_state=seed)
    return probe.adopt(
        trained,
        cases.classes,
        calibrator=calibrator,
        about=about,
    )


def _estimator_options(estimator: type, recipe: Recipe) -> dict[str, Any]:
    """Return the constructor arguments of an estimator that trains by this recipe."""
    options: dict[str, Any] = vars(recipe)
    if recipe.synthesis is not None:
        defaults = {k: p.default for k, p in inspect.signature(plan).parameters.items()}
        options = {**options, **defaults, **recipe.synthesis}
    names = inspect.signature(estimator).parameters
    return {k: v for k, v in options.items() if k in names}


def predict_features(probe: LinearProbe | ScaleProbe, data: Features) -> Predictions:
    """Return a saved probe's probabilities of embeddings, read part by part.

    Raises
    ------
    InputError
        Where the features have another width, or were made by another encoder.
    """
    width, cases = probe.n_features_in_, data.cases
    if data.X.shape[1] != width:
        raise InputError(
            f"the features have {data.X.shape[1]} columns, but the probe was fitted to {width}: "
            "use features of the same encoder"
        )
    own, expected = data.encoder, probe.about_.get("encoder")
    if own is not None and expected is not None and own != expected:
        raise InputError(
            f"the features are of encoder {own}, but the probe was fitted to {expected}"
        )
    if not cases.classes:
        cases = replace(cases, classes=tuple(map(str, probe.classes_.tolist())))
    panel, readers = probe.panel_, None
    knows_readers = panel is not None and panel.knows_readers
    if knows_readers:
        readers = readers_behind(cases, probe)
    # The first part has no case, so that there is one to join where there are no cases at all.
    none = np.empty((0, len(probe.classes_)))
    labels, votes = [none], [none]
    # Embeddings may lie on disk and be larger than memory.
    for part in blocks(len(data), CHUNK_ROWS):
        labels.append(probe.predict_proba(data.X[part], n_raters=rows_of(readers, part)))
        if knows_readers:
            votes.append(probe.predict_reader_proba(data.X[part]))
    p = of_two(np.concatenate(labels))
    if panel is None or not knows_readers:
        return Predictions.single(cases, p)
    return Predictions.single(cases, p, of_two(np.concatenate(votes)), rho=panel.rho)


def readers_behind(cases: Cases, probe: LinearProbe | ScaleProbe) -> Int | None:
    """Readers behind each case's label; the probe's own panel where a case has none."""
    if probe.panel_ is None:
        return None
    return cases.panel_sizes(probe.panel_.panel_size)
