"""Every record's preprocessing against the transforms the publishers used."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalecal.checks import InputError
from scalecal.encoders import ENCODERS, PAPER_PREPROCESSING, Preprocessing
from tests.encoders.published import pil_reference

PIL = pytest.importorskip("PIL.Image")


def photograph(height: int, width: int, seed: int = 0) -> PIL.Image:
    """Noise over a gradient: every pixel counts, and no symmetry hides a wrong crop."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(0, 200, height)[:, None, None] + np.linspace(0, 55, width)[None, :, None]
    noise = rng.integers(0, 40, (height, width, 3))
    return PIL.fromarray(np.clip(ramp + noise, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("size", [(96, 96), (224, 224), (460, 700), (701, 333), (225, 224)])
@pytest.mark.parametrize("name", ENCODERS)
def test_record_against_torchvision_transforms(name: str, size: tuple[int, int]) -> None:
    pytest.importorskip("torch")
    transforms = pytest.importorskip("torchvision.transforms")
    spec = ENCODERS[name].preprocess
    edge = spec.resize if spec.resize_mode == "shortest" else (spec.resize, spec.resize)
    published = transforms.Compose(
        [
            transforms.Resize(edge, interpolation=transforms.InterpolationMode(spec.interpolation)),
            transforms.CenterCrop(spec.crop),
            transforms.ToTensor(),
            transforms.Normalize(spec.mean, spec.std),
        ]
    )
    image = photograph(*size)
    found = pil_reference(spec, image)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, published(image).numpy(), rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ENCODERS)
def test_record_against_plain_pil(name: str) -> None:
    spec = ENCODERS[name].preprocess
    image = photograph(300, 400)
    filters = {"bilinear": PIL.Resampling.BILINEAR, "bicubic": PIL.Resampling.BICUBIC}
    width = spec.resize if spec.resize_mode == "squash" else int(spec.resize * 400 / 300)
    resized = image.resize((width, spec.resize), filters[spec.interpolation])
    left, top = round((width - spec.crop) / 2), round((spec.resize - spec.crop) / 2)
    square = resized.crop((left, top, left + spec.crop, top + spec.crop))
    expected = (np.asarray(square) / 255.0 - spec.mean) / spec.std
    np.testing.assert_allclose(
        pil_reference(spec, image), expected.transpose(2, 0, 1), rtol=0, atol=2e-6
    )


@given(
    height=st.integers(1, 2000),
    width=st.integers(1, 2000),
    resize=st.integers(1, 600),
    share=st.floats(0.1, 1.0),
    mode=st.sampled_from(["shortest", "squash"]),
)
@settings(max_examples=200, deadline=None)
def test_the_crop_always_fits(
    height: int, width: int, resize: int, share: float, mode: str
) -> None:
    spec = Preprocessing(resize, max(1, int(resize * share)), "bilinear", resize_mode=mode)
    h, w = spec.resized_size(height, width)
    top, left = spec.crop_corner(h, w)
    assert 0 <= top <= h - spec.crop
    assert 0 <= left <= w - spec.crop
    if mode == "shortest":
        assert min(h, w) == resize
        assert abs(h / w - height / width) <= max(height / width / min(h, w), 1 / min(h, w)) + 1e-9


def test_uni_on_a_breakhis_image_gives_a_square() -> None:
    # The card's Resize(224) alone yields 340 x 224 here, on which the network fails.
    assert pil_reference(ENCODERS["uni"].preprocess, photograph(460, 700)).shape == (3, 224, 224)


def test_squash_keeps_the_whole_image_and_shortest_keeps_the_shape() -> None:
    image = PIL.new("RGB", (700, 460), (255, 255, 255))
    image.paste((0, 0, 0), (0, 0, 70, 460))  # a black band the crop cuts away
    uni = ENCODERS["uni"].preprocess
    squashed = ENCODERS["uni"].with_preprocessing(resize_mode="squash").preprocess
    assert uni.pixels(image).min() == 255
    assert (squashed.pixels(image)[:, :20] == 0).all()


def test_paper_preset_of_conch() -> None:
    conch = ENCODERS["conch"].with_preprocessing(**PAPER_PREPROCESSING["conch"])
    assert (conch.preprocess.resize, conch.crop, conch.preprocess.interpolation) == (
        224,
        224,
        "bicubic",
    )
    assert pil_reference(conch.preprocess, photograph(224, 224)).shape == (3, 224, 224)
    assert set(PAPER_PREPROCESSING) <= {e.name for e in ENCODERS.values() if e.paper}


def test_images_already_of_the_right_size_are_not_touched() -> None:
    image = photograph(224, 224)
    assert (ENCODERS["uni"].preprocess.pixels(image) == np.asarray(image)).all()


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1"])
def test_other_colour_modes_become_rgb(mode: str) -> None:
    assert ENCODERS["uni"].preprocess.pixels(photograph(50, 50).convert(mode)).shape[-1] == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"crop": 300}, "crop must not exceed resize"),
        ({"resize": 0}, "resize must be at least 1"),
        ({"interpolation": "nearest"}, "interpolation must be one of"),
        ({"resize_mode": "stretch"}, "resize_mode must be one of"),
        ({"mean": (0.5, 0.5)}, "three finite numbers"),
        ({"std": (0.5, 0.5, 0.0)}, "std must be positive"),
    ],
)
def test_nonsense_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ENCODERS["uni"].with_preprocessing(**change)


def test_as_dict_is_plain_json() -> None:
    plain = ENCODERS["uni"].as_dict()
    spec = ENCODERS["uni"].preprocess
    assert json.loads(json.dumps(plain))["preprocess"]["mean"] == list(spec.mean)
