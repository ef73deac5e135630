"""The model card beside an exported model: Markdown with the header that the Hugging Face Hub reads.

It shows facts that are there (the probe's own record, and those of an audit or comparison), computes
nothing, and says where something is not known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalecal.checks import InputError
from scalecal.evaluation.folder import read_runs
from scalecal.evaluation.texts import cell, shown_columns
from scalecal.evaluation.words import sentences
from scalecal.export.probe_graph import CHECK_LOGITS, OUTPUTS, TOLERANCE, Probe
from scalecal.metrics import COLUMNS
from scalecal.metrics.columns import chosen

HUB_TYPES: dict[str, str] = {
    "accuracy": "accuracy",
    "auc": "roc_auc",
    "brier": "brier_score",
    "nll": "log_loss",
    "ece": "expected_calibration_error",
    "floor": "expected_calibration_error_floor",
    "vote_nll": "vote_log_loss",
}
"""Quantities of the header's results, in their order, and the type the Hub's results have for each.

Further metrics in which models are tested follow by their own keys.
"""


@dataclass(frozen=True)
class Audited:
    """A run on predictions of a probe, or of its method.

    Attributes
    ----------
    kind
        The command of the run: "audit", "compare", ...
    method
        Whose numbers are the probe's, as the run names it.
    facts
        What the run wrote to `facts.json`.
    """

    kind: str
    method: str
    facts: Mapping[str, Any]

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """One row per stratum, "overall" first."""
        return [row for row in self.facts["rows"] if row["method"] == self.method]


def read_audited(folder: str | Path, probe: Probe) -> Audited:
    """Take from a run folder what it says of this probe's predictions or of its method.

    Raises
    ------
    InputError
        Where the run is of several models, of another encoder, or lacks the probe's method.
    """
    run = read_runs([folder])[0]
    facts, kind = run.facts[0], str(run.info.get("kind") or "audit")
    models = [str(each["name"]) for each in run.facts]
    if facts["kind"] == "files":
        models = facts["methods"]
    if len(models) > 1:
        raise InputError(f"{folder} holds several models ({', '.join(models)}): give a run of one")
    if kind == "audit":
        return Audited(kind, str(facts["baseline"]), facts)
    method = str(probe.about_.get("method") or "")
    if method not in facts["methods"]:
        known = ", ".join(facts["methods"])
        raise InputError(
            f"{folder} does not have the probe's method {method!r}: it compares {known}"
        )
    own, other = probe.about_.get("encoder"), facts["encoder"]
    if own is not None and other not in (None, "", own):
        raise InputError(f"{folder} is of encoder {other}, but the probe is of {own}")
    return Audited(kind, method, facts)


def model_card(
    probe: Probe,
    outputs: Sequence[str],
    *,
    name: str,
    panel_size: int | None,
    audited: Audited | None,
    license: str,
) -> str:
    """Return the card: a header, and sections that a person reads.

    Parameters
    ----------
    probe
        The probe that was exported.
    outputs
        Names of the model's outputs.
    name
        Name of the model.
    panel_size
        Readers of the panel the model predicts; None where it knows none.
    audited
        What is known of its calibration on cases; None: nothing.
    license
        Identifier of a licence as the Hub has them.
    """
    sections = {
        "What it predicts": _predicts(probe, outputs, panel_size),
        "How to use it": _use(probe),
        "Training": _training(probe),
        "Audit": _audit(audited),
        "Limits": _limits(probe, outputs),
        "Provenance": _provenance(probe),
        "Citation": _CITATION,
    }
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
    # The Hub reads YAML, of which JSON is a part.
    header = json.dumps(_header(name, audited, license), indent=2, ensure_ascii=False)
    return f"---\n{header}\n---\n\n# {escaped(name)}\n\n{body}\n"


# Sections -----------------------------------------------------------------------------------------


def _predicts(probe: Probe, outputs: Sequence[str], size: int | None) -> str:
    classes = [escaped(str(c)) for c in probe.classes_.tolist()]
    of = f"of each class, shape `(n, {len(classes)})`; the columns are {', '.join(classes)}"
    if len(classes) == 2:
        of = f"of class {classes[1]} (against {classes[0]}), shape `(n,)`"
    label = "the label"
    if size is not None:
        label = f"the label, what most of {size} readers say"
    lines = [
        f"Calibrated probabilities from embeddings, `float32 (n, {probe.n_features_in_})`"
        f"{_encoder(probe)}:",
        "",
        f"- `p`: probability of {label}, {of}",
    ]
    if "p_reader" in outputs:
        lines.append(f"- `p_reader`: {OUTPUTS['p_reader']}, same shape")
    if "p_split" in outputs:
        lines.append(f"- `p_split`: {OUTPUTS['p_split']} among {size} readers, shape `(n,)`")
    lines.append("")
    if "p_reader" in outputs:
        lines.append(
            "The majority of a panel is more predictable than one of its readers, so the first two "
            "differ: labels judge `p`, single readers' votes judge `p_reader`."
        )
    elif probe.panel_ is not None and probe.panel_.knows_readers:
        lines.append(
            "A reader probability is not exported for more than two classes: `scalecal predict` gives it."
        )
    else:
        lines.append("It is unknown how far readers agree, so there is no reader probability.")
    return "\n".join(lines)


def _encoder(probe: Probe) -> str:
    encoder = probe.about_.get("encoder")
    if not encoder:
        return ""
    return f" of the encoder {escaped(str(encoder))}"


def _use(probe: Probe) -> str:
    return f"""```python
import json

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
embeddings = np.zeros((2, {probe.n_features_in_}), dtype=np.float32)  # yours here, one row per case
names = [output.name for output in session.get_outputs()]
answers = dict(zip(names, session.run(names, {{"embeddings": embeddings}})))
print(classes, answers)
```

