"""The pictures of the primer, drawn while the site is built, from data that come with the package."""

from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from gallery_settings import house_style

INK, QUIET = "#1a1a1a", "#9a9a9a"
ATYPICAL, NORMAL, AFTER = "#D55E00", "#c9cfd4", "#0072B2"


@cache
def mitoses():
    """The mitotic figures, what a logistic regression says of each unseen, and the recalibrated answers."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    from scalecal import calibrate
    from scalecal.datasets import load_atnorm_md

    data = load_atnorm_md()
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    model = LogisticRegression(max_iter=300)
    p = cross_val_predict(
        model, data.X, data.y, cv=folds, method="predict_proba"
    )[:, 1]
    result = calibrate(
        data.y, p, votes=data.votes, n_raters=5, method="platt", n_resamples=50
    )
    return data, p, result


def thumbnail(data, case):
    """The picture of a figure."""
    return plt.imread(Path(data.images, data.cases.paths[case]))


def shown_cases(data):
    """Figures that the package has a picture of."""
    return np.flatnonzero([bool(path) for path in data.cases.paths])


def bare(axis):
    """Take away ticks and frame."""
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)


def dots(axis, filled, n, columns, colour, size=58):
    """Draw n dots in rows, the first of them filled."""
    k = np.arange(n)
    fill = np.where(k < filled, colour, NORMAL)
    axis.scatter(k % columns, -(k // columns), s=size, c=fill, lw=0)
    axis.set(xlim=(-0.8, columns - 0.2), ylim=(-(n // columns) + 0.3, 0.8))
    axis.set_aspect("equal")
    bare(axis)


def promise():
    """A hundred figures: what the model says, and what the panel says."""
    house_style({}, "")
    data, p, result = mitoses()
    confident = np.argsort(p)[-100:]
    says, is_so = p[confident].mean(), int(data.y[confident].sum())
    expected = result.predictions.p[confident].mean()
    _, axes = plt.subplots(1, 3, figsize=(8.6, 3.4), layout="constrained")
    for axis, (count, colour, title) in zip(
        axes,
        (
            (
                round(100 * says),
                ATYPICAL,
                f"The model expects\n{round(100 * says)} atypical",
            ),
            (is_so, INK, f"The pathologists call\n{is_so} atypical"),
            (
                round(100 * expected),
                AFTER,
                f"The recalibrated\nmodel expects {round(100 * expected)} atypical",
            ),
        ),
        strict=True,
    ):
        dots(axis, count, 100, 10, colour)
        axis.set_title(title, loc="center", fontsize=11, color=colour)


def votes():
    """Six figures, from all say normal to all say atypical."""
    house_style({}, "")
    data, _, _ = mitoses()
    here = shown_cases(data)
    _, axes = plt.subplots(1, 6, figsize=(8, 2.1), layout="constrained")
    for count, axis in enumerate(axes):
        case = here[data.votes[here] == count][0]
        axis.imshow(thumbnail(data, case))
        bare(axis)
        for reader in range(5):
            filled = ATYPICAL if reader < count else NORMAL
            axis.plot(
                0.1 + 0.2 * reader,
                -0.13,
                "o",
                ms=9,
                color=filled,
                transform=axis.transAxes,
                clip_on=False,
            )
        label = "atypical" if count >= 3 else "normal"
        axis.set_xlabel(
            f"majority:\n{label}",
            labelpad=22,
            color=ATYPICAL if count >= 3 else INK,
        )


def counts():
    """How many figures the five agree on."""
    house_style({}, "")
    data, _, _ = mitoses()
    n = np.bincount(data.votes, minlength=6)
    _, axis = plt.subplots(figsize=(7.4, 2.6), layout="constrained")
    axis.bar(range(6), n, color=[NORMAL] * 3 + [ATYPICAL] * 3, width=0.7)
    for k, value in enumerate(n):
        axis.text(k, value + 25, f"{value:,}", ha="center")
    axis.set_xticks(
        range(6), ["nobody", "1 of 5", "2 of 5", "3 of 5", "4 of 5", "all"]
    )
    axis.set(xlabel="say atypical", yticks=[])
    axis.spines["left"].set_visible(False)


def difficulty():
    """What the model says and what readers say, for cases it finds easy, middling and hard."""
    house_style({}, "")
    _, _, result = mitoses()
    _, axes = plt.subplots(
        1, 2, figsize=(8.6, 3.1), sharey=True, layout="constrained"
    )
    for axis, (audited, colour, title) in zip(
        axes,
        (
            (result.before, ATYPICAL, "As the model came"),
            (result.after, AFTER, "Recalibrated"),
        ),
        strict=True,
    ):
        rows = audited.difficulty
        for k, row in enumerate(rows):
            said, heard = (
                100 * row["vote_confidence"],
                100 * row["vote_agreement"],
            )
            axis.plot(
                [said, heard],
                [k, k],
                color="0.8",
                lw=5,
                zorder=0,
                solid_capstyle="round",
            )
            axis.plot(said, k, "o", ms=10, color=colour)
            axis.plot(heard, k, "o", ms=15, color=INK, mfc="none", mew=2)
        axis.set_yticks(
            range(len(rows)), [f"{row['name']} cases" for row in rows]
        )
        axis.set(ylim=(2.6, -0.7), xlim=(50, 101), title=title, xlabel="%")
    first = result.before.difficulty[0]
    axes[0].text(
        100 * first["vote_confidence"],
        -0.28,
        "model says",
        color=ATYPICAL,
        ha="right",
    )
    axes[0].text(
        100 * first["vote_agreement"] - 1.5,
        0.42,
        "readers say",
        color=INK,
        ha="center",
    )


def panels():
    """Twenty panels of five, drawn from readers of whom seven in ten would say atypical."""
    house_style({}, "")
    rng = np.random.default_rng(0)
    draws = (rng.binomial(5, 0.7, size=20) for _ in range(1000))
    votes = next(draw for draw in draws if draw.sum() == 70)
    _, axis = plt.subplots(figsize=(8.6, 2.5), layout="constrained")
    for panel, count in enumerate(sorted(votes)[::-1]):
        for reader in range(5):
            axis.plot(
                panel,
                -reader,
                "o",
                ms=9,
                color=ATYPICAL if reader < count else NORMAL,
            )
        wins = count >= 3
        axis.plot(panel, -5.7, "s", ms=11, color=ATYPICAL if wins else NORMAL)
    reader, panel = int(votes.sum()), int((votes >= 3).sum())
    axis.text(-1, -2, f"readers:\n{reader} of 100", ha="right", va="center")
    axis.text(-1, -5.7, f"majorities:\n{panel} of 20", ha="right", va="center")
    axis.set(xlim=(-4.2, 19.6), ylim=(-6.4, 0.7))
    bare(axis)


def luck():
    """Perfect models, audited on few cases and on many."""
    house_style({}, "")
    from scalecal.metrics import ece

    rng = np.random.default_rng(1)
    _, axis = plt.subplots(figsize=(7.6, 2.4), layout="constrained")
    for k, n in enumerate((50, 200, 1000)):
        for _ in range(60):
            p = rng.beta(0.8, 0.8, size=n)
            error = 100 * ece((rng.random(n) < p).astype(int), p)
            axis.plot(
                error,
                k + rng.uniform(-0.18, 0.18),
                "o",
                ms=4.5,
                color=AFTER,
                alpha=0.5,
                mew=0,
            )
    axis.set_yticks(range(3), ["50 cases", "200 cases", "1,000 cases"])
    axis.set(
        ylim=(2.6, -0.6),
        xlim=(0, None),
        xlabel="calibration error that shows, in points; the true one is zero",
    )


def recalibrated():
    """Four figures: the votes, what the model said, what it says recalibrated."""
    house_style({}, "")
    data, p, result = mitoses()
    here, after = shown_cases(data), result.predictions
    rising = here[np.argsort(p[here])]
    wanted = (
        (0, rising[::-1]),
        (2, rising[::-1]),
        (3, rising[::-1]),
        (4, rising),
    )
    chosen = [
        next(c for c in order if data.votes[c] == count)
        for count, order in wanted
    ]
    _, axes = plt.subplots(
        2, 4, figsize=(7.8, 4), height_ratios=(1.25, 1), layout="constrained"
    )
    for case, (top, below) in zip(chosen, axes.T, strict=True):
        top.imshow(thumbnail(data, case))
        bare(top)
        top.set_title(f"{data.votes[case]} of 5 say atypical", loc="center")
        said = [p[case], after.p[case], after.p_reader[case]]
        below.barh(
            range(3),
            [100 * v for v in said],
            color=[ATYPICAL, AFTER, AFTER],
            height=0.62,
        )
        for k, value in enumerate(said):
            below.text(100 * value + 3, k, f"{100 * value:.0f} %", va="center")
        below.set(xlim=(0, 128), xticks=[], ylim=(2.6, -0.6))
        below.spines["bottom"].set_visible(False)
        below.set_yticks([])
    axes[1, 0].set_yticks(
        range(3),
        ["the model said", "majority, recalibrated", "one reader, recalibrated"],
    )
