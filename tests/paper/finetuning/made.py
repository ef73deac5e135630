"""Settings of the small runs."""

from typing import Any

N = 48
NO_JITTER: dict[str, Any] = {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0}
SMALL: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 8,
    "image_size": 32,
    "validation": 0.25,
    "device": "cpu",
    "progress": False,
}
