"""What tables, verdicts and remarks say of given figures."""

import dataclasses

import pytest

from multicentre_papers.fedmsgl.contenders import AS_PUBLISHED, ONE_SHOT, THREE_ROUNDS, Contender, contenders
from multicentre_papers.fedmsgl.exercises import ablation, figure2, losses, table3, tuned
from multicentre_papers.fedmsgl.levels import judge
from multicentre_papers.fedmsgl.plan import FULL, QUICK


def row(sample, method, acc, purity=None, nmi=0.5, **more):
    known = {"acc": acc, "purity": purity or acc, "nmi": nmi, "nmi_arithmetic": nmi, "ari": 0.4, "seconds": 1.0}
    return {"sample": sample, "method": method, "seed": 0, **known, "n_asked": 2, "n_found": 2, **more}


def levels_of(rows):
    return [claim for claim in judge(rows) if "ahead" not in claim.claim]


def test_a_level_asks_for_every_measure_it_names():
    reached = [row("bbcsport", ONE_SHOT, 0.985, nmi=0.95), row("bbcsport", ONE_SHOT, 0.981, nmi=0.931)]
    claim, published = levels_of(reached)
    assert claim.reached
    assert claim.figures == "ACC 0.9830, purity 0.9830, NMI 0.9405; 2 runs"
    assert (claim.verdict, published.verdict) == ("too few to judge", "untested")
    low_nmi = [*reached, row("bbcsport", ONE_SHOT, 0.985, nmi=0.90)]
    low_acc = [row("bbcsport", ONE_SHOT, 0.979, purity=0.99, nmi=0.99)]
    for rows in (low_nmi, low_acc):
        assert not levels_of(rows)[0].reached
    assert [claim.verdict for claim in levels_of(5 * [row("sonar", ONE_SHOT, 0.635, nmi=0.0)])] == ["holds"]
    published = levels_of([row("bbcsport", AS_PUBLISHED, 0.9, nmi=0.7)])[1]
    assert published.claim == "bbcsport, FedMSGL, as published: ACC 0.88, purity 0.88, NMI 0.71"


def test_a_set_that_is_not_available_is_untested():
    claims = list(judge([{"sample": "bbcsport", "skipped": "no folder holds the file"}]))
    assert len(claims) == 4
    assert {claim.verdict for claim in claims} == {"untested"}


def test_every_compared_method_and_plain_baseline_is_a_rival_and_no_variant_of_our_own_is():
    rows = [
        *(row("caltech101_7", ONE_SHOT, acc, nmi=0.5) for acc in (0.70, 0.71, 0.70, 0.69, 0.70)),
        row("caltech101_7", THREE_ROUNDS, 0.9, nmi=0.9),
        row("caltech101_7", "SFMC", 0.6, nmi=0.6),
        row("caltech101_7", "spectral, rows of length 1", 0.65, nmi=0.4),
        {"sample": "caltech101_7", "method": "CDMGC", "skipped": "no answer"},
    ]
    acc, nmi = judge(rows)
    assert (acc.verdict, nmi.verdict) == ("holds", "does NOT hold")
    assert acc.figures.endswith("0.7000; best of 2: spectral, rows of length 1, 0.6500 (1 run)")
    assert "best of 2: SFMC, 0.6000" in nmi.figures
    near = [*rows, row("caltech101_7", "FSMSC", 0.698), row("caltech101_7", "FSMSC", 0.697)]
    assert next(iter(judge(near))).verdict == "undecided"


def test_marks_remarks_and_failures_stand_by_the_table():
    rows = [
        row("sonar", ONE_SHOT, 0.66, nmi=0.13),
        row("sonar", "CDMGC", 0.55, n_found=7),
        {"sample": "sonar", "method": "FedMVL", "seed": 0, "skipped": "FedMVL has no answer: it went astray"},
        {"sample": "orl", "skipped": "no folder holds the file"},
    ]
    section = table3.show(rows, QUICK)
    text = "\n".join(section.blocks)
    assert "0.5427†" in text
    assert "0.6466 " in text
    assert "† CDMGC: purity .5421 is below ACC .5427" in text
    assert "CDMGC 7.0" in text
    assert "it went astray" in text
    assert "*Left out: orl.*" in text
    met = {claim.claim: claim.reached for claim in section.claims}
    assert met["sonar, FedMSGL, one round: the printed ACC of FedMSGL, 0.6466, is met"]
    assert met["sonar, FedMSGL, one round: the printed NMI of FedMSGL, 0.1204, is met"]


def test_a_printed_figure_far_from_ours_is_told_unless_it_is_no_level():
    far = [row("bbcsport", "CDMGC", 0.40), row("bbcsport", "FSMSC", 0.80), row("bbcsport", "FedMVL", 0.66)]
    text = "\n".join(table3.show(far, QUICK).blocks)
    assert "CDMGC +0.335" in text
    assert "FedMVL -0.094" in text
    assert "FSMSC +" not in text
    unusable = "\n".join(table3.show([row("handwritten", "SC, mean of the views", 0.76)], QUICK).blocks)
    assert "SC, mean of the views -" not in unusable


