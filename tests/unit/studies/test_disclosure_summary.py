"""What left a site, summed up from its ledger."""

from multicentre.privacy.ledger import Ledger
from multicentre.studies.disclosure_cards import concerns_patients, summarise_ledgers


def field(name, shape, patients, records=None):
    counts = {"records": records, "patients": patients}
    return {"field": name, "shape": shape, "bytes": 8, **counts, "sha256": ""}


def test_releases_are_added_up_by_step_and_field():
    ledger = Ledger()
    facts = {"step": "fit", "protection": "masked"}
    key = ledger.append("release", {**facts, "step": "advertise", "fields": [field("key", [32], None)]})
    for patients in (30, 20, 0):
        fields = [field("a", [2, 3], patients, 4 * patients), field("n", [], None, patients)]
        ledger.append("release", {**facts, "fields": fields})
    refusal = ledger.append("refusal", {**facts, "reason": "too few"})
    found = summarise_ledgers({"lyon": ledger})
    rows = {row["field"]: row for row in found["released"]}
    assert rows["a"] == {
        "site": "lyon",
        "step": "fit",
        "field": "a",
        "times": 3,
        "numbers": 18,
        "bytes": 24,
        "records_min": 80,
        "patients_min": 20,
        "protection": "masked",
    }
    assert (rows["n"]["numbers"], rows["n"]["records_min"], rows["n"]["patients_min"]) == (3, 20, None)
    assert rows["key"]["patients_min"] is None
    assert found["refused"] == [{"site": "lyon", "step": "fit", "reason": "too few"}]
    assert found["ledgers"] == {"lyon": {"entries": 5, "hash": ledger.head.hash}}
    assert not concerns_patients(key)
    assert concerns_patients(refusal)
    assert concerns_patients(ledger.entries[1])


def test_a_release_about_records_of_which_nobody_knows_whose_they_are_concerns_patients():
    assert concerns_patients(Ledger().append("release", {"fields": [field("a", [], None, 30)]}))


def test_ledgers_of_earlier_versions_hold_one_count():
    old = {key: value for key, value in field("a", [], 30).items() if key != "records"}
    entry = {"step": "fit", "protection": "unmasked", "fields": [old]}
    ledger = Ledger()
    assert concerns_patients(ledger.append("release", entry))
    (row,) = summarise_ledgers({"lyon": ledger})["released"]
    assert (row["records_min"], row["patients_min"]) == (30, 30)
