"""Levels of columns in an audit: rows, corrections, calibrators, words, gates, files and figures."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from typer.testing import CliRunner

from scalecal import InputError, audit
from scalecal.cases import Cases, Factor
from scalecal.cli import app
from scalecal.evaluation import levels
from scalecal.evaluation.cells import read_cell
from scalecal.evaluation.judging import BETWEEN
from scalecal.evaluation.level_words import level_table, short
from scalecal.inference.between_levels import heterogeneity
from scalecal.inference.units import Units
from scalecal.io import read_common_predictions, read_predictions
from scalecal.metrics import holm

OPTIONS = {"n_resamples": 100, "seed": 0}


def drawn(n=1600, seed=0):
    """Cases of four sites, one of which is wrong, and of two sexes, some unknown."""
    rng = np.random.default_rng(seed)
    site = rng.choice(list("ABCD"), n, p=[0.4, 0.3, 0.25, 0.05])
    sex = rng.choice(["f", "m", ""], n, p=[0.5, 0.4, 0.1])
    z = rng.normal(-0.5, 1.4, n)
    y = (rng.random(n) < expit(z + 1.2 * (site == "C"))).astype(int)
    return pd.DataFrame({"id": np.arange(n), "p": expit(z), "label": y, "site": site, "sex": sex})


@pytest.fixture(scope="module")
def data():
    return drawn()


@pytest.fixture(scope="module")
def made(data):
    by = {"site": data.site, "sex": data.sex}
    return audit(data.label, data.p, by=by, **OPTIONS)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("levels")
    data.to_csv(folder / "p.csv", index=False)
    command = ["audit", str(folder / "p.csv"), "--by", "site,sex", "--resamples", "100"]
    command += ["--fail-if", "site=C: oe > 1.1", "--fail-if", "sex=f: n < 5"]
    result = CliRunner().invoke(app, [*command, "--out", str(folder / "run")])
    return folder, result


def test_a_level_has_the_numbers_of_an_audit_of_its_cases(data, made):
    inside = (data.site == "B").to_numpy()
    alone = audit(data.label[inside], data.p[inside], **OPTIONS)["overall"]
    row = made["site=B"]
    for key in ("n", "ece", "gap", "gap_low", "oe", "oe_low", "oe_high", "slope", "nll", "floor"):
        assert row[key] == pytest.approx(alone[key], rel=1e-9), key


def test_overall_and_strata_are_the_same_with_and_without_levels(data):
    strata = np.where(data.p > 0.4, "upper", "lower")
    options = {"strata": strata, **OPTIONS}
    alone = audit(data.label, data.p, **options)
    beside = audit(data.label, data.p, by={"site": data.site}, **options)
    assert [row["name"] for row in beside.rows[3:]] == ["site=A", "site=B", "site=C", "site=D"]
    for one, other in zip(alone.rows, beside.rows, strict=False):
        assert one.keys() == other.keys()
        for key, value in one.items():
            np.testing.assert_equal(other[key], value)
    assert beside.verdict["badge"] == alone.verdict["badge"]


def test_tests_are_corrected_over_all_levels_of_all_columns(made):
    rows = [row for row in made.rows if "=" in row["name"]]
    assert len(rows) == 6
    raw = [row["p_cox"] for row in rows]
    assert [row["p_cox_holm"] for row in rows] == pytest.approx(holm(raw).tolist())
    site, sex = made.by
    # Both sexes have one comparison between them.
    tests = [own["p_others"] for own in site["levels"]] + [sex["levels"][0]["p_others"]]
    corrected = holm(tests)
    said = [own["p_others_holm"] for own in (*site["levels"], *sex["levels"])]
    assert said == pytest.approx([*corrected, corrected[-1]])


def test_the_wrong_site_stands_out_and_needs_its_own(made):
    site, sex = made.by
    assert site["test"]["p"] < 1e-6
    assert "C" in site["stand_out"]
    assert "C" in site["calibrators"]["own"]
    assert sex["stand_out"] == []
    assert sex["calibrators"]["own"] == []
    assert site["spread"]["oe"]["new_low"] < 1 < site["spread"]["oe"]["new_high"]
    text = " ".join(made.sentences)
    assert "Calibration differs by site (p < 0.001)" in text
    assert "No difference in calibration between the 2 levels of sex is found" in text


def test_tests_between_levels_are_stored_with_their_corrections(made):
    tests = [facts["test"] for facts in made.by]
    assert [test["p_holm"] for test in tests] == pytest.approx(holm([t["p"] for t in tests]))
    corrected = [min(1.0, test["p_holm"] / BETWEEN) for test in tests]
    assert [test["p_corrected"] for test in tests] == pytest.approx(corrected)


def test_sites_that_differ_in_slope_alone_are_found_and_named():
    rng = np.random.default_rng(10)
    site = np.repeat(["A", "B", "C"], 2000)
    z = 1.5 * rng.normal(size=6000)
    slope = np.where(site == "C", 0.57, 1.2)
    result = audit((rng.random(6000) < expit(slope * z)).astype(int), expit(z), by={"site": site})
    facts = result.by[0]
    # All sites have about as many events as are expected.
    for own in facts["levels"]:
        assert own["oe_low"] < 1 < own["oe_high"]
    assert facts["test"]["degrees"] == 4
    assert "C" in facts["stand_out"]
    assert "C" in facts["calibrators"]["own"]
    judged = result.facts["audits"][result.facts["judged"]]["judgement"]
    assert judged["uneven"] == ["site"]
    assert result.verdict["badge"] == "attention"
    text = " ".join(result.sentences)
    assert "Calibration differs by site (p < 0.001): O:E from" in text
    assert f", slope from {result['site=C']['slope']:.2f} [" in text
    assert "] (C) to 1." in text


def test_p_values_and_intervals_of_changes_agree():
    for seed in range(200):
        rng = np.random.default_rng([11, seed])
        # Of long tails, so that the degrees of freedom are few.
        change = levels._change(rng.standard_t(1.5, size=40) + 0.6, Units.of(40))
        assert (change["p"] < 0.05) == (change["low"] > 0 or change["high"] < 0)


def test_cases_without_a_level_count_in_none(data, made):
    missing = int((data.sex == "").sum())
    assert made.by[1]["without"] == missing
    assert sum(own["n"] for own in made.by[1]["levels"]) == len(data) - missing
    assert any(f"{missing} of 1,600 cases have no sex" in note for note in made.notes)


def test_calibrators_are_held_out():
    """Against Platt scaling by scikit-learn's logistic regression without penalty."""
    linear = pytest.importorskip("sklearn.linear_model")
    large = drawn(6000, seed=2)
    inside = (large.site == "A").to_numpy()
    result = audit(large.label, large.p, by={"site": large.site}, **OPTIONS)
    z = np.log(large.p / (1 - large.p)).to_numpy()[:, None]
    fitted = linear.LogisticRegression(C=1e9).fit(z[~inside], large.label[~inside])
    shared = fitted.predict_proba(z[inside])[:, 1]
    y, p = large.label[inside].to_numpy(), large.p[inside].to_numpy()

    def loss(q):
        return -np.log(np.where(y == 1, q, 1 - q)).mean()

    change = result.by[0]["levels"][0]["own"]["common"]["change"]
    assert change == pytest.approx(loss(shared) - loss(p), abs=2e-4)


