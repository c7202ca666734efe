"""Terms that cannot be kept are refused, and traffic adds up by step."""

import pytest

from multicentre.core.run_terms import Terms, Traffic
from multicentre.errors import ConfigurationError


def test_traffic_adds_up_by_step():
    traffic = Traffic()
    traffic.add("size", 8, 16)
    traffic.add("sums", 1, 2)
    traffic.add("size", 100, 1000)
    assert traffic.calls == {"size": 2, "sums": 1}
    assert traffic.bytes_to_sites == {"size": 108, "sums": 1}
    assert traffic.bytes_from_sites == {"size": 1016, "sums": 2}


def test_the_terms_of_a_study_without_wishes():
    terms = Terms()
    assert (terms.study, terms.quorum, terms.time_limit_s, terms.sites_per_patient) == ("study", "all", None, 1)


@pytest.mark.parametrize("sites", [0, -1, 1.0, "2", True, None])
def test_a_patient_has_records_at_a_whole_number_of_sites(sites):
    with pytest.raises(ConfigurationError, match=r"^sites_per_patient must be an int"):
        Terms(sites_per_patient=sites)


@pytest.mark.parametrize(("quorum", "needed"), [("all", 5), (1, 1), (3, 3), (7, 7)])
def test_a_quorum_is_a_number_of_sites(quorum, needed):
    assert Terms(quorum=quorum, time_limit_s=0.1, sites_per_patient=2).needed(5) == needed
