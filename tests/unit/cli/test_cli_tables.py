"""Tables fit the terminal: cells are cut first, then columns go; rows never wrap."""

from gangline.cli.output import Column, render_table

COLUMNS = (
    Column("NAME", least=6),
    Column("STATUS"),
    Column("NODE", least=5, rank=1),
    Column("IP", rank=2),
    Column("REASON", wide=True),
)
ROWS = [["a-long-name-of-a-job", "RUNNING", "node-with-a-long-name", "10.0.0.1", "because"]]


def test_without_a_bound_everything_is_shown():
    head, row = render_table(COLUMNS, ROWS, width=None)
    assert head.split() == ["NAME", "STATUS", "NODE", "IP"]
    assert row.split() == ROWS[0][:4]


def test_wide_shows_every_column():
    assert render_table(COLUMNS, ROWS, width=None, wide=True)[1].endswith("because")


def test_cells_are_cut_before_columns_go():
    lines = render_table(COLUMNS, ROWS, width=46)
    assert all(len(line) <= 46 for line in lines)
    assert "…" in lines[1]
    assert "IP" in lines[0]


def test_columns_go_by_their_rank_when_cutting_is_not_enough():
    lines = render_table(COLUMNS, ROWS, width=28)
    assert all(len(line) <= 28 for line in lines)
    assert lines[0].split() == ["NAME", "STATUS", "NODE"]


def test_columns_without_a_rank_stay_on_the_narrowest_terminal():
    lines = render_table(COLUMNS, ROWS, width=3)
    assert lines[0].split() == ["NAME", "STATUS"]


def test_a_table_without_rows_has_its_heading():
    assert render_table(COLUMNS, [], width=80) == ["NAME   STATUS   NODE   IP"]


def test_what_a_column_frees_goes_to_those_that_were_cut():
    lines = render_table(COLUMNS, ROWS, width=28)
    assert lines[1] == "a-lon…   RUNNING   node-wit…"