def test_small_levels_are_called_small():
    data = drawn(300, seed=4)
    data.loc[data.site == "D", "label"] = 0
    result = audit(data.label, data.p, by={"site": data.site}, **OPTIONS)
    last = result.by[0]["levels"][-1]
    assert last["small"]
    assert last["serves"] == "small"
    assert result.by[0]["test"]["method"] == "draws"
    said = "D is small (fewer than 10 observed or expected events or non-events)."
    assert said in " ".join(result.sentences)


def test_given_strata_are_a_column_but_strata_of_votes_are_not(data):
    result = audit(data.label, data.p, strata=data.site, **OPTIONS)
    assert [facts["column"] for facts in result.by] == ["stratum"]
    assert [row["name"] for row in result.rows] == ["overall", *"ABCD"]
    assert result.by[0]["levels"][1]["row"] == "B"
    rng = np.random.default_rng(1)
    votes = rng.binomial(5, data.p)
    voted = audit((votes > 2).astype(int), data.p, votes=votes, n_raters=5, **OPTIONS)
    assert voted.by == []
    named = np.where(data.p > 0.4, "high", "low")
    assert audit(data.label, data.p, strata=named, **OPTIONS).by == []


def test_groups_and_a_prevalence():
    data = drawn(800, seed=5)
    groups = np.arange(800) // 4
    result = audit(data.label, data.p, by={"site": data.site}, groups=groups, **OPTIONS)
    assert result.by[0]["test"]["method"] == "sign flips"
    assert result["site=A"]["n_groups"] > 8
    scarce = audit(data.label, data.p, by={"site": data.site}, prevalence=0.2, **OPTIONS)
    assert "another prevalence" in scarce.by[0]["spread"]["oe"]["reason"]
    assert scarce.by[0]["test"]["p"] < 0.01


