"""Promises every record keeps, and how others add one."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scalecal.checks import InputError
from scalecal.encoders import ENCODERS, Encoder, Preprocessing, all_encoders, get_encoder

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
    with pytest.raises(TypeError):
        ENCODERS["uni"].options["depth"] = 1  # type: ignore[index]


def test_importing_the_records_imports_nothing_heavy() -> None:
    code = (
        "import sys, scalecal.encoders as e; e.get_encoder('uni'); e.all_encoders();"
        "[e.weights_here(r) for r in e.ENCODERS.values()];"
        "heavy = {'torch', 'timm', 'transformers', 'torchvision', 'PIL', 'huggingface_hub'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown encoder 'unni'. Known: gigapath, uni, conch"):
        get_encoder("unni")


RECORD = """
from scalecal.encoders import Encoder, Preprocessing
ours = Encoder(
    name={name!r}, dim=64, architecture="timm", pooling="model",
    preprocess=Preprocessing(32, 32, "bilinear"), hub_id="us/ours", licence="MIT",
    page="https://example.org",
)
nonsense = "a string"
"""


def install(folder: Path, name: str, attribute: str, record_name: str = "ours") -> None:
    """A distribution on the path with one entry point."""
    (folder / f"{name}.py").write_text(RECORD.format(name=record_name))
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[scalecal.encoders]\nours = {name}:{attribute}\n")


def test_an_installed_package_adds_an_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "third_party_encoder", "ours")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "third_party_encoder" not in sys.modules
    assert get_encoder("uni").name == "uni"
    assert "third_party_encoder" not in sys.modules  # looked for only when needed
    assert get_encoder("ours").dim == 64
    assert set(all_encoders()) == EXPECTED | {"ours"}
    assert "ours" not in ENCODERS


def test_an_entry_point_that_is_no_record_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "third_party_nonsense", "nonsense")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"third_party_nonsense:nonsense.*must be a scalecal"):
        get_encoder("ours")


def test_an_entry_point_cannot_take_a_built_in_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "third_party_clash", "ours", record_name="uni")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"'uni'.*exists already"):
        all_encoders()


@pytest.mark.parametrize(
    "change", [{"dim": 0}, {"pooling": "max"}, {"source": "ftp"}, {"dtype": "int8"}]
)
def test_a_record_checks_itself(change: dict[str, object]) -> None:
    fields = {
        "name": "x", "dim": 1, "architecture": "timm", "pooling": "cls",
        "preprocess": Preprocessing(8, 8, "bilinear"), **change,
    }  # fmt: skip
    with pytest.raises(InputError, match=next(iter(change))):
        Encoder(**fields)  # type: ignore[arg-type]
