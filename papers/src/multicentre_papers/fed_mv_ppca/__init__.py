"""Table 2 and Figure 3 of Balelli, Silva and Lorenzi (IPMI 2021), on data that are at hand."""

from multicentre_papers.fed_mv_ppca.result import ReproductionResult
from multicentre_papers.fed_mv_ppca.runner import reproduce

__all__ = ["ReproductionResult", "reproduce"]
