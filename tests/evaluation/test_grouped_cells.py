"""Runs whose test cases come in groups."""

import numpy as np
import pytest

from scalecal import audit, metrics
from scalecal.evaluation.evaluations import evaluate
from scalecal.evaluation.folder import write_run
from scalecal.evaluation.judging import recommend
from scalecal.evaluation.scores import Resampled, draw_nulls, score_cell
from scalecal.report import write_report
from tests.evaluation.made import cell

METHODS = {
    "none": lambda seen, *_: 1.6 * seen,
    "temperature": lambda seen, *_: 1.2 * seen,
    "platt": lambda seen, *_: 1.2 * seen + 0.1,
}


def grouped(count):
    return cell(METHODS, 400, n_seeds=2, groups=count)


def test_floors_and_nulls_of_a_cell_respect_groups():
    here = grouped(20)
    part = here.answers["none", 0]
    groups = here.cases.groups.codes[part.rows]
    table = score_cell(here, n_resamples=40).set_index(["method", "seed", "stratum", "metric"])
    found = table.loc[("none", 0, "overall", "ece"), "floor"]
    assert found == pytest.approx(metrics.noise_floor(part.p, y=here.y[part.rows], groups=groups))
    drawn = draw_nulls(here, "none", n_resamples=50, seed=3)[0]["overall"]
    options = {"n_resamples": 40, "seed": 3}
    expected = metrics.resampled_ece(part.p, y=here.y[part.rows], groups=groups, **options)
    np.testing.assert_array_equal(drawn[:40], expected[: len(drawn)])


def test_few_groups_widen_changes_as_student_s_t_does():
    many, few = (Resampled([grouped(count)]) for count in (200, 9))
    wide = [r.drawn("uni", "none", metric="nll").samples.std() for r in (many, few)]
    assert wide[1] > wide[0]


def test_too_few_groups_leave_differences_without_a_verdict():
    made = evaluate(grouped(4), n_resamples=60)
    row = next(r for r in made.facts["rows"] if r["method"] == "temperature")
    change = row["changes"]["nll"]
    assert change["difference"] is not None
    assert change["low"] is change["high"] is change["p"] is None
    assert not made.recommended["p"]["sure"]
    said = " ".join(made.sentences)
    assert "There is no verdict: too few groups" in said
    assert "nan" not in str(made)
    assert made.table["nll_change_low"].isna().all()


def test_the_choice_of_a_method_allows_for_few_units():
    change = {"difference": -0.05, "low": -0.06, "high": -0.04, "sd": 0.019}
    losses = {"nll": {"none": 0.5} | dict.fromkeys("abcd", 0.45)}

    def sure(**more):
        changes = {name: {"overall": {"nll": change | more}} for name in "abcd"}
        return recommend(losses, changes, baseline="none")["p"]["sure"]

    assert sure()
    assert not sure(units=8)


def test_the_page_of_an_audit_of_few_groups_has_no_bars_and_no_verdict(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.random(120)
    votes = rng.binomial(5, p)
    result = audit(votes > 2, p, votes=votes, n_raters=5, groups=np.arange(120) % 3)
    write_run(tmp_path / "run", result, kind="audit")
    page = write_report([tmp_path / "run"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "There is no verdict: too few groups" in page
    assert "NaN" not in page.partition("<script")[0]
