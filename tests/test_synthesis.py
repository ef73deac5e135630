"""Synthesis: a literal transcription of the algorithm, ordering, sampling, many classes."""

import inspect
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalecal.checks import InputError, ScalecalWarning
from scalecal.smoothing import SMOOTHINGS, piecewise
from scalecal.synthesis import ANCHORS, BetaLevels, plan, select_anchors, synthesize


@pytest.fixture
def cases():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 80)
    logits = 1.5 * (2 * y - 1) + rng.normal(0, 1.5, 80)
    return rng.normal(size=(80, 6)), y, logits


@pytest.fixture
def many():
    rng = np.random.default_rng(6)
    y = rng.integers(0, 4, 200)
    logits = 2.0 * np.eye(4)[y] + rng.normal(size=(200, 4))
    return rng.normal(size=(200, 5)), y, logits


def literal(X, y, logits, n_anchors, n_raters, h):
    """Transcribe the algorithm, loop by loop, for two classes and confident anchors."""
    positive = [i for i in range(len(y)) if y[i] == 1 and logits[i] > 0]
    negative = [i for i in range(len(y)) if y[i] == 0 and logits[i] <= 0]
    positive.sort(key=lambda i: (-logits[i], i))
    negative.sort(key=lambda i: (logits[i], i))
    Z, targets = [], []
    for j in positive[:n_anchors]:
        for k in negative[:n_anchors]:
            for step in range(1, n_raters):
                alpha = step / n_raters
                Z.append([(1 - alpha) * a + alpha * b for a, b in zip(X[j], X[k], strict=True)])
                targets.append(float(h(n_raters - step, n_raters)))
    return np.array(Z), np.array(targets)


@pytest.mark.parametrize("n_raters", [2, 4, 7, 10])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_equals_the_algorithm_written_out(cases, n_raters, smoothing):
    X, y, logits = cases
    Z, targets = synthesize(X, y, logits, n_anchors=5, n_raters=n_raters, smoothing=smoothing)
    expected_Z, expected = literal(X, y, logits, 5, n_raters, SMOOTHINGS[smoothing])
    np.testing.assert_allclose(Z, expected_Z, rtol=1e-14, atol=1e-15)
    np.testing.assert_array_equal(targets, expected)


def test_published_size_and_row_order(cases):
    X, y, logits = cases
    Z, targets = synthesize(X, y, logits)
    made = plan(y, logits)
    assert Z.shape == (600, 6)
    assert targets.shape == (600,)
    assert len(made) == 600
    np.testing.assert_array_equal(made.first, np.repeat(made.anchors[1], 60))
    np.testing.assert_array_equal(made.second, np.tile(np.repeat(made.anchors[0], 6), 10))
    np.testing.assert_array_equal(made.alpha, np.tile(np.arange(1, 7) / 7, 100))
    assert (np.diff(logits[made.anchors[1]]) <= 0).all()
    assert (np.diff(logits[made.anchors[0]]) >= 0).all()
    np.testing.assert_allclose(targets[:6], piecewise([6, 5, 4, 3, 2, 1], 7))


@settings(deadline=None)
@given(st.integers(2, 400))
def test_votes_are_exact_for_every_panel(n_raters):
    made = plan([0, 1], [-1.0, 1.0], n_anchors=1, n_raters=n_raters, smoothing="fraction")
    np.testing.assert_array_equal(made.targets, np.arange(n_raters - 1, 0, -1) / n_raters)


def test_two_columns_are_the_binary_method(cases):
    X, y, logits = cases
    Z, targets = synthesize(X, y, logits, n_anchors=4)
    Z2, targets2 = synthesize(X, y, np.column_stack([-logits / 2, logits / 2]), n_anchors=4)
    np.testing.assert_array_equal(Z, Z2)
    np.testing.assert_array_equal(targets, targets2)


