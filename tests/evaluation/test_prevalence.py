"""Audits of enriched samples at the prevalence of a population."""

import json

import numpy as np
import pytest
from scipy.special import expit
from typer.testing import CliRunner

from scalecal import audit, compare_audits, metrics
from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.evaluation.stream import StreamingAudit

READERS, P = 7, 0.1


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def enriched(rng, n=300):
    """Cases of a population with about one positive in ten, half of them positive."""
    x = rng.normal(size=8 * n) * 1.6 - 2.6
    votes = rng.binomial(READERS, expit(x))
    y = (votes > READERS / 2).astype(int)
    rows = np.concatenate([np.flatnonzero(y == c)[: n // 2] for c in (0, 1)])
    return y[rows], np.clip(expit(1.7 * x), 1e-6, 1 - 1e-6)[rows], votes[rows]


def rows_of(result):
    return json.dumps(result.to_dict()["strata"]), json.dumps(result.to_dict()["difficulty"])


@pytest.mark.parametrize("groups", [False, True])
def test_the_samples_own_prevalence_changes_nothing(rng, groups):
    y, p, votes = enriched(rng)
    options = {"votes": votes, "n_raters": READERS, "n_resamples": 50}
    options |= {"groups": np.arange(len(y)) // 5} if groups else {}
    plain, same = audit(y, p, **options), audit(y, p, prevalence=float(y.mean()), **options)
    assert rows_of(plain) == rows_of(same)
    assert plain.notes == same.notes
    assert "n_effective" not in same.meta
    assert plain.decision_curve().equals(same.decision_curve())


def test_values_are_weighted_means(rng):
    y, p, votes = enriched(rng)
    result = audit(y, p, votes=votes, n_raters=READERS, prevalence=P, n_resamples=50)
    w = np.where(y == 1, P / 0.5, (1 - P) / 0.5)
    row = result["overall"]
    assert row["prevalence"] == pytest.approx(P)
    assert row["mean_p"] == pytest.approx(np.average(p, weights=w))
    for name in ("ece", "brier", "nll", "accuracy", "smece", "auc"):
        assert row[name] == pytest.approx(getattr(metrics, name)(y, p, sample_weight=w)), name
    for name in ("vote_nll", "vote_error", "dist_ce", "ent_ce"):
        expected = getattr(metrics, name)(votes, p, n_raters=READERS, sample_weight=w)
        assert row[name] == pytest.approx(expected), name
    low = result.predictions.cases.strata.values == "low"
    assert result["low"]["brier"] == pytest.approx(np.average((p - y)[low] ** 2, weights=w[low]))
    assert result["low"]["n"] == low.sum()
    assert row["auc"] == pytest.approx(audit(y, p, n_resamples=20)["overall"]["auc"])
    assert row["n_votes"] == READERS * len(y)


def test_intervals_are_by_the_variance_within_classes(rng):
    y, p, _ = enriched(rng, 2000)
    row = audit(y, p, prevalence=P, n_resamples=20)["overall"]
    loss = (p - y) ** 2
    variance = sum(
        share**2 * loss[y == c].var(ddof=1) / (y == c).sum() for c, share in ((0, 1 - P), (1, P))
    )
    half = 1.96 * np.sqrt(variance)
    assert np.log(row["brier_high"] / row["brier_low"]) / 2 == pytest.approx(
        half / row["brier"], rel=0.05
    )


def test_it_says_so_everywhere(rng):
    y, p, votes = enriched(rng)
    result = audit(y, p, votes=votes, n_raters=READERS, prevalence=P, n_resamples=50)
    assert "population with 10 % positives" in result.notes[0]
    assert "equivalent to 183 of equal weight" in result.notes[0]
    meta = result.to_dict()["meta"]
    assert meta["prevalence"] == P
    assert meta["sample_prevalence"] == 0.5
    assert meta["n_effective"] == pytest.approx(300 / (0.5 * 0.2**2 + 0.5 * 1.8**2))
    assert result.notes[0] in str(result)
    assert result.notes[0] in result._repr_html_()


def test_votes_are_described_and_not_tested(rng):
    y, p, votes = enriched(rng)
    result = audit(y, p, votes=votes, n_raters=READERS, prevalence=P, n_resamples=50)
    for stratum in result.difficulty:
        assert np.isnan(stratum["p_votes"])
        assert "not tested at another prevalence" in stratum["reason"]
        assert np.isfinite(stratum["vote_share"])
    assert np.isnan(result["overall"]["split_ece_floor"])


def test_a_model_of_the_sample_is_found_and_one_of_the_population_is_not(rng):
    x = rng.normal(size=20_000) * 1.6 - 2.6
    y = (rng.random(len(x)) < expit(1.7 * x)).astype(int)
    share = float(expit(1.7 * (np.random.default_rng(1).normal(size=10**6) * 1.6 - 2.6)).mean())
    rows = np.concatenate([np.flatnonzero(y == c)[:400] for c in (0, 1)])
    logits = 1.7 * x[rows]
    good = audit(y[rows], expit(logits), prevalence=share, n_resamples=200)
    shifted = expit(logits + np.log((1 - share) / share))
    bad = audit(y[rows], shifted, prevalence=share, n_resamples=200)
    assert good.verdict["badge"] == "good"
    assert bad.verdict["badge"] == "attention"
    assert "Its probabilities are too high" in bad.sentences[0]
    assert audit(y[rows], shifted, n_resamples=200)["overall"]["p_cox"] > 0.01


def test_named_strata_are_tested_within_the_whole_sample(rng):
    y, p, _ = enriched(rng)
    strata = np.where(np.arange(len(y)) % 3 == 0, "a", "b")
    result = audit(y, p, strata=strata, prevalence=P, n_resamples=99)
    for row in result.rows[1:]:
        assert np.isfinite([row[f"p_{t}"] for t in ("cox", "kuiper", "consistency", "null")]).all()
        assert row["floor"] > result["overall"]["floor"]


def test_audits_are_compared_at_one_prevalence(rng):
    y, p, _ = enriched(rng)
    a, b = (audit(y, q, prevalence=P, n_resamples=50) for q in (p, np.sqrt(p)))
    table = compare_audits(a, b, n_resamples=50).differences.set_index("metric")
    change = b["overall"]["nll"] - a["overall"]["nll"]
    assert table.loc["nll", "difference"] == pytest.approx(change)
    assert table.loc["nll", "low"] < change < table.loc["nll", "high"]
    plain = audit(y, p, n_resamples=50)
    with pytest.raises(InputError, match="different prevalences"):
        compare_audits(a, plain)


@pytest.mark.parametrize("prevalence", [0.0, 1.0, 1.5, -0.1, float("nan"), "0.1"])
def test_prevalence_lies_between_0_and_1(rng, prevalence):
    y, p, _ = enriched(rng)
    with pytest.raises(InputError, match="between 0 and 1"):
        audit(y, p, prevalence=prevalence)


def test_what_cannot_be_reweighted_is_refused(rng):
    with pytest.raises(InputError, match="all of one class"):
        audit(np.ones(20, dtype=int), rng.random(20), prevalence=0.1)
    with pytest.raises(InputError, match="a prevalence needs two classes, but there are 3"):
        audit(rng.integers(3, size=30), rng.dirichlet([1, 1, 1], size=30), prevalence=0.1)
    stream = StreamingAudit(n_resamples=20).update([0, 1] * 20, rng.random(40)).finish()
    from scalecal.evaluation.audits import audit_predictions

    with pytest.raises(InputError, match="keeps counts"):
        audit_predictions(
            stream.predictions, sample_weight=stream.audit.units.times, prevalence=0.1
        )


def write_csv(path, y, p):
    lines = [f"{i},{a},{b}" for i, (a, b) in enumerate(zip(p, y, strict=True))]
    path.write_text("\n".join(["id,p,label", *lines]))


def test_the_command_takes_a_prevalence(rng, tmp_path):
    y, p, _ = enriched(rng)
    write_csv(tmp_path / "predictions.csv", y, p)
    run = ["audit", str(tmp_path / "predictions.csv"), "--resamples", "50", "--prevalence", "0.1"]
    result = CliRunner().invoke(app, [*run, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "population with 10 % positives" in result.output
    written = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert written["meta"]["prevalence"] == 0.1
    assert written["strata"][0]["prevalence"] == pytest.approx(0.1)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "population with 10 % positives" in page
    facts = json.loads((tmp_path / "out" / "facts.json").read_text())
    assert facts["rows"][0]["ece"] == pytest.approx(written["strata"][0]["ece"])
    assert facts["rows"][0]["floor"] == pytest.approx(written["strata"][0]["floor"])


def test_the_command_refuses_streams(rng, tmp_path):
    y, p, _ = enriched(rng)
    write_csv(tmp_path / "predictions.csv", y, p)
    run = ["audit", str(tmp_path / "predictions.csv"), "--stream", "--prevalence", "0.1"]
    with pytest.raises(InputError, match=r"--prevalence 0\.1 cannot be used with --stream"):
        CliRunner().invoke(app, run, catch_exceptions=False, standalone_mode=False)
