"""Ledgers of several sites side by side: calls of one run are found, and whatever differs is named."""

import pytest

from multicentre.privacy.ledger_comparison import compare_ledgers

SITES = ("lyon", "oslo", "rome")


def entry(call, *, session="0.1", at=0, **facts):
    known = {"study": "pilot", "session": session, "call": call, "method": "toy", "step": f"step_{call}"}
    known |= {"time": f"2026-01-01T00:{at:02}:{call:02}+00:00", "event": "release", "protection": "masked"}
    return {**known, "peers": list(SITES), "request": f"{call:064x}", "transcript": f"{call + 1:064x}", **facts}


def ledgers(n_calls=3, **changed):
    found = {site: [entry(call) for call in range(n_calls)] for site in SITES}
    return {**found, **changed}


def kinds(found):
    return [(one.call, one.kind) for one in found.differences]


def test_equal_ledgers_do_not_differ():
    found = compare_ledgers(ledgers())
    assert (found.n_calls, found.n_unknown, found.differences) == (3, 0, ())


@pytest.mark.parametrize(
    "facts",
    [
        {"request": "f" * 64},
        {"step": "other"},
        {"method": "other"},
        {"protection": "unmasked"},
        {"records": "folds 0, 1 of 0.1"},
        {"counted": True},
        {"addressed": "each", "request": f"{1:064x}"},
        {"peers": ["lyon", "oslo"]},
        {"event": "failure"},
    ],
)
def test_a_call_in_which_one_site_was_asked_something_else_is_named(facts):
    odd = [entry(0), entry(1, **facts, transcript="e" * 64), entry(2, transcript="d" * 64)]
    found = compare_ledgers(ledgers(oslo=odd))
    (kind,) = [name for name in facts if name != "request"] or ["request"]
    assert kinds(found) == [(1, kind)]
    first = found.differences[0]
    assert (first.study, first.session) == ("pilot", "0.1")
    assert first.values["lyon"] == first.values["rome"] != first.values["oslo"]


def test_where_transcripts_part_although_all_asks_are_the_same_is_named_once():
    odd = [entry(0), *(entry(call, transcript="e" * 63 + str(call)) for call in (1, 2))]
    assert kinds(compare_ledgers(ledgers(oslo=odd))) == [(1, "transcript")]


def test_a_call_that_one_site_lacks_is_named():
    found = compare_ledgers(ledgers(oslo=[entry(0), entry(2)]))
    assert kinds(found) == [(1, "missing")]
    assert dict(found.differences[0].values) == {"oslo": ""}
    assert kinds(compare_ledgers(ledgers(oslo=[]))) == [(0, "missing"), (1, "missing"), (2, "missing")]


def test_a_site_under_another_name_lacks_calls_between_its_first_and_its_last():
    renamed = {site if site != "oslo" else "a.jsonl": entries for site, entries in ledgers().items()}
    renamed["a.jsonl"].pop(1)
    assert kinds(compare_ledgers(renamed)) == [(1, "missing")]


def test_sites_that_take_no_part_any_more_lack_nothing():
    two = [entry(0), *(entry(call, peers=["lyon", "rome"]) for call in (1, 2))]
    assert not compare_ledgers({"lyon": two, "oslo": two[:1], "rome": two}).differences


def test_sites_that_are_each_asked_alone_in_sessions_of_their_own_are_named():
    found = compare_ledgers({site: [entry(0, session=f"0.{i}", peers=[site])] for i, site in enumerate(SITES)})
    assert [(one.session, one.kind) for one in found.differences] == [(f"0.{i}", "session") for i in range(3)]
    assert dict(found.differences[0].values) == {"oslo": "", "rome": ""}


def test_a_session_of_some_sites_is_named_once():
    two = [entry(call, session="0.2", peers=["lyon", "oslo"]) for call in range(3)]
    found = compare_ledgers(ledgers(lyon=ledgers()["lyon"] + two, oslo=ledgers()["oslo"] + two))
    assert [(one.session, one.call, one.kind) for one in found.differences] == [("0.2", 0, "session")]


def test_a_call_to_one_site_at_the_end_of_a_session_is_named():
    alone = [*ledgers()["oslo"], entry(3, peers=["oslo"])]
    (one,) = compare_ledgers(ledgers(oslo=alone)).differences
    assert (one.call, one.kind, dict(one.values)) == (3, "alone", {"oslo": "called alone"})


def test_a_refusal_of_a_step_that_is_addressed_to_each_site_is_none():
    found = {
        site: [entry(0, addressed="each", event=event)] for site, event in (("lyon", "release"), ("oslo", "refusal"))
    }
    assert not compare_ledgers(found | {"rome": [entry(0, addressed="each")]}).differences


def test_asks_of_a_step_that_is_addressed_to_each_site_may_differ_or_reach_some():
    each = {"addressed": "each", "peers": ["lyon", "oslo"]}
    found = ledgers()
    for site in ("lyon", "oslo"):
        found[site][1] = entry(1, **each, request=site.ljust(64, "0"))
    del found["rome"][1]
    assert not compare_ledgers(found).differences
    found["oslo"][1] = entry(1, **each, transcript="f" * 64)
    assert kinds(compare_ledgers(found)) == [(1, "transcript")]


def test_entries_about_no_call_are_left_out_and_those_without_hashes_are_counted():
    plain = [{"event": "repaired", "time": "2026-01-01T00:00:00+00:00"}]
    old = [{name: value for name, value in entry(0).items() if name not in ("request", "transcript", "peers")}]
    found = compare_ledgers({"lyon": [*plain, *old], "oslo": [entry(0)]})
    assert (found.n_calls, found.n_unknown, found.differences) == (1, 1, ())


def test_a_run_that_one_site_took_no_part_in_is_not_taken_for_the_next():
    runs = {at: [entry(call, at=at, request=f"{10 * at + call:064x}") for call in range(3)] for at in (0, 7, 20)}
    whole = [*runs[0], *runs[7], *runs[20]]
    found = compare_ledgers({"lyon": whole, "oslo": [*runs[0], *runs[20]], "rome": whole})
    assert {one.kind for one in found.differences} == {"missing"}
    assert len(found.differences) == 3
    assert found.n_calls == 9


def test_of_equal_runs_those_close_in_time_belong_together():
    runs = {at: [entry(call, at=at) for call in range(2)] for at in (0, 7, 20)}
    late = [one | {"protection": "unmasked"} for one in runs[20]]
    found = compare_ledgers({"lyon": [*runs[0], *runs[7], *runs[20]], "oslo": [*runs[7], *late]})
    assert kinds(found)[-2:] == [(0, "protection"), (1, "protection")]
    assert [one.kind for one in found.differences[:2]] == ["missing"] * 2


def test_sessions_are_compared_apart():
    found = ledgers()
    for site, entries in found.items():
        entries += [entry(0, session="0.2", request=("f" if site == "rome" else "e") * 64)]
    (one,) = compare_ledgers(found).differences
    assert (one.session, one.call, one.kind) == ("0.2", 0, "request")
