"""What is shown of rows, and that claims follow them in both directions."""

import dataclasses
import math

import pytest

from multicentre_papers.dpfact.exercises import columns, communication, curves, phenotypes, privacy
from multicentre_papers.dpfact.exercises.prediction import measure, tables
from multicentre_papers.dpfact.plan import QUICK

PLAN = dataclasses.replace(QUICK, epsilons=(1.0, 8.0))


def cells(section, *, of):
    (line,) = [line for block in section.blocks for line in block.splitlines() if line.startswith("|") and of in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


def claim(section, *, of):
    (found,) = [one for one in section.claims if of in one.claim]
    return found


def curve(method, at_entries, everywhere, epoch=2, seed=0):
    place = {"sample": "mimic-like", "method": method, "seed": seed, "rank": 5, "epoch": epoch}
    return {**place, "rmse": everywhere, "rmse_at_entries": at_entries, "zero": 1.1, "constant": 0.3}


def all_curves(published_everywhere=80.0, sgd=0.2, n_seeds=5):
    return [
        row
        for seed in range(n_seeds)
        for row in (
            curve(curves.CP_ALS, 0.9, 9.0, epoch=1, seed=seed),
            curve(curves.CP_ALS, 0.9, 0.95, seed=seed),
            curve(curves.SGD, sgd, 80.0, seed=seed),
            curve(curves.TRIP, 0.95, 0.98, seed=seed),
            curve(curves.AS_PUBLISHED, 0.25, published_everywhere, seed=seed),
            curve(curves.STAT, 0.91, 0.94, seed=seed),
        )
    ]


def test_claims_on_few_seeds_are_not_judged():
    section = curves.show(all_curves(n_seeds=4), PLAN)
    assert {one.verdict for one in section.claims} == {"too few to judge"}


def test_a_sample_that_is_not_available_is_untested():
    section = curves.show([*all_curves(), {"sample": "synpuf500", "skipped": "no folder holds the file"}], PLAN)
    assert claim(section, of="synpuf500").verdict == "untested"


def test_curves_show_the_last_epoch_and_both_reference_lines():
    section = curves.show(all_curves(), PLAN)
    assert cells(section, of="CP-ALS") == [curves.CP_ALS, "0.900 ± 0.000", "0.950 ± 0.000"]
    assert cells(section, of=curves.STAT)[2] == "**0.940 ± 0.000**"
    assert cells(section, of="*zero*")[1:] == ["1.100", "1.100"]
    assert cells(section, of="*constant*")[1:] == ["0.300", "–"]
    drawn = section.figures["figure-2-mimic-like-rmse"]
    assert drawn.series[curves.CP_ALS] == pytest.approx([math.log10(9.0), math.log10(0.95)])
    assert drawn.series["model that predicts zero"] == pytest.approx([math.log10(1.1)] * 2)
    assert section.figures["figure-2-mimic-like-rmse-at-entries"].series[curves.CP_ALS] == [0.9, 0.9]


@pytest.mark.parametrize(("everywhere", "sgd", "better", "least"), [(80.0, 0.2, False, True), (1.0, 0.4, True, False)])
def test_claims_of_the_curves(everywhere, sgd, better, least):
    section = curves.show(all_curves(everywhere, sgd), PLAN)
    assert claim(section, of="model that predicts zero").reached is better
    assert claim(section, of="SGD's error").reached is least
    assert claim(section, of="below those of CP-ALS").reached


def sent(method, n_sites, seconds, rounds=3):
    place = {"method": method, "n_sites": n_sites, "seed": 0, "target": 1.0, "rounds": rounds}
    if rounds is None:
        return {**place, **dict.fromkeys(("formula", "logged", "before", "seconds"))}
    return {**place, "formula": 2e6, "logged": 2.02e6, "before": 5e5, "seconds": seconds}


def test_communication_is_told_beside_the_published_seconds():
    rows = [
        sent(method, n, seconds * n) for n in (1, 5) for method, seconds in (("TRIP", 2.0), (communication.STAT, 0.5))
    ]
    section = communication.show([*rows, sent(communication.EASGD, 5, 0.0, rounds=None)], PLAN)
    assert cells(section, of="reduction") == ["reduction", "46.6 %", "37.7 %", "20.7 %"]
    assert cells(section, of="| 5     | DPFact, exact") == [
        *("5", communication.STAT, "1 of 1", "3.0", "2.00", "2.02", "0.50", "2.500", "0.250")
    ]
    assert cells(section, of=communication.EASGD)[2:4] == ["0 of 1", "–"]
    assert claim(section, of="sends less").reached
    assert claim(section, of="proportional").reached
    assert "1.00 %" in claim(section, of="logged").figures


def test_a_dear_method_does_not_send_less():
    rows = [sent("TRIP", 5, 2.0), sent(communication.STAT, 5, 1.9)]
    assert not claim(communication.show(rows, PLAN), of="sends less").reached


def area(method, auc, seed=0, rank=20, home=0.7):
    known = {"sample": "mimic-like", "method": method, "rank": rank, "seed": seed, "auc": auc}
    return {**known, "fms": 0.9, "fms_exclusive": 0.8, "auc_exclusive": home}


def test_areas_stand_beside_table_4():
    rows = [area(method, 0.7 + 0.02 * seed, seed) for method in measure.METHODS for seed in (0, 1)]
    section = tables.show(rows, PLAN)
    assert cells(section, of="| TRIP                          | 0.710 ± 0.014 | 0.9") == [
        *("20", "TRIP", "0.710 ± 0.014", "0.900 ± 0.000", "0.7596")
    ]
    assert cells(section, of="| random factors")[-1] == "–"
    assert claim(section, of="is above that of TRIP").verdict == "too few to judge"
    assert claim(section, of="AUC on MIMIC-III").verdict == "untested"
    assert claim(section, of="privacy costs").reached
    assert not claim(section, of="random factors stay below").reached


@pytest.mark.parametrize(("private", "verdict"), [(0.695, "holds"), (0.68, "does NOT hold"), (0.692, "undecided")])
def test_the_cost_of_privacy_is_that_of_table_4(private, verdict):
    rows = [
        area(method, auc, seed)
        for method in measure.METHODS
        for seed in range(5)
        for auc in [private + 0.004 * (seed % 2) if method == measure.PRIVATE else 0.7]
    ]
    found = claim(tables.show(rows, PLAN), of="privacy costs an AUC of 0.0082")
    assert str(found).startswith(verdict)
    without = [row for row in rows if row["method"] != measure.PRIVATE]
    assert claim(tables.show(without, PLAN), of="privacy costs").verdict == "untested"


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((0.05, 0.06, 0.05, 0.06, 0.05), "holds"),
        ((-0.05, -0.06, -0.05, -0.06, -0.05), "does NOT hold"),
        ((0.05, -0.02, 0.05, -0.04, 0.01), "undecided"),
        ((0.05, 0.06, 0.05, 0.06), "too few to judge"),
    ],
)
def test_an_advantage_at_a_site_counts_beyond_its_error(gains, verdict):
    rows = [
        area(method, 0.7, seed, home=0.7 + (gain if method == measure.SPARSE else 0.0))
        for method in measure.METHODS
        for seed, gain in enumerate(gains)
    ]
    found = claim(tables.show(rows, PLAN), of="exclusive phenotypes")
    assert str(found).startswith(verdict)
    assert f"{sum(gains) / len(gains):+.4f}" in found.figures


