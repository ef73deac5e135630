"""Tiny copies of the data sets in their published layouts, with made-up pictures.

Written from the publishers' descriptions, not from the loaders, so that a loader that misreads a
layout cannot agree with its own mistake.
"""

from __future__ import annotations

import csv
import gzip
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

MHIST_HEADER = [
    "Image Name",
    "Majority Vote Label",
    "Number of Annotators who Selected SSA (Out of 7)",
    "Partition",
]


def picture(seed: int, width: int = 224, height: int = 224) -> np.ndarray:
    """A smooth coloured picture that differs from seed to seed; compresses well as PNG."""
    rng = np.random.default_rng(seed)
    across = np.linspace(0, 1, width)[None, :, None]
    down = np.linspace(0, 1, height)[:, None, None]
    corner = rng.uniform(0, 255, (3, 3))
    mixed = corner[0] + (corner[1] - corner[0]) * across + (corner[2] - corner[0]) * down
    return np.clip(mixed, 0, 255).astype(np.uint8)


def save_picture(path: Path, seed: int, width: int = 224, height: int = 224) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(seed, width, height)).save(path)
    return path


def make_mhist(root: Path, n: int = 16, *, zipped: bool = False, seed: int = 0) -> Path:
    """`annotations.csv`, `images/MHIST_aaa.png` ... (or `images.zip`)."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = [f"MHIST_a{letters[i // 26]}{letters[i % 26]}.png" for i in range(n)]
    for i, name in enumerate(names):
        save_picture(root / "images" / name, 1000 * seed + i)
    (root / "images").mkdir(parents=True, exist_ok=True)
    with (root / "annotations.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(MHIST_HEADER)
        for i, name in enumerate(names):
            votes = i % 8
            partition = "train" if i < 2 * n // 3 else "test"
            writer.writerow([name, "SSA" if votes >= 4 else "HP", votes, partition])
    if zipped:
        with zipfile.ZipFile(root / "images.zip", "w") as archive:
            for name in names:
                archive.write(root / "images" / name, f"images/{name}")
        shutil.rmtree(root / "images")
    return root


def pcam_images(part: str, n: int) -> np.ndarray:
    seed = {"train": 1, "valid": 2, "test": 3}[part]
    return np.random.default_rng(seed).integers(0, 256, (n, 96, 96, 3), dtype=np.uint8)


def make_pcam(
    root: Path,
    sizes: dict[str, int] | None = None,
    *,
    gz: bool = False,
    meta: bool = True,
    chunk: int | None = None,
) -> Path:
    """`camelyonpatch_level_2_split_{train,valid,test}_{x,y}.h5[.gz]` and `..._meta.csv`."""
    import h5py

    root.mkdir(parents=True, exist_ok=True)
    for part, n in (sizes or {"train": 12, "valid": 5, "test": 6}).items():
        stem = f"camelyonpatch_level_2_split_{part}"
        y = (np.arange(n) % 3 == 0).astype(np.uint8).reshape(n, 1, 1, 1)
        chunks = None if chunk is None else (chunk, 96, 96, 3)
        with h5py.File(root / f"{stem}_x.h5", "w") as file:
            file.create_dataset("x", data=pcam_images(part, n), chunks=chunks)
        with h5py.File(root / f"{stem}_y.h5", "w") as file:
            file.create_dataset("y", data=y)
        if meta:
            with (root / f"{stem}_meta.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                header = ["coord_y", "coord_x", "tumor_patch", "center_tumor_patch", "wsi"]
                writer.writerow(["", *header])
                for i in range(n):
                    tumour = bool(y[i, 0, 0, 0])
                    writer.writerow(
                        [i, 96 * i, 0, tumour, tumour, f"camelyon16_{part}_{i // 4:03d}"]
                    )
        if gz:
            for key in "xy":
                plain = root / f"{stem}_{key}.h5"
                (root / f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes(), 1))
                plain.unlink()
    return root


BREAKHIS_TYPES = {
    "A": ("benign", "adenosis"),
    "F": ("benign", "fibroadenoma"),
    "PT": ("benign", "phyllodes_tumor"),
    "TA": ("benign", "tubular_adenoma"),
    "DC": ("malignant", "ductal_carcinoma"),
    "LC": ("malignant", "lobular_carcinoma"),
    "MC": ("malignant", "mucinous_carcinoma"),
    "PC": ("malignant", "papillary_carcinoma"),
}
BREAKHIS_SLIDES = (
    ("A", "14", "22549AB"),
    ("F", "14", "14134E"),
    ("TA", "14", "3411F"),
    ("PT", "14", "22704"),
    ("DC", "14", "13412"),
    ("LC", "14", "13412"),
    ("DC", "14", "20629"),
    ("MC", "14", "16456"),
    ("PC", "15", "190EF"),
)


def make_breakhis(
    root: Path,
    *,
    slides: Sequence[tuple[str, str, str]] = BREAKHIS_SLIDES,
    magnifications: Sequence[int] = (40, 400),
    each: int = 2,
    size: tuple[int, int] = (70, 46),
) -> Path:
    """`BreaKHis_v1/histology_slides/breast/...` below `root`; pictures a tenth of the real size."""
    seed = 0
    for kind, year, slide in slides:
        label, name = BREAKHIS_TYPES[kind]
        letter = "B" if label == "benign" else "M"
        top = root / "BreaKHis_v1" / "histology_slides" / "breast" / label / "SOB" / name
        for m in magnifications:
            for i in range(1, each + 1):
                file = f"SOB_{letter}_{kind}-{year}-{slide}-{m}-{i:03d}.png"
                save_picture(
                    top / f"SOB_{letter}_{kind}_{year}-{slide}" / f"{m}X" / file, seed, *size
                )
                seed += 1
    return root


def make_folder(root: Path, files: Sequence[str], size: tuple[int, int] = (16, 12)) -> Path:
    """Images at these relative paths, in the format their suffix says."""
    for seed, name in enumerate(files):
        save_picture(root / name, seed, *size)
    return root


def make_atnorm_md(root: Path, votes: Sequence[int] = (0, 1, 2, 3, 4, 5)) -> Path:
    """`AtNorM-MD_expert_votes.csv` and `AtNorM-MD/{Atypical,Normal}/<n>.png`, numbered from 1."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "AtNorM-MD_expert_votes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Filename", *(f"Expert_{k}" for k in range(1, 6)), "Majority"])
        for i, k in enumerate(votes, start=1):
            label = "Atypical" if k >= 3 else "Normal"
            writer.writerow([f"{i}.png", *["Atypical"] * k, *["Normal"] * (5 - k), label])
            save_picture(root / "AtNorM-MD" / label / f"{i}.png", i, 128, 128)
    return root


def make_ami_br(root: Path, votes: Sequence[int] = (0, 1, 2, 3)) -> Path:
    """`AMI-BR.csv` and `patches/{atypical,normal}/<dataset>_<uid>.png`; two figures per slide."""
    root.mkdir(parents=True, exist_ok=True)
    experts = [f"expert{k}_{what}" for what in ("label", "atypical") for k in (1, 2, 3)]
    experts.remove("expert3_label")
    with (root / "AMI-BR.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["slide", "dataset", "uid", "x", "y", *experts, "majority_atypical"])
        for i, k in enumerate(votes):
            source = ("TUPAC16", "MIDOG21")[i % 2]
            calls = [j < k for j in range(3)]
            where = [f"{i // 4:03d}.tiff", source, 100 + i // 2, 10 * i, 7]
            writer.writerow([*where, "metaphase", "anaphase", *calls, k >= 2])
            home = root / "patches" / ("atypical" if k >= 2 else "normal")
            save_picture(home / f"{source}_{100 + i // 2}.png", i, 128, 128)
    return root