Embeddings go in as the encoder gives them: scaling, probe, calibrator and panel are all in the graph, which \
computes in double precision."""


def _training(probe: Probe) -> str:
    about = probe.about_
    lines = []
    if about.get("dataset"):
        lines.append(f"- data: {escaped(str(about['dataset']))}")
    if about.get("counts"):
        counts = about["counts"]
        lines.append(
            f"- cases: {counts['train']:,} for training, {counts['validation']:,} for validation, "
            f"{counts.get('synthetic') or 0:,} synthetic"
        )
    if about.get("method"):
        lines.append(f"- method: {escaped(str(about['method']))} of scalecal, seed {about['seed']}")
    lines.append(f"- probe: {type(probe).__name__}, {probe.n_iter_} epochs")
    if probe.class_weight is not None:
        lines.append(f"- class weights in training: {escaped(str(probe.class_weight))}")
    calibrator = "none"
    if probe.calibrator_ is not None:
        calibrator = probe.calibrator_.name
    lines.append(f"- calibrator: {calibrator}")
    if probe.panel_ is not None:
        lines.append(f"- {escaped(probe.panel_.sentence())}")
    return "\n".join(lines)


def _audit(audited: Audited | None) -> str:
    if audited is None:
        return (
            "Not audited: no run was named when the model was exported, so its calibration on new "
            "cases is unknown. `scalecal predict` and `scalecal audit` on cases that were not used "
            "to fit it, then `scalecal export --audit RUN`, add the numbers."
        )
    facts, rows = audited.facts, audited.rows
    name, seeds = escaped(str(facts["dataset"])), int(facts["n_seeds"])
    notes = facts["audits"].get(audited.method, {}).get("notes", [])
    if audited.kind == "audit":
        verdict = facts["verdict"]
        headline = escaped(f"{verdict['word']}. {verdict['headline']}")
        opening = (
            f"**{headline}**\n\nPredictions in {name}, audited by `scalecal audit`. The numbers hold for "
            "new cases only if none of these was used to fit the model."
        )
        words = sentences(facts)[1:]
    else:
        words = []
        over = "one seed"
        if seeds > 1:
            over = f"the mean over {seeds} seeds"
        opening = (
            f"Held-out test cases of {name} in `scalecal {escaped(audited.kind)}`, {over}: probes fitted "
            f"by the same method ({escaped(audited.method)}) to other cases, not these very weights."
        )
    tested = chosen(lambda metric: metric.tested and metric.key != "ece")
    columns = shown_columns(rows, ["n", "ece", "floor", "null", *tested])
    titles = ["stratum"]
    explained = []
    for column in columns:
        titles.append(column.title)
        if column.key in ("ece", "floor", "null"):
            explained.append(f"{column.title}: {column.meaning}")
    lines = [opening, "", f"| {' | '.join(titles)} |", "|" + " --- |" * len(titles)]
    for row in rows:
        values = [escaped(str(row["stratum"]))]
        for column in columns:
            values.append(cell(column.key, row.get(column.key)))
        lines.append(f"| {' | '.join(values)} |")
    legend = "; ".join(explained) + "."
    if facts["agreement"] and len(rows) > 1:
        legend += " Strata are how far the readers agreed on a case."
    lines += ["", legend]
    for text in [*words, *(f"Note: {note}" for note in notes)]:
        lines += ["", escaped(text)]
    return "\n".join(lines)


def _limits(probe: Probe, outputs: Sequence[str]) -> str:
    lines = [
        f"- For embeddings of one encoder{_encoder(probe)}, preprocessed as in training. Other embeddings "
        "of the same width give meaningless numbers.",
        "- Calibrated for cases like those it was fitted to: another scanner, laboratory, prevalence or "
        "definition of the label requires another audit.",
        "- Not a medical device. The model does not say whether its probabilities may guide decisions.",
    ]
    if "p_reader" in outputs:
        lines.append(
            "- `p_reader` and `p_split` are about readers like those of the training data, and assume that "
            "they vote alike given the case (a beta-binomial law)."
        )
    return "\n".join(lines)


def _provenance(probe: Probe) -> str:
    from scalecal import __version__

    about = probe.about_
    lines = [
        f"- written by scalecal {__version__}; probe fitted by scalecal "
        f"{escaped(str(about.get('version') or __version__))}",
        f"- checked in onnxruntime against the probe, with logits from {-CHECK_LOGITS:g} to "
        f"{CHECK_LOGITS:g} and beyond: no probability differs by more than {TOLERANCE:.6f}",
    ]
    if about.get("data_sha256"):
        # Inside a code span nothing is escaped: letters, digits and a few signs only.
        digest = re.sub(r"[^\w.:-]", "", str(about["data_sha256"]))
        lines.append(f"- SHA-256 of the training data: `{digest}`")
    return "\n".join(lines)


_CITATION = """\
The scalecal developers: scalecal, calibration of probes on frozen embeddings, by case difficulty. \
Software. Please cite it and, if `ScaleProbe` was used, Liu and Hassanpour (2026), SCALE: \
Synthetic Calibration via Agreement Labeling in Embedding Space."""


# The header ---------------------------------------------------------------------------------------


def _header(name: str, audited: Audited | None, license: str) -> dict[str, Any]:
    header: dict[str, Any] = {
        "license": one_line(license),
        "library_name": "onnx",
        "pipeline_tag": "tabular-classification",
        "tags": ["onnx", "calibration", "uncertainty", "linear-probe", "scalecal"],
    }
    if audited is None:
        return header
    overall = audited.rows[0]
    results = []
    for key in dict.fromkeys([*HUB_TYPES, *chosen(lambda metric: metric.tested)]):
        if overall.get(key) is not None:
            kind = HUB_TYPES.get(key, key)
            # Four decimals: Python writes more than that as 1e-05, which YAML takes for text.
            value = round(float(overall[key]), 4)
            results.append({"type": kind, "name": COLUMNS[key].title, "value": value})
    header["metrics"] = [result["type"] for result in results]
    header["model-index"] = [
        {
            "name": one_line(name),
            "results": [
                {
                    "task": {
                        "type": "tabular-classification",
                        "name": "classification of embeddings",
                    },
                    "dataset": {
                        "type": "custom",
                        "name": one_line(str(audited.facts["dataset"])),
                        "args": {
                            "cases": int(overall["n"]),
                            "seeds": int(audited.facts["n_seeds"]),
                        },
                    },
                    "metrics": results,
                }
            ],
        }
    ]
    return header


# Text of others -----------------------------------------------------------------------------------


def one_line(text: str) -> str:
    """Text on one line, without characters that cannot be printed."""
    return " ".join("".join(filter(str.isprintable, word)) for word in text.split())


def escaped(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line: no mark-up, link, image, HTML or formula.

    Examples
    --------
    >>> print(escaped("a|b <img src=x> [c](d) *e*"))
    a\|b \<img src=x\> \[c\](d) \*e\*
    """
    return re.sub(r"([\\`*_{}\[\]<>#|~&!$])", r"\\\1", one_line(text)).replace("://", ":\\/\\/")
