"""A transcript holds all that identifies a call, in order; what is restored counts; steps for each site need a list."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from multicentre.core import transcript
from multicentre.core.calls import Call, Entry, Mask, Place
from multicentre.core.messages import Message, array
from multicentre.core.noise_plan import Noise
from multicentre.core.steps import Acknowledgement, Release, SitePart, step
from multicentre.core.transcript import SessionOutline, SiteTranscript, SiteTranscripts, digest_of
from multicentre.core.wire import encode
from multicentre.errors import ConfigurationError, ProtocolRefused

SITES = ("lyon", "oslo", "rome")


@dataclass(frozen=True)
class Told(Message):
    values: np.ndarray = array("values", ("n",))


class ToldSite(SitePart):
    method = "toy-told"

    @step(releases=Acknowledgement)
    def take(self, request: Told) -> Acknowledgement:
        """Take values in."""
        return Acknowledgement()

    @step(releases=Acknowledgement)
    def other(self, request: Told) -> Acknowledgement:
        """Take values in."""
        return Acknowledgement()

    @step(releases=Acknowledgement, addressed="each")
    def single(self, request: Told) -> Acknowledgement:
        """Take values in."""
        return Acknowledgement()


class OtherSite(ToldSite):
    method = "toy-other"


class UnenteredSite(ToldSite):
    method = "toy-unentered"
    in_transcript = False


def told(*values):
    return Told(np.array(values or (1.0,)))


def call(offered=ToldSite.take, request=None, **changes):
    return replace(Call("study", "0.1", 0, offered, request or told(), SITES), **changes)


def after(*calls, site="lyon", records=()):
    kept = SiteTranscript("0.1", records)
    for one in calls:
        kept.enter(one, site)
    return kept


MASK = Mask("first", 1, 2)
CHANGES = [
    {"request": told(1.0, 2.0)},
    {"request": told(np.nextafter(1.0, 2.0))},
    {"step": ToldSite.other},
    {"step": OtherSite.take},
    {"study": "other"},
    {"sequence": 1},
    {"peers": SITES[:2]},
    {"peers": SITES[::-1]},
    {"mask": MASK},
    *({"mask": replace(MASK, **change)} for change in ({"agreement": "x"}, {"number": 2}, {"threshold": 3})),
    *({"mask": replace(MASK, **change)} for change in ({"colluding": 1}, {"counted": True})),
    *({"noise": Noise(law, {"total": scale})} for law in ("gaussian", "laplace") for scale in (1.0, 2.0)),
]


def test_every_change_of_a_call_gives_another_transcript():
    values = {after(call(**change)).value for change in [{}, *CHANGES]}
    assert len(values) == 1 + len(CHANGES)


def test_equal_calls_give_equal_transcripts_at_all_sites():
    calls = [call(**change) for change in CHANGES if "peers" not in change]
    assert len({after(*calls, site=site).value for site in SITES}) == 1
    noises = [Noise("gaussian", dict(pairs)) for pairs in ([("a", 1.0), ("b", 2.0)], [("b", 2.0), ("a", 1.0)])]
    assert len({after(call(noise=noise)).value for noise in noises}) == 1


def test_the_order_the_records_and_the_session_count():
    one, two = call(request=told(1.0)), call(request=told(2.0), sequence=1)
    assert after(one, two).value != after(two, one).value
    assert after(one, records=["folds 0"]).value != after(one, records=["folds 1"]).value
    assert SiteTranscript("0.2", []).value != SiteTranscript("0.1", []).value


def test_the_mark_of_a_call_is_the_digest_of_its_request_and_the_transcript_with_it():
    kept = SiteTranscript("0.1", [])
    before = kept.value
    assert kept.mark(call()).transcript == kept.value == before
    mark = kept.enter(call(), "lyon")
    assert mark.transcript == kept.value != before
    assert mark.request == digest_of(told()) == digest_of(told())
    assert mark.request != digest_of(told(2.0))


def test_an_ask_that_is_changed_in_place_has_another_digest_in_the_next_exchange():
    request = told(1.0)
    first = digest_of(request)
    request.values[0] = 2.0
    SessionOutline().placed(dict.fromkeys(SITES, call(request=request)), SITES)
    assert digest_of(request) == digest_of(told(2.0)) != first


def test_sites_in_one_process_encode_an_ask_once(monkeypatch):
    encoded = []
    monkeypatch.setattr(transcript, "encode", lambda message: encoded.append(message) or encode(message))
    calls = SessionOutline().placed(dict.fromkeys(SITES, call()), SITES)
    for site, one in calls.items():
        SiteTranscript("0.1", []).enter(one, site)
    assert len(encoded) == 1
    SiteTranscript("0.1", []).enter(call(), "oslo")
    assert len(encoded) == 2


# Order


@pytest.mark.parametrize("number", [0, 2, 3])
def test_a_call_out_of_its_place_is_refused_and_leaves_no_trace(number):
    kept = after(call())
    before = kept.value
    with pytest.raises(ProtocolRefused, match="the site must receive all earlier calls"):
        kept.enter(call(place=Place(number)), "lyon")
    assert kept.value == before
    kept.enter(call(place=Place(1)), "lyon")
    assert kept.length == 2


def test_sites_may_become_fewer_and_no_more():
    kept = after(call(), call(peers=SITES[:2]))
    for peers in (SITES, ("lyon", "rome")):
        with pytest.raises(ProtocolRefused, match="must have taken part in the earlier calls"):
            kept.enter(call(peers=peers), "lyon")
    kept.enter(call(peers=("lyon",)), "lyon")


def placed_calls(*exchanges):
    """Return the calls of exchanges, each a step and the requests of some sites."""
    outline = SessionOutline()
    for number, (offered, requests) in enumerate(exchanges):
        calls = {site: call(offered, request, sequence=number) for site, request in requests.items()}
        yield outline.placed(calls, SITES)


ALL = dict.fromkeys(SITES, told())
EXCHANGES = (
    (ToldSite.single, {"oslo": told(1.0), "rome": told(2.0)}),
    (ToldSite.take, ALL),
    (ToldSite.single, {"lyon": told(3.0)}),
    (ToldSite.single, {"lyon": told(4.0), "rome": told(5.0)}),
    (ToldSite.take, ALL),
)


def test_sites_that_are_not_asked_get_the_entries_with_the_next_call():
    kept = {site: SiteTranscript("0.1", []) for site in SITES}
    for calls in placed_calls(*EXCHANGES):
        for site, one in calls.items():
            kept[site].enter(one, site)
        if set(calls) == set(SITES):
            assert len({one.value for one in kept.values()}) == 1
    assert {one.length for one in kept.values()} == {5}


def test_what_is_kept_with_a_state_is_the_same_whoever_was_asked_last():
    kept = {site: SiteTranscript("0.1", []) for site in SITES}
    for one in kept.values():
        one.restore(ToldSite, ("restore", "rounds", 3))
    for calls in placed_calls(*EXCHANGES[:4]):
        for site, one in calls.items():
            kept[site].enter(one, site)
        assert len({one.state_digest for one in kept.values()}) == 1
    assert len({one.value for one in kept.values()}) == 2  # the last step did not reach one site


def test_entries_of_steps_that_are_addressed_to_all_cannot_be_caught_up_with():
    for offered in (ToldSite.take, UnenteredSite.single):
        missed = Entry(0, 0, offered, SITES, "0" * 64, "0" * 64)
        with pytest.raises(ProtocolRefused, match="a step addressed to all sites must reach this site"):
            SiteTranscript("0.1", []).enter(call(place=Place(1, (missed,))), "lyon")


def single(**changes):
    (calls,) = placed_calls((ToldSite.single, {"lyon": told(1.0), "oslo": told(2.0)}))
    one = calls["lyon"]
    return replace(one, place=replace(one.place, **changes))


@pytest.mark.parametrize(
    "requests",
    [
        (),
        (("oslo", digest_of(told(2.0))),),
        (("lyon", digest_of(told(2.0))), ("oslo", digest_of(told(2.0)))),
        (("lyon", digest_of(told(1.0))), ("lyon", digest_of(told(1.0)))),
        (("lyon", digest_of(told(1.0))), ("nice", digest_of(told(2.0)))),
    ],
)
def test_a_list_of_asks_without_the_sites_own_or_with_others_than_take_part_is_refused(requests):
    with pytest.raises(ProtocolRefused, match="must contain the message that this site received"):
        SiteTranscript("0.1", []).enter(single(requests=requests), "lyon")


def test_the_whole_list_counts():
    other = (("lyon", digest_of(told(1.0))), ("oslo", digest_of(told(3.0))))
    assert after(single()).value != after(single(requests=other)).value


def test_a_step_that_is_addressed_to_all_has_no_list():
    listed = call(place=Place(0, (), (("lyon", digest_of(told())),)))
    with pytest.raises(ProtocolRefused, match="must have one message; got a list"):
        SiteTranscript("0.1", []).enter(listed, "lyon")


# What is restored


def test_the_last_state_that_a_part_restores_before_a_call_counts():
    kept = after(call())
    before = kept.value
    kept.restore(ToldSite, ("restore", "rounds", 3))
    three = kept.value
    kept.restore(ToldSite, ("restore", "rounds", 2))
    two = kept.value
    assert len({before, three, two}) == 3
    kept.restore(ToldSite, ("restore", "rounds", 3))
    assert kept.value == three
    kept.restore(OtherSite, ("restore", "rounds", 3))
    assert kept.value != three
    kept.enter(call(), "lyon")
    with_both = kept.value
    kept.restore(ToldSite, ("restore", "rounds", 3))
    assert kept.value != with_both
    assert with_both != after(call(), call()).value


# The coordinator


@pytest.mark.parametrize("requests", [{"lyon": told()}, {site: told() for site in SITES}])
def test_a_step_is_put_to_all_sites_with_one_ask(requests):
    with pytest.raises(ConfigurationError, match="must be sent to all sites with one message"):
        list(placed_calls((ToldSite.take, requests)))


def test_steps_that_are_not_entered_have_no_place():
    outline = SessionOutline()
    calls = {site: call(UnenteredSite.take, told()) for site in SITES}
    assert outline.placed(calls, SITES) == calls
    assert outline.placed({}, SITES) == {}
    entered = outline.placed(dict.fromkeys(SITES, call()), SITES)
    assert {one.place for one in entered.values()} == {Place(0)}


def test_a_sum_is_addressed_to_all():
    @dataclass(frozen=True)
    class Total(Release):
        total: np.ndarray = array("total", ("d",), bound=1.0)

    with pytest.raises(ConfigurationError, match="a summed step must be addressed to all sites"):
        step(releases=Total, summed=True, addressed="each")


def test_a_transcript_is_the_same_in_every_release():
    """Masks of sites of two releases cancel only then. Whoever changes what is hashed raises WIRE_PROTOCOL."""
    kept = SiteTranscript("0.1", ["folds 0"], "run")
    values = [kept.value]
    kept.enter(call(mask=MASK), "lyon")
    values.append(kept.value)
    kept.enter(call(noise=Noise("gaussian", {"total": 2.0})), "lyon")
    values.append(kept.value)
    for completed in (True, False):
        kept.note_change(completed=completed)
        values.append(kept.value)
    kept.note_refusal()
    values.append(kept.value)
    kept.restore(ToldSite, (1, "digest"))
    values.append(kept.value)
    assert [value[:8] for value in values] == [
        "6a9cce29",
        "1ec892a4",
        "5f14ec06",
        "511d1861",
        "166f3818",
        "18031858",
        "e337d20a",
    ]


def test_a_forgotten_session_begins_again():
    transcripts = SiteTranscripts()
    for session in ("0.1", "0.2"):
        transcripts.begin(session, [], "run")
        transcripts[session].enter(call(session=session), "lyon")
    second = transcripts["0.2"]
    transcripts.forget("0.1")
    assert transcripts["0.2"] is second
    assert transcripts.state_digest("0.1") == bytes(32)
    with pytest.raises(KeyError):
        transcripts["0.1"]
    transcripts.restore("0.1", ToldSite, (1, "digest"))
    transcripts.forget("0.1")
    transcripts.begin("0.1", [], "run")
    assert transcripts["0.1"].value == SiteTranscript("0.1", [], "run").value


def test_sites_of_a_step_for_each_do_not_limit_those_of_later_calls():
    """A message to one site is no sum over fewer sites."""
    (first, second, *_) = placed_calls(*EXCHANGES)
    assert set(first) == {"oslo", "rome"}
    kept = SiteTranscript("0.1", [])
    single = replace(first["oslo"], peers=("oslo", "rome"))
    kept.enter(single, "oslo")
    kept.enter(replace(second["oslo"], place=replace(second["oslo"].place, missed=())), "oslo")
    assert kept.length == 2
