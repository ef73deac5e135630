"""The image data sets by name, and how to open one: the published ones, and a user's own images.

MHIST, AtNorM-MD, AMi-Br, BreakHis and PatchCamelyon lie in a folder each as cloned or downloaded; of the
images nothing is shipped here. What the copy holds is compared with what was published, so that a download
cut short is noticed.

MHIST (Wei et al. 2021): colorectal polyps read by seven pathologists. It is free after a form.

AtNorM-MD and AMi-Br: mitotic figures that several pathologists called normal or atypical, with a column per
pathologist in the table at the top of the folder. Embeddings of AtNorM-MD come with the package:
`scalecal.datasets.load_atnorm_md`. The publisher of AMi-Br states no licence.

BreakHis (Spanhol et al. 2016): breast tumours at four magnifications. The publisher counts 82 patients, one
per slide folder. Slide 14-13412 lies under two subtypes (DC and LC) with the same pictures in both, so 81
groups remain: the group is the year and slide id in the file name, whatever the subtype, and no split can
part the two copies.

PatchCamelyon (Veeling et al. 2018): 327,680 lymph node patches of 96 pixels in HDF5, positive if the centre
of 32 x 32 pixels holds tumour. The files are published compressed (`.h5.gz`) and must be unpacked.

A user's own images lie in folders `DIR/<class>/...` or `DIR/<split>/<class>/...` (images in `DIR` itself have
no labels), or are listed in a table that names paths, labels, votes, groups and splits.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial as bind
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Cases, Factor
from scalecal.checks import InputError, Int, check_choice, lookup, refuse, rows
from scalecal.datasets.image_sets import UNLABELLED, Dataset, Findings, ImageSet, image_ids
from scalecal.datasets.image_sources import (
    ArraySource,
    Block,
    FileSource,
    RemoteSource,
    ZipSource,
    data_folder,
    image_block,
    image_files,
    list_names,
    remote_url,
    zip_members,
)
from scalecal.io.arrays import need_array, open_hdf5, read_hdf5
from scalecal.io.case_tables import CaseReader, without_empty_columns
from scalecal.io.features import choose_classes
from scalecal.io.input_columns import (
    NamedColumns,
    as_ids,
    open_columns,
    read_filled,
    roles_of,
    some,
)
from scalecal.splits import PARTS
from scalecal.votes import Ties

if TYPE_CHECKING:
    import pandas as pd

# ---- a user's own images

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}

_HOLDS = "a folder with one folder of images per class"


def _source(root: Path | str, paths: Sequence[str]) -> FileSource | RemoteSource:
    if isinstance(root, str):
        return RemoteSource(root, tuple(paths))
    return FileSource(root, tuple(paths))


def open_folder(
    where: str | Path, data: str | Path | None = None, *, classes: Sequence[str] | None = None
) -> ImageSet:
    """Open a folder of class folders; images may lie at any depth below their class.

    Where every folder at the top is called train, val (valid, validation) or test, these are the
    splits and the class folders lie below them. Where all images lie in the folder itself they have no
    labels: they can be embedded and predicted, not learned from.

    Parameters
    ----------
    where : path
        The folder, relative to `data` if that is given; also an address such as
        ``s3://bucket/tiles`` (see `scalecal.datasets.image_sources`).
    classes : sequence of str, optional
        Class folders in the order of their labels; sorted by name by default. Others are an error.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("HP/a.png", "SSA/b.png"):
    ...     (root / name).parent.mkdir()
    ...     Image.new("RGB", (4, 4)).save(root / name)
    >>> opened = open_folder(root)
    >>> opened.classes, opened.cases.y.tolist()
    (('HP', 'SSA'), [0, 1])
    """
    given = [part for part in (data, where) if part is not None]
    root: Path | str = remote_url(*given) or data_folder(Path(*given), "folder", _HOLDS)
    paths, others = image_files(root)
    if not paths:
        raise InputError(f"no images (PNG, JPEG, TIFF, BMP) in {root}. folder: needs {_HOLDS}")
    cases = Cases(
        n=len(paths),
        ids=image_ids([normalize("NFC", path) for path in paths]),
        paths=np.array(paths, dtype=object),
    )
    if others:
        cases = cases.note(f"{others} files are not images by their names and were left out")
    folders = [path.split("/")[:-1] for path in paths]
    if not any(folders):
        cases = replace(cases, classes=tuple(classes or ())).note(UNLABELLED)
        return ImageSet(FOLDER, cases, _source(root, paths))
    # Classes may be called train and test; splits have class folders below them.
    tops = {inside[0].lower() for inside in folders if inside}
    by_split = tops <= set(SPLIT_NAMES) and max(map(len, folders)) > 1
    depth = int(by_split)
    loose = [path for path, inside in zip(paths, folders, strict=True) if len(inside) <= depth]
    if loose:
        raise InputError(
            f"{root}: {len(loose)} images lie in no class folder: {some(loose, 5)}. "
            f"folder: needs {_HOLDS}"
        )
    named = [normalize("NFC", inside[depth]) for inside in folders]
    order = sorted(set(named)) if classes is None else list(classes)
    unknown = sorted(set(named) - set(order))
    if unknown:
        raise InputError(
            f"{root}: class folder {some(unknown, 5)} is not among the classes ({', '.join(order)})"
        )
    if len(order) < 2:
        raise InputError(f"{root} has one class folder only ({order[0]}): two or more are needed")
    label = Factor.of(named, tuple(order))
    cases = replace(cases, y=label.codes, classes=label.names)
    if by_split:
        split = Factor.of([SPLIT_NAMES[inside[0].lower()] for inside in folders])
        cases = replace(cases, split=split)
        if "train" not in split.names:
            cases = cases.note(f"no images in the split train (of {', '.join(PARTS)})")
    return ImageSet(FOLDER, cases, _source(root, paths))


def open_table(
    where: str | Path,
    data: str | Path | None = None,
    *,
    classes: Sequence[str] | None = None,
    ties: Ties = "error",
    partial: bool = False,
) -> ImageSet:
    """Open images listed in a CSV, TSV, Parquet, Excel or JSON Lines file.

    Columns: `path` (relative to `data`); `label`, or votes, or both; votes as `votes` for the second
    class with `n_raters`, or as one column `votes_<class>` per class; optionally `id` (else the
    path), `group` and `split` (train, val, test or empty). Other columns are ignored. Images with
    neither labels nor votes are new cases: they can be embedded and predicted, not learned from.

    Class names are sorted, numbers by value, unless `classes` gives their order. Without `label`, the
    label is the majority of the votes.

    Parameters
    ----------
    where : path
        The table.
    data : path, optional
        Folder the paths are relative to; the table's own by default. No path may lead out of it.
        Also an address such as ``s3://bucket/tiles`` (see `scalecal.datasets.image_sources`).
    classes : sequence of str, optional
        Class names in the order of their labels.
    ties : {"error", "drop", "first", "last", "random"}
        Label of a case whose votes are tied, if there is no `label`; "drop" leaves it empty.
    partial : bool
        Leave out rows whose file is missing, with a warning, instead of failing.
    """
    if classes is not None and len(set(classes)) != len(classes):
        raise InputError(f"classes must be named once each, got {', '.join(classes)}")
    file = Path(os.path.expanduser(where))
    table = open_columns(file, None, roles_of("images"))
    root: Path | str = remote_url(data) or data_folder(
        file.parent if data is None else data, "table", "the folder of the images"
    )
    findings = Findings(str(file), partial, "Correct the table or bring the files.")
    with table.messages():
        paths, missing = _present(root, _paths(table, root))
        ids = table.ids()
        if ids is None:
            ids = image_ids([normalize("NFC", path) for path in paths])
        reader = CaseReader(ties=ties)
        cases = reader.read(table, ids, bind(choose_classes, classes=classes))
        split = _split(table, cases.split)
    if missing.any():
        lost = some(np.array(paths, dtype=object)[missing], 5)
        findings.differ(f"{missing.sum()} of {len(paths)} images are not in {root}: {lost}")
        if missing.all():
            raise InputError(f"{file}: none of the images listed is in {root}")
    cases = without_empty_columns(replace(cases, split=split, paths=np.array(paths, dtype=object)))
    notes = reader.notes
    if cases.votes is None and (cases.y is None or (cases.y < 0).all()):
        cases, notes = replace(cases, y=None, classes=tuple(classes or ())), (UNLABELLED,)
    again = len(paths) - len(set(paths))
    if again:
        findings.warnings.append(f"{again} rows name an image that another row names too")
    cases = cases.take(~missing).note(*notes, *findings.warnings)
    assert cases.paths is not None
    return ImageSet(TABLE, cases, _source(root, list(cases.paths)))


def _paths(table: NamedColumns, root: Path | str) -> list[str]:
    """Paths relative to the data folder, with forward slashes; one that leads out of it is refused."""
    table.need("path", "the image files")
    listed = as_ids(table.table.column("path")).to_numpy(object, na_value="")
    refuse(listed == "", "column 'path' is empty")
    # By name alone: a link inside the folder may well point to another disk.
    # Where an address is the root, any folder will do to see whether a path leads out of it.
    base = os.path.abspath("data" if isinstance(root, str) else root)
    inside = []
    for path in listed:
        whole = os.path.normpath(os.path.join(base, path.replace("\\", "/")))
        try:
            inside.append(Path(whole).relative_to(base).as_posix())
        except ValueError:
            raise InputError(
                f"the path {path!r} leads out of the data folder {root}. "
                "Give the folder that holds all images with --data."
            ) from None
    return inside


def _present(root: Path | str, paths: list[str]) -> tuple[list[str], NDArray[np.bool_]]:
    """Find each file, also under the other spelling of accents; True if there is none."""
    listed = frozenset(list_names(root)) if isinstance(root, str) else None
    present, missing = [], np.zeros(len(paths), dtype=bool)
    for i, path in enumerate(paths):
        spellings = [path, normalize("NFC", path), normalize("NFD", path)]
        if listed is None:
            spellings = [name for name in spellings if os.path.isfile(Path(root, name))]
        else:
            spellings = [name for name in spellings if name in listed]
        missing[i] = not spellings
        present.append((spellings or [path])[0])
    return present, missing


def _split(table: NamedColumns, split: Factor | None) -> Factor | None:
    """The column of splits with its names as they are called here."""
    if split is None:
        return None
    unknown = [name for name in split.names if name.lower() not in SPLIT_NAMES]
    if unknown:
        where = split.codes == split.names.index(unknown[0])
        raise InputError(
            f"column {table.names['split']!r} must hold train, val, test or nothing, got "
            f"{unknown[0]!r} at {rows(where)}"
        )
    return Factor.of([SPLIT_NAMES.get(name.lower(), "") for name in split.values.tolist()])


FOLDER = Dataset(
    name="folder",
    form="folder:DIR",
    title="Your own images, one folder per class",
    load=open_folder,
)

TABLE = Dataset(
    name="table",
    form="table:FILE.csv",
    title="Your own images, listed in a table",
    load=open_table,
)


# ---- published data sets


def _findings(about: Dataset, folder: Path, partial: bool) -> Findings:
    return Findings(str(folder), partial, f"Get the whole data set at {about.page}.")


# Data sets in a table of readers' votes


def _find_table(about: Dataset, data: str | Path | None, table: str, images: str) -> Path:
    """Return the table of a data set in its folder, where the folder `images` should be too."""
    holds = f"the folder with {table} and {images}, from {about.page}"
    file = data_folder(data, about.name, holds) / table
    if not file.is_file():
        raise InputError(f"no {table} in {file.parent}. {about.name} needs {holds}")
    return file


def _read_text(file: Path, columns: Sequence[str]) -> dict[str, list[str]]:
    """Read columns as text; all must be there and filled."""
    table = read_filled(file, columns)
    return {name: table[name].astype(str).str.strip().tolist() for name in columns}


def _codes(file: Path, table: Mapping[str, list[str]], column: str, words: Sequence[str]) -> Int:
    """Return the position of each cell of a column among the words that it may hold."""
    positions = {word.lower(): code for code, word in enumerate(words)}
    strange = sorted({cell for cell in table[column] if cell.lower() not in positions})
    if strange:
        raise InputError(
            f"{file}: column {column!r} must hold {', '.join(words[:-1])} or {words[-1]}, got "
            f"{some(strange, 5)}"
        )
    return np.array([positions[cell.lower()] for cell in table[column]], dtype=np.int64)


def _open_voted(
    about: Dataset,
    file: Path,
    findings: Findings,
    *,
    names: Sequence[str],
    paths: Sequence[str],
    present: Sequence[bool],
    classes: tuple[str, str],
    label: Int,
    votes: Int,
    published: Sequence[tuple[str, int, int]],
    size: tuple[int, int],
    n_raters: int,
    groups: Sequence[str] | None = None,
    split: Factor | None = None,
) -> ImageSet:
    """Compare a table of readers' votes with itself, its images and what was published.

    Parameters
    ----------
    names, paths : sequence of str
        File names of the images, whose stems are the ids, and where they lie below the folder of the table.
    present : sequence of bool
        Which images are there; the others are left out of a partial copy.
    label, votes : ndarray of int
        Majority label as the table has it, and how many of the `n_raters` voted for class 1.
    published : sequence of (str, int, int)
        What is counted, the count of this copy and that of the publisher.
    """
    # A name is only ever a plain file name: a path in its place was not written by the publisher.
    odd = [name for name in names if "/" in name or "\\" in name or name in ("", ".", "..")]
    if odd:
        raise InputError(f"{file}: {odd[0]!r} is not a plain file name")
    wrong = label != (2 * votes > n_raters)
    if wrong.any():
        raise InputError(
            f"{file}: the majority contradicts the votes for {some(np.array(names)[wrong], 5)}. "
            "The file was changed; download it again."
        )
    here = np.array(present, dtype=bool)
    if not here.any():
        raise InputError(
            f"{file.parent}: none of the {len(here):,} images is there, such as {paths[0]}. "
            f"Get them at {about.page}"
        )
    if not here.all():
        findings.differ(
            f"{int(here.sum()):,} of {len(here):,} images found; {int((~here).sum()):,} missing, "
            f"such as {some(np.array(paths)[~here], 3)}"
        )
    findings.count("rows of the table", len(here), about.n or 0)
    for what, count, published_count in published:
        findings.count(what, count, published_count)
    cases = Cases(
        n=len(here),
        classes=classes,
        ids=image_ids([Path(name).stem for name in names]),
        y=label,
        votes=np.column_stack([n_raters - votes, votes]),
        groups=None if groups is None else Factor.of(groups),
        split=split,
        paths=np.array(paths, dtype=object),
        notes=tuple(findings.warnings),
    ).take(here)
    assert cases.paths is not None
    source = FileSource(file.parent, tuple(cases.paths))
    return ImageSet(about, cases, source, image_size=size)


MHIST_CLASSES = ("HP", "SSA")
MHIST_READERS = 7
_MHIST_VOTES = "Number of Annotators who Selected SSA (Out of 7)"


def open_mhist(data: str | Path | None = None, *, partial: bool = False) -> ImageSet:
    """Open a copy of MHIST; SSA is class 1.

    Parameters
    ----------
    data : path
        Folder with `annotations.csv` and `images/` or `images.zip`, which is read in place.
    partial : bool
        Take a part of the data set: differences from what was published become warnings, and
        annotations without an image are left out.

    Returns
    -------
    ImageSet
        `votes` of `n_raters` = 7 for SSA, `split` as published (train, test); no groups, because
        patients are not published.

    References
    ----------
    J. Wei et al., "A Petri Dish for Histopathology Image Analysis", AIME 2021.
    """
    file = _find_table(MHIST, data, "annotations.csv", "images/ (or images.zip)")
    folder, archive = file.parent, file.parent / "images.zip"
    columns = ("Image Name", "Majority Vote Label", _MHIST_VOTES, "Partition")
    table = _read_text(file, columns)
    names = table["Image Name"]
    label = _codes(file, table, "Majority Vote Label", MHIST_CLASSES)
    votes = _codes(file, table, _MHIST_VOTES, [str(k) for k in range(MHIST_READERS + 1)])
    parts = _codes(file, table, "Partition", ("train", "test"))
    zipped = not (folder / "images").is_dir()
    if not zipped:
        stored = {path.name: path.name for path in (folder / "images").glob("*.[pP][nN][gG]")}
    elif archive.is_file():
        stored = {Path(member).name: member for member in zip_members(archive)}
    else:
        raise InputError(f"neither images/ nor images.zip in {folder}. Get them at {MHIST.page}")
    findings = _findings(MHIST, folder, partial)
    more = sorted(set(stored) - set(names))
    if more:
        findings.warnings.append(
            f"{len(more)} images are not annotated and left out: {some(more, 5)}"
        )
    published = [
        ("HP images", int((label == 0).sum()), 2162),
        ("SSA images", int((label == 1).sum()), 990),
        ("train images", int((parts == 0).sum()), 2175),
        ("test images", int((parts == 1).sum()), 977),
    ]
    opened = _open_voted(
        MHIST,
        file,
        findings,
        names=names,
        paths=[f"images/{name}" for name in names],
        present=[name in stored for name in names],
        classes=MHIST_CLASSES,
        label=label,
        votes=votes,
        published=published,
        size=(224, 224),
        n_raters=MHIST_READERS,
        split=Factor(parts, ("train", "test")),
    )
    if zipped:
        assert isinstance(opened.source, FileSource)
        members = {f"images/{name}": member for name, member in stored.items()}
        return replace(opened, source=ZipSource(archive, members, opened.source.paths))
    return opened


FIGURE_CLASSES = ("Normal", "Atypical")
ATNORM_MD_COUNTS = (1407, 364, 117, 83, 77, 59)
"""Published figures of AtNorM-MD that 0, 1, ... 5 pathologists called atypical."""
AMI_BR_COUNTS = (2496, 392, 420, 412)
"""Published figures of AMi-Br that 0, 1, 2 and 3 pathologists called atypical."""


def _open_figures(
    about: Dataset,
    file: Path,
    table: Mapping[str, list[str]],
    *,
    names: Sequence[str],
    homes: tuple[str, str],
    experts: Sequence[str],
    majority: str,
    words: tuple[str, str],
    published: Sequence[int],
    partial: bool,
    groups: Sequence[str] | None = None,
) -> ImageSet:
    """Count the votes of `experts`, and find the patch of every row in the folder of its majority label.

    `words` are what a cell of `experts` and `majority` holds for normal and atypical; `published` counts
    the figures that 0, 1, ... readers called atypical.
    """
    votes = np.sum([_codes(file, table, expert, words) for expert in experts], axis=0)
    label = _codes(file, table, majority, words)
    paths = [f"{homes[c]}/{name}" for c, name in zip(label, names, strict=True)]
    counts = []
    for k, count in enumerate(published):
        what = f"figures that {k} of {len(experts)} readers called atypical"
        counts.append((what, int((votes == k).sum()), count))
    return _open_voted(
        about,
        file,
        _findings(about, file.parent, partial),
        names=names,
        paths=paths,
        present=[(file.parent / path).is_file() for path in paths],
        classes=FIGURE_CLASSES,
        label=label,
        votes=votes,
        published=counts,
        size=(128, 128),
        n_raters=len(experts),
        groups=groups,
    )


def open_atnorm_md(data: str | Path | None = None, *, partial: bool = False) -> ImageSet:
    """Open a copy of AtNorM-MD; Atypical is class 1.

    Parameters
    ----------
    data : path
        Folder with `AtNorM-MD_expert_votes.csv` and `AtNorM-MD/`.
    partial : bool
        Take a part of the data set: differences from what was published become warnings, and figures
        without an image are left out.

    Returns
    -------
    ImageSet
        `votes` of `n_raters` = 5 for Atypical; no groups, because the slides are not published, and no
        split.

    References
    ----------
    S. Banerjee et al., "Benchmarking Deep Learning and Vision Foundation Models for Atypical vs. Normal
    Mitosis Classification with Cross-Dataset Evaluation", arXiv 2506.21444, 2025.
    """
    file = _find_table(ATNORM_MD, data, "AtNorM-MD_expert_votes.csv", "AtNorM-MD/")
    experts = [f"Expert_{k}" for k in range(1, 6)]
    table = _read_text(file, ("Filename", *experts, "Majority"))
    return _open_figures(
        ATNORM_MD,
        file,
        table,
        names=table["Filename"],
        homes=("AtNorM-MD/Normal", "AtNorM-MD/Atypical"),
        experts=experts,
        majority="Majority",
        words=FIGURE_CLASSES,
        published=ATNORM_MD_COUNTS,
        partial=partial,
    )


def open_ami_br(data: str | Path | None = None, *, partial: bool = False) -> ImageSet:
    """Open a copy of AMi-Br; Atypical is class 1.

    Parameters
    ----------
    data : path
        Folder with `AMI-BR.csv` and `patches/`.
    partial : bool
        Take a part of the data set: differences from what was published become warnings, and figures
        without an image are left out.

    Returns
    -------
    ImageSet
        `votes` of `n_raters` = 3 for Atypical. `group` is the source with the slide, such as
        `TUPAC16/012.tif`: the two sources number their slides alike. No split is published.

    References
    ----------
    C. A. Bertram et al., "Histologic Dataset of Normal and Atypical Mitotic Figures on Human Breast Cancer
    (AMi-Br)", Bildverarbeitung für die Medizin, 2025.
    """
    file = _find_table(AMI_BR, data, "AMI-BR.csv", "patches/")
    experts = [f"expert{k}_atypical" for k in range(1, 4)]
    table = _read_text(file, ("dataset", "slide", "uid", *experts, "majority_atypical"))
    figures = list(zip(table["dataset"], table["slide"], table["uid"], strict=True))
    return _open_figures(
        AMI_BR,
        file,
        table,
        names=[f"{source}_{uid}.png" for source, _, uid in figures],
        homes=("patches/normal", "patches/atypical"),
        experts=experts,
        majority="majority_atypical",
        words=("False", "True"),
        published=AMI_BR_COUNTS,
        partial=partial,
        groups=[f"{source}/{slide}" for source, slide, _ in figures],
    )


# BreakHis

BREAKHIS_CLASSES = ("benign", "malignant")
SUBTYPES = {
    "A": "adenosis",
    "F": "fibroadenoma",
    "PT": "phyllodes_tumor",
    "TA": "tubular_adenoma",
    "DC": "ductal_carcinoma",
    "LC": "lobular_carcinoma",
    "MC": "mucinous_carcinoma",
    "PC": "papillary_carcinoma",
}
# Published images, benign and malignant, at each magnification.
MAGNIFICATIONS = {40: (625, 1370), 100: (644, 1437), 200: (623, 1390), 400: (588, 1232)}
SLIDES = 82

_BREAKHIS_NAME = (
    rf"^SOB_(?P<kind>[BM])_(?P<subtype>{'|'.join(SUBTYPES)})-(?P<patient>\d{{2}}-[0-9A-Za-z]+)"
    r"-(?P<magnification>40|100|200|400)-\d+$"
)


def parse_names(stems: Sequence[str]) -> pd.DataFrame:
    """Read file names of BreakHis; the row of another name is empty.

    Examples
    --------
    >>> parse_names(["SOB_M_DC-14-22549AB-40-001"]).to_numpy().tolist()
    [['M', 'DC', '14-22549AB', '40']]
    """
    import pandas as pd

    return pd.Series(stems, dtype=object).str.extract(_BREAKHIS_NAME)


def open_breakhis(
    data: str | Path | None = None,
    *,
    magnification: int | str = "all",
    partial: bool = False,
) -> ImageSet:
    """Open a copy of BreakHis; malignant is class 1.

    Parameters
    ----------
    data : path
        `BreaKHis_v1` or the folder that holds it.
    magnification : {"all", 40, 100, 200, 400}
        Which images to take.
    partial : bool
        Take a part of the data set: differences from what was published become warnings.

    Returns
    -------
    ImageSet
        `group` is the patient; `subtype`, `magnification` are further columns. There is no split: none is
        published, and experiments draw one per seed.

    References
    ----------
    F. A. Spanhol et al., "A Dataset for Breast Cancer Histopathological Image Classification", IEEE
    Transactions on Biomedical Engineering 63, 2016.
    """
    wanted = str(magnification).lower().removesuffix("x")
    check_choice(wanted, [*map(str, MAGNIFICATIONS), "all"], "magnification")
    holds = f"the folder BreaKHis_v1 (with histology_slides/breast/ in it), from {BREAKHIS.page}"
    folder = data_folder(data, "breakhis", holds)
    # One archive tool makes a folder of the archive's name around the archive's own.
    roots = (folder, folder / "BreaKHis_v1", folder / "BreaKHis_v1" / "BreaKHis_v1")
    root = next((root for root in roots if (root / "histology_slides/breast").is_dir()), None)
    if root is None:
        raise InputError(f"no histology_slides/breast in {folder}. breakhis needs {holds}")
    findings = _findings(BREAKHIS, root, partial)
    inside, _ = image_files(root / "histology_slides" / "breast")
    files = np.array([f"histology_slides/breast/{path}" for path in inside], dtype=object)
    named = parse_names([Path(path).stem for path in files])
    unknown = named["kind"].isna().to_numpy()
    if unknown.any():
        findings.differ(
            f"{int(unknown.sum())} file names are not of BreakHis: {some(files[unknown], 5)}"
        )
    taken = ~unknown
    if wanted != "all":
        taken = (named["magnification"] == wanted).to_numpy()
    paths, named = files[taken], named[taken]
    if not len(paths):
        raise InputError(f"no BreakHis images in {root}. breakhis needs {holds}")
    label = (named["kind"] == "M").to_numpy().astype(np.int64)
    scales = named["magnification"].to_numpy(np.int64)
    for scale, counts in MAGNIFICATIONS.items():
        if wanted in ("all", str(scale)):
            for c, published in enumerate(counts):
                images = int(((scales == scale) & (label == c)).sum())
                findings.count(f"{BREAKHIS_CLASSES[c]} images at {scale}X", images, published)
    slides = named[["subtype", "patient"]].drop_duplicates()
    if wanted == "all":
        findings.count("slides", len(slides), SLIDES)
    shared = sorted(set(slides["patient"][slides["patient"].duplicated()]))
    if shared:
        findings.warnings.append(
            f"slide {some(shared, 5)} lies under more than one subtype; all its images are one group"
        )
    cases = Cases(
        n=len(paths),
        classes=BREAKHIS_CLASSES,
        ids=image_ids([Path(path).stem for path in paths]),
        y=label,
        groups=Factor.of(named["patient"].tolist()),
        paths=paths,
        notes=tuple(findings.warnings),
    )
    magnifications, images_at = np.unique(scales, return_counts=True)
    return ImageSet(
        BREAKHIS,
        cases,
        FileSource(root, tuple(paths)),
        {"subtype": named["subtype"].map(SUBTYPES).to_numpy(object), "magnification": scales},
        facts={
            "slides": len(slides),
            "magnifications": {
                f"{scale}X": int(n) for scale, n in zip(magnifications, images_at, strict=True)
            },
        },
    )


# PatchCamelyon

PCAM_SHAPE = (96, 96, 3)
# Name in the files -> name here, published number of patches.
PCAM_PARTS = {"train": ("train", 262_144), "valid": ("val", 32_768), "test": ("test", 32_768)}
_PCAM_FILE = "camelyonpatch_level_2_split_"


def open_pcam(data: str | Path | None = None, *, partial: bool = False) -> ImageSet:
    """Open a copy of PatchCamelyon; tumour is class 1.

    Parameters
    ----------
    data : path
        Folder with the HDF5 files, unpacked, and the `_meta.csv` files if there are any.
    partial : bool
        Take what is there: other counts than the published ones, or splits that are missing, become
        warnings.

    Returns
    -------
    ImageSet
        Of kind `array`; `group` is the slide (`wsi`) where the meta file is there.

    References
    ----------
    B. S. Veeling et al., "Rotation Equivariant CNNs for Digital Pathology", MICCAI 2018.
    """
    holds = (
        f"the folder with {_PCAM_FILE}{{train,valid,test}}_{{x,y}}.h5, from {PCAM.page}, unpacked "
        "(gunzip *.h5.gz)"
    )
    folder = data_folder(data, "pcam", holds)
    findings = _findings(PCAM, folder, partial)
    blocks: list[Block] = []
    labels: list[Int] = []
    ids: list[str] = []
    slides: list[str] = []
    splits: list[str] = []
    for part, (split, published) in PCAM_PARTS.items():
        x, y = (folder / f"{_PCAM_FILE}{part}_{key}.h5" for key in "xy")
        missing = [file.name for file in (x, y) if not file.is_file()]
        if missing:
            findings.differ(
                f"{' and '.join(missing)} missing, so there is no {part} split; published files must "
                "be unpacked (gunzip *.h5.gz)"
            )
            continue
        block, label = _open_part(x, y)
        findings.count(f"{part} patches", block.n, published)
        blocks.append(block)
        labels.append(label)
        ids += [f"{part}_{row:06d}" for row in range(block.n)]
        slides += _slides(folder / f"{_PCAM_FILE}{part}_meta.csv", part, label, findings)
        splits += [split] * block.n
    if not blocks:
        raise InputError(f"no PatchCamelyon files in {folder}. pcam needs {holds}")
    sizes = [block.n for block in blocks]
    cases = Cases(
        n=sum(sizes),
        classes=("normal", "tumour"),
        ids=image_ids(ids),
        y=np.concatenate(labels),
        groups=Factor.of(slides),
        split=Factor.of(splits),
        notes=tuple(findings.warnings),
    )
    extra: dict[str, NDArray[Any]] = {
        "block": np.repeat([block.path.name for block in blocks], sizes),
        "row": np.concatenate([np.arange(n) for n in sizes]),
    }
    return ImageSet(
        PCAM,
        cases,
        ArraySource(tuple(blocks), np.arange(cases.n)),
        extra,
        facts={"label": "tumour in the centre of 32 x 32 pixels"},
    )


def _open_part(x: Path, y: Path) -> tuple[Block, Int]:
    """Check the arrays of one split and read its labels."""
    block = image_block(x, "x")
    if block.shape != PCAM_SHAPE:
        raise InputError(f"{x}: patches must be {PCAM_SHAPE}, got {block.shape}")
    with open_hdf5(y) as file:
        raw = read_hdf5(need_array(file, "y", y), y)
    if raw.size != block.n:
        raise InputError(f"{y}: {raw.size} labels for the {block.n} patches of {x.name}")
    if not np.isin(raw, (0, 1)).all():
        raise InputError(f"{y}: labels must be 0 or 1, got {np.setdiff1d(raw, (0, 1))[0]}")
    return block, raw.reshape(-1).astype(np.int64)


def _slides(file: Path, part: str, label: Int, findings: Findings) -> list[str]:
    """Slide of every patch, from the meta file; "" without one."""
    if not file.is_file():
        findings.warnings.append(
            f"no {file.name}: the slides of {part} patches are unknown, so intervals that resample "
            "patches are too narrow"
        )
        return [""] * len(label)
    table = _read_text(file, ("wsi", "center_tumor_patch"))
    tumour = _codes(file, table, "center_tumor_patch", ("False", "True"))
    if len(tumour) != len(label):
        raise InputError(f"{file}: {len(tumour)} rows for {len(label)} patches")
    contradicted = int((tumour != label).sum())
    if contradicted:
        findings.warnings.append(
            f"{file.name} contradicts {contradicted:,} labels: is it of another split?"
        )
    return table["wsi"]


MHIST = Dataset(
    name="mhist",
    form="mhist",
    title="MHIST, colorectal polyps, seven readers",
    load=open_mhist,
    licence="Dataset Research Use Agreement",
    terms="Ask for it by the publisher's form; research only; do not pass it on.",
    page="https://bmirds.github.io/MHIST/",
    credit="Wei et al., A Petri Dish for Histopathology Image Analysis, AIME 2021",
    n=3152,
    paper=True,
)

ATNORM_MD = Dataset(
    name="atnorm-md",
    form="atnorm-md",
    title="AtNorM-MD, mitotic figures, five readers",
    load=open_atnorm_md,
    licence="MIT",
    terms="Free; keep the copyright notice and cite.",
    page="https://github.com/DeepMicroscopy/AMi-Br_Benchmark",
    credit="Banerjee et al., arXiv 2506.21444, 2025; cut from MIDOG++, Aubreville et al., 2023",
    n=sum(ATNORM_MD_COUNTS),
)

AMI_BR = Dataset(
    name="ami-br",
    form="ami-br",
    title="AMi-Br, mitotic figures of breast cancer, three readers",
    load=open_ami_br,
    licence="none stated",
    terms="Ask the publisher before passing it on.",
    page="https://github.com/DeepMicroscopy/AMi-Br",
    credit="Bertram et al., Histologic Dataset of Normal and Atypical Mitotic Figures (AMi-Br), 2025",
    n=sum(AMI_BR_COUNTS),
)

BREAKHIS = Dataset(
    name="breakhis",
    form="breakhis",
    title="BreakHis, breast tumours at 40, 100, 200 and 400 times",
    load=open_breakhis,
    licence="CC BY 4.0",
    terms="Free with credit.",
    page="https://web.inf.ufpr.br/vri/databases/breast-cancer-histopathological-database-breakhis/",
    credit="Spanhol et al., A Dataset for Breast Cancer Histopathological Image Classification, "
    "IEEE Transactions on Biomedical Engineering 63, 2016",
    n=7909,
    paper=True,
)

PCAM = Dataset(
    name="pcam",
    form="pcam",
    title="PatchCamelyon, lymph node metastases",
    load=open_pcam,
    licence="CC0 1.0",
    terms="Free for any use.",
    page="https://github.com/basveeling/pcam",
    credit="Veeling et al., Rotation Equivariant CNNs for Digital Pathology, MICCAI 2018; "
    "Bejnordi et al., JAMA 2017 (CAMELYON16)",
    n=327_680,
    paper=True,
)


# ---- all of them

DATASETS: dict[str, Dataset] = {
    record.name: record for record in (MHIST, ATNORM_MD, AMI_BR, PCAM, BREAKHIS, TABLE, FOLDER)
}
"""Data sets by name."""


def open_dataset(
    spec: str,
    data: str | Path | None = None,
    *,
    group_regex: str | None = None,
    **options: Any,
) -> ImageSet:
    """Open and check an image data set.

    Parameters
    ----------
    spec : str
        `mhist`, `atnorm-md`, `ami-br`, `pcam`, `breakhis`, `table:FILE.csv` or `folder:DIR`.
    data : path, optional
        Folder of the data.
    group_regex : str, optional
        Take groups from the ids by this regular expression (`scalecal.cases.Cases.grouped_by`).
    **options
        Options of that data set: see its `load` in `DATASETS`, such as `partial` or `magnification`.

    Examples
    --------
    >>> open_dataset("cifar")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: unknown data set 'cifar'. Known: mhist, atnorm-md, ami-br, pcam, ...
    """
    name, colon, where = spec.partition(":")
    record = lookup(name, DATASETS, "data set")
    takes_where = ":" in record.form
    if takes_where and not where:
        raise InputError(f"{name} needs to know where: write {record.form}")
    if colon and not takes_where:
        raise InputError(f"{name} takes no {where!r}: write {record.form} and give --data DIR")
    known = inspect.getfullargspec(record.load).kwonlyargs
    for option in options:
        if option not in known:
            raise InputError(f"{name} has no option {option!r}. It has: {', '.join(known)}")
    opened = record.load(where, data, **options) if takes_where else record.load(data, **options)
    if group_regex is not None:
        # Without its note: notes on images are warnings, and `describe` counts the groups.
        cases = opened.cases.grouped_by(group_regex)
        opened = replace(opened, cases=replace(cases, notes=opened.cases.notes))
    return opened
