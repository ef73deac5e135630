"""The probes' two answers: the label's probability and a reader's vote."""

import json

import numpy as np
import pytest
from scipy.special import expit

from scalecal.checks import InputError, ScalecalWarning
from scalecal.datasets import simulate
from scalecal.panel import vote_moments
from scalecal.probes import CrossFit, Job, LinearProbe, Recipe, ScaleProbe, fit_many, load_probe

QUICK = {"max_epochs": 30, "min_steps": 300}
PROBES = [LinearProbe(**QUICK), ScaleProbe(**QUICK)]


@pytest.fixture(scope="module")
def whole():
    return simulate(3_900, dim=8, n_raters=7, unexplained=0.3, seed=0)


@pytest.fixture(scope="module")
def data(whole):
    return whole.take(np.arange(900))


@pytest.fixture(scope="module")
def published(data):
    kappa, share = vote_moments(data.cases.votes)
    return {"n_raters": 7, "kappa": kappa, "vote_share": float(share[1])}


def vote_nll(reader, data):
    share = data.votes / data.n_raters
    return float(-(share * np.log(reader[:, 1]) + (1 - share) * np.log(reader[:, 0])).mean())


@pytest.mark.parametrize("probe", PROBES, ids=["linear", "scale"])
def test_all_answers_are_of_one_model(probe, data):
    fitted = probe.fit(data.X, data.y, votes=data.votes, n_raters=7)
    panel, X = fitted.panel_, data.X[:50]
    assert panel.rho_low < panel.rho < panel.rho_high
    assert panel.panel_size == 7
    label, reader = fitted.predict_proba(X)[:, 1], fitted.predict_reader_proba(X)
    np.testing.assert_allclose(reader.sum(axis=1), 1)
    law = fitted.predict_votes(X)
    assert law.shape == (50, 8)
    np.testing.assert_allclose(law[:, 4:].sum(axis=1), label, atol=1e-9)
    np.testing.assert_allclose(law @ np.arange(8) / 7, reader[:, 1], atol=1e-9)
    np.testing.assert_allclose(law[:, 3:5].sum(axis=1), fitted.predict_disagreement(X))
    assert fitted.predict_votes(X, n_raters=3).shape == (50, 4)
    np.testing.assert_allclose(fitted.predict_proba(X, n_raters=1)[:, 1], reader[:, 1], atol=1e-9)
    np.testing.assert_array_equal(fitted.predict(X), (label > 0.5).astype(int))


@pytest.mark.parametrize("probe", PROBES, ids=["linear", "scale"])
def test_votes_and_published_numbers_serve_the_reader_and_leave_the_label(probe, whole, published):
    data, test = whole.take(np.arange(900)), whole.take(np.arange(900, 3_900))
    plain = LinearProbe(**QUICK).fit(data.X, data.y)
    raw = vote_nll(plain.predict_proba(test.X), test)
    for told in ({"votes": data.votes, "n_raters": 7}, published):
        fitted = probe.fit(data.X, data.y, **told)
        assert vote_nll(fitted.predict_reader_proba(test.X), test) < raw - 0.01
        label = fitted.predict_proba(test.X)
        loss, before = (
            -np.log(p[np.arange(len(test)), test.y]).mean()
            for p in (label, plain.predict_proba(test.X))
        )
        assert loss < before + 0.01


def test_votes_are_used_wherever_they_are_known(data):
    votes, m = data.votes.astype(float), data.n_raters.astype(float)
    votes[100:] = np.nan
    some = LinearProbe(**QUICK).fit(data.X, data.y, votes=votes, n_raters=7)
    assert some.panel_.panel_size == 7
    counts = np.column_stack([7 - votes, votes])
    again = LinearProbe(**QUICK).fit(data.X, data.y, votes=counts)
    assert again.panel_.rho == pytest.approx(some.panel_.rho)
    # One reader on the next hundred: of use only beside labels of a panel.
    rng = np.random.default_rng(0)
    votes[100:200], m[100:200] = rng.random(100) < data.votes[100:200] / 7, 1
    with pytest.raises(InputError, match=r"cases have 1 to 7 votes, .* give panel_size"):
        LinearProbe(**QUICK).fit(data.X, data.y, votes=votes, n_raters=m)
    mixed = LinearProbe(**QUICK).fit(data.X, data.y, votes=votes, n_raters=m, panel_size=7)
    assert mixed.panel_.rho != some.panel_.rho
    votes[:100] = np.nan
    single = LinearProbe(**QUICK).fit(data.X, data.y, votes=votes, n_raters=m, panel_size=7)
    assert np.isfinite(single.predict_reader_proba(data.X)).all()


