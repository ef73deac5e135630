"""Promises every record keeps, and how others add one."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys

import pytest

from scalecal.checks import InputError
from scalecal.encoders import ENCODERS, Encoder, Preprocessing, get_encoder

EXPECTED = {
    "gigapath", "uni", "conch", "chief", "ctranspath", "phikon", "plip", "resnet50", "uni2-h",
    "virchow2", "h-optimus-0", "h-optimus-1", "h0-mini", "phikon-v2", "midnight", "kaiko-vits16",
    "kaiko-vits8", "kaiko-vitb16", "kaiko-vitb8", "hibou-b", "conch-v1.5", "efficientnet-lite0",
}  # fmt: skip


def test_the_registry_is_complete() -> None:
    assert set(ENCODERS) == EXPECTED
    assert [e.name for e in ENCODERS.values() if e.paper] == [
        "gigapath", "uni", "conch", "chief", "ctranspath", "phikon", "plip", "resnet50",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ENCODERS)
def test_every_record_says_what_a_user_needs(name: str) -> None:
    encoder = ENCODERS[name]
    assert encoder.name == name
    assert encoder.page.startswith("https://")
    assert encoder.licence != "unknown"
    assert encoder.revision is None or re.fullmatch(r"[0-9a-f]{40}", encoder.revision)
    assert encoder.sha256 is None or re.fullmatch(r"[0-9a-f]{8,64}", encoder.sha256)
    assert (encoder.hub_id is not None) == (encoder.source in ("hub", "transformers"))
    assert encoder.crop <= encoder.preprocess.resize
    assert json.loads(json.dumps(encoder.as_dict()))["preprocess"]["crop"] == encoder.crop
    assert get_encoder(name) is encoder
    travelled = pickle.loads(pickle.dumps(encoder))  # as to a worker process
    assert travelled == encoder
    assert hash(travelled) == hash(encoder)


def test_records_are_frozen() -> None:
    with pytest.raises(AttributeError):
        ENCODERS["uni"].dim = 3  # type: ignore[misc]


def test_importing_the_records_imports_nothing_heavy() -> None:
    code = (
        "import sys, scalecal.encoders as e; e.get_encoder('uni');"
        "[e.weights_here(r) for r in e.ENCODERS.values()];"
        "heavy = {'torch', 'timm', 'transformers', 'torchvision', 'PIL', 'huggingface_hub'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown encoder 'unni'. Known: gigapath, uni, conch"):
        get_encoder("unni")


@pytest.mark.parametrize("change", [{"dim": 0}, {"pooling": "max"}, {"source": "ftp"}])
def test_a_record_checks_itself(change: dict[str, object]) -> None:
    fields = {
        "name": "x", "dim": 1, "architecture": "timm", "pooling": "cls",
        "preprocess": Preprocessing(8, 8, "bilinear"), **change,
    }  # fmt: skip
    with pytest.raises(InputError, match=next(iter(change))):
        Encoder(**fields)  # type: ignore[arg-type]
