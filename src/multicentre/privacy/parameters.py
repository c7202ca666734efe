"""Limit on the parameters of a regression, by the patients that it rests on.

A regression with nearly as many coefficients as patients says of each patient what the outcome was. So a site takes
part in a fit only if its coefficients are at most a share of the patients (``max_parameters_per_patient``).

- Unmasked, or at one site alone, the patients are the site's own.
- Under a mask they are those of all sites. The site does not know their number, and counts its own once for each site
  without which the sum is not read. The smallest site has no more than any other, so the limit holds for the total
  if it holds there, as far as all sites have the same term.

The coefficients of one model count once, however many rounds there are: rounds move the same ones. Networks, trees and
factor models have more parameters than that by design and are not held against it: a leaf rests on 15 patients or the
policy's minimum; of the others only noise bounds what they tell.
"""

from __future__ import annotations

import math

from multicentre.federation.engine import Call

_ROUNDING = 1e-9  # a third of 60 patients is 20, whatever the last digit of one third


MEND = "Leave columns out, or bring in more patients."


def objection(call: Call, n_parameters: int, n_patients: int, share: float) -> str:
    """Return what stands against a fit of so many coefficients; empty where nothing does, or `share` is 0.

    See :func:`most_parameters`.
    """
    if not share or n_parameters <= most_parameters(call, n_patients, share):
        return ""
    of_whom = "this site" if call.mask is None else "all sites"
    return f"{n_parameters} coefficients are more than {share:.3g} per patient of {of_whom}"


def most_parameters(call: Call, n_patients: int, share: float) -> int:
    """Return how many coefficients a site lets a call fit.

    Parameters
    ----------
    call : Call
    n_patients : int
        Of the site.
    share : float, > 0
        Coefficients per patient.

    Examples
    --------
    >>> from multicentre.federation.engine import Mask
    >>> from multicentre.federation.messages import Nothing
    >>> from multicentre.survival.cox.site import CoxSite
    >>> alone = Call("study", "0.1", 0, CoxSite.sum_derivatives, Nothing(), ("lyon", "oslo", "turin"))
    >>> most_parameters(alone, 60, 1 / 3)
    20
    >>> masked = Call("study", "0.1", 0, CoxSite.sum_derivatives, Nothing(), alone.peers, Mask("first", 0, 2))
    >>> most_parameters(masked, 60, 1 / 3)
    40
    """
    crowd = 1 if call.mask is None else min(len(set(call.peers)), call.mask.threshold)
    return math.floor(share * n_patients * crowd * (1 + _ROUNDING))
