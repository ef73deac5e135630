"""Fitted probes for use elsewhere: one ONNX graph with both answers, and a model card."""

from __future__ import annotations

from pathlib import Path

from scalecal.checks import InputError
from scalecal.export.model_card import model_card, read_audited
from scalecal.export.probe_graph import check_model, onnx_model, predicted_panel
from scalecal.io.store import check_output_folder, output_folder, write_bytes, write_text
from scalecal.probes import load_probe
from scalecal.probes.estimators import ABOUT, WEIGHTS

__all__ = ["CARD", "FORMATS", "MODEL", "check_model", "export_probe", "model_card", "onnx_model"]

MODEL, CARD = "model.onnx", "README.md"
FORMATS = ("onnx",)
"""What probes can be exported to."""


def export_probe(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    panel_size: int | None = None,
    audit: str | Path | None = None,
    license: str = "unknown",
) -> list[Path]:
    """Write a fitted probe as `model.onnx`, and its model card as `README.md`, both or neither.

    Parameters
    ----------
    folder
        What ``scalecal fit`` or `LinearProbe.save` wrote.
    out
        Where to write; None: to `folder` itself.
    panel_size
        Readers of the panel whose label and split are predicted; None: the panel that was fitted.
    audit
        Folder of a run of ``scalecal audit``, on predictions of this probe, or of ``scalecal compare``,
        with its method: the card shows its numbers.
    license
        Licence of the model, by its identifier on the Hugging Face Hub.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    InputError
        Where the model's probabilities in onnxruntime differ from the probe's by more than 1e-6: nothing
        is written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from scalecal import LinearProbe
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     LinearProbe().fit(X, X[:, 0] > 0).save(folder)
    ...     [path.name for path in export_probe(folder)]
    ['model.onnx', 'README.md']
    """
    target = Path(folder if out is None else out)
    inputs = [Path(folder, WEIGHTS), Path(folder, ABOUT), audit]
    check_output_folder(target, kind="export", names=(MODEL, CARD), inputs=inputs)
    if not license.strip():
        raise InputError("license must be an identifier such as apache-2.0, got an empty text")
    probe = load_probe(folder)
    audited = None if audit is None else read_audited(audit, probe)
    model = onnx_model(probe, panel_size=panel_size)
    content = model.SerializeToString()
    # Before the folder is opened for writing, so that a model that fails leaves nothing behind.
    check_model(content, probe, panel_size=panel_size)
    card = model_card(
        probe,
        [output.name for output in model.graph.output],
        name=str(probe.about_.get("label") or Path(folder).resolve().name),
        panel_size=predicted_panel(probe, panel_size),
        audited=audited,
        license=license,
    )
    with output_folder(target, kind="export", inputs=inputs) as partial:
        write_bytes(partial / MODEL, content)
        write_text(partial / CARD, card)
    return [target / MODEL, target / CARD]
