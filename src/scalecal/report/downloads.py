"""CSV inside the page: links that hold their data."""

from __future__ import annotations

import base64

__all__ = ["data_uri"]


def data_uri(text: str) -> str:
    """CSV text as a link that needs no file."""
    return "data:text/csv;base64," + base64.b64encode(text.encode("utf-8")).decode("ascii")