def test_no_panel_is_assumed_where_none_is_known(data):
    linear = LinearProbe(**QUICK).fit(data.X, data.y)
    scale = ScaleProbe(**QUICK).fit(data.X, data.y)
    assert linear.panel_ is None
    assert not scale.panel_.knows_readers
    told = LinearProbe(**QUICK).fit(data.X, data.y, n_raters=7)
    for probe in (linear, scale, told):
        for ask in (probe.predict_reader_proba, probe.predict_votes, probe.predict_disagreement):
            with pytest.raises(InputError, match=r"votes of some cases .* kappa"):
                ask(data.X)
    with pytest.raises(InputError, match="kappa needs the panel's size"):
        LinearProbe(**QUICK).fit(data.X, data.y, kappa=0.4)
    with pytest.raises(InputError, match="vote_share is used beside kappa"):
        LinearProbe(**QUICK).fit(data.X, data.y, n_raters=7, vote_share=0.4)
    with pytest.raises(InputError, match="no case has any"):
        LinearProbe(**QUICK).fit(data.X, data.y, votes=np.full(900, np.nan), n_raters=7)


def test_the_papers_preset_gives_one_answer(data, published):
    paper = ScaleProbe(preset="paper", random_state=0)
    alone = paper.fit(data.X, data.y).predict_proba(data.X)
    told = ScaleProbe(preset="paper", n_raters=7, random_state=0).fit(data.X, data.y, **published)
    np.testing.assert_array_equal(told.predict_proba(data.X), alone)
    with pytest.raises(InputError, match="one answer, as published"):
        told.predict_reader_proba(data.X)
    with pytest.warns(ScalecalWarning, match="does not use them"):
        ScaleProbe(preset="paper").fit(data.X, data.y, votes=data.votes, n_raters=7)


def test_rho_may_be_fixed(data):
    fixed = LinearProbe(rho=0.0, **QUICK).fit(data.X, data.y, n_raters=7)
    one = LinearProbe(rho=0.0, **QUICK).fit(data.X, data.y, n_raters=1)
    assert fixed.panel_.rho == 0.0
    label, reader = fixed.predict_proba(data.X)[:, 1], fixed.predict_reader_proba(data.X)[:, 1]
    assert (np.abs(reader - 0.5) <= np.abs(label - 0.5) + 1e-12).all()
    np.testing.assert_allclose(one.predict_reader_proba(data.X), one.predict_proba(data.X))
    with pytest.raises(InputError, match="rho needs the panel's size"):
        LinearProbe(rho=0.0, **QUICK).fit(data.X, data.y)


def test_too_few_groups_of_a_class_cost_the_calibration_not_the_probe(data):
    probe, groups = ScaleProbe(validation_share=0.0, **QUICK), data.y  # one group per class
    with pytest.warns(ScalecalWarning, match=r"not calibrated.*too few"):
        probe.fit(data.X, data.y, groups=groups)
    assert probe.calibrator_ is None
    with pytest.raises(InputError, match="too few"):
        probe.fit(data.X, data.y, groups=groups, n_raters=7, kappa=0.4)


