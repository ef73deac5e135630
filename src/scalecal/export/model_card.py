"""The model card beside an exported model: Markdown with the header that the Hugging Face Hub reads.

It shows facts that are there (the probe's own record, and those of an audit or comparison), computes
nothing, and says where something is not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalecal.auditing.sentences import cell, shown_columns
from scalecal.checks import InputError
from scalecal.export.probe_graph import CHECK_LOGITS, OUTPUTS, TOLERANCE, Probe
from scalecal.metrics import COLUMNS
from scalecal.runs.folder import read_runs

MEASURES: dict[str, str] = {
    "accuracy": "accuracy",
    "auc": "roc_auc",
    "brier": "brier_score",
    "nll": "log_loss",
    "ece": "expected_calibration_error",
    "floor": "expected_calibration_error_floor",
    "vote_nll": "vote_log_loss",
}
"""Quantities of the header's results, and the type the Hub's results have for each."""

TABLE = ("n", "ece", "floor", "null", "brier", "nll", "vote_nll", "auc", "accuracy")
"""Columns of the card's table, by stratum."""


@dataclass(frozen=True)
class Audited:
    """What a run says of a probe's predictions.

    Attributes
    ----------
    kind
        The command of the run: "audit", "compare", ...
    dataset
        Name of the cases.
    method
        Whose numbers these are, as the run names it.
    seeds
        Number of seeds that `rows` are means of.
    seed
        The seed that `sentences` are about.
    by_agreement
        Whether the strata are how far the readers agreed.
    rows
        One row per stratum, "overall" first.
    sentences, notes
        The audit in words.
    """

    kind: str
    dataset: str
    method: str
    seeds: int
    seed: int
    by_agreement: bool
    rows: Sequence[Mapping[str, Any]]
    sentences: Sequence[str]
    notes: Sequence[str]


def read_audited(folder: str | Path, probe: Probe) -> Audited:
    """Take from a run folder what it says of this probe's predictions or of its method.

    Raises
    ------
    InputError
        Where the run is of several models, of another encoder, or lacks the probe's method.
    """
    run = read_runs([folder])[0]
    if len(run.facts) > 1:
        names = ", ".join(str(facts["name"]) for facts in run.facts)
        raise InputError(f"{folder} holds several models ({names}): name the folder of one of them")
    facts, kind = run.facts[0], str(run.info.get("kind") or "audit")
    if kind == "audit":
        method = str(facts["baseline"])
    else:
        method = str(probe.about_.get("method") or "")
        if method not in facts["methods"]:
            known = ", ".join(facts["methods"])
            raise InputError(
                f"{folder} does not have the probe's method {method!r}: it compares {known}"
            )
        own, other = probe.about_.get("encoder"), facts["encoder"]
        if own is not None and other not in (None, "", own):
            raise InputError(f"{folder} is of encoder {other}, but the probe is of {own}")
    rows = [row for row in facts["rows"] if row["method"] == method]
    audit = facts["audits"].get(method) or {}
    return Audited(
        kind=kind,
        dataset=str(facts["dataset"]),
        method=method,
        seeds=int(facts["n_seeds"]),
        seed=int(facts["seed"]),
        by_agreement=bool(facts["agreement"]) and len(rows) > 1,
        rows=rows,
        sentences=[str(text) for text in audit.get("sentences") or ()],
        notes=[str(text) for text in audit.get("notes") or ()],
    )


