"""The types of arrays that the number kernels fill."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.signedinteger[Any]]
Halves: TypeAlias = npt.NDArray[np.uint64]
