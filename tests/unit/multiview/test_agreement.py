"""What sites settle before round one: names, centres and scales, each from sums."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, SchemaMismatch
from multicentre.multiview.agreement import agree, agree_on_views
from multicentre.multiview.ppca.site import MvPPCASite
from support.examples import examples
from support.ppca_federations import SIZES, federate, small_sites

EXACT = mc.Policy(min_patients=0)


def settle(sites, **options):
    return agree(federate(sites, **options).begin(MvPPCASite), MvPPCASite)


def stacked(sites):
    return np.vstack([site.stacked(tuple(SIZES), SIZES) for site in sites.values()])


def test_centres_and_deviations_are_those_of_the_pooled_rows():
    sites = small_sites(lacking={1: "image"}, hidden=0.2)
    agreed, rows = settle(sites, secure_sum=False, policy=EXACT), stacked(sites)
    np.testing.assert_allclose(agreed.centre, np.nanmean(rows, axis=0), rtol=1e-12)
    np.testing.assert_allclose(agreed.deviation, np.nanstd(rows, axis=0), rtol=1e-12)
    np.testing.assert_array_equal(agreed.observed, (~np.isnan(rows)).sum(axis=0))


def changed(values, *, column=0, sites=("site-1",)):
    """Return three sites of which some have other values in a column of the images."""
    made = small_sites()
    for site in sites:
        image = made[site].array("image").copy()
        image[:, column] = values
        made[site] = MultiViewData({view: made[site].array(view) for view in SIZES} | {"image": image})
    return made


@pytest.mark.parametrize("value", [0.0, 1.5, -40.0, np.nan], ids=["zero", "within", "far", "empty"])
@pytest.mark.parametrize("secure", [False, True])
def test_a_column_without_variation_at_one_site_is_judged_on_all(value, secure):
    sites = changed(value)
    agreed, rows = settle(sites, secure_sum=secure), stacked(sites)
    np.testing.assert_allclose(agreed.centre, np.nanmean(rows, axis=0), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(agreed.deviation, np.nanstd(rows, axis=0), rtol=1e-7)
    assert agreed.incomplete == bool(np.isnan(value))


@pytest.mark.parametrize("secure", [False, True])
def test_a_column_that_differs_between_sites_alone_varies(secure):
    sites = changed(120.0, sites=("site-0", "site-1"))
    image = sites["site-2"].array("image").copy()
    image[:, 0] = 120.5
    sites["site-2"] = MultiViewData({view: sites["site-2"].array(view) for view in SIZES} | {"image": image})
    agreed, rows = settle(sites, secure_sum=secure), stacked(sites)
    np.testing.assert_allclose(agreed.deviation, np.nanstd(rows, axis=0), rtol=1e-3)


@pytest.mark.parametrize(
    ("value", "what"),
    [(2.5, "got a constant column"), (np.nan, "got a column without entries")],
)
@pytest.mark.parametrize("secure", [False, True])
def test_a_column_of_no_use_at_any_site_is_named(value, what, secure):
    with pytest.raises(DataError, match=f"view 'image', column 'image_2': .*{what}"):
        settle(changed(value, column=2, sites=("site-0", "site-1", "site-2")), secure_sum=secure)


def test_a_view_of_no_use_at_any_site_is_named():
    sites = {
        name: MultiViewData({"blood": site.array("blood"), "image": np.ones((40, 2))})
        for name, site in small_sites().items()
    }
    with pytest.raises(DataError, match=r"view 'image': .*got a view without variation"):
        settle(sites)


@pytest.mark.parametrize("n_different", [9, 10])
def test_an_unmasked_column_in_which_few_patients_differ_is_refused(n_different):
    sites = changed(np.arange(40) < n_different)
    assert settle(sites).observed.min() == 120
    if n_different == 10:
        assert settle(sites, secure_sum=False).observed.min() == 120
    else:
        with pytest.raises(DisclosureRefused, match="secure_sum=True"):
            settle(sites, secure_sum=False)


def test_units_of_a_view_of_a_feature_and_none():
    sites = small_sites(hidden=0.1)
    agreed, rows = settle(sites, secure_sum=False, policy=EXACT), stacked(sites)
    variances = []
    starts = np.cumsum([0, *SIZES.values()])
    for one, other in itertools.pairwise(starts):
        own = rows[:, one:other] - np.nanmean(rows[:, one:other], axis=0)
        variances.append(np.nansum(own**2) / (~np.isnan(own)).sum())
    centre, spread = agreed.units("view")
    np.testing.assert_allclose(centre, np.nanmean(rows, axis=0))
    np.testing.assert_allclose(spread, np.repeat(np.sqrt(variances), list(SIZES.values())))
    np.testing.assert_allclose(agreed.units("feature"), [np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)])
    np.testing.assert_array_equal(agreed.units("none"), [np.zeros(15), np.ones(15)])


def test_views_that_sites_lack_are_counted():
    agreed = settle(small_sites(lacking={1: "image"}))
    assert agreed.views == tuple(SIZES)
    assert agreed.sites.tolist() == [3.0, 2.0, 3.0]
    assert not agreed.incomplete
    assert settle(small_sites(hidden=0.1)).incomplete


def test_a_view_that_the_first_site_lacks_stands_last():
    agreed = settle(small_sites(lacking={0: "blood"}))
    assert agreed.views == ("image", "genes", "blood")
    assert agreed.sizes == {"image": 5, "genes": 4, "blood": 6}


def test_a_column_of_another_name_names_site_view_and_column():
    sites = small_sites()
    views = {view: sites["site-1"].array(view) for view in SIZES}
    sites["site-1"] = MultiViewData(views, columns={"image": [f"image_{j}" for j in range(4)] + ["volume"]})
    with pytest.raises(SchemaMismatch, match=r"site site-1, view 'image'.*'image_4' is missing.*'volume'"):
        settle(sites)


def test_columns_in_another_order_are_not_mixed_up():
    sites = small_sites()
    views = {view: sites["site-2"].array(view)[:, ::-1] for view in SIZES}
    turned = {view: [f"{view}_{j}" for j in range(d)][::-1] for view, d in SIZES.items()}
    sites["site-2"] = MultiViewData(views, columns=turned)
    with pytest.raises(SchemaMismatch, match=r"site-2: column 'blood_0' is at a different position"):
        settle(sites)


def test_too_few_patients_with_a_view_are_named():
    sites = small_sites()
    image = sites["site-0"].array("image").copy()
    image[2:] = np.nan
    sites["site-0"] = MultiViewData({"blood": sites["site-0"].array("blood"), "image": image})
    with pytest.raises(DataError, match="site-0, view 'image': at least 3 patients must have this view; got 2"):
        settle(sites)


def test_only_names_are_asked_site_by_site():
    federation = federate(small_sites()).begin(MvPPCASite)
    assert agree_on_views(federation, MvPPCASite).sizes == SIZES
    with pytest.raises(ConfigurationError, match=r"session\.sum"):
        federation.ask(MvPPCASite.column_totals, None)


@examples(15)
@given(st.sampled_from([1e-7, 1e-5, 1e-3, 1e3, 1e6, 1e9]), st.floats(-100, 100))
def test_masked_sums_agree_on_the_same_scales_whatever_the_units(unit, offset):
    sites = {name: _moved(site, unit, offset) for name, site in small_sites().items()}
    unmasked, masked = settle(sites, secure_sum=False), settle(sites)
    np.testing.assert_allclose(masked.deviation, unmasked.deviation, rtol=1e-6)
    np.testing.assert_allclose((masked.centre - unmasked.centre) / unmasked.deviation, 0.0, atol=1e-6)


def _moved(site, unit, offset):
    return MultiViewData({view: (site.array(view) + offset) * unit for view in site.views}, ids=site.ids)