def model_card(
    probe: Probe,
    outputs: Sequence[str],
    *,
    name: str,
    panel_size: int | None,
    audited: Audited | None,
    license: str,
) -> str:
    """Return the card: a YAML header, and sections that a person reads.

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
    header = yaml_text(_header(name, audited, license))
    return f"---\n{header}---\n\n# {escaped(name)}\n\n{body}\n"


# Sections -----------------------------------------------------------------------------------------


def _predicts(probe: Probe, outputs: Sequence[str], size: int | None) -> str:
    classes = [escaped(str(c)) for c in probe.classes_.tolist()]
    two = len(classes) == 2
    of = (
        f"of class {classes[1]} (against {classes[0]}), shape `(n,)`"
        if two
        else f"of each class, shape `(n, {len(classes)})`; the columns are {', '.join(classes)}"
    )
    label = "the label" if size is None else f"the label, what most of {size} readers say"
    lines = [
        f"Calibrated probabilities from embeddings, `float32 (n, {probe.n_features_in_})`"
        f"{_encoder(probe)}:",
        "",
        f"- `p`: probability of {label}, {of};",
    ]
    if "p_reader" in outputs:
        lines.append(f"- `p_reader`: {OUTPUTS['p_reader']}, same shape;")
    if "p_split" in outputs:
        lines.append(f"- `p_split`: {OUTPUTS['p_split']} among {size} readers, shape `(n,)`;")
    lines[-1] = lines[-1][:-1] + "."
    if "p_reader" in outputs:
        lines += [
            "",
            "The majority of a panel is surer than one of its readers, so the first two are different "
            "answers: labels judge `p`, single readers' votes judge `p_reader`.",
        ]
    else:
        lines += ["", "Nothing is known of how far readers agree, so there is no reader's answer."]
    return "\n".join(lines)


def _encoder(probe: Probe) -> str:
    encoder = probe.about_.get("encoder")
    return f" of the encoder {escaped(str(encoder))}" if encoder else ""


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
    about, panel = probe.about_, probe.panel_
    counts = about.get("counts") or {}
    lines = []
    if about.get("dataset"):
        lines.append(f"- data: {escaped(str(about['dataset']))}")
    if counts:
        made = f", {counts['synthetic']:,} synthetic" if counts.get("synthetic") else ""
        lines.append(
            f"- cases: {counts['train']:,} for training{made}, {counts['validation']:,} for validation"
        )
    if about.get("method"):
        lines.append(f"- method: {escaped(str(about['method']))} of scalecal, seed {about['seed']}")
    lines.append(f"- probe: {type(probe).__name__}, {probe.n_iter_} epochs")
    if probe.class_weight is not None:
        after = "" if probe.calibrator_ is None else ", undone by the calibrator"
        lines.append(f"- class weights in training: {escaped(str(probe.class_weight))}{after}")
    if probe.capped_:
        lines.append("- the limit of epochs ended the training, not early stopping")
    calibrator = probe.calibrator_
    lines.append(f"- calibrator: {'none' if calibrator is None else calibrator.name}")
    if panel is not None:
        lines.append(f"- {escaped(panel.sentence())}")
    return "\n".join(lines)


def _audit(audited: Audited | None) -> str:
    if audited is None:
        return (
            "Not audited: no run was named when the model was exported, so nothing is known here of its "
            "calibration on new cases. `scalecal predict` and `scalecal audit` on cases that were not used "
            "to fit it, then `scalecal export --audit RUN`, add the numbers."
        )
    name = escaped(audited.dataset)
    if audited.kind == "audit":
        first = (
            f"Predictions in {name}, audited by `scalecal audit`. The numbers speak of new cases only if "
            "none of these was used to fit the model."
        )
    else:
        seeds = "one seed" if audited.seeds == 1 else f"the mean over {audited.seeds} seeds"
        first = (
            f"Held-out test cases of {name} in `scalecal {escaped(audited.kind)}`, {seeds}: probes fitted "
            f"by the same method ({escaped(audited.method)}) to other cases, not these very weights."
        )
    columns = shown_columns(audited.rows, TABLE)
    lines = [
        first,
        "",
        "| stratum | " + " | ".join(column.title for column in columns) + " |",
        "|" + " --- |" * (len(columns) + 1),
    ]
    for row in audited.rows:
        values = [cell(column.key, row.get(column.key)) for column in columns]
        lines.append("| " + " | ".join([escaped(str(row["stratum"])), *values]) + " |")
    explained = [column for column in columns if column.key in ("ece", "floor", "null")]
    lines += ["", "; ".join(f"{column.title}: {column.meaning}" for column in explained) + "."]
    if audited.by_agreement:
        lines[-1] += " Strata are how far the readers agreed on a case."
    if audited.sentences and audited.seeds > 1:
        lines += ["", f"In words, of seed {audited.seed} alone:"]
    lines += [f"\n{escaped(text)}" for text in audited.sentences]
    lines += [f"\nNote: {escaped(text)}" for text in audited.notes]
    return "\n".join(lines)


def _limits(probe: Probe, outputs: Sequence[str]) -> str:
    lines = [
        f"- For embeddings of one encoder{_encoder(probe)}, preprocessed as in training. Others of the same "
        "width give numbers too, which mean nothing.",
        "- Calibrated for cases like those it was fitted to: another scanner, laboratory, prevalence or "
        "definition of the label calls for another audit.",
        "- No medical device. Whether a probability may decide anything is not for this model to say.",
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
        lines.append(f"- SHA-256 of the training data: `{_code(about['data_sha256'])}`")
    return "\n".join(lines)


_CITATION = """\
The scalecal developers: scalecal, calibration of probes on frozen embeddings, case difficulty by case \
difficulty. Software. Please cite it, and where `ScaleProbe` was used, Liu and Hassanpour (2026), SCALE: \
Synthetic Calibration via Agreement Labeling in Embedding Space."""


# The header ---------------------------------------------------------------------------------------


def _header(name: str, audited: Audited | None, license: str) -> dict[str, Any]:
    header: dict[str, Any] = {
        "license": license,
        "library_name": "onnx",
        "pipeline_tag": "tabular-classification",
        "tags": ["onnx", "calibration", "uncertainty", "linear-probe", "scalecal"],
    }
    if audited is None:
        return header
    overall = next(row for row in audited.rows if row["stratum"] == "overall")
    known = {key: overall[key] for key in MEASURES if overall.get(key) is not None}
    results = [
        {"type": MEASURES[key], "name": COLUMNS[key].title, "value": float(value)}
        for key, value in known.items()
    ]
    header["metrics"] = [MEASURES[key] for key in known]
    task = {"type": "tabular-classification", "name": "classification of embeddings"}
    header["model-index"] = [
        {
            "name": name,
            "results": [
                {
                    "task": task,
                    "dataset": {
                        "type": "custom",
                        "name": audited.dataset,
                        "args": {"cases": int(overall["n"]), "seeds": audited.seeds},
                    },
                    "metrics": results,
                }
            ],
        }
    ]
    return header


def yaml_text(value: Mapping[str, Any]) -> str:
    """Write nested mappings and lists as YAML in block style: text quoted, numbers to six decimals.

    Examples
    --------
    >>> print(yaml_text({"tags": ["a: b", "no"], "n": 3, "of": [{"x": 0.5, "y": {}}]}), end="")
    tags:
      - "a: b"
      - "no"
    n: 3
    of:
      - x: 0.500000
        y: {}
    """
    return "".join(f"{line}\n" for line in _yaml_lines(value))


def _yaml_lines(value: Any) -> list[str]:
    lines: list[str] = []
    items = value.items() if isinstance(value, Mapping) else ((None, item) for item in value)
    for key, item in items:
        lead = "-" if key is None else f"{key}:"
        nested = isinstance(item, Mapping | list) and len(item) > 0
        if not nested:
            lines.append(f"{lead} {_yaml_scalar(item)}")
        elif key is None:
            first, *rest = _yaml_lines(item)
            lines += [f"- {first}", *(f"  {line}" for line in rest)]
        else:
            lines += [lead, *(f"  {line}" for line in _yaml_lines(item))]
    return lines


def _yaml_scalar(value: Any) -> str:
    if isinstance(value, str):
        return '"' + "".join(map(_yaml_sign, value)) + '"'
    if isinstance(value, Mapping | list):
        return "{}" if isinstance(value, Mapping) else "[]"
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _yaml_sign(sign: str) -> str:
    if sign in '"\\':
        return "\\" + sign
    return sign if sign.isprintable() else f"\\U{ord(sign):08x}"


# Text of others in Markdown -----------------------------------------------------------------------


def escaped(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line: no mark-up, link, image, HTML or formula.

    Examples
    --------
    >>> print(escaped("a|b <img src=x> [c](d) *e*"))
    a\|b \<img src=x\> \[c\](d) \*e\*
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return re.sub(r"([\\`*_{}\[\]<>#|~&!$])", r"\\\1", line).replace("://", ":\\/\\/")


def _code(text: object) -> str:
    """Text inside a code span: letters, digits and a few signs only."""
    return re.sub(r"[^\w.:-]", "", str(text))
