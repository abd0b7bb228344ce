"""Registered mergers by name: imported on the driver, and once in each process of an executor."""

from __future__ import annotations

import importlib
from functools import cache

from tidegate.keys.merging import Function
from tidegate.pipeline.errors import DefinitionInvalid


@cache
def registered(name: str) -> Function:
    """The function `package.module:function`, as in the gateway's setting `mergers`.

    Raises:
        DefinitionInvalid: it is not there, or cannot be called.
    """
    module_name, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # whatever the module raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise DefinitionInvalid(f"merger {name} cannot be imported: {reason}") from None
    if not callable(function):
        raise DefinitionInvalid(f"merger {name} is not a function")
    found: Function = function
    return found