def test_the_best_setting_is_the_one_of_the_highest_accuracy():
    method = tuned.tunable()[0].name
    rows = [
        row("sonar", method, 0.6, settings="mu=3.0"),
        row("sonar", method, 0.7, nmi=0.2, settings="mu=5.0"),
        {"sample": "sonar", "method": method, "settings": "mu=9.0", "skipped": "no answer"},
    ]
    table = tuned.show(rows, FULL).blocks[1]
    assert "| 2        | mu=5.0 | 0.7000 | 0.7000 | 0.2000 | 0.6500 ± 0.0707" in table


def test_figure_2_reads_ranges_and_ends():
    plan = dataclasses.replace(QUICK, lambdas=(0.1, 10.0), betas=(0.1, 10.0))
    place = {"sample": "bbcsport", "method": ONE_SHOT}
    grid = {(0.1, 0.1): 0.5, (0.1, 10.0): 0.6, (10.0, 0.1): 0.7, (10.0, 10.0): 0.9}
    rows = [
        {**place, "panel": figure2.FIRST_AND_THIRD, "lambda_1": a, "lambda_3": b, "acc": acc}
        for (a, b), acc in grid.items()
    ]
    rows += [{**place, "panel": figure2.SECOND, "lambda_2": a, "acc": acc} for a, acc in ((0.1, 0.88), (10.0, 0.9))]
    rows += [{**place, "panel": figure2.BETA, "beta": a, "acc": acc} for a, acc in ((0.1, 0.8), (10.0, 0.9))]
    rows += [
        {**place, "panel": figure2.OBJECTIVE, "step": k, "objective": height}
        for k, height in enumerate((4.0, 2.0, 1.999))
    ]
    section = figure2.show(rows, plan)
    assert [claim.reached for claim in section.claims] == [True, False, True]
    heat = section.figures["figure-2a-fedmsgl-one-round"]
    assert heat.values == [[0.5, 0.6], [0.7, 0.9]]
    assert section.figures["figure-2c"].series[ONE_SHOT] == [0.8, 0.9]
    rows[-1]["objective"] = 2.5
    assert not figure2.show(rows, plan).claims[-1].reached


def test_the_hypergraph_must_be_ahead_by_a_hundredth():
    for gain, reached in ((0.02, True), (0.005, False), (-0.1, False)):
        rows = [
            row("sonar", "", acc, embedding=one)
            for one, acc in ((ablation.HYPERGRAPH, 0.6 + gain), (ablation.GRAPH, 0.6))
        ]
        (claim,) = ablation.show(rows, QUICK).claims
        assert claim.reached == reached


def test_what_lacking_records_cost():
    rows = [
        row("sonar", ONE_SHOT, 0.90, loss=losses.WHOLE, level=""),
        row("sonar", ONE_SHOT, 0.88, loss=losses.LACKING, level="30%"),
        row("sonar", ONE_SHOT, 0.82, loss=losses.LACKING, level="30%"),
        {"sample": "sonar", "loss": losses.GONE, "level": "low", "skipped": "one view is left"},
    ]
    section = losses.show(rows, QUICK)
    assert not section.claims[0].reached
    assert "0.9000 to 0.8500" in section.claims[0].figures
    assert "0.8500 ± 0.0424" in section.blocks[1]


@pytest.mark.parametrize("plan", [FULL, QUICK])
def test_plans_say_what_is_run(plan):
    assert "simulated" in plan.describe()
    assert set(plan.samples) <= set(table3.SAMPLES)


def test_names_are_one_a_method_and_printed_rows_exist():
    names = [one.name for one in contenders()]
    assert len(set(names)) == len(names) == 18
    assert {one.printed for one in contenders()} - {None} == set(table3.published.METHODS)


def test_slow_methods_run_less_often_on_large_data_and_those_that_draw_nothing_once():
    slow = Contender("slow", lambda *_: None, slow=True)
    assert (slow.n_runs(QUICK.small, QUICK), slow.n_runs(QUICK.small + 1, QUICK)) == (3, 1)
    assert Contender("still", lambda *_: None, draws=False).n_runs(10, FULL) == 1
    printed = Contender("printed", lambda *_: None, as_printed=True)
    assert printed.is_run(600, QUICK)
    assert not printed.is_run(601, QUICK)


def test_the_published_behaviour_has_its_own_maps_where_the_plan_says_so():
    assert {method for _, method, _ in figure2._settings(QUICK)} == {ONE_SHOT, THREE_ROUNDS}
    assert len(list(figure2._settings(QUICK))) + 1 == figure2.n_fits(QUICK)
    assert len(list(figure2._settings(FULL))) + 1 == figure2.n_fits(FULL)
    with_published = dataclasses.replace(FULL, published_grid=True)
    settings = [given for panel, method, given in figure2._settings(with_published) if method == AS_PUBLISHED]
    assert {"lambda_1": 1e1, "lambda_3": 1e-3} in settings
