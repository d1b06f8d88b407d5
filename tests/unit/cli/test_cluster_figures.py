"""Figures of many processes on one page."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from gangline.cli.serve.figures import ProcessFigures, fetch, merged
from gangline.cli.serve.pod_figures import report_of
from gangline.cluster.node.pods.pod_record import figures_of
from gangline.jobs.conditions import standing


def families(text: str) -> list:
    return list(text_string_to_metric_families(text))


def test_a_name_comes_once_with_the_labels_of_each_part() -> None:
    page = "# TYPE up gauge\nup 1\n"

    (family,) = merged(
        [
            ProcessFigures({"component": "a"}, families(page)),
            ProcessFigures({"component": "b"}, families(page)),
        ]
    )

    assert [sample.labels for sample in family.samples] == [{"component": "a"}, {"component": "b"}]


def test_a_label_of_ours_that_a_page_has_goes_on_by_another_name() -> None:
    page = '# TYPE held gauge\nheld{pod="x"} 1\n'

    (family,) = merged([ProcessFigures({"pod": "plugin"}, families(page))])

    assert family.samples[0].labels == {"pod": "plugin", "exported_pod": "x"}


def test_a_name_of_another_type_is_left_out() -> None:
    parts = [families("# TYPE a gauge\na 1\n"), families("# TYPE a histogram\na_sum 1\n")]

    (family,) = merged(ProcessFigures({}, part) for part in parts)

    assert [sample.name for sample in family.samples] == ["a"]


async def test_who_is_not_there_tells_nothing() -> None:
    assert await fetch(asyncio.open_unix_connection("/nowhere.sock"), "/metrics") is None


def test_the_usual_annotations_name_a_pods_page() -> None:
    said = {"prometheus.io/scrape": "true", "prometheus.io/port": "9400"}

    assert figures_of(said) == "9400/metrics"
    assert figures_of({**said, "prometheus.io/path": "/own"}) == "9400/own"
    assert figures_of({**said, "prometheus.io/scrape": "false"}) == ""
    assert figures_of({**said, "prometheus.io/port": "99999"}) == ""


def test_a_record_without_its_numbers_is_none() -> None:
    assert report_of({"kind": "progress", "step": "x"}) is None
    assert report_of({"step": 3, "ranks": 2}).line() == "step 3"


def test_a_job_stands_as_its_last_true_condition_says() -> None:
    conditions = [{"type": "Created", "status": "True"}, {"type": "Running", "status": "False"}]

    assert standing({"conditions": conditions}) == "Created"
    assert standing({"conditions": "damaged"}) == standing(None) == ""
