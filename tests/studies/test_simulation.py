"""The simulation study: scores against the truth, sentences that claim what their interval bears."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from scalecal import cli
from scalecal.checks import InputError
from scalecal.datasets import simulate
from scalecal.metrics import ece
from studies import simulation
from studies.simulation import (
    AIM,
    FACTORS,
    MARGIN,
    PAPER_TRAINED,
    SCORES,
    SETTINGS,
    STUDY_METHODS,
    TRUTHS,
    Setting,
    Study,
    effect,
    main,
    page,
    paired_t,
    score_against_truth,
    summarise,
    true_calibration_error,
    write_study,
)

pytestmark = pytest.mark.usefixtures("brief_training")

SMALL = {
    "base": Setting(dim=4, n_train=200, n_test=300),
    "n_raters=3": Setting(dim=4, n_train=200, n_test=300, n_raters=3),
}
METHODS = ["none", "scale", "scale-shuffled", "panel-published", "vote-fraction"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("study")
    said = []
    text = write_study(out, seeds=1, methods=METHODS, settings=SMALL, progress=said.append)
    return out, text, said


def made(changes, *, seed=0, n=8, metrics=tuple(SCORES)):
    """A study whose method `scale` differs from `none` by known means and a little noise."""
    rng = np.random.default_rng(seed)
    lines = []
    for setting, change in changes.items():
        for replicate in range(n):
            base = rng.normal(0.4, 0.05)
            values = {"none": base, "scale": base + change + rng.normal(0, 0.001)}
            values |= dict.fromkeys(TRUTHS, base - 0.1)
            lines += [
                (setting, replicate, method, metric, value)
                for method, value in values.items()
                for metric in metrics
            ]
    frame = pd.DataFrame(lines, columns=["setting", "replicate", "method", "metric", "value"])
    return frame.assign(n_test=300, **dict.fromkeys(FACTORS, 1.0))


def test_paired_t_equals_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 10))
    ours, theirs = paired_t(a, b), stats.ttest_rel(b, a)
    assert ours.p_value == pytest.approx(theirs.pvalue)
    low, high = theirs.confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((low, high))


def test_paired_t_says_why_it_is_undefined():
    assert paired_t([1.0], [2.0]).reason == "one pair only"
    assert paired_t([1.0, 2.0], [2.0, 3.0]).reason == "the differences do not vary"
    with pytest.raises(InputError, match="same number"):
        paired_t([1.0], [2.0, 3.0])


def test_every_setting_can_be_drawn_and_differs_from_base_in_what_its_name_says():
    base = SETTINGS["base"]
    for name, setting in SETTINGS.items():
        data = replace(setting, n_train=20, n_test=10).draw(0)
        assert (data.split == "train").sum() == 20
        assert data.X.shape == (30, setting.dim)
        assert data.n_raters[0] == setting.n_raters
        changed = [
            f"{key}={value:g}"
            for key, value in vars(setting).items()
            if key != "preset" and value != getattr(base, key)
        ]
        paper = PAPER_TRAINED if setting.preset == "paper" else ""
        assert name == ("".join(changed) or "base") + paper


def test_telling_the_truth_has_no_error():
    data = simulate(1000, seed=3)
    vote, label = data.expected_vote_probability, data.label_probability
    as_vote = score_against_truth(vote, vote, vote, label, data.y, label)
    as_label = score_against_truth(label, label, vote, label, data.y, label)
    assert as_vote["vote_distance"] == 0
    assert as_label["label_error"] == 0
    # The truth has the lowest expected log loss of its own target, and it is its entropy.
    entropy = -(label * np.log(label) + (1 - label) * np.log1p(-label)).mean()
    assert as_label["label_nll"] == pytest.approx(entropy)
    assert as_label["label_nll"] < as_vote["label_nll"]
    assert as_vote["vote_nll"] < as_label["vote_nll"]
    # Softened to its own entropy the baseline is itself.
    assert as_label["softened_label_nll"] == pytest.approx(as_label["label_nll"], abs=1e-6)


def test_scores_are_what_ever_more_labels_tend_to():
    data = simulate(400, seed=1)
    vote, label = data.expected_vote_probability, data.label_probability
    probs = np.clip(label + 0.1, 0.01, 0.99)
    scores = score_against_truth(probs, probs, vote, label, data.y, label)
    y = np.random.default_rng(0).random((4000, 400)) < label
    drawn = -np.where(y, np.log(probs), np.log1p(-probs)).mean()
    assert scores["label_nll"] == pytest.approx(drawn, abs=0.002)
    assert scores["vote_distance"] == pytest.approx(np.abs(probs - vote).mean())


def test_true_error_is_what_the_ece_of_many_labels_tends_to():
    data = simulate(200_000, dim=2, unexplained=0.0, seed=3)
    q = data.label_probability
    p = q**1.5 / (q**1.5 + (1 - q) ** 1.5)
    assert true_calibration_error(p, q) == pytest.approx(ece(data.y, p), abs=0.003)
    assert true_calibration_error(p, q) <= np.abs(p - q).mean() + 1e-15


def test_files_are_written_and_hold_every_score(written):
    out, text, _ = written
    study = pd.read_csv(out / "study.csv")
    assert set(study["setting"]) == set(SMALL)
    assert set(study["method"]) == {*METHODS, *TRUTHS}
    assert len(study) == len(SMALL) * (len(METHODS) + len(TRUTHS)) * len(SCORES)
    zero = study.set_index(["method", "metric"])["value"]
    assert (zero.loc["true-vote", "vote_distance"] == 0).all()
    assert (zero.loc["true-label", "label_error"] == 0).all()
    for name in ("summary.csv", "study.md", "figure.svg", "figure.png", "run.json"):
        assert (out / name).stat().st_size > 0
    assert "## When does SCALE help?" in text
    assert (out / "study.md").read_text().startswith("# Simulation study")


def test_one_data_set_claims_nothing(written):
    out, _, _ = written
    summary = pd.read_csv(out / "summary.csv", keep_default_na=False)
    told = summary[~summary["method"].isin(["none", *TRUTHS])]
    assert set(told["verdict"]) == {"inconclusive"}
    body = (out / "study.md").read_text().split("## When does SCALE help?")[1]
    assert "helps in" not in body
    assert "hurts in" not in body


def test_a_finished_setting_is_not_measured_again(written, monkeypatch):
    out, text, said = written
    assert len(said) == len(SMALL)
    before = (out / "study.csv").read_bytes()
    asked = []
    real = simulation.measure_setting
    monkeypatch.setattr(
        simulation,
        "measure_setting",
        lambda name, *a, **k: asked.append(name) or real(name, *a, **k),
    )
    again = write_study(out, seeds=1, methods=METHODS, settings=SMALL, progress=said.append)
    assert asked == []
    assert again == text
    assert (out / "study.csv").read_bytes() == before
    # Another law under the same name is another setting.
    other = SMALL | {"base": Setting(dim=3, n_train=200, n_test=300)}
    with pytest.raises(InputError, match=r"settings\.base\.dim: 4 there, 3 here"):
        write_study(out, seeds=1, methods=METHODS, settings=other, progress=said.append)
    # A part that was changed is measured again.
    (out / "settings" / "base.csv").unlink()
    write_study(out, seeds=1, methods=METHODS, settings=SMALL, progress=said.append)
    assert asked == ["base"]
    assert (out / "study.csv").read_bytes() == before


def test_unknown_methods_fail_before_anything_is_measured(tmp_path):
    with pytest.raises(InputError, match="unknown method 'scales'"):
        write_study(tmp_path, seeds=1, methods=["scales"], progress=str)
    assert list(tmp_path.iterdir()) == []


def test_the_command_ends_with_2_and_one_line_where_it_cannot_run(tmp_path, capsys):
    (tmp_path / "study.csv").write_text("mine")
    assert main(["--out", str(tmp_path), "--methods", "none,jury"]) == 2
    assert "'jury' was removed" in capsys.readouterr().err
    assert main(["--out", str(tmp_path), "--methods", "none", "--seeds", "1"]) == 2
    assert "study.csv" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["study.csv"]


def test_reproduce_names_the_command_of_the_study(tmp_path, monkeypatch, capsys):
    out = str(tmp_path / "out")
    monkeypatch.setattr(
        "sys.argv", ["scalecal", "reproduce", "--datasets", "simulated", "--out", out]
    )
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "python -m studies.simulation" in capsys.readouterr().err


def test_replicates_differ_and_presets_share_their_data():
    setting = Setting(dim=4, n_train=100, n_test=50)
    paper = Setting(dim=4, n_train=100, n_test=50, preset="paper")
    assert np.array_equal(setting.draw(1).X, paper.draw(1).X)
    assert not np.array_equal(setting.draw(0).X, setting.draw(1).X)


def test_default_methods_are_the_study_s():
    assert set(METHODS) <= set(STUDY_METHODS)


@pytest.mark.parametrize(
    ("difference", "expected"),
    [(-0.03, "helps"), (0.03, "hurts"), (0.0, "does nothing"), (0.002, "does nothing")],
)
def test_effects(difference, expected):
    rng = np.random.default_rng(0)
    base = rng.normal(size=10)
    change = paired_t(base, base + difference + rng.normal(0, 0.001, 10))
    assert effect(change) == expected
    mirrored = {"helps": "hurts", "hurts": "helps"}.get(expected, expected)
    assert effect(change, higher_is_better=True) == mirrored


def test_a_wide_interval_around_zero_is_inconclusive():
    assert effect(paired_t([0.0, 0.0, 0.0], [-0.1, 0.2, -0.05])) == "inconclusive"


def test_equal_values_do_nothing():
    assert effect(paired_t([0.1, 0.2], [0.1, 0.2])) == "does nothing"


def test_sentences_say_where_a_method_helps_hurts_or_does_nothing():
    frame = made({"base": -0.05, "b": 0.04, "c": 0.0})
    text = page(frame)
    assert (
        "Label NLL: it helps in 1 of 3 (base), by 0.050; hurts in 1 of 3 (b), by 0.040; "
        "does nothing in 1 of 3 (c)." in text
    )
    assert "AUC: it helps in 1 of 3 (b), by 0.040; hurts in 1 of 3 (base)" in text


def test_the_paper_s_training_is_told_of_on_the_same_data_sets():
    frame = made({"base": 0.0, f"base{PAPER_TRAINED}": 0.0})
    values = frame["value"].to_numpy()
    half = len(frame) // 2
    frame["value"] = np.r_[values[:half], values[:half] + 0.05]
    assert "At base the paper's training" in page(frame)
    assert "label NLL +0.050" in page(frame)


def test_intervals_hold_for_all_settings_together():
    frame = made({"base": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}, n=5)
    study = Study(frame)
    change = study.change("b", "scale", "vote_nll")
    difference = (
        study.by_data_set["b", "scale", "vote_nll"] - study.by_data_set["b", "none", "vote_nll"]
    )
    expected = stats.ttest_1samp(difference, 0).confidence_interval(1 - 0.05 / 4)
    assert (change.low, change.high) == pytest.approx((expected.low, expected.high))


def test_false_claims_are_rare():
    """Of 200 studies in which nothing differs, about one in twenty may claim anything."""
    rng = np.random.default_rng(0)
    claims = 0
    for _ in range(200):
        # Noise far above the margin, so that "does nothing" cannot hide a false claim.
        pairs = [rng.normal(0, 20 * MARGIN, (2, 6)) for _ in range(4)]
        found = [effect(paired_t(a, b, level=1 - 0.05 / 4)) for a, b in pairs]
        claims += any(word in ("helps", "hurts") for word in found)
    assert claims <= 20  # binomial(200, 0.05) exceeds 20 once in 2,000


def test_the_recovered_share_is_the_ratio_of_gains():
    frame = made({"base": -0.05, "b": -0.05})
    votes = frame[frame["method"] == "scale"].assign(method="vote-fraction")
    votes["value"] = (
        frame[frame["method"] == "none"]["value"].to_numpy()
        - (frame[frame["method"] == "none"]["value"].to_numpy() - votes["value"]) * 1.25
    )
    both = pd.concat([frame, votes], ignore_index=True)
    share, over = Study(both).recovered("base", "scale")
    assert share == pytest.approx(0.8)
    assert (share > AIM) == (over.difference > 0)
    row = summarise(both).set_index(["setting", "method", "metric"]).loc[("b", "scale", "vote_nll")]
    assert row["recovered"] == pytest.approx(0.8)
    assert "Every method without votes clearly falls short of 83%" in page(both)
