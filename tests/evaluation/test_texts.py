"""Tables keep to the width of a terminal and lose nothing, whatever there is to show."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalecal import audit
from scalecal.cases import Factor
from scalecal.evaluation.evaluations import evaluate
from scalecal.evaluation.texts import lay_out, short_names, shown_table
from scalecal.evaluation.words import softening_remark
from scalecal.probes.methods import METHODS
from tests.evaluation.made import cell, sharp

SITES = [f"University Hospital of a Rather Long Name, building {i}" for i in range(3)]


@pytest.mark.parametrize("strata", ["agreement", "sites", "none"])
def test_the_table_of_every_method_fits_a_hundred_columns(strata):
    names = [*METHODS, "resnet-of-a-very-long-name-a", "resnet-of-a-very-long-name-b"]
    methods = {name: sharp(1.0 + 0.05 * i) for i, name in enumerate(names)}
    made = cell(methods, n=200, n_seeds=1, panel=strata == "agreement")
    if strata == "sites":
        made = replace(
            made, cases=replace(made.cases, strata=Factor.of(np.array(SITES)[np.arange(200) % 3]))
        )
    comparison = evaluate(made, n_resamples=50)
    text, facts = str(comparison), comparison.facts
    assert len(facts["methods"]) >= 28
    table = text.partition(comparison.sentences[0])[0]
    assert max(map(len, table.splitlines())) <= 100
    judged = "vote NLL" if strata == "agreement" else "label NLL"
    for title in ("ECE (floor)", "AUC", f"{judged} change [95 %]"):
        assert title in text
    body = text.split("-\n")[1].split("\n\n")[0].splitlines()
    assert len(body) == len(facts["methods"])
    shown = shown_table(facts)
    for i, (method, line) in enumerate(zip(facts["methods"], body, strict=True)):
        assert line.startswith(method[:11])
        assert (" * " in line) == bool(softening_remark(facts, method))
        for value in line.split("  ")[1:]:
            assert value.strip() in {"", *(column[i] for column in shown.values())}
    left = text.partition("Also in comparison.csv: ")[2]
    for title in list(shown)[1:]:
        short = title.removesuffix(" [95 %]").removesuffix(" (floor)")
        assert short in " ".join(left.split()) or short.split()[0] in text


CELLS = st.text("abc019.-", min_size=1, max_size=9)


@given(
    st.integers(1, 12).flatmap(
        lambda k: st.lists(st.lists(CELLS, min_size=k, max_size=k), min_size=2, max_size=5)
    ),
    st.integers(30, 100),
)
def test_tables_fit_and_lose_nothing(lines, width):
    text = lay_out(lines, width=width)
    assert all(len(line) <= width for line in text.splitlines())
    blocks = [block.splitlines() for block in text.split("\n\n")]
    columns: list[list[str]] = []
    for block in blocks:
        start = next(i for i, line in enumerate(block) if set(line) == {"-"} and i) + 1
        rows = [line.split() for line in block[start:]]
        columns += [list(c) for c in zip(*rows, strict=True)][bool(columns) :]
    assert columns == [list(c) for c in zip(*lines[1:], strict=True)]


def test_titles_take_one_line_where_there_is_room():
    lines = [["stratum", "vote NLL floor"], ["low", "0.1"]]
    assert lay_out(lines).splitlines()[0] == "stratum  vote NLL floor"
    assert lay_out(lines, width=16).splitlines()[:3] == [
        "          vote",
        "           NLL",
        "stratum  floor",
    ]


@given(st.lists(st.text("ab ", min_size=1, max_size=60), max_size=6))
def test_short_names_tell_as_many_apart(names):
    short = short_names(names)
    assert len(set(short)) == len(set(names))
    assert all(a == b for a, b in zip(short, names, strict=True) if len(b) <= 22)


def test_an_audit_of_long_strata_keeps_to_a_hundred_columns():
    rng = np.random.default_rng(0)
    chance = rng.beta(0.6, 0.8, size=3000)
    votes = rng.binomial(7, chance)
    y = (votes >= 4).astype(int)
    sites = [f"University Hospital of a Rather Long Name, building {i}" for i in range(3)]
    for strata in (None, np.array(sites)[rng.integers(0, 3, 3000)]):
        result = audit(y, chance, votes=votes, n_raters=7, strata=strata, n_resamples=20)
        tables = str(result).partition(result.sentences[0])[0]
        assert max(map(len, tables.splitlines())) <= 100
        for title in ("p(Cox)", "over-conf.", "acc.", "p(votes)"):
            assert title in tables