class TestAnchors:
    def test_each_kind_picks_from_its_pool(self, cases):
        _, y, logits = cases
        right = (logits > 0) == (y == 1)
        confident = select_anchors(y, logits, n_anchors=12)
        of_class = select_anchors(y, logits, n_anchors=1.0, anchors="class")
        prediction = select_anchors(y, logits, n_anchors=12, anchors="prediction")
        random = select_anchors(y, logits, n_anchors=12, anchors="random", seed=0)
        for c in (0, 1):
            assert right[confident[c]].all()
            assert (y[confident[c]] == c).all()
            assert (y[of_class[c]] == c).all()
            assert not right[of_class[c]].all()
            assert (y[random[c]] == c).all()
            assert set(random[c]) != set(of_class[c][:12])
        np.testing.assert_array_equal(prediction[1], np.argsort(-logits)[:12])
        np.testing.assert_array_equal(prediction[0], np.argsort(logits)[:12])

    @pytest.mark.parametrize("kind", ANCHORS)
    def test_most_confident_first_and_repeatable(self, cases, kind):
        _, y, logits = cases
        one = select_anchors(y, logits, anchors=kind)
        two = select_anchors(y, logits, anchors=kind)
        assert (np.diff(logits[one[1]]) <= 0).all()
        assert (np.diff(logits[one[0]]) >= 0).all()
        for c in (0, 1):
            np.testing.assert_array_equal(one[c], two[c])

    def test_ties_go_to_the_earlier_row_even_where_probabilities_saturate(self):
        y = np.array([1, 1, 1, 1, 0, 0])
        chosen = select_anchors(y, [50.0, 60.0, 50.0, 40.0, -45.0, -45.0], n_anchors=2)
        assert chosen[1].tolist() == [1, 0]
        assert chosen[0].tolist() == [4, 5]

    def test_ranking_by_logit_survives_saturated_softmax(self):
        logits = np.array([[0, 800.0, 0], [0, 900.0, 0], [9.0, 0, 0], [0, 0, 9.0]])
        assert select_anchors([1, 1, 0, 2], logits, n_anchors=1)[1].tolist() == [1]

    def test_a_share_is_of_the_class(self, cases):
        _, y, logits = cases
        chosen = select_anchors(y, logits, n_anchors=0.5, anchors="class")
        for c in (0, 1):
            assert len(chosen[c]) == round(0.5 * (y == c).sum())
        assert len(select_anchors(y, logits, n_anchors=1e-6)[0]) == 1

    def test_too_few_are_all_used_with_a_warning(self):
        with pytest.warns(ScalecalWarning, match="class 0 has 1 candidate anchors"):
            chosen = select_anchors([0, 0] + [1] * 12, [-1.0, 2.0] + [1.0] * 12)
        assert chosen[0].tolist() == [0]

    def test_none_is_an_error_that_says_why(self):
        with pytest.raises(InputError, match=r"no anchor for class 0 .* learnt nothing"):
            select_anchors([0, 1], [1.0, 1.0], n_anchors=1)
        with pytest.raises(InputError, match="no cases of class 1"):
            select_anchors([0, 0], [-1.0, -1.0], n_anchors=1)

    def test_a_logit_of_zero_is_the_negative_class(self):
        assert select_anchors([0, 1], [0.0, 1.0], n_anchors=1)[0].tolist() == [0]


class TestSampling:
    def test_a_sample_is_part_of_the_whole_in_the_same_order(self, cases):
        _, y, logits = cases
        whole = plan(y, logits)
        part = plan(y, logits, n_synthetic=137, seed=1)
        assert len(part) == 137
        number = {
            row: i for i, row in enumerate(zip(whole.first, whole.second, whole.alpha, strict=True))
        }
        index = np.array(
            [number[row] for row in zip(part.first, part.second, part.alpha, strict=True)]
        )
        assert (np.diff(index) > 0).all()  # ascending, hence none twice
        np.testing.assert_array_equal(part.targets, whole.targets[index])

    def test_share_of_the_training_set_and_repeatable(self, cases):
        X, y, logits = cases
        Z, targets = synthesize(X, y, logits, n_synthetic=1.0)
        again, _ = synthesize(X, y, logits, n_synthetic=1.0)
        assert len(Z) == len(targets) == 80
        np.testing.assert_array_equal(Z, again)

    def test_every_combination_is_equally_likely(self, cases):
        _, y, logits = cases
        rng = np.random.default_rng(0)
        counts = np.zeros(6)
        firsts: dict[int, int] = {}
        for _ in range(300):
            made = plan(y, logits, n_anchors=4, n_synthetic=24, seed=rng)
            counts += np.bincount(np.rint(made.alpha * 7).astype(int) - 1, minlength=6)
            for row in made.first:
                firsts[row] = firsts.get(row, 0) + 1
        # 7,200 draws without replacement: sd of a level's count is below 32.
        assert np.abs(counts - 1200).max() < 5 * math.sqrt(1200)
        assert np.abs(np.array(list(firsts.values())) - 1800).max() < 5 * math.sqrt(1800)

    def test_billions_of_combinations_are_never_written_out(self):
        n = 200_000
        y = np.arange(n) % 2
        logits = np.where(y == 1, 1.0, -1.0) + np.linspace(0, 0.5, n)
        made = plan(y, logits, n_anchors=0.5, n_synthetic=5_000, seed=0)
        assert len(made) == 5_000
        assert len(np.unique(made.first)) > 4_000
        with pytest.raises(InputError, match="Give n_synthetic"):
            plan(y, logits, n_anchors=0.5)

    def test_more_than_there_are_gives_all_with_a_warning(self, cases):
        _, y, logits = cases
        with pytest.warns(ScalecalWarning, match="there are 6 combinations"):
            made = plan(y, logits, n_anchors=1, n_synthetic=50)
        assert len(made) == 6


