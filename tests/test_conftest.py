"""The torchvision guard of the test set-up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=TESTS, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_guard_costs_nothing_until_torchvision_is_imported() -> None:
    assert run("import conftest, sys; print('torch' in sys.modules)") == "False"


def test_torchvision_imports_behind_the_guard() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    code = "import conftest, warnings; warnings.simplefilter('error'); import torchvision, timm; "
    code += "conftest.guard_torchvision(); print(hasattr(torchvision.ops, 'nms'))"
    assert run(code) == "True"


def test_a_package_without_compiled_operators_is_left_alone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = "import conftest, pathlib; print(conftest.define_missing_operators(pathlib.Path({!r})))"
    assert run(code.format(str(tmp_path))) == "False"
