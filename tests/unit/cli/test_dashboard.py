"""The dashboard of deploy/ is the one that its generator writes."""

from pathlib import Path

import dashboard


def test_the_file_is_fresh() -> None:
    file = Path(__file__).parents[3] / "deploy" / "grafana" / "gangline.json"

    assert file.read_text() == dashboard.text(), "python tools/dashboard.py writes it again"
