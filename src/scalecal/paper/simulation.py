"""The simulation study: where the truth is known, which method is closest to it?

Readers are simulated, so that the probability of the label and of a single vote given the features
are known exactly. One thing at a time is varied (difficulty, dimension, readers, training size,
unexplained variance); every setting is drawn anew several times, and methods are compared in pairs on
the same data sets. Scores are taken against the truth, not against drawn labels, so that a perfect
model scores zero and there is no noise floor.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal import __version__, metrics
from scalecal.checks import Float, ScalecalWarning, check_positive_int, lookup
from scalecal.datasets import simulate, true_calibration_error
from scalecal.datasets.simulated import SimulatedCases
from scalecal.io.store import output_folder, write_csv, write_json, write_text
from scalecal.runs.frontier import equal_entropy, soften
from scalecal.runs.grid import run_grid
from scalecal.runs.methods import METHODS
from scalecal.runs.scores import entropy

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BASELINE",
    "FACTORS",
    "PAPER_TRAINED",
    "SCORES",
    "SETTINGS",
    "STUDY_METHODS",
    "TRUTHS",
    "Setting",
    "measure_setting",
    "score_against_truth",
    "write_study",
]

BASELINE = "none"

STUDY_METHODS = (
    "none",
    "temperature",
    "vanilla-ls",
    "focal",
    "mixup",
    "confidence-ls",
    "scale",
    "scale-shuffled",
    "scale-wide",
    "scale-default",
    "half-jury",
    "jury",
    "real-piecewise",
    "vote-fraction",
)
"""Methods of the study unless others are named."""

TRUTHS = ("true-label", "true-vote")
"""Two perfect models beside the methods: P(label | features) and P(vote | features)."""

SCORES: dict[str, str] = {
    "vote_distance": "mean distance to the true probability of a vote",
    "vote_nll": "expected log loss of a single reader's vote",
    "label_error": "true calibration error of the label's probability, 15 bins",
    "label_nll": "expected log loss of the label",
    "auc": "AUC on the drawn labels",
    "entropy": "mean predictive entropy",
    "softened_vote_nll": "vote_nll of the uncalibrated probe softened to the same mean entropy",
    "softened_label_nll": "label_nll of the uncalibrated probe softened to the same mean entropy",
}
"""Score -> what it is. Expectations are over the truth given the features."""

FACTORS: dict[str, str] = {
    "auc": "AUC of a perfect model",
    "dim": "dimension",
    "n_raters": "readers",
    "n_train": "training cases",
    "unexplained": "unexplained variance",
}
"""What is varied -> its name in words."""


PAPER_TRAINED = "+paper"
"""Ending of the name of a setting that is another one, trained as in the paper."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One law to draw data sets from, and how the probes are trained on them.

    Attributes
    ----------
    auc
        AUC for the label of a model that knows the truth.
    dim
        Width of the embeddings; one direction is informative.
    n_raters
        Readers per case.
    n_train, n_test
        Cases to train on (a tenth of them held out for validation) and to test on.
    unexplained
        Share of the vote logit's variance that no feature shows.
    preset
        Preset of the training, see `scalecal.probes.PRESETS`.
    """

    auc: float = 0.92
    dim: int = 64
    n_raters: int = 7
    n_train: int = 2175
    n_test: int = 2000
    unexplained: float = 0.1
    preset: str = "default"

    def draw(self, replicate: int) -> SimulatedCases:
        """Draw a data set; settings that differ in the preset alone get the same ones."""
        return simulate(
            self.n_train + self.n_test,
            auc=self.auc,
            dim=self.dim,
            n_raters=self.n_raters,
            n_train=self.n_train,
            unexplained=self.unexplained,
            seed=replicate,
        )


def _settings() -> dict[str, Setting]:
    swept: dict[str, tuple[Any, ...]] = {
        "auc": (0.8, 0.86, 0.95),
        "dim": (8, 256, 1024),
        "n_raters": (3, 15),
        "n_train": (500, 8000),
        "unexplained": (0.0, 0.2),
    }
    out = {"base": Setting()}
    for factor, values in swept.items():
        out |= {f"{factor}={value:g}": Setting(**{factor: value}) for value in values}
    # The paper's training beside the default: with few cases, and at MHIST's size (2,175 training
    # cases, an encoder of the usual width).
    for paper in (Setting(n_train=500, preset="paper"), Setting(dim=1024, preset="paper")):
        plain = next(name for name, s in out.items() if s == replace(paper, preset="default"))
        out[f"{plain}{PAPER_TRAINED}"] = paper
    return out


SETTINGS: Mapping[str, Setting] = MappingProxyType(_settings())
"""Name -> setting; a name says what differs from ``base``."""


def score_against_truth(
    probs: Float, vote: Float, label: Float, y: Any, baseline: Float
) -> dict[str, float]:
    """Score predictions of the positive class against the truth: the numbers of `SCORES`.

    Parameters
    ----------
    probs : array (n,)
        Predictions.
    vote, label : array (n,)
        True probability of a vote and of the label given the features.
    y : array (n,)
        Drawn labels, for the AUC.
    baseline : array (n,)
        Predictions of the uncalibrated probe, to be softened to the same mean entropy.

    Examples
    --------
    A model that tells the truth about votes is at no distance from it, and miscalibrated for the
    majority's label:

    >>> data = simulate(500, seed=0)
    >>> vote, label = data.expected_vote_probability, data.label_probability
    >>> scores = score_against_truth(vote, vote, label, data.y, label)
    >>> scores["vote_distance"], scores["label_error"] > 0.1
    (0.0, True)
    """
    softness = float(entropy(probs).mean())
    softened = soften(baseline, equal_entropy(baseline, softness))
    return {
        "vote_distance": true_calibration_error(probs, vote, n_bins=None),
        "vote_nll": _expected_nll(vote, probs),
        "label_error": true_calibration_error(probs, label),
        "label_nll": _expected_nll(label, probs),
        "auc": metrics.auc(y, probs),
        "entropy": softness,
        "softened_vote_nll": _expected_nll(vote, softened),
        "softened_label_nll": _expected_nll(label, softened),
    }


def _expected_nll(truth: Float, probs: Float) -> float:
    return metrics.nll(np.column_stack([1.0 - truth, truth]), np.column_stack([1.0 - probs, probs]))


def measure_setting(
    name: str, setting: Setting, *, methods: Sequence[str] = STUDY_METHODS, replicates: int = 5
) -> pd.DataFrame:
    """Draw the data sets of one setting, train every method on each, score against the truth.

    Returns
    -------
    DataFrame, tidy: setting, the fields of `Setting`, replicate, method, metric, value.

    Examples
    --------
    >>> small = Setting(dim=4, n_train=200, n_test=300)
    >>> frame = measure_setting("small", small, methods=["none"], replicates=1)
    >>> sorted(set(frame["method"]))
    ['none', 'true-label', 'true-vote']
    """
    import pandas as pd

    lines: list[tuple[Any, ...]] = []
    for replicate in range(replicates):
        data = setting.draw(replicate)
        with warnings.catch_warnings():
            # A validation part without an error leaves the temperature at 1; 200 data sets need
            # not say so each.
            warnings.simplefilter("ignore", ScalecalWarning)
            grid = run_grid(data, methods=methods, seeds=[replicate], preset=setting.preset)
        test = np.flatnonzero(data.split == "test")
        assert data.y is not None
        vote, label = data.expected_vote_probability[test], data.label_probability[test]
        found = {method: probs for (method, _), (_, probs) in grid.cell.predictions.items()}
        baseline = found[BASELINE]
        found |= {"true-label": label, "true-vote": vote}
        for method, probs in found.items():
            scores = score_against_truth(probs, vote, label, data.y[test], baseline)
            lines += [(replicate, method, metric, value) for metric, value in scores.items()]
    frame = pd.DataFrame(lines, columns=["replicate", "method", "metric", "value"])
    told = {key: "default" if value is None else value for key, value in asdict(setting).items()}
    for place, (key, value) in enumerate({"setting": name, **told}.items()):
        frame.insert(place, key, value)
    return frame


def _finished(
    path: Path, setting: Setting, methods: Sequence[str], replicates: int
) -> pd.DataFrame | None:
    """Return a setting measured before, if it is the same setting, methods and data sets."""
    import pandas as pd

    if not path.is_file():
        return None
    frame = pd.read_csv(path)
    told = {key: "default" if value is None else value for key, value in asdict(setting).items()}
    same = (
        {*told, "setting", "replicate", "method", "metric", "value"} == set(frame.columns)
        and len(frame) > 0
        and all(str(frame[key].iloc[0]) == str(value) for key, value in told.items())
        and set(frame["method"]) == {*methods, *TRUTHS}
        and set(frame["replicate"]) == set(range(replicates))
        and set(frame["metric"]) == set(SCORES)
    )
    return frame if same else None


def write_study(
    out: str | Path,
    *,
    seeds: int = 10,
    methods: Sequence[str] | None = None,
    progress: Callable[[str], None] = print,
    settings: Mapping[str, Setting] = SETTINGS,
) -> str:
    """Run the study and write it; settings measured before are not measured again.

    Writes ``study.csv`` (tidy), ``summary.csv`` (one row per setting, method and score, with the
    change against the uncalibrated probe and its interval), ``study.md`` (the page), ``figure.svg``,
    ``figure.png`` and ``run.json``; ``settings/`` holds what was measured, one file per setting.

    Parameters
    ----------
    seeds
        Data sets drawn per setting.
    methods
        Names in `METHODS`; None: `STUDY_METHODS`. The uncalibrated probe is always there.
    settings
        Name -> setting.

    Returns
    -------
    What the page says, without its long tables, to be printed.
    """
    import pandas as pd

    from scalecal.auditing.plots import save
    from scalecal.paper.figures.simulation import figure_simulation
    from scalecal.paper.simulation_text import page, summarise

    check_positive_int(seeds, "seeds")
    chosen = list(dict.fromkeys([BASELINE, *(STUDY_METHODS if methods is None else methods)]))
    for name in chosen:
        lookup(name, METHODS, "method")
    out = Path(out)
    frames = []
    for number, (name, setting) in enumerate(settings.items(), 1):
        path = out / "settings" / f"{name}.csv"
        frame = _finished(path, setting, chosen, seeds)
        if frame is None:
            progress(f"setting {number} of {len(settings)}, {name}: {seeds} data sets")
            frame = measure_setting(name, setting, methods=chosen, replicates=seeds)
            with output_folder(path.parent) as partial:
                write_csv(frame, partial / path.name)
            # Read back, so that a run that was interrupted gives the same bytes.
            frame = pd.read_csv(path)
        frames.append(frame)
    study = pd.concat(frames, ignore_index=True)
    summary = summarise(study)
    with output_folder(out) as partial:
        write_csv(study, partial / "study.csv")
        write_csv(summary, partial / "summary.csv")
        write_text(partial / "study.md", page(study))
        save(figure_simulation(summary, settings), partial / "figure")
        write_json(
            partial / "run.json",
            {
                "kind": "simulation",
                "version": __version__,
                "seeds": list(range(seeds)),
                "methods": chosen,
                "settings": {name: asdict(setting) for name, setting in settings.items()},
            },
        )
    files = "study.csv, summary.csv, study.md, figure.svg and figure.png"
    return f"{page(study, brief=True)}\nWrote {files} to {out}"
