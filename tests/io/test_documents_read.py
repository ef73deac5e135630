"""Our own JSON files: what is empty or of another kind is refused by name."""

import msgspec
import pytest

from scalecal.checks import InputError
from scalecal.io.boundary import read_document


class Settings(msgspec.Struct):
    epochs: int


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "it is empty"),
        (b"{", "not a JSON file"),
        (b"\xff", "not a JSON file"),
        (b"{}", "missing required field `epochs`"),
        (b'{"epochs": []}', r"Expected `int`, got `array` - at `\$.epochs`"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, says):
    path = tmp_path / "settings.json"
    path.write_bytes(text)
    with pytest.raises(InputError, match=rf"settings\.json.*{says}.*Make it again"):
        read_document(path, Settings, advice="Make it again")


def test_deep_nesting_ends_in_a_message(tmp_path):
    path = tmp_path / "settings.json"
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(InputError, match=r"settings\.json.*nested too deeply"):
        read_document(path, list)
