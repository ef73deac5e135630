import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from scalecal import metrics
from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.datasets import simulate
from scalecal.probes.methods import METHODS

runner = CliRunner()
# Tiny data under the paper's preset give rise to warnings that are right and expected.
pytestmark = [
    pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning"),
    pytest.mark.usefixtures("brief_training"),
]


def run(*arguments):
    return runner.invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    data = simulate(300, dim=5, auc=0.9, n_groups=100, seed=0)
    path = tmp_path_factory.mktemp("features") / "f.npz"
    np.savez(
        path,
        X=data.X.astype(np.float32),
        y=data.y,
        votes=data.votes,
        n_raters=data.n_raters,
        group=data.groups,
        id=np.array([f"c{i}" for i in range(300)]),
    )
    return path


def test_compare_writes_the_contract(features, tmp_path):
    out = tmp_path / "out"
    result = run(
        "compare",
        features,
        "--methods",
        "none,scale,vote-fraction,panel-votes",
        "--seeds",
        2,
        "--out",
        out,
    )
    assert result.exit_code == 0, result.output
    predictions = pd.read_parquet(out / "predictions.parquet")
    assert list(predictions.columns) == ["method", "seed", "id", "p", "p_reader", "rho"]
    single = predictions["method"] != "panel-votes"
    assert predictions.loc[single, "p_reader"].isna().all()
    assert predictions.loc[~single, "p_reader"].between(0, 1).all()
    assert set(predictions["method"]) == {"none", "scale", "vote-fraction", "panel-votes"}
    results = pd.read_csv(out / "results.csv")
    columns = ["method", "seed", "stratum", "metric", "value", "floor", "voted", "reads", "draw"]
    assert list(results.columns) == columns
    assert set(results["stratum"]) == {"overall", "high", "medium", "low"}
    assert {"ece", "nll", "brier", "auc", "accuracy", "vote_nll"} <= set(results["metric"])
    part = predictions[(predictions["method"] == "none") & (predictions["seed"] == 0)]
    cases = pd.read_parquet(out / "cases.parquet").set_index("id")
    measured = metrics.ece(cases.loc[part["id"], "label"], part["p"])
    row = results.query(
        "method == 'none' and seed == 0 and stratum == 'overall' and metric == 'ece'"
    )
    assert row["value"].item() == pytest.approx(measured)
    comparison = pd.read_csv(out / "comparison.csv")
    assert {"ece", "ece_floor", "ece_low", "nll", "vote_nll", "auc", "recovered"} <= set(comparison)
    assert (out / "report.html").is_file()
    assert "method" in result.output


def test_compare_over_an_earlier_run_leaves_nothing_of_it(features, tmp_path):
    out = tmp_path / "out"
    for methods in ("scale", "none"):
        done = run("compare", features, "--methods", methods, "--seeds", 1, "--out", out)
        assert done.exit_code == 0, done.output
        left = {p.name for p in out.iterdir()}
        assert f"audit_{methods}.json" in left
        (out / "mine.txt").write_text("kept")
    assert not left & {"audit_scale.json", "reliability_scale.svg", "reliability_scale.png"}
    assert "mine.txt" in left


