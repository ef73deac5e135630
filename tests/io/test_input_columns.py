"""One record per input column, and `--columns` as a user writes it."""

from __future__ import annotations

import dataclasses

import pytest

from scalecal import cases
from scalecal.checks import InputError
from scalecal.evaluation.stream import stream_file
from scalecal.io import read_predictions
from scalecal.io.input_columns import INPUT_COLUMNS, InputColumn, parse_columns, plays


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ([], {}),
        (["label=diagnosis,group=patient"], {"label": "diagnosis", "group": "patient"}),
        (["label=diagnosis", "group=patient id"], {"label": "diagnosis", "group": "patient id"}),
        (['p="score, final",label="a=b"'], {"p": "score, final", "label": "a=b"}),
        (['"p=score, final",label=y'], {"p": "score, final", "label": "y"}),
        (["label=a=b"], {"label": "a=b"}),
        ([r'group="the \"old\" one"'], {"group": 'the "old" one'}),
        ([" label = y , p = s "], {"label": "y", "p": "s"}),
    ],
)
def test_columns_by_role(texts, named):
    assert parse_columns(texts) == named


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["lable=y"], "unknown column role 'lable'. Known: id, p, p_reader, .*, X$"),
        (["path=file"], "unknown column role 'path'"),
        (["label=a,label=b"], "two columns as label: 'a' and 'b'"),
        (["label=a", "p=s,label=a"], "two columns as label: 'a' and 'a'"),
        (["label"], "must be role=name, .* got 'label'"),
        (["label="], "must be role=name"),
        ([""], "must be role=name"),
        (['label="a'], "must be role=name"),
    ],
)
def test_what_names_no_column_is_refused(texts, says):
    with pytest.raises(InputError, match=says):
        parse_columns(texts)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"p": "label"}, "'label' cannot be both p and label"),
        ({"votes": "n_raters"}, "'n_raters' cannot be both votes and n_raters"),
        ({"n_raters": "votes"}, "'votes' cannot be both votes and n_raters"),
    ],
)
def test_a_column_plays_no_two_roles_that_exclude_each_other(columns, says, tmp_path):
    file = tmp_path / "p.csv"
    file.write_text("id,p,label,votes,n_raters\na,0.2,0,1,3\nb,0.9,1,3,3\n")
    with pytest.raises(InputError, match=says):
        read_predictions(file, columns=columns)
    # One answer may stand for both, and each case for its own group.
    both = read_predictions(file, columns={"p_reader": "p", "group": "id"})
    assert both.only.p_reader.tolist() == both.only.p.tolist()


def test_every_record_is_complete():
    records = [record for record in vars(cases).values() if dataclasses.is_dataclass(record)]
    known = {field.name for record in records for field in dataclasses.fields(record)}
    for role, column in INPUT_COLUMNS.items():
        assert column.role == role
        assert column.holds
        assert column.used_by
        assert not column.field or column.field in known
        # A stream reads a column of predictions or says that it does not.
        if "predictions" in column.used_by:
            assert ("stream" in column.used_by) != bool(column.not_streamed), role
        for other in INPUT_COLUMNS.values():
            assert other is column or not set(column.aliases) & {other.role, *other.aliases}, role
    assert [role for role in INPUT_COLUMNS if plays("p", "p", role)] == ["p"]


def test_a_column_added_from_outside_is_read_and_named(tmp_path, monkeypatch):
    site = InputColumn(
        role="site",
        holds="the hospital",
        used_by=("predictions",),
        aliases=("hospital",),
        field="split",
        not_streamed="The sites are not used.",
    )
    monkeypatch.setitem(INPUT_COLUMNS, "site", site)
    assert parse_columns(["site=hospital"]) == {"site": "hospital"}
    file = tmp_path / "p.csv"
    file.write_text("id,p,label,hospital\na,0.2,0,north\nb,0.9,1,south\n" + "c,0.3,1,east\n")
    read = read_predictions(file, columns={"site": "hospital"})
    assert read.cases.split.values.tolist() == ["north", "south", "east"]
    assert "The sites are not used." in stream_file(file, columns={"site": "hospital"}).notes
    with pytest.raises(InputError, match=r"Known: .*site"):
        read_predictions(file, columns={"sites": "hospital"})
