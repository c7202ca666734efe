"""Stack the multi-view data of several sites, which only a simulation can do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from multicentre.data.blocks import Block
from multicentre.data.multiview import MultiViewData
from multicentre.data.schema import agree_schemas


def concatenate(sites: Mapping[str, MultiViewData]) -> MultiViewData:
    """Return the patients of all sites one below the other, in the order of the sites.

    Views are those of any site; a patient of a site without a view lacks that view.

    Parameters
    ----------
    sites : mapping from str to MultiViewData
        Data by site. Identifiers are kept as ``<site>/<id>`` when every site has them.

    Raises
    ------
    DataError
        There is no site, or (SchemaMismatch) two sites describe a view differently.

    Examples
    --------
    >>> import numpy as np
    >>> lyon = MultiViewData({"blood": np.array([[4.1], [3.9]])})
    >>> oslo = MultiViewData({"image": np.array([[11.0]])})
    >>> concatenate({"lyon": lyon, "oslo": oslo})
    MultiViewData(3 patients; blood: 1 column, 2 patients; image: 1 column, 1 patient)
    """
    schema = agree_schemas({site: data.schema for site, data in sites.items()})
    parts = [data.stacked(schema.views, schema.sizes) for data in sites.values()]
    borders = np.cumsum([schema.sizes[view] for view in schema.views])[:-1]
    stacks = np.hsplit(np.vstack(parts), borders)
    blocks = {
        view: Block(schema.columns[view], schema.kinds[view], np.ascontiguousarray(values))
        for view, values in zip(schema.views, stacks, strict=True)
    }
    return MultiViewData(blocks, ids=_joined_ids(sites))


def _joined_ids(sites: Mapping[str, MultiViewData]) -> list[str] | None:
    if any(data.ids is None for data in sites.values()):
        return None
    return [f"{site}/{one}" for site, data in sites.items() if data.ids is not None for one in data.ids]
