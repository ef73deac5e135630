"""The image data sets by name, and how to open one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from scalecal.checks import InputError, lookup
from scalecal.datasets.image_sets import Dataset, ImageSet
from scalecal.datasets.own_images import FOLDER, TABLE
from scalecal.datasets.published import AMI_BR, ATNORM_MD, BREAKHIS, MHIST, PCAM

DATASETS: Mapping[str, Dataset] = MappingProxyType(
    {record.name: record for record in (MHIST, ATNORM_MD, AMI_BR, PCAM, BREAKHIS, TABLE, FOLDER)}
)


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
