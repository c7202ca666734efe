"""Operations of studies on multi-view data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from multicentre.data.blocks import Block
from multicentre.data.kinds.kind import Kind, carry_identifiers, draw_signs, join_ids
from multicentre.data.multiview import MultiViewData
from multicentre.data.schema import MultiViewSchema, agree_schemas

Sites = Mapping[str, MultiViewData]


def agree_views(sites: Sites) -> MultiViewSchema:
    """Return the union of the sites' schemas.

    Raises
    ------
    SchemaMismatch
        Two sites have different columns or kinds of a view.

    Examples
    --------
    >>> lyon, oslo = MultiViewData({"blood": np.ones((2, 1))}), MultiViewData({"image": np.ones((1, 3))})
    >>> agree_views({"lyon": lyon, "oslo": oslo}).views
    ('blood', 'image')
    """
    return agree_schemas({site: data.schema for site, data in sites.items()})


def stack_views(sites: Sites) -> MultiViewData:
    """Stack the patients of all sites; a view is missing for patients of sites without it.

    Examples
    --------
    >>> lyon, oslo = MultiViewData({"blood": np.ones((2, 1))}), MultiViewData({"image": np.ones((1, 3))})
    >>> stack_views({"lyon": lyon, "oslo": oslo})
    MultiViewData(3 patients; blood: 1 column, 2 patients; image: 3 columns, 1 patient)
    """
    schema = agree_views(sites)
    below = [data.stacked(schema.views, schema.sizes) for data in sites.values()]
    borders = np.cumsum([schema.sizes[view] for view in schema.views])[:-1]
    stacks = np.hsplit(np.vstack(below), borders)
    blocks = {
        view: Block(schema.columns[view], schema.kinds[view], np.ascontiguousarray(values))
        for view, values in zip(schema.views, stacks, strict=True)
    }
    stacked = MultiViewData(blocks, ids=join_ids({site: data.ids for site, data in sites.items()}))
    return carry_identifiers(stacked, sites.values())


def amplify_patient(
    data: MultiViewData, row: int, factor: float, random: np.random.Generator | None = None
) -> MultiViewData:
    """Multiply every number of one patient; truth values and missing entries are unchanged.

    Examples
    --------
    >>> data = MultiViewData({"blood": np.array([[1.0, 2.0], [3.0, -4.0]])})
    >>> amplify_patient(data, 1, 10.0).array("blood").tolist()
    [[30.0, -40.0]]
    """
    patient = data.take([row])
    blocks = {}
    for view in patient.views:
        values, kinds = patient.array(view), patient.kinds[view]
        times = np.where(np.array(kinds) == "number", factor * draw_signs(values.shape, random), 1.0)
        blocks[view] = Block(patient.columns[view], kinds, values * times)
    return MultiViewData(blocks, ids=None if patient.ids is None else patient.ids.tolist())


VIEWS = Kind(check=agree_views, stack=stack_views, amplify=amplify_patient)
