"""How numbers that JSON has none for are written in it: by the service, and read back by whoever takes numbers."""

import math

__all__ = ["NON_FINITE"]

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Value by text; a number's field may hold one of these texts."""
