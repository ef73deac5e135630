"""Which classes there are, in which order, when several columns and files name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scalecal.checks import InputError, Int, rows

__all__ = ["code_labels", "resolve_classes"]


def resolve_classes(
    named: Mapping[str, Sequence[str]],
    *,
    columns: Sequence[str] | None = None,
    positive: str | None = None,
) -> tuple[str, ...]:
    """Return the classes in the order of the probabilities; of two classes the second is positive.

    Parameters
    ----------
    named
        The classes that each source (labels, votes) speaks of.
    columns
        All classes in order, of columns `p_<class>` for instance; None where one column holds the
        probability of the positive class.
    positive
        Name of the positive class. It may be left out where the classes are 0 and 1, or where the
        probability columns name them.

    Examples
    --------
    >>> resolve_classes({"label": ["HP", "SSA"]}, positive="SSA")
    ('HP', 'SSA')
    >>> resolve_classes({"label": ["0", "1"]})
    ('0', '1')
    """
    if columns is not None:
        return _of_columns(named, columns, positive)
    seen = list(dict.fromkeys(name for names in named.values() for name in names))
    if positive is None:
        # Numbers must be 0 and 1; `code_labels` names the row of one that is neither.
        if all(name.lstrip("-").replace(".", "", 1).isdigit() for name in seen):
            return ("0", "1")
        if len(seen) > 2:
            raise InputError(_too_many(named, seen))
        raise InputError(
            f"the classes are {_listed(seen)}: say which of them p is the probability of, "
            "with positive=NAME (on the command line --positive NAME)"
        )
    others = [name for name in seen if name != positive]
    if len(seen) > 1 and positive not in seen:
        raise InputError(f"positive class {positive!r} is not among the classes {_listed(seen)}")
    if len(others) > 1:
        raise InputError(_too_many(named, seen))
    rest = others[0] if others else {"0": "1", "1": "0"}.get(positive, f"not {positive}")
    return (rest, positive)


def _of_columns(
    named: Mapping[str, Sequence[str]], columns: Sequence[str], positive: str | None
) -> tuple[str, ...]:
    classes = list(columns)
    for source, names in named.items():
        odd = [name for name in names if name not in classes]
        if odd:
            raise InputError(
                f"{source} has {_listed(odd)}, but the classes are {_listed(classes)}: "
                "use the same names everywhere"
            )
    if positive is not None:
        if positive not in classes:
            raise InputError(
                f"positive class {positive!r} is not among the classes {_listed(classes)}"
            )
        if len(classes) > 2:
            raise InputError(
                f"a positive class needs two classes, there are {len(classes)}: {_listed(classes)}"
            )
        classes.sort(key=lambda name: name == positive)
    return tuple(classes)


def code_labels(codes: Int, names: Sequence[str], classes: Sequence[str], column: str) -> Int:
    """Turn codes into `names` into codes into `classes`; -1 (missing) stays."""
    place = np.array(
        [classes.index(name) if name in classes else -2 for name in names] + [-1], dtype=np.int64
    )
    labels = place[codes]
    odd = labels == -2
    if odd.any():
        first = names[int(codes[odd][0])]
        raise InputError(
            f"column {column!r} must hold {_listed(classes)}, got {first!r} at {rows(odd)}. "
            "Name the positive class, or give a column p_<class> for each class, if these are others"
        )
    return labels


def _too_many(named: Mapping[str, Sequence[str]], seen: Sequence[str]) -> str:
    sources = " and ".join(source for source, names in named.items() if names)
    return (
        f"{sources} name {len(seen)} classes ({_listed(seen)}), but one column p has room for "
        "two: give a column p_<class> for each class"
    )


def _listed(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(map(repr, names[:most])) + (", ..." if len(names) > most else "")
