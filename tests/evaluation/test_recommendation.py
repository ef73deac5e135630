"""One rule recommends for audit, compare and calibrate, and its words say no more than it found."""

from __future__ import annotations

import pytest

from scalecal.evaluation.judging import recommend
from scalecal.evaluation.words import advice


def change(difference, sd=0.001):
    return {
        "difference": difference,
        "low": difference - 2 * sd,
        "high": difference + 2 * sd,
        "sd": sd,
    }


def recommended(by_method):
    """The recommendation among methods whose label NLL and vote NLL change as given."""
    losses = {"nll": {"none": 0.5}, "vote_nll": {"none": 0.6}}
    changes = {"none": {"overall": {}}}
    for method, metrics in by_method.items():
        changes[method] = {"overall": metrics}
        for metric, own in metrics.items():
            losses[metric][method] = losses[metric]["none"] + own["difference"]
    return recommend(losses, changes, baseline="none")


def advised(by_method, *, barred=(), softening=None, badge="attention"):
    """What is said on what to do."""
    found = recommended(by_method)
    rows = [{"method": "none", "stratum": "overall", "changes": {}}]
    rows += [{"method": m, "stratum": "overall", "changes": c} for m, c in by_method.items()]
    return advice(
        {
            "kind": "comparison",
            "recommended": found,
            "baseline": "none",
            "methods": ["none", *by_method, *barred],
            "judged": "none",
            "rows": rows,
            "resampled": "cases",
            "softening": softening or {},
            "audits": {"none": {"judgement": {"badge": badge}}},
        }
    )


def test_labels_choose_for_the_label_and_votes_for_a_vote():
    found = recommended(
        {
            "temperature": {"nll": change(-0.02), "vote_nll": change(-0.08)},
            "platt": {"nll": change(-0.3), "vote_nll": change(-0.05)},
        }
    )
    assert (found["p"]["method"], found["p"]["metric"]) == ("platt", "nll")
    assert (found["p_reader"]["method"], found["p_reader"]["metric"]) == ("temperature", "vote_nll")
    assert found["p"]["sure"]
    assert found["p_reader"]["sure"]


def test_trying_more_methods_cannot_make_a_gain():
    gain = {"nll": change(-0.021, sd=0.01)}
    assert recommended({"platt": gain})["p"]["sure"]
    idle = {f"idle-{i}": {"nll": change(0.0)} for i in range(9)}
    found = recommended({"platt": gain, **idle})["p"]
    assert (found["method"], found["tried"], found["sure"]) == ("platt", 10, False)


def test_doing_nothing_is_recommended_where_it_is_lowest():
    found = recommended({"platt": {"nll": change(0.01)}})
    assert (found["p"]["method"], found["p"]["sure"]) == ("none", False)
    assert found["p_reader"] is None
    assert recommended({}) is None


def test_what_a_gain_costs_by_the_other_answer_is_said():
    said = advised({"soft": {"nll": change(0.04), "vote_nll": change(-0.05)}})
    assert said["heading"] == "Use soft for a reader's vote"
    assert (
        "For the label, none of the candidates (1) improves significantly on the baseline (none)."
        in said["text"]
    )
    assert "vote NLL falls significantly, -0.050 [-0.052, -0.048]" in said["text"]
    assert "(but label NLL rises, +0.040 [+0.038, +0.042])" in said["text"]


@pytest.mark.parametrize(
    ("methods", "barred", "excluded"),
    [
        (1, (), ""),
        (2, (), ""),
        (1, ("panel-votes", "real-linear"), " Methods trained on votes are not candidates."),
        (2, ("scale-shuffled",), " Negative controls are not candidates."),
        (
            2,
            ("scale-shuffled", "vote-fraction"),
            " Methods trained on votes and negative controls are not candidates.",
        ),
    ],
)
def test_the_methods_that_were_counted_are_named(methods, barred, excluded):
    names = ("temperature", "platt")[:methods]
    said = advised({name: {"nll": change(0.01)} for name in names}, barred=barred)
    assert said["text"] == (
        f"For the label, none of the candidates ({methods}) improves significantly on the baseline "
        f"(none).{excluded}"
    )


def test_no_method_but_those_that_are_never_recommended():
    assert advised({}) == advised({}) | {"text": "There is no candidate beside none."}
    assert advised({}, barred=["panel-votes", "scale-shuffled"])["text"] == (
        "There is no candidate beside none. Methods trained on votes and negative controls are not "
        "candidates."
    )


@pytest.mark.parametrize("better", [True, False])
def test_a_gain_that_softening_gives_too_is_marked(better):
    beside = {"soft": {"metric": "vote_nll", "better": better}}
    said = advised({"soft": {"nll": change(0.0), "vote_nll": change(-0.05)}}, softening=beside)
    assert ("no clear gain over one temperature" in said["text"]) is not better


@pytest.mark.parametrize(
    ("badge", "heading"),
    [("attention", "Do not rely on the probabilities of none"), ("good", "Keep the baseline")],
)
def test_where_nothing_helps_the_verdict_decides_what_is_said(badge, heading):
    said = advised({"platt": {"nll": change(0.01), "vote_nll": change(0.01)}}, badge=badge)
    assert said["heading"] == heading