def noised(mechanism, epsilon, match):
    known = {"mechanism": mechanism, "epsilon": epsilon, "seed": 0, "match": match, "match_to_free": match}
    return {**known, "signal": 40.0, "null": 0.01, "null_dense": 0.6}


@pytest.mark.parametrize(("low", "high", "reached"), [(0.4, 0.95, True), (0.7, 0.6, False)])
def test_matches_by_epsilon(low, high, reached):
    rows = [noised(privacy.NO_NOISE, None, 1.0), noised(privacy.MASKED, 1.0, low), noised(privacy.MASKED, 8.0, high)]
    section = privacy.show(rows, PLAN)
    assert cells(section, of="| 8 ")[1:] == ["8", f"{high:.3f}", f"{high:.3f}", "40"]
    assert cells(section, of="codes shuffled")[2] == "0.010"
    assert section.figures["figure-3b-match"].series[privacy.MASKED] == [low, high]
    assert claim(section, of="rises with epsilon").reached is reached
    assert claim(section, of="comes near 1").reached is reached
    assert not claim(section, of="0.83 or more").reached


def pair(site, phenotype, present, length, sparsity=0.06):
    return {"sparsity": sparsity, "seed": 0, "site": site, "phenotype": phenotype, "present": present, "length": length}


@pytest.mark.parametrize(("off", "reached"), [(None, True), (0.2, False)])
def test_absent_phenotypes_are_counted(off, reached):
    rows = [pair("north", 1, True, 0.5), pair("south", 1, False, off)]
    rows += [pair("north", 1, True, None, 0.3), pair("south", 1, False, None, 0.3)]
    section = columns.show(rows, PLAN)
    assert cells(section, of="| 0.06 ")[1:3] == ["1 of 1" if off is None else "0 of 1", "0 of 1"]
    assert cells(section, of="| 0.3 ")[1:3] == ["1 of 1", "1 of 1"]
    assert section.figures["figure-4-mu-0-06"].values == [[0.5], [off]]
    assert claim(section, of="nine tenths").reached is reached
    assert claim(section, of="too large a weight").reached


def recovered(method, mode, shared, similarity):
    known = {"sample": "planted", "method": method, "seed": 0, "phenotype": 1, "mode": mode, "similarity": similarity}
    return {**known, "null": 0.01, "true": "01; 02", "codes": "01; 03", "shared": shared}


def test_recovered_codes_stand_beside_the_planted():
    rows = [
        recovered(method, mode, shared, match)
        for method, shared, match in ((phenotypes.STAT, 4, 0.9), (phenotypes.AS_PUBLISHED, 0, 0.02))
        for mode in ("procedure", "diagnosis")
    ]
    rows.append({"sample": "mimic3_demo", "skipped": "no folder holds the file. Get it."})
    section = phenotypes.show(rows, PLAN)
    assert cells(section, of="| procedure")[:6] == ["1", "0.900", "8", "procedure", "01; 02", "01; 03"]
    assert section.blocks[-1] == "*Left out: mimic3_demo.*"
    assert "80 % of the heaviest codes" in claim(section, of="exact sums").figures
    assert claim(section, of="exact sums").reached
    assert not claim(section, of="as published").reached
