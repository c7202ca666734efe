"""Patients set apart at each site, so that models can be fitted on some and weighed on others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from multicentre.data.survival import SurvivalData
from multicentre.federation.errors import ConfigurationError


def split_held_out(
    sites: Mapping[str, SurvivalData], share: float = 0.25, seed: int = 0
) -> tuple[dict[str, SurvivalData], dict[str, SurvivalData]]:
    """Split every site's patients into those of the fits and those held out; for simulations.

    Patients with an event, and patients without, are split in the same proportion. In a study the sites set patients
    apart themselves, and offer them as data of their own.

    Parameters
    ----------
    sites : mapping of str to SurvivalData
    share : float, default 0.25
        Share that is held out, between 0 and 1.
    seed : int, default 0

    Returns
    -------
    fitting, held_out : dict of str to SurvivalData

    Raises
    ------
    ConfigurationError
        The share is not between 0 and 1, or leaves one part of a site without patients.

    Examples
    --------
    >>> data = SurvivalData(np.zeros((8, 1)), np.ones(8), [0, 1] * 4)
    >>> fitting, held_out = split_held_out({"lyon": data})
    >>> len(fitting["lyon"]), len(held_out["lyon"])
    (6, 2)
    """
    if not 0 < share < 1:
        raise ConfigurationError(f"{share} is not between 0 and 1", where="share", mend="Use 0.25.")
    fitting, held_out = {}, {}
    for place, (site, data) in enumerate(sites.items()):
        rng = np.random.default_rng([seed, place])
        apart = np.zeros(len(data), dtype=np.bool_)
        for group in (data.event > 0, data.event == 0):
            members = rng.permutation(np.flatnonzero(group))
            apart[members[: round(share * len(members))]] = True
        if apart.all() or not apart.any():
            raise ConfigurationError(
                f"{len(data)} patients cannot be split", where=f"site {site}", mend="Leave it out."
            )
        fitting[site], held_out[site] = data.take(np.flatnonzero(~apart)), data.take(np.flatnonzero(apart))
    return fitting, held_out
