"""Importing the large libraries that encoders are built with, and saying what is wrong with them."""

from __future__ import annotations

import importlib
from typing import Any

from scalecal.checks import MissingPackageError

__all__ = ["library"]


def library(name: str, needed_by: str, install: str = "'scalecal[encoders]'") -> Any:
    """Import a library, or say how to get it or mend it.

    Parameters
    ----------
    name : str
        What is imported.
    needed_by : str
        Who needs it, as the beginning of a sentence.
    install : str
        What `pip install` must be given.

    Raises
    ------
    MissingPackageError
        If it is not installed, or is installed and cannot be imported.

    Examples
    --------
    >>> library("json", "this example").dumps([1])
    '[1]'
    >>> library("no_such_library", "this example", "NAME")
    Traceback (most recent call last):
        ...
    scalecal.checks.MissingPackageError: this example needs no_such_library. Run: pip install NAME
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"{needed_by} needs {name}. Run: pip install {install}"
        ) from error
    except (ImportError, RuntimeError, OSError) as error:
        # A torchvision built for another torch fails with a RuntimeError, and timm with it.
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise MissingPackageError(
            f"{needed_by} needs {name}, which is installed but cannot be imported ({first}). torch "
            "and torchvision must be builds that belong together. "
            "Run: pip install --force-reinstall torch torchvision"
        ) from error
