"""Audits of very many strata, groups, readers or classes stay readable; nothing is lost from the table."""

import numpy as np
import pytest

import scalecal
from scalecal.evaluation.audits import MAX_STRATA
from scalecal.evaluation.folder import report_facts, write_run

MANY = 90
SECONDS = {"n_resamples": 20}


@pytest.fixture(scope="module")
def audit():
    rng = np.random.default_rng(0)
    codes = np.concatenate([np.arange(MANY).repeat(4), np.arange(5).repeat(6)])
    p = rng.uniform(0.05, 0.95, len(codes))
    return scalecal.audit(
        rng.random(len(p)) < p, p, strata=[f"site {c:03d}" for c in codes], **SECONDS
    )


def test_text_shows_the_largest_strata_and_says_so(audit):
    assert len(audit.rows) == len(audit.to_frame()) == len(audit.to_dict()["strata"]) == MANY + 1
    names = [row["name"] for row in audit.audit.shown_rows]
    assert len(names) == MAX_STRATA + 1
    assert names == ["overall", *sorted(names[1:])]
    assert {f"site {c:03d}" for c in range(5)} < set(names)
    text = str(audit)
    assert f"Of {MANY} strata the {MAX_STRATA} of most cases are shown" in text
    assert text.count("\n") < 4 * MAX_STRATA
    page = audit._repr_html_()
    assert f"Of {MANY} strata" in page
    assert page.count("<tr") < 2 * MAX_STRATA


def test_few_strata_are_all_shown():
    p = np.linspace(0.05, 0.95, 80)
    strata = np.arange(80) % MAX_STRATA
    result = scalecal.audit(p > 0.5, p, strata=strata.astype(str), **SECONDS)
    assert result.audit.shown_rows is result.rows
    assert result.notes == result.audit.notes


def test_the_run_folder_has_all_rows_and_the_page_the_largest(audit, tmp_path):
    import pandas as pd

    from scalecal.report import write_report

    write_run(tmp_path / "run", audit, kind="audit")
    table = pd.read_csv(tmp_path / "run" / "audit.csv").set_index("name")
    assert len(table) == MANY + 1
    facts = report_facts([tmp_path / "run"])["cells"][0]["audits"]["model"]
    assert [row["name"] for row in facts["rows"]] == ["overall", *audit.audit.shown_strata]
    for row in facts["rows"]:  # adjusted for all strata, on the page too
        np.testing.assert_allclose(row["p_null_holm"] or np.nan, table.p_null_holm[row["name"]])
    assert facts["verdict"]["badge"] == audit.verdict["badge"]
    assert pd.read_csv(tmp_path / "run" / "decision.csv")["stratum"].nunique() == MAX_STRATA + 1
    page = write_report([tmp_path / "run"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(page) < 2_000_000
    assert f"Of {MANY} strata" in page
    assert "site 004" in page
    assert "site 080" not in page