class TestLevels:
    def test_beta_levels_ascend_within_each_pair(self, cases):
        _, y, logits = cases
        made = plan(y, logits, n_anchors=30, anchors="class", levels=BetaLevels(0.4, 0.4),
                    smoothing="mixup", seed=0)  # fmt: skip
        alpha = made.alpha.reshape(-1, 6)
        assert (np.diff(alpha, axis=1) >= 0).all()
        np.testing.assert_array_equal(made.targets, 1 - made.alpha)
        assert abs(made.alpha.mean() - 0.5) < 0.02
        assert abs(made.alpha.var() - 0.25 / 1.8) < 0.01

    def test_other_levels_are_refused(self):
        with pytest.raises(InputError, match=r"levels must be BetaLevels or None, got \[0.5\]"):
            plan([0, 1], [-1.0, 1.0], n_anchors=1, levels=[0.5])


class TestManyClasses:
    def test_targets_lie_on_edges_and_every_pair_is_the_binary_method(self, many):
        _, y, logits = many
        made = plan(y, logits, n_anchors=3, n_raters=5)
        assert made.targets.shape == (6 * 9 * 4, 4)
        np.testing.assert_allclose(made.targets.sum(axis=1), 1)
        assert ((made.targets > 0).sum(axis=1) == 2).all()
        binary = piecewise([4, 3, 2, 1], 5)
        order = [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (3, 2)]
        for block, (high, low) in enumerate(order):
            here = slice(block * 36, (block + 1) * 36)
            assert (made.pair[here] == (high, low)).all()
            assert (y[made.first[here]] == high).all()
            assert (y[made.second[here]] == low).all()
            np.testing.assert_allclose(made.targets[here, high], np.tile(binary, 9))
            np.testing.assert_array_equal(made.first[here], np.repeat(made.anchors[high], 12))

    def test_sampling(self, many):
        X, y, logits = many
        Z, targets = synthesize(X, y, logits, n_synthetic=0.5, seed=0)
        assert Z.shape == (100, 5)
        assert targets.shape == (100, 4)


def test_mass_and_weight(cases):
    _, y, logits = cases
    assert plan(y, logits).weight == 1
    made = plan(y, logits, mass=0.3)
    assert made.weight * len(made) == pytest.approx(0.3 * 80)


def test_shuffled_keeps_the_points_and_permutes_labels_within_pairs(many):
    _, y, logits = many
    made = plan(y, logits, n_anchors=3)
    control = made.shuffled(0)
    np.testing.assert_array_equal(control.first, made.first)
    assert not np.array_equal(control.targets, made.targets)
    for high, low in {tuple(p) for p in made.pair}:
        here = (made.pair == (high, low)).all(axis=1)
        np.testing.assert_array_equal(
            np.sort(control.targets[here, high]), np.sort(made.targets[here, high])
        )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floating_types(cases, dtype):
    X, y, logits = cases
    Z, targets = synthesize(X.astype(dtype), y, logits)
    assert Z.dtype == np.result_type(dtype, np.float32)
    assert targets.dtype == np.float64


def test_any_callable_smooths(cases):
    _, y, logits = cases
    made = plan(y, logits, n_anchors=1, smoothing=lambda votes, n_raters: votes**2 / n_raters**2)
    np.testing.assert_allclose(made.targets, (np.arange(6, 0, -1) / 7) ** 2)
    with pytest.raises(InputError, match="soft labels in"):
        plan(y, logits, n_anchors=1, smoothing=lambda votes, n_raters: votes - n_raters)


def test_synthesize_has_the_defaults_of_plan():
    options = inspect.signature(plan).parameters
    for name, parameter in inspect.signature(synthesize).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            assert parameter.default == options[name].default


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_anchors": 0}, "n_anchors must be at least 1"),
        ({"n_anchors": 1.5}, "n_anchors as a share"),
        ({"n_anchors": True}, "whole number"),
        ({"n_raters": 1}, "n_raters must be at least 2"),
        ({"anchors": "best"}, "anchors must be one of"),
        ({"smoothing": "steps"}, "unknown smoothing"),
        ({"n_synthetic": 0.0}, "above 0"),
        ({"weight": 0.0}, "weight must be"),
        ({"mass": -1.0}, "mass must be"),
    ],
)
def test_bad_options(cases, options, words):
    with pytest.raises(InputError, match=words):
        synthesize(*cases, **options)


def test_bad_shapes(cases):
    X, y, logits = cases
    with pytest.raises(InputError, match="same number of cases"):
        synthesize(X[:-1], y, logits)
    with pytest.raises(InputError, match="same number of cases"):
        plan(y, logits[:-1])
    with pytest.raises(InputError, match="2-d"):
        synthesize(X[:, 0], y, logits)
