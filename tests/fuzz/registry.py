"""Every surface by its short name, in the order of the table."""

from __future__ import annotations

from tests.fuzz import api, arrays, documents, images, places, tables
from tests.fuzz.engine import Surface

SURFACES: dict[str, Surface] = {
    **tables.SURFACES,
    **arrays.SURFACES,
    **documents.SURFACES,
    **places.SURFACES,
    **images.SURFACES,
    **api.SURFACES,
}