def test_several_classes():
    rng = np.random.default_rng(6)
    z = rng.normal(size=(900, 3))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) > rng.random((900, 1))).argmax(axis=1)
    result = audit(y, p, by={"site": np.arange(900) % 3}, **OPTIONS)
    facts = result.by[0]
    assert facts["calibrators"]["calibrator"] == "temperature"
    right = (p.argmax(axis=1) == y)[::3].sum()
    assert facts["levels"][0]["events"] == right
    assert facts["levels"][0]["oe"] == pytest.approx(right / p.max(axis=1)[::3].sum())
    # As of two classes: whether the predicted one is right.
    alone = audit((p.argmax(axis=1) == y).astype(int)[::3], p.max(axis=1)[::3], **OPTIONS)
    for key in ("oe", "oe_low", "oe_high"):
        assert facts["levels"][0][key] == pytest.approx(alone["overall"][key], rel=1e-9)
    wrong = np.where(np.arange(900) % 3 == 1, (p.argmax(axis=1) + 1) % 3, y)
    none_right = audit(wrong, p, by={"site": np.arange(900) % 3}, **OPTIONS).by[0]["levels"][1]
    assert none_right["events"] == 0
    assert np.isnan(none_right["oe"])
    assert "O:E of correct predictions" in " ".join(result.sentences)


def test_what_is_refused():
    y, p = np.arange(60) % 2, np.linspace(0.1, 0.9, 60)
    with pytest.raises(InputError, match=r"60 different numbers.*put it into bands"):
        audit(y, p, by={"age": np.arange(60.0)})
    with pytest.raises(InputError, match="is empty"):
        audit(y, p, by={"site": [""] * 60})
    with pytest.raises(InputError, match="one name per case"):
        audit(y, p, by={"site": ["A"]})
    many = [f"case {i}" for i in range(300)]
    with pytest.raises(InputError, match="300 levels"):
        audit(np.arange(300) % 2, np.full(300, 0.5), by={"id": many})
    with pytest.raises(InputError, match="would be called site=A"):
        audit(y, p, strata=["site=A"] * 60, by={"site": ["A"] * 60})


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_levels_of_certain_predictions(end):
    data = drawn(400, seed=9)
    certain = (data.site == "D").to_numpy()
    p, y = data.p.to_numpy().copy(), data.label.to_numpy().copy()
    p[certain] = end
    y[certain] = int(end)
    result = audit(y, p, by={"site": data.site}, **OPTIONS)
    spread = result.by[0]["spread"]["oe"]
    assert spread["k"] == 3
    assert np.isfinite(spread["new_low"])
    for labels in (np.zeros(400, int), y * 0 + 1):
        single = audit(labels, p, by={"site": data.site}, **OPTIONS)
        assert "the same" in single.by[0]["test"]["reason"]


def test_one_level_says_so(data):
    result = audit(data.label, data.p, by={"site": ["A"] * len(data)}, **OPTIONS)
    assert "All cases with a known site have the same one" in " ".join(result.sentences)


def test_subsets_and_parts_keep_levels():
    first = Cases(n=3, by={"site": Factor.of(["a", "b", ""])})
    second = Cases(n=2, by={"site": Factor.of(["c", "a"]), "sex": Factor.of(["f", "m"])})
    joined = Cases.concat([first, second])
    assert list(joined.by) == ["site"]
    assert joined.by["site"].values.tolist() == ["a", "b", "", "c", "a"]
    assert joined.take(np.array([4, 1])).by["site"].values.tolist() == ["a", "b"]
    with pytest.raises(InputError, match="site has 1 rows"):
        Cases(n=2, by={"site": Factor.of(["a"])})


def test_the_order_of_levels_is_that_of_a_scale():
    names = np.array([">60", "10", "<40", "9", "b"])
    order = sorted(names, key=levels._order)
    assert order == ["<40", "9", "10", "b", ">60"]


