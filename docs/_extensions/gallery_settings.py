"""Settings of the gallery: the order of its examples, its style, and how their figures are found."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

GALLERY = (
    "plot_predictions_only",
    "plot_votes",
    "plot_few_cases",
    "plot_several_classes",
    "plot_grouped_by_patient",
    "plot_how_many_votes",
    "plot_decision_curve",
    "plot_ci_gate",
    "plot_shift",
    "plot_sites",
    "plot_own_encoder",
    "plot_paper_claims",
)
"""The examples in the order of the gallery; others follow by name."""


class Order:
    """Sort key of sphinx-gallery."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, file: str) -> tuple[int, str]:
        """Return the place of a file among the examples."""
        stem = Path(file).stem
        return (GALLERY.index(stem) if stem in GALLERY else len(GALLERY), stem)


_STYLE = ExitStack()


def house_style(_conf: dict[str, Any], _file: str) -> None:
    """Draw every example in the style of the package's own figures."""
    import matplotlib as mpl
    from cycler import cycler

    from scalecal.report.plots import COLOURS, style

    mpl.rcdefaults()
    _STYLE.close()
    _STYLE.enter_context(style())
    mpl.rcParams["axes.prop_cycle"] = cycler(color=COLOURS)


def figures(
    block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]
) -> str:
    """Save the figures of a block: pyplot's, and the one that its last line returns."""
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure
    from sphinx_gallery.scrapers import figure_rst

    shown = [plt.figure(number) for number in plt.get_fignums()]
    last = block_vars["example_globals"].get("___")
    if isinstance(last, Figure) and last not in shown:
        shown.append(last)
    paths = []
    for figure, path in zip(
        shown, block_vars["image_path_iterator"], strict=False
    ):
        figure.savefig(path, dpi=160, bbox_inches="tight", facecolor="white")
        paths.append(Path(path))
    plt.close("all")
    return str(figure_rst([str(path) for path in paths], gallery_conf["src_dir"]))
