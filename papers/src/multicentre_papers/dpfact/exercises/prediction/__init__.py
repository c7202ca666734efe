"""Table 4 and Figure 3 (a): area under the curve of mortality by rank, over all sites and at single ones."""

from multicentre_papers.dpfact.exercises.prediction.measure import n_fits, run
from multicentre_papers.dpfact.exercises.prediction.tables import show
from multicentre_papers.runner.section import Exercise

PREDICTION = Exercise("table-4", "Table 4 and Figure 3 (a): mortality from memberships", n_fits, run, show)

__all__ = ["PREDICTION"]
