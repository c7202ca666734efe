"""Tests of the table of held-out sites."""

import numpy as np
import pytest

from multicentre.statistics.meta_analysis import pool
from multicentre.validation.held_out import NEW_SITE, POOLED, show_sites, tabulate_sites

AREAS, ERRORS = np.array([0.7, 0.8, 0.75]), np.array([0.02, 0.03, 0.025])
PROFILES = {
    site: {"roc_auc": area, "roc_auc.error": error, "neg_brier_score": -0.2, "calibration_slope": np.nan}
    for site, area, error in zip("abc", AREAS.tolist(), ERRORS.tolist(), strict=True)
}


def test_areas_are_combined_on_the_scale_of_log_odds():
    frame = tabulate_sites(PROFILES)
    pooled = pool(np.log(AREAS / (1 - AREAS)), ERRORS / (AREAS * (1 - AREAS)))
    low, high = (1 / (1 + np.exp(-end)) for end in pooled.prediction)
    assert frame.loc[("roc_auc", POOLED), "value"] == pytest.approx(1 / (1 + np.exp(-pooled.random.value)))
    assert frame.loc[("roc_auc", NEW_SITE), ["lower", "upper"]].tolist() == pytest.approx([low, high])
    assert frame.loc[("roc_auc", POOLED), "tau_squared"] == pytest.approx(pooled.tau_squared)


def test_scores_without_errors_are_not_combined_and_losses_are_positive():
    frame = tabulate_sites(PROFILES)
    assert (frame.loc["brier_score", "value"] == 0.2).all()
    assert (frame.loc["brier_score"].index == ["a", "b", "c"]).all()
    assert frame.loc["calibration_slope", "value"].isna().all()


def test_the_forest_has_a_row_per_site_and_two_combined_ones():
    table, forest, *_ = show_sites(PROFILES)
    assert forest.rows == ["a", "b", "c", POOLED, NEW_SITE]
    assert forest.n_pooled == 2
    assert table.title == "Held-out sites"


def test_a_narrow_interval_and_two_alike_sites_are_marked():
    """Combined scores follow the rule of ``combine``: metafor's interval is narrower where sites agree by chance."""
    alike = {
        site: {"roc_auc": 0.70 + 0.001 * place, "roc_auc.error": 0.03, "calibration_slope": 1.0 + 0.3 * place}
        | ({"calibration_slope.error": 0.4} if place < 2 else {})
        for place, site in enumerate("abcd")
    }
    sentences = ("roc auc: The Hartung-Knapp interval is narrower", "calibration slope: The variance between two sites")
    table, area, slope = show_sites(alike)
    printed = " ".join(str(tabulate_sites(alike)).split())
    assert all(sentence in table.caption and sentence in printed for sentence in sentences)
    assert sentences[0] in area.caption
    assert sentences[1] not in area.caption
    assert sentences[1] in slope.caption
    assert "narrower" not in " ".join(figure.caption for figure in show_sites(PROFILES))
