"""The columns that an input file may have, one record each, and the names that a user gives them.

`INPUT_COLUMNS` is the only list of them: readers, messages, `--columns` and the reference pages ask it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from scalecal.checks import MOST_RHO, Float, InputError, check_probs, lookup, rows

User = Literal["predictions", "stream", "votes", "features", "images"]
Kind = Literal["id", "names", "numbers", "lists"]


@dataclass(frozen=True, kw_only=True)
class InputColumn:
    """One column of the files that scalecal reads.

    Attributes
    ----------
    role
        What it is called in `columns=`, in `--columns` and, by default, in a file.
    holds
        Its content, in a few words.
    used_by
        The readers that use it: predictions (and, of these, a stream), votes, features, lists of images.
    kind
        How it is read: ids and names are text, each distinct name is held once.
    name
        Its name in a file, if that is not the role.
    aliases
        Names under which other files hold it: suggested in messages, never used unasked.
    per_class
        Whether several columns `<name>_<class>` may stand in its place.
    field
        The field of the record of cases or answers that takes it as it is; "" if a reader combines it
        with other columns.
    limit
        The limit on its number of distinct names (`scalecal.limits`).
    check
        Returns its numbers, or fails naming the column.
    not_streamed
        The note on a stream, which leaves it out.
    """

    role: str
    holds: str
    used_by: tuple[User, ...]
    kind: Kind = "names"
    name: str = ""
    aliases: tuple[str, ...] = ()
    per_class: bool = False
    field: str = ""
    limit: str = ""
    check: Callable[[Float, str], Float] | None = None
    not_streamed: str = ""

    @property
    def usual_name(self) -> str:
        """The name it has in a file unless another is given."""
        return self.name or self.role


def _check_rho(values: Float, name: str) -> Float:
    outside = ~((values >= 0.0) & (values <= MOST_RHO))
    if outside.any():
        raise InputError(
            f"{name} must lie in [0, {MOST_RHO}], got {values[outside][0]:g} at {rows(outside)}"
        )
    return values


INPUT_COLUMNS: dict[str, InputColumn] = {
    column.role: column
    for column in (
        InputColumn(
            role="id",
            holds="the name of the case, by which files are joined",
            used_by=("predictions", "votes", "features", "images"),
            kind="id",
            aliases=("case", "case_id", "image_id", "image", "file", "filename", "name"),
            not_streamed="The ids in the file are not used: a case that is there twice counts twice.",
        ),
        InputColumn(
            role="p",
            holds="the predicted probability of the positive class, or of each class",
            used_by=("predictions", "stream"),
            kind="numbers",
            aliases=(
                "prob",
                "probability",
                "proba",
                "score",
                "y_prob",
                "y_score",
                "y_pred",
                "prediction",
            ),
            per_class=True,
            check=check_probs,
        ),
        InputColumn(
            role="p_reader",
            holds="the predicted probability that one reader votes for the class",
            used_by=("predictions", "stream"),
            kind="numbers",
            per_class=True,
            check=check_probs,
        ),
        InputColumn(
            role="rho",
            holds="the correlation of two readers' votes on a case, one number for all cases",
            used_by=("predictions", "stream"),
            kind="numbers",
            check=_check_rho,
        ),
        InputColumn(
            role="label",
            holds="the class; in a file of votes, the class that a reader chose",
            used_by=("predictions", "stream", "votes", "features", "images"),
            aliases=("y", "target", "class", "y_true", "truth", "ground_truth", "diagnosis"),
            limit="classes",
        ),
        InputColumn(
            role="votes",
            holds="the number of readers who chose the positive class, or each class",
            used_by=("predictions", "stream", "votes", "features", "images"),
            kind="numbers",
            aliases=("positive_votes", "votes_positive", "n_positive", "n_votes"),
            per_class=True,
        ),
        InputColumn(
            role="n_raters",
            holds="the number of readers who voted, or who are behind the label",
            used_by=("predictions", "stream", "votes", "features", "images"),
            kind="numbers",
            aliases=("n_readers", "readers", "raters", "n_annotators", "panel_size"),
        ),
        InputColumn(
            role="rater",
            holds="the reader, in a file of votes with one row per vote",
            used_by=("votes",),
            aliases=("reader", "annotator", "observer", "grader", "pathologist", "radiologist"),
            limit="readers",
        ),
        InputColumn(
            role="stratum",
            holds="the difficulty stratum",
            used_by=("predictions", "stream"),
            aliases=("strata", "difficulty"),
            field="strata",
        ),
        InputColumn(
            role="p_split",
            holds="the predicted difficulty: the probability that the readers split",
            used_by=("predictions",),
            kind="numbers",
            field="p_split",
            check=check_probs,
            not_streamed="The column p_split is not used: in a stream a case is as hard as the model's own "
            "probability says.",
        ),
        InputColumn(
            role="group",
            holds="the patient, slide, ... that several cases may share",
            used_by=("predictions", "features", "images"),
            aliases=("patient", "patient_id", "subject", "subject_id", "slide", "slide_id"),
            field="groups",
            not_streamed="The groups in the file are not used: a stream takes cases as independent, and so "
            "claims too much where several come from one patient. Audit without streaming to respect groups.",
        ),
        InputColumn(
            role="split",
            holds="train, val or test",
            used_by=("predictions", "features", "images"),
            aliases=("fold", "partition", "subset", "set"),
            field="split",
            not_streamed="The split in the file is not used: cases marked train, if any, are audited too.",
        ),
        InputColumn(
            role="X",
            holds="the embeddings: `f0, f1, ...`, in Parquet also one column of lists",
            used_by=("features",),
            kind="lists",
            name="f",
            aliases=("embedding", "embeddings", "features", "feature"),
        ),
        InputColumn(
            role="path",
            holds="the image file",
            used_by=("images",),
            kind="id",
        ),
    )
}


def roles_of(user: User) -> tuple[str, ...]:
    """Return the roles of the columns that a reader uses.

    Examples
    --------
    >>> roles_of("votes")
    ('id', 'label', 'votes', 'n_raters', 'rater')
    """
    return tuple(role for role, column in INPUT_COLUMNS.items() if user in column.used_by)


def fields_of(kind: Kind) -> list[InputColumn]:
    """Return the columns of a kind that are fields of a record as they are, such as groups.

    Those of names are fields of `Cases`.
    """
    return [column for column in INPUT_COLUMNS.values() if column.field and column.kind == kind]


def usual_names() -> dict[str, str]:
    """Return the name of every role's column where the user gives no other."""
    return {role: column.usual_name for role, column in INPUT_COLUMNS.items()}


