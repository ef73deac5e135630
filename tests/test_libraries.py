"""Libraries that are not there, or are there and do not work."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalecal.checks import MissingPackageError, library


@pytest.mark.parametrize("error", ["RuntimeError", "ImportError", "OSError"])
def test_an_installed_library_that_fails_is_one_line(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"broken_{error.lower()}"
    (tmp_path / f"{name}.py").write_text(f"raise {error}('operator x::nms does not exist\\nmore')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingPackageError) as caught:
        library(name, "encoder 'uni'")
    message = str(caught.value)
    assert message.startswith(f"encoder 'uni' needs {name}, which is installed but cannot be")
    assert "(operator x::nms does not exist)" in message
    assert "pip install --force-reinstall torch torchvision" in message
    assert "\n" not in message


def test_a_missing_library_says_what_to_install() -> None:
    with pytest.raises(MissingPackageError, match=r"needs no_such\. Run: pip install 'scalecal"):
        library("no_such", "encoder 'uni'")
