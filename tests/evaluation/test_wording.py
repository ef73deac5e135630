"""The comparison's table keeps to the width of a terminal, whatever there is to compare."""

from dataclasses import replace

import numpy as np
import pytest
from scalecal.evaluation.texts import shown_table
from scalecal.evaluation.words import softening_remark

from scalecal.cases import Factor
from scalecal.evaluation.evaluations import evaluate
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
    assert max(map(len, text.splitlines())) <= 100
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
            assert value.strip() in {"", *shown.iloc[i]}
    left = text.partition("Also in comparison.csv: ")[2]
    for title in map(str, shown.columns[1:]):
        short = title.removesuffix(" [95 %]").removesuffix(" (floor)")
        assert short in " ".join(left.split()) or short.split()[0] in text
