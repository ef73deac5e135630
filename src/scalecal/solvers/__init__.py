"""Many probes at once by Adam, as in the paper.

P probes over the same rows are one weight matrix, so a hundred of them cost little more than a few.
"""

from scalecal.solvers.adam import train
from scalecal.solvers.problem import LOSSES, Fit, Scaling, Task

__all__ = ["LOSSES", "Fit", "Scaling", "Task", "train"]
