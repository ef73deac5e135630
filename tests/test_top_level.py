"""What `import scalecal` offers, and that it costs nothing."""

import subprocess
import sys

import pytest

import scalecal


def test_every_name_is_there():
    for name in scalecal.__all__:
        assert getattr(scalecal, name) is not None
    assert {"read_predictions", "read_features", "load_probe", "fit_panel", "InputError"} <= set(
        dir(scalecal)
    )
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        scalecal.nothing  # noqa: B018


def test_importing_loads_nothing_heavy():
    code = "import sys, scalecal; sys.exit(any(m in sys.modules for m in ('numpy', 'pandas')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