def plays(role: str, name: str, column: str) -> bool:
    """Whether a column is that of a role called `name`, or one of several in its place.

    Examples
    --------
    >>> plays("p", "p", "p_SSA"), plays("p", "p", "p_reader"), plays("X", "f", "f12")
    (True, False, True)
    """
    if column == name:
        return True
    if role == "X":
        return column.startswith(name) and column[len(name) :].isdigit()
    if not INPUT_COLUMNS[role].per_class or not column.startswith(f"{name}_"):
        return False
    # A reader's probability is not that of a class called "reader"; `p_votes_<k>`, as `scalecal predict`
    # writes them, are of a panel's votes.
    whole = role + column.removeprefix(name)
    for other in (*INPUT_COLUMNS, "p_votes"):
        if other.startswith(f"{role}_") and f"{whole}_".startswith(f"{other}_"):
            return False
    return len(whole) > len(role) + 1


def as_option(role: str, column: str) -> str:
    """How a column is named as a role's, on the command line and in Python.

    Examples
    --------
    >>> as_option("group", "patient id")
    "--columns group='patient id' (in Python columns={'group': 'patient id'})"
    """
    return f"{column_option(role, column)} (in Python columns={{{role!r}: {column!r}}})"


def column_option(role: str, column: str) -> str:
    """How a column is named as a role's in a shell, as `parse_columns` reads it.

    Examples
    --------
    >>> print(column_option("group", "patient id"), column_option("p", "a, b"))
    --columns group='patient id' --columns p='"a, b"'
    """
    name = column
    if any(sign in name for sign in ',="'):
        name = '"' + name.replace('"', '""') + '"'
    return f"--columns {role}={shlex.quote(name)}"


def could_be(role: str, header: Iterable[str]) -> str | None:
    """Return the column that goes by another common name of a role, or by its plural; None without one.

    Examples
    --------
    >>> could_be("group", ["id", "Patient"]), could_be("label", ["labels"]), could_be("p", ["id"])
    ('Patient', 'labels', None)
    """
    lower = {column.lower(): column for column in header}
    for name in (*INPUT_COLUMNS[role].aliases, f"{role}s"):
        if name in lower:
            return lower[name]
    return None


_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_ITEM = re.compile(rf'\s*(?:{_QUOTED.pattern}|([^,="]*)=(?:{_QUOTED.pattern}|([^,="]*)))\s*(?:,|$)')
"""`"role=name"`, `role="name"` or `role=name`, up to a comma or the end."""


def named_roles() -> list[str]:
    """Return the roles whose columns can be named: lists of images have fixed names."""
    return [role for role, column in INPUT_COLUMNS.items() if column.used_by != ("images",)]


def parse_columns(texts: Sequence[str]) -> dict[str, str]:
    """Return the columns that `--columns` names, as `columns=` takes them: role -> name.

    Parameters
    ----------
    texts
        The option's values, each `role=name` or several of these with commas between them. A name that
        has a comma, an equals sign or a quotation mark is written in quotation marks, those inside it
        twice, as in CSV.

    Examples
    --------
    >>> parse_columns(["label=diagnosis,group=patient", 'p="score, final"'])
    {'label': 'diagnosis', 'group': 'patient', 'p': 'score, final'}
    >>> parse_columns(["label=a", "label=b"])
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: --columns names two columns as label: 'a' and 'b'. Give one
    """
    known = named_roles()
    named: dict[str, str] = {}
    for text in texts:
        for role, name in _items(text):
            lookup(role, dict.fromkeys(known), "column role")
            if role in named:
                raise InputError(
                    f"--columns names two columns as {role}: {named[role]!r} and {name!r}. Give one"
                )
            named[role] = name
    return named


def _items(text: str) -> list[tuple[str, str]]:
    """Split one value of `--columns` into roles and names."""
    items: list[tuple[str, str]] = []
    place = 0
    while not items or place < len(text):
        item = _ITEM.match(text, place)
        role, name = "", ""
        if item is not None:
            whole, role, quoted, plain = item.groups(default="")
            name = quoted.replace('""', '"') or plain.strip()
            if whole:
                role, _, name = whole.replace('""', '"').partition("=")
            place = item.end()
        if not role.strip() or not name:
            raise InputError(
                f"--columns must be role=name, as in label=diagnosis,group=patient, got {text!r}. Put a "
                "name that has a comma or = into double quotes, and all in single ones: "
                "'label=\"a, b\"'"
            )
        items.append((role.strip(), name))
    return items
