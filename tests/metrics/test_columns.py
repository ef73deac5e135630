"""One list of quantities: audits, results, terminal, files and the reference agree with it."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from scalecal import audit
from scalecal.evaluation.scores import score_cell
from scalecal.evaluation.stream import StreamingAudit
from scalecal.evaluation.texts import columns_by_labels, columns_by_votes
from scalecal.metrics import COLUMNS, METRICS
from scalecal.report import audit_html
from tests.evaluation.made import cell, sharp

ROOT = Path(__file__).parents[2]


def audits():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=300)
    votes = rng.binomial(5, p)
    y = (votes > 2).astype(int)
    probs = rng.dirichlet(np.ones(3), 200)
    three = rng.multinomial(5, probs)
    yield "votes", audit(y, p, votes=votes, n_raters=5, n_resamples=20)
    yield "plain", audit(y, p, n_resamples=20)
    yield "groups", audit(y, p, groups=np.arange(300) // 3, n_resamples=20)
    yield "empty stratum", audit([1, 1], [0.5, 0.7], votes=[3, 3], n_raters=3, n_resamples=20)
    yield "classes", audit(three.argmax(axis=1), probs, votes=three, n_resamples=20)
    yield "streamed", StreamingAudit(n_resamples=20).update(y, p, votes=votes, n_raters=5).finish()
    stream = StreamingAudit(n_resamples=20).update(three.argmax(axis=1), probs, votes=three)
    yield "streamed classes", stream.finish()


AUDITS = dict(audits())


@pytest.mark.parametrize("name", AUDITS)
def test_every_key_of_an_audit_is_a_column_in_order(name):
    result = AUDITS[name]
    for row in result.rows:
        assert list(row) == [key for key in COLUMNS if key in row]
    of_class = {key for row in result.audit.classes for key in row}
    expected = [key for key in COLUMNS if key in result.rows[0] or key in of_class]
    assert list(result.to_frame().columns) == expected
    for row in result.references:
        assert set(row) - {"stratum"} <= set(COLUMNS)


def test_every_metric_of_results_is_a_column():
    results = score_cell(cell({"none": sharp(2), "scale": sharp(1)}, n=120, n_seeds=1))
    assert set(results["metric"]) <= set(COLUMNS)
    floors = results[results["floor"].notna() & (results["floor"] != 0)]
    assert {COLUMNS[metric].floor for metric in floors["metric"]} == {"floor", "split_ece_floor"}


def test_the_terminal_and_the_notebook_show_titles():
    result = AUDITS["votes"]
    text = str(result)
    for key in (*columns_by_labels(), *columns_by_votes()):  # a title may take several lines
        assert set(COLUMNS[key].title.split()) <= set(text.split())
    assert f">{COLUMNS['nll'].title}<" in audit_html(result)


def test_columns_are_complete():
    titles = [column.title for column in COLUMNS.values()]
    assert len(set(titles)) == len(titles)
    for key, column in COLUMNS.items():
        assert column.key == key
        assert column.meaning
        assert not column.meaning.endswith(".")
        assert column.floor is None or column.floor in COLUMNS
    assert set(METRICS) <= set(COLUMNS)


def test_the_reference_is_up_to_date():
    made = runpy.run_path(str(ROOT / "scripts" / "make_columns.py"))["text"]()
    written = (ROOT / "docs" / "columns.md").read_text(encoding="utf-8")
    assert written == made, "run python scripts/make_columns.py"
