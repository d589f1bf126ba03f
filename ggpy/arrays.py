"""Types of NumPy's arrays that many modules speak of."""

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
