"""Make the small files in `examples/` that the README and its test use.

Simulated readers, so that nothing in them belongs to anybody:
- `predictions.csv`: 600 predictions of an over-confident model, with seven readers' votes;
- `votes.csv`: the same votes one per row (id, rater, label);
- `features.npz`: embeddings of 900 cases with labels, votes and patients.

And `figures/`: 24 of the thumbnails of AtNorM-MD that the package ships (MIT licence; see README.md there).
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from scalecal.datasets import load_atnorm_md, simulate


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    tested = simulate(600, auc=0.92, unexplained=0.15, n_groups=150, seed=1)
    truth = tested.label_probability
    sharp = 1 / (1 + ((1 - truth) / truth) ** 1.8)
    ids = [f"case-{i:03d}" for i in range(600)]
    pd.DataFrame(
        {
            "id": ids,
            "p": np.round(sharp, 4),
            "label": tested.y,
            "votes": tested.votes,
            "n_raters": tested.n_raters,
            "group": [f"patient-{g}" for g in tested.groups],
        }
    ).to_csv(target / "predictions.csv", index=False, lineterminator="\n")
    rng = np.random.default_rng(2)
    rows = [
        (case, f"reader-{j}", int(vote))
        for case, v, m in zip(ids, tested.votes, tested.n_raters, strict=True)
        for j, vote in enumerate(rng.permutation(np.arange(m) < v))
    ]
    pd.DataFrame(rows, columns=["id", "rater", "label"]).to_csv(
        target / "votes.csv", index=False, lineterminator="\n"
    )
    data = simulate(900, auc=0.92, unexplained=0.15, dim=48, n_groups=300, seed=3)
    np.savez(
        target / "features.npz",
        X=data.X.astype(np.float32),
        y=data.y,
        votes=data.votes,
        n_raters=data.n_raters,
        group=np.array([f"patient-{g}" for g in data.groups]),
        id=np.array([f"tile-{i:04d}" for i in range(900)]),
    )
    shown = load_atnorm_md()
    assert shown.images is not None
    assert shown.cases.y is not None
    label = dict(zip(shown.cases.names.tolist(), shown.cases.y.tolist(), strict=True))
    files = sorted(Path(shown.images).glob("*.jpg"), key=lambda file: int(file.stem))
    for number, name in enumerate(shown.cases.classes):
        (target / "figures" / name).mkdir(parents=True, exist_ok=True)
        for file in [file for file in files if label[file.stem] == number][:12]:
            shutil.copyfile(file, target / "figures" / name / file.name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path, nargs="?", default=Path("examples"))
    main(parser.parse_args().target)