def test_same_compare_same_bytes(features, tmp_path):
    for name in ("a", "b"):
        assert (
            run(
                "compare",
                features,
                "--methods",
                "none,scale",
                "--seeds",
                1,
                "--out",
                tmp_path / name,
            ).exit_code
            == 0
        )
    for name in ("predictions.parquet", "results.csv", "comparison.csv", "cases.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


@pytest.mark.parametrize(
    "method", ["none", "temperature", "scale", "isotonic", "scale-default", "panel-published"]
)
def test_fit_then_predict_then_audit(features, tmp_path, method):
    probe, table = tmp_path / "probe", tmp_path / "p.csv"
    assert (
        run("fit", features, "--method", method, "--out", probe, "--preset", "default").exit_code
        == 0
    )
    assert {p.name for p in probe.iterdir()} == {
        ".scalecal.json",
        "probe.safetensors",
        "probe.json",
    }
    about = json.loads((probe / "probe.json").read_text())
    assert about["method"] == method
    assert len(about["data_sha256"]) == 64
    result = run("predict", probe, features, "--out", table)
    assert result.exit_code == 0, result.exception
    frame = pd.read_csv(table)
    assert frame["p"].between(0, 1).all()
    assert list(frame["id"]) == [f"c{i}" for i in range(300)]
    assert metrics.auc(frame["label"], frame["p"]) > 0.75
    audited = run("audit", table)
    assert audited.exit_code == 0, audited.exception


def test_every_method_can_be_fitted_saved_and_loaded(features, tmp_path):
    from scalecal.io.features import read_features
    from scalecal.probes import LinearProbe, ScaleProbe, load_probe
    from scalecal.runs.fitted import fit_method

    data = read_features(features)
    for name, method in METHODS.items():
        if name == "scale-auto":
            continue
        fitted = fit_method(data, name)
        fitted.save(tmp_path / name)
        again = load_probe(tmp_path / name)
        assert type(again) is (LinearProbe if method.recipe.synthesis is None else ScaleProbe)
        assert again.get_params() == fitted.get_params()
        probs = again.predict_proba(data.X)
        assert probs.shape == (300, 2)
        np.testing.assert_array_equal(probs, fitted.predict_proba(data.X))


def test_a_case_without_votes_has_the_usual_panel(features, tmp_path):
    """With votes on some new cases or on none, a case without them is predicted alike."""
    stored = dict(np.load(features))
    n = len(stored["X"])
    half = tmp_path / "half.csv"
    voted = {"id": stored["id"], "votes": stored["votes"], "n_raters": stored["n_raters"]}
    pd.DataFrame(voted)[: n // 2].to_csv(half, index=False)
    bare = tmp_path / "bare.npz"
    np.savez(bare, X=stored["X"], id=stored["id"])
    probs = {}
    for name, source in (("with", features), ("without", tmp_path / "labels.npz")):
        if name == "without":
            np.savez(source, X=stored["X"], y=stored["y"], id=stored["id"])
        out = tmp_path / name
        assert run("fit", source, "--method", "scale-default", "--out", out).exit_code == 0
        for votes in ([], ["--votes", half]):
            file = tmp_path / f"{name}{len(votes)}.csv"
            done = run("predict", out, bare, *votes, "--out", file)
            assert done.exit_code == 0, done.exception
            probs[name, bool(votes)] = pd.read_csv(file)["p"].to_numpy()
            assert ("p_reader" in pd.read_csv(file)) == (name == "with")
        np.testing.assert_array_equal(probs[name, True][n // 2 :], probs[name, False][n // 2 :])
        assert (out / "probe.safetensors").stat().st_mode == (out / "probe.json").stat().st_mode
    np.testing.assert_array_equal(probs["without", True], probs["without", False])


def test_the_number_of_readers_is_heeded_without_labels_too(features, tmp_path):
    stored = dict(np.load(features))
    bare = tmp_path / "bare.npz"
    np.savez(bare, X=stored["X"], id=stored["id"])
    assert (
        run("fit", features, "--method", "panel-votes", "--out", tmp_path / "probe").exit_code == 0
    )
    for more in ([], ["--n-raters", 25]):
        out = tmp_path / f"p{len(more)}.csv"
        assert run("predict", tmp_path / "probe", bare, *more, "--out", out).exit_code == 0
    assert (pd.read_csv(tmp_path / "p0.csv")["p"] != pd.read_csv(tmp_path / "p2.csv")["p"]).any()


def test_predict_writes_both_answers_and_the_law(features, tmp_path):
    fit = ("fit", features, "--method", "panel-votes", "--preset", "default")
    result = run(*fit, "--out", tmp_path / "probe")
    assert result.exit_code == 0, result.output
    assert "Panel of 7: votes on a case correlate by rho = " in result.output
    out = tmp_path / "p.csv"
    result = run("predict", tmp_path / "probe", features, "--votes-law", "--out", out)
    assert result.exit_code == 0, result.output
    frame = pd.read_csv(out)
    law = frame[[f"p_votes_{k}" for k in range(8)]].to_numpy()
    np.testing.assert_allclose(law.sum(axis=1), 1)
    np.testing.assert_allclose(law[:, 4:].sum(axis=1), frame["p"], atol=1e-9)
    np.testing.assert_allclose(law @ np.arange(8) / 7, frame["p_reader"], atol=1e-9)
    np.testing.assert_allclose(law[:, 3:5].sum(axis=1), frame["p_split"], atol=1e-9)
    assert frame["rho"].min() == frame["rho"].max()
    audited = run("audit", out, "--out", tmp_path / "audit")
    assert audited.exit_code == 0, audited.exception
    row = json.loads((tmp_path / "audit" / "audit.json").read_text())["strata"][0]
    counts = np.column_stack([7 - frame["votes"], frame["votes"]])
    assert row["vote_nll"] == pytest.approx(metrics.vote_nll(counts, frame["p_reader"]))
    assert row["nll"] == pytest.approx(metrics.nll(frame["label"], frame["p"]))
    # A panel of three, of whom nothing was said.
    other = tmp_path / "three.csv"
    bare = tmp_path / "bare.npz"
    np.savez(bare, X=np.load(features)["X"])
    asked = ("predict", tmp_path / "probe", bare, "--n-raters", 3, "--votes-law", "--out", other)
    assert run(*asked).exit_code == 0
    three = pd.read_csv(other)
    assert "p_votes_3" in three
    assert "p_votes_4" not in three
    np.testing.assert_allclose(three[["p_votes_2", "p_votes_3"]].sum(axis=1), three["p"], atol=1e-9)
    # One answer has no law.
    assert run("fit", features, "--method", "none", "--out", tmp_path / "plain").exit_code == 0
    result = run(
        "predict", tmp_path / "plain", features, "--votes-law", "--out", tmp_path / "x.csv"
    )
    assert isinstance(result.exception, InputError)
    assert "--method panel-votes" in str(result.exception)
    assert not (tmp_path / "x.csv").exists()


def test_the_law_is_of_the_panel_whose_split_is_told(features, tmp_path):
    probe, out, five = tmp_path / "probe", tmp_path / "p.csv", tmp_path / "five.npz"
    assert run("fit", features, "--method", "panel-votes", "--out", probe).exit_code == 0
    np.savez(five, X=np.load(features)["X"], votes=np.full(300, 2), n_raters=np.full(300, 5))
    assert run("predict", probe, five, "--votes-law", "--out", out).exit_code == 0
    frame = pd.read_csv(out)
    law = frame[[f"p_votes_{k}" for k in range(6)]].to_numpy()
    np.testing.assert_allclose(law[:, 2:4].sum(axis=1), frame["p_split"], atol=1e-9)
    np.testing.assert_allclose(law[:, 3:].sum(axis=1), frame["p"], atol=1e-9)


def test_two_answers_of_three_classes_are_audited(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    votes = np.array([rng.multinomial(5, p / p.sum()) for p in np.exp(X)])
    y = np.array(["a", "b", "c"])[(votes + 0.1 * rng.random(votes.shape)).argmax(axis=1)]
    np.savez(tmp_path / "f.npz", X=X, y=y, votes=votes)
    probe, out = tmp_path / "probe", tmp_path / "p.csv"
    fit = ("fit", tmp_path / "f.npz", "--method", "panel-votes", "--out", probe)
    assert run(*fit).exit_code == 0
    predict = ("predict", probe, tmp_path / "f.npz", "--votes-law", "--out", out)
    assert run(*predict).exit_code == 0
    assert {"p_split", "p_votes_a_0"} <= set(pd.read_csv(out).columns)
    result = run("audit", out, "--resamples", 50)
    assert result.exit_code == 0, result.exception
    assert "p_reader compared with votes" in result.output


def test_compare_where_few_cases_have_votes(features, tmp_path):
    stored, votes, out = np.load(features), tmp_path / "votes.csv", tmp_path / "out"
    bare = tmp_path / "bare.npz"
    np.savez(bare, X=stored["X"], y=stored["y"], id=stored["id"])
    known = {k: stored[k][::4] for k in ("id", "votes", "n_raters")}
    pd.DataFrame(known).to_csv(votes, index=False)
    result = run(
        *("compare", bare, "--votes", votes, "--methods", "none,panel-votes", "--seeds", 1),
        *("--out", out),
    )
    assert result.exit_code == 0, result.exception
    splits = json.loads((out / "facts.json").read_text())["splits"]
    assert splits
    assert all(case["two"]["n_raters"] == 7 for case in splits)
    assert "Most likely to split the panel" in (out / "report.html").read_text()


def test_published_numbers_on_the_command_line(features, tmp_path):
    stored = dict(np.load(features))
    np.savez(tmp_path / "f.npz", X=stored["X"], y=stored["y"], id=stored["id"])
    fit = ("fit", tmp_path / "f.npz", "--method", "panel-published", "--preset", "default")
    share = round(stored["votes"].sum() / stored["n_raters"].sum(), 3)
    told = ("--kappa", 0.4, "--vote-share", share, "--n-raters", 7)
    result = run(*fit, *told, "--out", tmp_path / "probe")
    assert result.exit_code == 0, result.output
    assert "rho = " in result.output
    assert run(*fit, *told[:4], "--panel-size", 7, "--out", tmp_path / "other").exit_code == 0
    one, two = ((tmp_path / d / "probe.json").read_text() for d in ("probe", "other"))
    assert json.loads(one)["calibrator"]["fitted"] == json.loads(two)["calibrator"]["fitted"]
    for missing in (told[2:], told[:4]):
        result = run(*fit, *missing, "--out", tmp_path / "no")
        assert isinstance(result.exception, InputError)
    result = run(*fit, *told, "--vote-share", "x", "--out", tmp_path / "no")
    assert isinstance(result.exception, InputError)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("part", ["weights", "temperature"])
def test_predict_refuses_a_probe_that_is_not_finite(features, tmp_path, part):
    """It wrote a file of empty probabilities, with exit code 0."""
    from safetensors.numpy import load_file, save_file

    probe, out = tmp_path / "probe", tmp_path / "p.csv"
    assert run("fit", features, "--method", "temperature", "--out", probe).exit_code == 0
    if part == "weights":
        arrays = load_file(probe / "probe.safetensors")
        save_file({**arrays, "coef_": 0 * arrays["coef_"] + np.nan}, probe / "probe.safetensors")
    else:
        about = json.loads((probe / "probe.json").read_text())
        about["calibrator"]["fitted"]["temperature_"] = None
        (probe / "probe.json").write_text(json.dumps(about))
    result = run("predict", probe, features, "--out", out)
    assert isinstance(result.exception, InputError)
    assert "not finite" in str(result.exception)
    assert not out.exists()


def test_a_negative_seed_is_one_line(features, tmp_path):
    result = run("fit", features, "--method", "none", "--seed", -2, "--out", tmp_path / "probe")
    assert isinstance(result.exception, InputError)


def test_predict_refuses_other_features(features, tmp_path):
    assert run("fit", features, "--method", "none", "--out", tmp_path / "probe").exit_code == 0
    other = tmp_path / "other.npz"
    np.savez(other, X=np.random.default_rng(0).random((4, 7)), y=[0, 1, 0, 1])
    result = run("predict", tmp_path / "probe", other, "--out", tmp_path / "p.csv")
    assert isinstance(result.exception, InputError)
    assert "7 columns, but the probe was fitted to 5" in str(result.exception)
    assert not (tmp_path / "p.csv").exists()


def test_votes_and_labels_come_by_id(features, tmp_path):
    stored = np.load(features)
    bare, labels, votes = tmp_path / "x.parquet", tmp_path / "labels.csv", tmp_path / "votes.csv"
    frame = pd.DataFrame(stored["X"], columns=[f"f{j}" for j in range(5)])
    frame.insert(0, "id", stored["id"])
    frame.to_parquet(bare)
    pd.DataFrame({"id": stored["id"], "label": stored["y"]}).sample(frac=1, random_state=0).to_csv(
        labels, index=False
    )
    long = [
        (case, f"r{j}", int(j < v))
        for case, v, m in zip(stored["id"], stored["votes"], stored["n_raters"], strict=True)
        for j in range(m)
    ]
    pd.DataFrame(long, columns=["id", "rater", "label"]).to_csv(votes, index=False)
    result = run(
        *("compare", bare, "--labels", labels, "--votes", votes),
        *("--methods", "none,vote-fraction", "--seeds", 1, "--out", tmp_path / "out"),
    )
    assert result.exit_code == 0, result.exception
    without = run(
        "compare",
        bare,
        "--labels",
        labels,
        "--methods",
        "none,vote-fraction",
        "--seeds",
        1,
        "--out",
        tmp_path / "w",
    )
    assert without.exit_code == 0
    assert "vote-fraction is left out: it needs readers' votes" in without.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "F", "--method", "scael", "--out", "O"), "unknown method 'scael'"),
        (("fit", "N", "--method", "vote-fraction", "--out", "O"), "needs readers' votes"),
        (("compare", "F", "--methods", "nope", "--out", "O"), "unknown method 'nope'"),
        (("compare", "F", "--preset", "fast", "--out", "O"), "preset must be one of"),
        (("predict", "missing", "F", "--out", "O.csv"), "no fitted probe at"),
        (("compare", "missing.npz", "--out", "O"), "missing.npz"),
        (
            ("compare", "F", "--device", "cuda", "--seeds", "1", "--methods", "none", "--out", "O"),
            "no CUDA card",
        ),
    ],
)
def test_bad_input_is_one_clear_error(features, tmp_path, arguments, message):
    import torch

    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a card here")
    novotes = tmp_path / "n.npz"
    stored = np.load(features)
    np.savez(novotes, X=stored["X"], y=stored["y"])
    places = {
        "F": features,
        "N": novotes,
        "O": tmp_path / "out",
        "O.csv": tmp_path / "o.csv",
        "missing": tmp_path / "no",
    }
    result = run(*(places.get(a, a) for a in arguments))
    assert isinstance(result.exception, InputError), result.output
    assert message in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_a_feature_folder_of_several_shards_is_taken(features, tmp_path):
    from scalecal.features import import_features

    import_features(features, tmp_path / "store", shard_rows=64)
    assert len(list((tmp_path / "store" / "shards").iterdir())) > 2
    result = run(
        "compare",
        tmp_path / "store",
        "--methods",
        "none,scale",
        "--seeds",
        1,
        "--out",
        tmp_path / "o",
    )
    assert result.exit_code == 0, result.exception
    assert (
        run("fit", tmp_path / "store", "--method", "none", "--out", tmp_path / "p").exit_code == 0
    )
    assert (
        run(
            "predict", tmp_path / "p", tmp_path / "store", "--out", tmp_path / "p.parquet"
        ).exit_code
        == 0
    )


def test_methods_are_listed():
    output = run("list", "methods").output
    for name in METHODS:
        assert name in output


def test_compare_shows_the_images_behind_the_embeddings(tmp_path):
    image = pytest.importorskip("PIL.Image")
    from scalecal.io.feature_store import StoreWriter

    data = simulate(120, dim=4, auc=0.9, seed=0)
    (tmp_path / "images").mkdir()
    paths = [f"bild ö <{i}>.png" for i in range(120)]
    for path in paths:
        image.new("RGB", (8, 8), "purple").save(tmp_path / "images" / path)
    table = pd.DataFrame(
        {
            "id": [f"c{i}" for i in range(120)],
            "label": data.y,
            "votes": data.votes,
            "n_raters": data.n_raters,
            "path": paths,
        }
    )
    settings = {"encoder": {"name": "mine"}, "dataset": {"classes": ["0", "1"]}}
    with StoreWriter(tmp_path / "f", settings, table, dim=4, shard_rows=120) as store:
        store.write_shard(0, data.X)
        store.finish()
    options = ["compare", tmp_path / "f", "--methods", "none", "--seeds", 1]
    result = run(*options, "--out", tmp_path / "plain")
    assert result.exit_code == 0, result.output
    assert "scalecal report RUN --images DIR" in (tmp_path / "plain" / "report.html").read_text()
    assert run("report", tmp_path / "plain", "--images", tmp_path / "images").exit_code == 0
    assert run(*options, "--images", tmp_path / "images", "--out", tmp_path / "seen").exit_code == 0
    for out in ("plain", "seen"):
        page = (tmp_path / out / "report.html").read_text()
        assert "data:image/jpeg;base64," in page
        assert "../images/bild%20%C3%B6%20%3C" in page
    for name in ("cases.parquet", "predictions.parquet", "results.csv"):
        same = [(tmp_path / out / name).read_bytes() for out in ("plain", "seen")]
        assert same[0] == same[1]
    wrong = run(*options, "--images", tmp_path / "nowhere", "--out", tmp_path / "no")
    assert "no folder at" in str(wrong.exception)
    (tmp_path / "empty").mkdir()
    for line in (options, ["report", tmp_path / "plain"]):
        out = [] if line[0] == "report" else ["--out", tmp_path / "no"]
        empty = run(*line, "--images", tmp_path / "empty", *out)
        assert "image files is in it, such as 'bild" in str(empty.exception)


def test_images_of_cases_that_name_no_file_are_an_error(features, tmp_path):
    result = run(
        *("compare", features, "--methods", "none", "--seeds", 1),
        *("--images", tmp_path, "--out", tmp_path / "no"),
    )
    assert "the cases name no image files" in str(result.exception)


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_predictions_that_cannot_be_written_are_one_error(tmp_path, name):
    from scalecal.evaluation.cells import write_table

    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot write"):
        write_table(pd.DataFrame({"p": [0.5]}), tmp_path / "file" / name)
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="cannot write"):
        write_table(pd.DataFrame({"p": [0.5]}), tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", name]


@pytest.mark.parametrize("told", ["option", "column"])
def test_published_numbers_and_the_number_of_readers_are_enough_for_the_panel(
    features, tmp_path, told
):
    stored = dict(np.load(features))
    del stored["votes"]
    if told == "option":
        del stored["n_raters"]
    path, more = tmp_path / "f.npz", ("--n-raters", 7) if told == "option" else ()
    np.savez(path, **stored)
    published = ("--kappa", 0.4, "--vote-share", 0.5)
    methods = "none,panel-published,real-linear"
    asked = ("compare", path, "--methods", methods, "--seeds", 1, *published)
    result = run(*asked, *more, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    predictions = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    assert set(predictions["method"]) == {"none", "panel-published"}
    # The same map as with the votes at hand, which it does not look at.
    result = run("compare", features, *asked[2:], "--out", tmp_path / "with")
    assert result.exit_code == 0, result.output
    known = pd.read_parquet(tmp_path / "with" / "predictions.parquet")
    for answer in ("p", "p_reader"):
        pair = [
            f[f["method"] == "panel-published"][answer].to_numpy() for f in (predictions, known)
        ]
        np.testing.assert_allclose(*pair, atol=1e-9)
    result = run(
        "fit", path, "--method", "panel-published", *published, *more, "--out", tmp_path / "probe"
    )
    assert result.exit_code == 0, result.output
    about = json.loads((tmp_path / "probe" / "probe.json").read_text())
    assert about["calibrator"]["fitted"]["panel"]["panel_size"] == 7


def test_a_number_of_readers_that_is_none_is_refused(tmp_path):
    np.savez(tmp_path / "f.npz", X=np.eye(4), y=[0, 1, 0, 1], n_raters=[7, 0, 2.5, 7])
    result = run("compare", tmp_path / "f.npz", "--out", tmp_path / "out")
    assert isinstance(result.exception, InputError)
    assert "'n_raters' must hold whole numbers from 1, got 0 at rows 1, 2" in str(result.exception)


def test_ties_stop_fit_and_are_noted_by_predict(features, tmp_path):
    """Without labels a tie has none: fit needs one and asks, predict needs none and says so."""
    with np.load(features) as stored:
        arrays = dict(stored)
    del arrays["y"]
    arrays["votes"], arrays["n_raters"] = np.minimum(arrays["votes"], 6), np.full(300, 6)
    tied = int((arrays["votes"] == 3).sum())
    assert tied
    np.savez(tmp_path / "tied.npz", **arrays)
    fitting = ("fit", tmp_path / "tied.npz", "--method", "none", "--out", tmp_path / "probe")
    refused = run(*fitting)
    assert refused.exit_code != 0
    assert f"{tied} of 300 cases are tied" in str(refused.exception)
    assert run(*fitting, "--ties", "drop").exit_code == 0
    result = run("predict", tmp_path / "probe", tmp_path / "tied.npz", "--out", tmp_path / "p.csv")
    assert result.exit_code == 0, result.output
    assert f"in {tied} they are tied and there is none" in result.output
    written = pd.read_csv(tmp_path / "p.csv")
    assert len(written) == 300
    assert written["label"].isna().sum() == tied
    assert written["p"].notna().all()
