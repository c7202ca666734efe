"""Table 4 and Figure 3 (a): area under the curve of mortality by rank, over all sites and at single ones."""

from multicentre.reproduction._shared.section import Exercise
from multicentre.reproduction.dpfact.exercises.prediction.measure import n_fits, run
from multicentre.reproduction.dpfact.exercises.prediction.tables import show

PREDICTION = Exercise("table-4", "Table 4 and Figure 3 (a): mortality from memberships", n_fits, run, show)

__all__ = ["PREDICTION"]