def test_both_answers_survive_saving(data, tmp_path):
    probe = ScaleProbe(**QUICK).fit(data.X, data.y, votes=data.votes, n_raters=7)
    probe.save(tmp_path)
    again = load_probe(tmp_path)
    for ask in ("predict_proba", "predict_reader_proba", "predict_votes", "predict_disagreement"):
        np.testing.assert_array_equal(getattr(again, ask)(data.X), getattr(probe, ask)(data.X))
    about = json.loads((tmp_path / "probe.json").read_text())
    about["calibrator"]["fitted"]["panel"]["rho"] = 7
    (tmp_path / "probe.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"`float` <= 0.99 - at `\$.rho`"):
        load_probe(tmp_path)


def test_several_classes():
    data = simulate(500, n_classes=3, dim=6, spread=3.0, n_raters=5, seed=0)
    probe = LinearProbe(**QUICK).fit(data.X, data.y, votes=data.cases.votes)
    assert probe.predict_reader_proba(data.X).shape == (500, 3)
    np.testing.assert_allclose(probe.predict_votes(data.X, n_raters=4).sum(axis=2), 1)
    assert probe.predict_disagreement(data.X).shape == (500,)
    kappa, share = vote_moments(data.cases.votes)
    told = LinearProbe(**QUICK).fit(data.X, data.y, n_raters=5, kappa=kappa, vote_share=share)
    mean = told.predict_reader_proba(data.X).mean(axis=0)
    np.testing.assert_allclose(mean, share, atol=0.02)


def test_weights_count_cases_and_zero_leaves_them_out(data):
    kept = np.arange(900) < 600
    told = {"n_raters": 7}
    some = LinearProbe(**QUICK).fit(
        data.X, data.y, votes=data.votes, sample_weight=kept.astype(float), **told
    )
    assert np.isfinite(some.panel_.rho)
    assert some.panel_.rho == pytest.approx(
        LinearProbe(**QUICK)
        .fit(data.X[:600], data.y[:600], votes=data.votes[:600], **told)
        .panel_.rho,
        abs=0.03,
    )


class TestCrossFit:
    def test_no_case_is_judged_by_a_probe_that_saw_it(self, data):
        groups = np.arange(900) // 6
        job = Job(recipe=Recipe(**QUICK), rows=np.arange(900), y=data.y, groups=groups, seed=3)
        cross = CrossFit.of(job)
        assert np.bincount(cross.fold).tolist() == pytest.approx([90] * 10, abs=12)
        trained = fit_many(data.X, cross.jobs)
        logits = cross.logits(data.X, trained)
        for k, probe in enumerate(trained):
            here = cross.fold == k
            seen = [
                *probe.rows.tolist(),
                *(probe.validation if probe.validation is not None else []),
            ]
            assert not set(groups[here]) & set(groups[seen])
            np.testing.assert_allclose(logits[here], probe.logits(data.X, np.flatnonzero(here)))

    def test_noise_is_not_taken_for_signal(self):
        """In-sample logits of pure noise look sure; cross-fitted ones give a slope near 0."""
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(200, 100)), np.arange(200) % 2
        told = {"n_raters": 7, "kappa": 0.5}
        probe = LinearProbe(min_steps=2_000, validation_share=0.0).fit(X, y, **told)
        assert probe.panel_.slope < 0.2
        assert np.abs(probe.predict_proba(X)[:, 1] - 0.5).max() < 0.35

    def test_too_few_cases_are_told(self):
        X = np.random.default_rng(0).normal(size=(60, 3))
        y = np.zeros(60, dtype=int)
        y[0] = 1
        with pytest.raises(InputError, match="too few to calibrate on out-of-sample logits"):
            LinearProbe(validation_share=0.0).fit(X, y, n_raters=7, kappa=0.4)

    def test_too_few_groups_are_told(self, data):
        with pytest.raises(InputError, match="900 cases in 1 group are too few"):
            LinearProbe(**QUICK).fit(data.X, data.y, n_raters=7, kappa=0.4, groups=np.zeros(900))


def test_one_reader_cannot_split(data):
    probe = LinearProbe(rho=0.1, **QUICK).fit(data.X, data.y, n_raters=7)
    for m in (1, np.where(np.arange(900) < 9, 1, 7)):
        with pytest.raises(InputError, match="one reader cannot split"):
            probe.predict_disagreement(data.X, n_raters=m)


def test_what_is_missing_is_named(data):
    first = np.minimum(data.votes, 1).astype(float)
    probe = LinearProbe(**QUICK)
    with pytest.raises(InputError, match=r"single reads alone: .* panel_size"):
        probe.fit(data.X, data.y, votes=first, n_raters=1, panel_size=7)
    first[100:] = np.nan
    with pytest.raises(InputError, match=r"votes are of one reader, .* give panel_size"):
        probe.fit(data.X, data.y, votes=first, n_raters=1)
    with pytest.raises(InputError, match="rho needs the panel's size"):
        LinearProbe(rho=0.1, **QUICK).fit(data.X, data.y)


@pytest.mark.parametrize("preset", [None, "paper"])
def test_votes_of_the_other_class_are_an_error(data, preset):
    with pytest.raises(InputError, match=r"900 of 900 cases .* swapped"):
        LinearProbe(**QUICK, preset=preset).fit(data.X, data.y, votes=7 - data.votes, n_raters=7)


def test_expit_is_what_the_label_says(data):
    probe = LinearProbe(**QUICK).fit(data.X, data.y, votes=data.votes, n_raters=7)
    np.testing.assert_allclose(
        expit(probe.decision_function(data.X)), probe.predict_proba(data.X)[:, 1]
    )
