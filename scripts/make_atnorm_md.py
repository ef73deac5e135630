"""Make the packaged embeddings and thumbnails of AtNorM-MD.

    python scripts/make_atnorm_md.py atnorm_md_effnetlite0.npz atnorm_md_thumbnails.zip LICENSE

The first input has `X` (1,280 numbers by EfficientNet-Lite0 with ImageNet weights, of the whole image resized
to 224 pixels), `votes` and `id` of all 2,107 figures; the second a JPEG of each, `<number>.jpg`, 64 pixels
wide; the third is the publisher's licence. Thumbnails are kept of the figures that `scalecal demo`
lists, and of the next in each of its lists, in case another machine rounds differently. The same inputs
give the same bytes.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

import numpy as np

PACKAGED = Path(__file__).parents[1] / "src/scalecal/datasets/atnorm_md_data"
MARGIN = 3
"""How many times as many figures as the page lists have a thumbnail."""


def make_embeddings(source: Path, target: Path) -> int:
    """Write embeddings, votes and ids of `source` to `target`, by number; return how many there are."""
    with np.load(source) as arrays:
        X, votes, names = arrays["X"], arrays["votes"], arrays["id"]
        readers = arrays["n_raters"]
    if set(readers.tolist()) != {5}:
        raise SystemExit(f"{source}: every figure must have five readers")
    numbers = np.array([int(Path(name).stem) for name in names.tolist()])
    order = np.argsort(numbers)
    ids = numbers[order].astype(np.str_)
    np.savez_compressed(
        target, X=X[order].astype(np.float16), votes=votes[order].astype(np.int8), id=ids
    )
    return len(ids)


def shown_ids() -> set[str]:
    """Ids that the demo's page lists, and the next in each list."""
    from scalecal.cli.calibrate import recalibrate
    from scalecal.datasets import load_atnorm_md
    from scalecal.evaluation import exhibits

    for name in ("CASES_LISTED", "CONFIDENT_LISTED", "SPLITS_LISTED"):
        setattr(exhibits, name, MARGIN * getattr(exhibits, name))
    facts = recalibrate(load_atnorm_md()).judged.facts
    return {case["id"] for name in ("confident_errors", "cases", "splits") for case in facts[name]}


def make_thumbnails(source: Path, target: Path, ids: set[str]) -> int:
    """Copy the thumbnails of `ids` from the archive to the folder `target`; return their bytes."""
    target.mkdir(exist_ok=True)
    for old in target.glob("*.jpg"):
        old.unlink()
    size = 0
    with zipfile.ZipFile(source) as archive:
        for name in sorted(ids, key=int):
            content = archive.read(f"{name}.jpg")
            (target / f"{name}.jpg").write_bytes(content)
            size += len(content)
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("embeddings", type=Path, help="npz of X, votes, n_raters, id")
    parser.add_argument("thumbnails", type=Path, help="zip of <number>.jpg")
    parser.add_argument("licence", type=Path, help="the publisher's LICENSE")
    options = parser.parse_args()
    PACKAGED.mkdir(exist_ok=True)
    n = make_embeddings(options.embeddings, PACKAGED / "embeddings.npz")
    (PACKAGED / "LICENSE").write_bytes(options.licence.read_bytes())
    ids = shown_ids()
    size = make_thumbnails(options.thumbnails, PACKAGED / "thumbnails", ids)
    print(f"{n} figures and {len(ids)} thumbnails ({size:,} bytes) -> {PACKAGED}")


if __name__ == "__main__":
    main()
