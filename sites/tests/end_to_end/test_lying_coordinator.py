"""A coordinator that lies before the sum reads nothing where sites are processes that it reaches through Flower."""

import contextlib
import dataclasses

import pytest

import multicentre as mc
from multicentre.core.calls import Selection
from multicentre.core.messages import Nothing
from multicentre.errors import IntegrityError
from multicentre.validation.folds.by_site import DrawnFolds
from multicentre.validation.folds.site import Drawing
from support.engines import with_engine
from support.lying import Telling, asks_by_site
from support.method_cases import CASES

pytest.importorskip("flwr", reason="flwr is not installed")

from support.loopback import Renamed, connected_agents

pytestmark = pytest.mark.slow
SITES = tuple(CASES["kaplan-meier"].sites())
VICTIM, FAR = SITES[1], 1e6


@pytest.fixture(scope="module")
def carrier(tmp_path_factory):
    with connected_agents(tmp_path_factory.mktemp("lying"), len(SITES)) as bridge:
        yield bridge


@contextlib.contextmanager
def lying(carrier, name, alter):
    """Yield a federation of a case's sites whose coordinator lies, and its engine."""
    with mc.Federation.over(Renamed(carrier, SITES), study=name, secure_sum=True) as federation:
        engine = Telling(federation.engine, alter)
        federation = with_engine(federation, engine)
        yield federation, engine


def test_a_survival_table_of_one_site_is_not_read(carrier):
    def far(site, request):
        return request if site == VICTIM else dataclasses.replace(request, times=request.times + FAR)

    with lying(carrier, "kaplan-meier", {"agree": asks_by_site(far)}) as (federation, engine):
        with pytest.raises(IntegrityError, match="the masks of the sites must cancel"):
            mc.survival.KaplanMeier().fit(federation)
        assert engine.total("agree")[-1] != 0
        assert "sum_table" not in engine.masked


def test_a_fold_of_one_site_is_not_read(carrier):
    def others_get_another_fold(site, call):
        if site == VICTIM or call.selection is None:
            return call
        return dataclasses.replace(call, selection=Selection(call.selection.plan, (0, 1, 2, 3)))

    alter = dict.fromkeys(("keys", "draw", "count_folds"), others_get_another_fold)
    with lying(carrier, "fed-xgb", alter) as (federation, engine):
        plan = federation.begin(DrawnFolds)
        plan.ask(DrawnFolds.draw, Drawing(5, 7, ""))
        plan.sum(DrawnFolds.count_folds, Nothing())
        within = plan.select((0, 1, 2), SITES).begin(DrawnFolds)
        within.ask(DrawnFolds.draw, Drawing(2, 7, ""))
        with pytest.raises(IntegrityError, match="the masks of the sites must cancel"):
            within.sum(DrawnFolds.count_folds, Nothing())
        assert engine.total("count_folds")[-1] != 0


def test_an_honest_fit_after_the_lies_is_read(carrier):
    with mc.Federation.over(Renamed(carrier, SITES), study="kaplan-meier", secure_sum=True) as federation:
        assert mc.survival.KaplanMeier().fit(federation).table_.n_patients.sum() > 0
