"""The printed figures agree with what the paper's text says of them, and with the accountant."""

import pytest

from multicentre_papers.dpfact import published
from multicentre_papers.dpfact.exercises import accounting
from multicentre_papers.dpfact.exercises.communication import bytes_per_round
from multicentre_papers.dpfact.plan import QUICK

SETS = (published.MIMIC, published.CMS, published.SYNTHETIC)


@pytest.mark.parametrize(("name", "reduction"), list(zip(SETS, (46.6, 37.7, 20.7), strict=True)))
def test_reductions_of_section_5_5_follow_from_table_3(name, reduction):
    ratio = published.SECONDS_OF_DPFACT[name] / published.SECONDS_OF_TRIP[name]
    assert 100 * (1 - ratio) == pytest.approx(reduction, abs=0.05)


@pytest.mark.parametrize("name", SETS)
def test_tables_2_and_3_agree_and_grow_with_the_sites(name):
    seconds = {n: by_name[name] for n, by_name in published.SECONDS_BY_SITES.items()}
    assert seconds[5] == published.SECONDS_OF_DPFACT[name]
    for n_sites in (5, 10):
        assert seconds[n_sites] == pytest.approx(n_sites * seconds[1], rel=0.015)


def test_table_4_is_as_the_text_describes_it():
    assert sorted(published.AUC) == [10, 20, 30, 40, 50, 60]
    for rank, row in published.AUC.items():
        assert row[published.WITHOUT_DP] > row[published.DPFACT] > row[published.WITHOUT_L21]
        assert (row[published.DPFACT] > row[published.CP_ALS]) is (rank > 10)
        assert row[published.DPFACT] > row[published.TRIP]


def test_the_printed_density_leaves_fewer_entries_than_patients():
    patients, procedures, diagnoses = published.SIZES[published.MIMIC]
    n_entries = published.DENSITY[published.MIMIC] * patients * procedures * diagnoses
    assert n_entries == pytest.approx(10_481, abs=1)
    assert n_entries < patients


@pytest.mark.parametrize(
    ("place", "epochs", "formula", "bun_steinke", "zcdp", "exact"),
    [
        (0, 20, 1.2139, 1.2539, 0.9913, 0.88893),
        (1, 49, 1.9001, 1.9981, 1.6384, 1.47762),
        (2, 39, 1.6952, 1.7732, 1.4408, 1.29754),
    ],
)
def test_what_the_claimed_privacy_converts_to(place, epochs, formula, bun_steinke, zcdp, exact):
    row = accounting.run(QUICK, lambda number: None)[place]
    assert row["epochs"] == epochs
    found = [row[name] for name in ("by_formula", "bun_steinke", "zcdp", "exact")]
    assert found == pytest.approx([formula, bun_steinke, zcdp, exact], abs=1e-4)


@pytest.mark.parametrize(("name", "megabytes"), [(SETS[0], 2.07), (SETS[1], 54.06), (SETS[2], 4.40)])
def test_bytes_of_a_round(name, megabytes):
    sizes = sum(published.SIZES[name][1:]), published.RANK, published.N_SITES
    assert bytes_per_round(*sizes, method="DPFact") / 1e6 == pytest.approx(megabytes, abs=0.005)
    assert bytes_per_round(*sizes, method="TRIP") == 1.5 * bytes_per_round(*sizes, method="DPFact")
