"""The streaming audit against `audit` on the same cases, and its parts against the whole."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalecal import audit
from scalecal.cases import Factor
from scalecal.checks import InputError
from scalecal.evaluation import stream as audits
from scalecal.evaluation.stream import StreamingAudit

SLOW = os.environ.get("SCALECAL_SLOW") == "1"
EXACT = ("n", "prevalence", "accuracy")
ROUNDING = ("mean_p", "ece", "gap", "overconfidence", "smece")
CELLS = (
    "brier",
    "auc",
    "vote_error",
    "dist_ce",
    "ent_ce",
    "debiased_error",
    "cox_intercept",
    "cox_slope",
)
FLOORS = ("vote_nll_floor", "dist_ce_floor", "ent_ce_floor")


def cases(n, *, seed=0, sharpness=1.6):
    rng = np.random.default_rng(seed)
    x = 2.0 * rng.standard_normal(n) - 0.7
    votes = rng.binomial(7, 1 / (1 + np.exp(-x)))
    return (votes >= 4).astype(np.int64), 1 / (1 + np.exp(-sharpness * x)), votes


def in_blocks(y, p, votes=None, size=3000, **options):
    stream = StreamingAudit(**options)
    for start in range(0, len(y), size):
        part = slice(start, start + size)
        extra = {} if votes is None else {"votes": votes[part], "n_raters": 7}
        stream.update(y[part], p[part], **extra)
    return stream


def assert_close(streamed, whole, *, cells=2e-5):
    for mine, theirs in zip(streamed.rows, whole.rows, strict=True):
        assert mine["name"] == theirs["name"]
        for key in EXACT:
            assert mine[key] == pytest.approx(theirs[key], abs=1e-15), key
        for key in ROUNDING:
            if key in theirs:
                # Cells have one mean for all strata.
                abs_ = 1e-12 if mine["name"] == "overall" else 1e-6
                assert mine[key] == pytest.approx(theirs[key], rel=1e-9, abs=abs_), key
        for key in ("nll", "vote_nll"):
            if key in theirs:
                assert mine[key] == pytest.approx(theirs[key], rel=2e-6, nan_ok=True), key
        for key in (*CELLS, *FLOORS):
            if key in theirs:
                assert mine[key] == pytest.approx(theirs[key], abs=cells, rel=1e-4, nan_ok=True), (
                    mine["name"],
                    key,
                )
        for key in ("p_cox", "p_spiegelhalter"):
            assert mine[key] == pytest.approx(theirs[key], rel=5e-3, abs=1e-5, nan_ok=True), key
        kuiper = pytest.approx(theirs["p_kuiper"], rel=0.1, abs=0.02, nan_ok=True)
        assert mine["p_kuiper"] == kuiper
    for mine, theirs in zip(streamed.difficulty, whole.difficulty, strict=True):
        assert mine["n"] == pytest.approx(theirs["n"], rel=2e-3, abs=2)
        for key in ("vote_mean_p", "vote_agreement", "vote_confidence", "vote_rho"):
            assert mine[key] == pytest.approx(theirs[key], abs=5e-3), key


@pytest.mark.parametrize("sharpness", [0.7, 1.6] if SLOW else [1.6])
def test_agrees_with_audit_of_the_same_cases(sharpness):
    y, p, votes = cases(20_000, sharpness=sharpness)
    whole = audit(y, p, votes=votes, n_raters=7)
    streamed = in_blocks(y, p, votes).finish()
    assert_close(streamed, whole)
    assert set(whole.rows[0]) <= set(streamed.rows[0]) | {"reason"}
    for mine, theirs in zip(streamed.rows, whole.rows, strict=True):
        assert mine["floor"] == pytest.approx(theirs["floor"], rel=1e-5)
        # Other draws of the same law.
        for key in ("floor_high", "null", "null_low", "null_high"):
            assert mine[key] == pytest.approx(theirs[key], rel=0.05, nan_ok=True), key
        for name in ("gap", "brier", "nll", "auc", "accuracy", "vote_nll", "dist_ce"):
            width = theirs[f"{name}_high"] - theirs[f"{name}_low"]
            for end in ("low", "high"):
                assert mine[f"{name}_{end}"] == pytest.approx(
                    theirs[f"{name}_{end}"], abs=0.15 * width
                ), (name, end)
    for key in ("fleiss_kappa", "krippendorff_alpha", "n_raters", "n", "n_classes", "event"):
        assert streamed.meta[key] == pytest.approx(whole.meta[key]), key
    for mine, theirs in zip(streamed.references, whole.references, strict=True):
        assert mine == pytest.approx(theirs), mine["name"]
    assert len(streamed.sentences) == len(whole.sentences)
    assert "overall" in str(streamed)


def test_nulls_of_few_cases_are_draws_of_the_same_law():
    y, p, votes = cases(400)
    whole = audit(y, p, votes=votes, n_raters=7, n_resamples=4000)
    streamed = in_blocks(y, p, votes, n_resamples=4000).finish()
    for mine, theirs in zip(streamed.rows[1:], whole.rows[1:], strict=True):
        # Close enough to tell the law from its normal limit, which is some per cent off here.
        for key in ("null", "null_high"):
            assert mine[key] == pytest.approx(theirs[key], rel=0.025), (mine["name"], key)
        assert mine["p_null"] == pytest.approx(theirs["p_null"], abs=0.04)


def test_a_small_stratum_of_a_large_stream_is_noted(monkeypatch):
    y, p, _ = cases(2000)
    strata = Factor((np.arange(len(y)) >= 100).astype(int), ("few", "many"))
    stream = StreamingAudit(n_resamples=20).update(y, p, strata=strata)
    assert "few" not in " ".join(stream.finish().notes)
    monkeypatch.setattr(audits, "EXACT_CASES", 1000)
    assert "the null of few (under 500 cases)" in " ".join(stream.finish().notes)


def test_floors_above_the_exact_limit_are_the_same_draws():
    y, p, _ = cases(120_000)
    whole, streamed = audit(y, p, n_resamples=50), in_blocks(y, p, n_resamples=50).finish()
    for key in ("floor", "floor_high", "p_consistency"):
        assert streamed["overall"][key] == pytest.approx(whole["overall"][key], rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.floats(0, 1), st.integers(0, 5)), min_size=2, max_size=60),
    st.data(),
)
def test_blocks_in_any_order_add_up_to_the_whole(rows, data):
    wrong, p, v = (np.array(column) for column in zip(*rows, strict=True))
    y = (v > 2) != (wrong & (np.arange(len(v)) % 2 == 0))  # not more than half against the votes
    cut = data.draw(st.integers(1, len(rows) - 1))
    whole = StreamingAudit(n_resamples=20).update(y, p, votes=v, n_raters=5).finish()
    blocks = (slice(None, cut), slice(cut, None))
    for order in (blocks, blocks[::-1]):
        stream = StreamingAudit(n_resamples=20)
        for part in order:
            stream.update(y[part], p[part], votes=v[part], n_raters=5)
        made = stream.finish()
        assert made.meta["counts_sha256"] == whole.meta["counts_sha256"]
        for mine, theirs in zip(made.rows, whole.rows, strict=True):
            for key in ("n", "prevalence", "accuracy", "ece", "nll", "brier", "vote_nll"):
                assert mine[key] == pytest.approx(theirs[key], rel=1e-9, abs=1e-12, nan_ok=True)


def test_more_than_two_classes_agree_with_audit():
    rng = np.random.default_rng(1)
    probs = rng.dirichlet([1.0, 0.7, 2.0], size=4000)
    y = np.array([rng.choice(3, p=row) for row in probs])
    counts = rng.multinomial(5, probs)
    whole = audit(y, probs, votes=counts, n_resamples=50)
    stream = StreamingAudit(n_resamples=50)
    for part in (slice(0, 1000), slice(1000, None)):
        stream.update(y[part], probs[part], votes=counts[part])
    streamed = stream.finish()
    for mine, theirs in zip(streamed.rows, whole.rows, strict=True):
        assert np.isnan(mine["prevalence"])  # labels are kept as right or wrong
        for key in ("n", "ece", "brier", "nll", "accuracy", "overconfidence"):
            abs_ = 1e-12 if mine["name"] == "overall" else 1e-6
            assert mine[key] == pytest.approx(theirs[key], rel=1e-9, abs=abs_), key
        for end in ("nll_low", "nll_high", "brier_low", "brier_high"):
            assert mine[end] == pytest.approx(theirs[end], rel=0.05), end
        assert "auc" not in mine


def test_given_strata_by_other_numbers_in_other_blocks():
    y, p, _ = cases(5000)
    names = np.where(p > 0.8, "sure", np.where(p > 0.3, "unsure", ""))
    whole = audit(y, p, strata=names, n_resamples=50)
    stream = StreamingAudit(n_resamples=50)
    for known, rows in (
        (("sure", "unsure"), slice(0, 2000)),
        (("unsure", "sure"), slice(2000, None)),
    ):
        stream.update(y[rows], p[rows], strata=Factor.of(names[rows], known))
    streamed = stream.finish()
    assert_close(streamed, whole)
    assert any("have no stratum" in note for note in streamed.notes)


def test_the_diagrams_band_is_of_the_cases_and_not_of_the_cells():
    y, p, _ = cases(2000)
    p = np.round(p, 1)  # ten times as many cases as there are cells
    whole, streamed = audit(y, p), in_blocks(y, p).finish()
    for key in ("null_low", "null_high"):
        mine, expected = (e.facts["reliability"]["model"][0][key] for e in (streamed, whole))
        assert mine == pytest.approx(expected, rel=0.15)


def test_certain_predictions_ties_and_bin_edges_are_exact():
    p = np.array([0.0, 1.0, 0.2, 0.4, 0.6, 3 / 15, 6 / 15, 0.5, 1 - 2**-45, 1e-13] * 7)
    y = (np.arange(len(p)) % 3 == 0).astype(int)
    whole, streamed = audit(y, p, n_resamples=20), in_blocks(y, p, n_resamples=20, size=7).finish()
    assert_close(streamed, whole, cells=1e-12)
    table, _ = streamed.audit.reliability("overall")
    expected, _ = whole.audit.reliability("overall")
    assert table.n.tolist() == expected.n.tolist()
    streamed.plot()


def test_one_class_only_and_separated_classes():
    streamed = StreamingAudit(n_resamples=20).update([1, 1], [0.3, 0.4]).finish()
    assert np.isnan(streamed["overall"]["auc"])
    assert np.isnan(streamed["overall"]["cox_slope"])
    y, p = np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.8, 0.9])
    whole = audit(y, p, n_resamples=20)["overall"]
    mine = StreamingAudit(n_resamples=20).update(y, p).finish()["overall"]
    assert mine["p_cox"] == pytest.approx(whole["p_cox"])
    constant = audit([0, 1, 1], [0.4] * 3, n_resamples=20)["overall"]
    mine = StreamingAudit(n_resamples=20).update([0, 1, 1], [0.4] * 3).finish()["overall"]
    assert mine["p_cox"] == pytest.approx(constant["p_cox"])
    assert mine["cox_intercept"] == pytest.approx(constant["cox_intercept"])


@pytest.mark.validity
def test_consistency_holds_its_level_on_few_cases():
    rng = np.random.default_rng(5)
    found = []
    for _ in range(150):
        p = rng.uniform(size=200)
        stream = StreamingAudit(n_resamples=99).update(rng.uniform(size=200) < p, p)
        found.append(stream.finish()["overall"]["p_consistency"])
    assert 0.02 < np.mean(np.array(found) <= 0.1) < 0.18


def test_bad_input_changes_nothing_and_says_why():
    stream = StreamingAudit().update([0, 1], [0.1, 0.9])
    with pytest.raises(InputError, match="Did you pass logits"):
        stream.update([0, 1], [0.1, 3.2])
    with pytest.raises(InputError, match="hard labels"):
        stream.update([0.5], [0.1])
    with pytest.raises(InputError, match="with every block"):
        stream.update([0], [0.1], votes=[1], n_raters=3)
    with pytest.raises(InputError, match="classes"):
        stream.update([0], [[0.1, 0.2, 0.7]])
    with pytest.raises(InputError, match="no cases"):
        StreamingAudit().finish()
    with pytest.raises(InputError, match="at most 256"):
        StreamingAudit(n_bins=1000)
    with pytest.raises(InputError, match="'overall'"):
        StreamingAudit().update([0], [0.1], strata=Factor.of(["overall"]))
    assert stream.n == 2
