"""A fitted method on disk: safetensors for the numbers, JSON for everything else, never pickle."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scalecal import __version__
from scalecal.calibrators import Calibrator, from_dict
from scalecal.checks import Float, InputError, check_positive_int, lookup
from scalecal.io.features import Features
from scalecal.io.store import output_folder, plain, write_json
from scalecal.probes import Job, Trained, fit_many, linear_logits, probabilities
from scalecal.runs.grid import applicable, fit_calibrator, on_device, panel_size
from scalecal.runs.methods import METHODS

__all__ = ["FittedMethod", "fit_method", "load_method", "save_method"]

_FORMAT = 1
WEIGHTS, ABOUT = "probe.safetensors", "probe.json"


@dataclass(frozen=True, eq=False)
class FittedMethod:
    """A probe with its calibrator, and where it came from."""

    coef: Float
    intercept: Float
    unit: bool
    calibrator: Calibrator | None
    about: dict[str, Any]

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; the position is the label."""
        return tuple(self.about["classes"])

    def predict_proba(self, data: Features) -> Float:
        """Return probabilities: (n,) of the second class, or (n, C).

        Raises
        ------
        InputError
            Where the features have another width, or were made by another encoder.
        """
        width = self.coef.shape[1]
        if data.X.shape[1] != width:
            raise InputError(
                f"the features have {data.X.shape[1]} columns, but the probe was fitted to {width}: "
                "use features of the same encoder"
            )
        made, fitted = data.encoder, self.about["encoder"]
        if made is not None and fitted is not None and made != fitted:
            raise InputError(
                f"the features are of encoder {made}, but the probe was fitted to {fitted}"
            )
        logits = linear_logits(data.X, self.coef, self.intercept, unit=self.unit)
        if self.calibrator is None:
            probs = probabilities(logits)
            return probs[:, 1] if logits.ndim == 1 else probs
        # A case without votes gets the usual number of readers. Where the probe knew no votes, new
        # ones change nothing: cases with and without them are treated alike.
        readers: Any = self.about["n_raters"]
        known = data.cases.readers
        if known is not None and (readers is not None or data.cases.votes is None):
            readers = np.where(known > 0, known, readers)
        return self.calibrator.predict_proba(logits, n_raters=readers)


def fit_method(
    data: Features, method: str, *, seed: int = 0, preset: str | None = None, dataset: str = ""
) -> FittedMethod:
    """Fit one method to all cases marked train (to all cases where none is marked).

    Examples
    --------
    >>> from scalecal.datasets import load_lidc
    >>> fitted = fit_method(load_lidc(), "temperature")
    >>> fitted.coef.shape, sorted(fitted.about)[:2]
    ((1, 5), ['classes', 'counts'])
    """
    check_positive_int(seed, "seed", least=0)
    data = data.labelled()
    data = replace(data, X=on_device(data.X, "cpu"))
    cases = data.cases
    assert data.y is not None
    record = lookup(method, METHODS, "method")
    run, why = applicable([method], data) if not record.needs_votes else _needs(data, method)
    if method not in run:
        raise InputError(f"{method} cannot be fitted: {why[method]}")
    panel = panel_size(data)
    rows = np.arange(len(data)) if data.split is None else np.flatnonzero(data.split == "train")
    if len(rows) == 0:
        raise InputError("no case has split = 'train': nothing to fit")
    val = None if data.split is None else np.flatnonzero(data.split == "val")
    val = val if val is not None and len(val) else None
    jobs = [
        Job(
            recipe=recipe,
            rows=rows,
            y=data.y[rows],
            n_classes=len(cases.classes),
            seed=seed,
            votes=None if cases.votes is None else cases.votes[rows],
            groups=None if cases.groups is None else cases.groups.codes[rows],
            validation=val,
            validation_y=None if val is None else data.y[val],
        )
        for recipe in record.recipes(panel, preset)
    ]
    rivals = fit_many(data.X, jobs)
    best = min(range(len(rivals)), key=lambda i: float(np.min(rivals[i].fit.history)))
    probe: Trained = rivals[best]
    calibrator = fit_calibrator(record, probe, data, val)
    held = probe.validation if val is None else val
    about: dict[str, Any] = {
        "format": _FORMAT,
        "version": __version__,
        "method": method,
        "label": record.label,
        "recipe": _plain_recipe(asdict(jobs[best].recipe)),
        "seed": seed,
        "classes": list(cases.classes),
        "n_raters": panel,
        "encoder": data.encoder,
        "dataset": dataset,
        "data_sha256": data.fingerprint,
        "counts": {
            "train": len(probe.rows),
            "validation": 0 if held is None else len(held),
            "synthetic": 0 if probe.plan is None else len(probe.plan),
        },
        "training": {
            "epochs": probe.fit.n_iter,
            "best_epoch": probe.fit.best,
            "stopped_by_limit": probe.fit.capped,
            "validation_loss": [float(v) for v in probe.fit.history],
        },
    }
    return FittedMethod(probe.coef, probe.intercept, probe.unit, calibrator, about)


def _needs(data: Features, method: str) -> tuple[dict[str, Any], dict[str, str]]:
    if data.cases.votes is None:
        raise InputError(
            f"{method} needs readers' votes: add votes and n_raters to the features, or give --votes FILE"
        )
    return applicable([method], data)


def _plain_recipe(recipe: dict[str, Any]) -> Any:
    return plain(
        {k: v if not callable(v) else getattr(v, "__name__", repr(v)) for k, v in recipe.items()}
    )


def save_method(fitted: FittedMethod, folder: str | Path) -> None:
    """Write ``probe.safetensors`` and ``probe.json``, both or neither."""
    from safetensors.numpy import save

    about = fitted.about | {
        "unit_rows": fitted.unit,
        "calibrator": None if fitted.calibrator is None else fitted.calibrator.to_dict(),
    }
    with output_folder(folder, kind="fit") as partial:
        weights = save(
            {
                "coef": np.ascontiguousarray(fitted.coef, dtype=np.float64),
                "intercept": np.ascontiguousarray(fitted.intercept, dtype=np.float64),
            }
        )
        # Not `save_file`, whose files only their owner may read.
        (partial / WEIGHTS).write_bytes(weights)
        write_json(partial / ABOUT, about)


def load_method(folder: str | Path) -> FittedMethod:
    """Read what `save_method` wrote."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(folder)
    for name in (WEIGHTS, ABOUT):
        if not (folder / name).is_file():
            raise InputError(
                f"no fitted probe at {folder}: {name} is missing. "
                "Run: scalecal fit FEATURES --method NAME --out DIR"
            )
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        numbers = load_file(folder / WEIGHTS)
        if about["format"] != _FORMAT:
            raise InputError(f"{folder} has format {about['format']}, this version reads {_FORMAT}")
        saved = about.pop("calibrator")
        return FittedMethod(
            numbers["coef"],
            numbers["intercept"],
            bool(about.pop("unit_rows")),
            None if saved is None else from_dict(saved),
            about,
        )
    except (json.JSONDecodeError, SafetensorError, KeyError, UnicodeDecodeError) as error:
        raise InputError(
            f"{folder} does not hold a probe this version can read: {error!r}"
        ) from None