def test_levels_keep_their_cases_in_any_order():
    rng = np.random.default_rng(8)
    p = rng.uniform(0.1, 0.9, 600)
    dose = rng.choice(["10", "100", "9", ""], 600, p=[0.5, 0.3, 0.15, 0.05])
    result = audit(rng.random(600) < p, p, by={"dose": dose}, **OPTIONS)
    found = {}
    for own in result.by[0]["levels"]:
        assert own["expected"] == pytest.approx(p[dose == own["name"]].sum())
        found[own["name"]] = own["n"]
    assert list(found) == ["9", "10", "100"]
    # The row overwrites what it repeats; the comparison with the others is by the order alone.
    known = dose != ""
    y = result.predictions.y[known].astype(float)
    order = np.array([["9", "10", "100"].index(name) for name in dose[known]])
    again = heterogeneity(y, p[known], order, 3)
    found = [own["p_others"] for own in result.by[0]["levels"]]
    assert found == pytest.approx(again.p_levels.tolist())


def test_command_folder_and_python_agree(data, made, run):
    folder, result = run
    assert result.exit_code == 3
    table = pd.read_csv(folder / "run" / "audit.csv").set_index("name")
    assert list(table.index) == [row["name"] for row in made.rows]
    assert table.loc["site=C", "oe"] == pytest.approx(made["site=C"]["oe"])
    facts = json.loads((folder / "run" / "facts.json").read_text(encoding="utf-8"))
    stored = facts["audits"]["model"]["by"]
    assert stored[0]["spread"] == made.facts["audits"]["model"]["by"][0]["spread"]
    assert "failed: site=C: oe > 1.1" in result.output
    assert "failed: sex=f" not in result.output
    page = (folder / "run" / "report.html").read_text(encoding="utf-8")
    assert "O:E by site, with 95 % intervals: 4 levels." in page
    for text in made.facts["paragraphs"].values():
        assert text.replace("<", "&lt;") in page
    kept = read_cell(folder / "run").cases.by
    assert kept["site"].values.tolist() == data.site.tolist()


def test_columns_of_files(data, tmp_path):
    data.head(90).to_csv(tmp_path / "a.csv", index=False)
    other = data.head(60).iloc[::-1][["id", "p"]]
    other.to_csv(tmp_path / "b.csv", index=False)
    both = read_common_predictions([tmp_path / "a.csv", tmp_path / "b.csv"], by=["site", "sex"])
    assert both.cases.by["site"].values.tolist() == data.site.head(60).tolist()
    with pytest.raises(
        InputError, match=r"no column 'scaner'.*Columns found: id, p, label, site, sex"
    ):
        read_predictions(tmp_path / "a.csv", by=["scaner"])
    with pytest.raises(InputError, match="different numbers"):
        read_predictions(tmp_path / "a.csv", by=["p"])
    # A column may have a role of its own, and the stratum is a column anyway.
    found = read_predictions(tmp_path / "a.csv", by=["site", "label"], columns={"stratum": "site"})
    assert list(found.cases.by) == ["label"]
    assert found.cases.by["label"].names == ("0", "1")


def test_a_stream_has_no_levels(run):
    folder, _ = run
    result = CliRunner().invoke(app, ["audit", str(folder / "p.csv"), "--by", "site", "--stream"])
    assert isinstance(result.exception, InputError)
    assert "--by site cannot be used with --stream" in str(result.exception)


def test_export_writes_figures_and_a_table(run, tmp_path):
    folder, _ = run
    out = tmp_path / "figures"
    result = CliRunner().invoke(app, ["report", str(folder / "run"), "--export", str(out)])
    assert result.exit_code == 0
    assert (out / "levels_site.svg").is_file()
    table = pd.read_csv(out / "levels.csv")
    assert table["column"].tolist() == ["site"] * 4 + ["sex"] * 2
    assert {"oe", "p_others_holm", "own_nll_change", "serves"} <= set(table)


def test_names_are_escaped_and_shortened():
    rng = np.random.default_rng(7)
    names = ["<script>alert(1)</script>", "University Hospital of the Far Northern Region, annex"]
    site = rng.choice(names, 400)
    p = rng.uniform(0.1, 0.9, 400)
    result = audit(rng.random(400) < p, p, by={"site": site}, **OPTIONS)
    html = result._repr_html_()
    assert "<script>alert" not in html
    head, lines = level_table(result.facts["audits"]["model"]["by"][0], "positive class")
    assert head[0] == "site"
    assert lines[1][0] == short(names[1])
    assert len(lines[1][0]) <= 24
