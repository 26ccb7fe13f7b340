"""Whether a computation on torch's "meta" device failed because it looks at values, which tensors there have not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_OF_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_INDEX = torch.ops.aten.index.Tensor            # by numbers it has a "meta" kernel; by a mask it raises NotImplementedError


class ValuesNeeded(Exception):
    """An operation that has no result without the values of its tensors."""


class WithoutValues(TorchDispatchMode):     # type: ignore[misc]
    """Raises ValuesNeeded where an operation fails that has no "meta" kernel, or that torch declares to follow from values."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except RuntimeError as error:
            if isinstance(error, NotImplementedError) or (_OF_VALUES & set(func.tags) and func is not _INDEX):
                raise ValuesNeeded(str(func)) from error
            raise
