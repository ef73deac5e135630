"""Settings of the small runs."""

from typing import Any

N = 48
SMALL: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 8,
    "image_size": 32,
    "device": "cpu",
    "progress": False,
}
