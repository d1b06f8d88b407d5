"""What a training said of its progress, as columns. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gangline.clock import parse_time
from gangline.errors import UserError
from gangline.train.records import parse_record

if TYPE_CHECKING:
    import pandas
    import polars


class Columns(dict[str, list[object]]):
    """Columns of one length, by name: `time` (aware datetimes), `step`, and whatever else was reported.

    What a row does not say is None.
    """

    def to_pandas(self) -> pandas.DataFrame:
        """Return them as a data frame of pandas.

        Raises:
            UserError: pandas is not installed; it is no part of Gangline.
        """
        try:
            import pandas
        except ImportError:
            raise _lacking("pandas") from None
        return pandas.DataFrame(dict(self))

    def to_polars(self) -> polars.DataFrame:
        """Return them as a data frame of polars.

        Raises:
            UserError: polars is not installed; it is no part of Gangline.
        """
        try:
            import polars
        except ImportError:
            raise _lacking("polars") from None
        return polars.DataFrame(dict(self))


def _lacking(library: str) -> UserError:
    return UserError(f"{library} is not installed here", hint=f"pip install {library}, or use the columns")


def columns_of(lines: Iterable[str]) -> Columns:
    """Return the records of progress in a log whose lines begin with their times, the oldest first."""
    rows: list[dict[str, object]] = []
    for line in lines:
        record = parse_record(line)
        if record is None or record["kind"] != "progress":
            continue
        try:
            moment = parse_time(line.partition(" ")[0])
        except ValueError:
            continue
        rows.append({"time": moment} | {name: value for name, value in record.items() if name != "kind"})
    names = dict.fromkeys(name for row in rows for name in row)
    return Columns({name: [row.get(name) for row in rows] for name in names})
