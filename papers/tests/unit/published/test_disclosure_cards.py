"""Disclosure cards of the published algorithms list the steps that some fit requests, and no others."""

import pytest

from multicentre_papers.published import DPFactAsPublished, FedMvPPCAAsPublished

CODES = {"procedure": ("p0",), "diagnosis": ("d0",)}
FITS = {
    "dpfact": [DPFactAsPublished(), DPFactAsPublished(vocabulary=CODES, n_codes={"diagnosis": 1})],
    "ppca": [FedMvPPCAAsPublished(), FedMvPPCAAsPublished(waic=True), FedMvPPCAAsPublished((1, 2))],
}


@pytest.mark.parametrize("name", FITS)
def test_a_site_part_offers_the_steps_of_the_published_algorithm(name):
    models = FITS[name]
    assert set(models[0].site_part.steps()) == frozenset().union(*(model.planned_steps() for model in models))


@pytest.mark.parametrize("name", FITS)
def test_a_card_lists_no_step_of_the_method_that_replaces_the_published_one(name):
    model = FITS[name][0]
    names = {step for step, _ in type(model).disclosure_card().steps}
    assert names <= set(model.site_part.steps())
    inherited = {"begin", "fit_memberships", "sum_clipped_products", "fit_shared", "fit_around", "sum_outer_products"}
    assert not names & inherited
