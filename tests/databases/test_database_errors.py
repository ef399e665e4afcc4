"""The code of a driver's error decides whether the work is done again, so it must be the one that says most."""

from __future__ import annotations

import pytest
from sqlalchemy import exc

from eos_client.integration.sql.database_errors import code_of, is_conflict, is_lost


class DriverError(Exception):
    """An error as PyMySQL raises it: its number first; newer versions give it a ``sqlstate``."""

    def __init__(self, number: int, sqlstate: str | None) -> None:
        super().__init__(number, "refused")
        self.sqlstate = sqlstate


def raised(number: int, sqlstate: str | None) -> exc.DBAPIError:
    return exc.OperationalError("SELECT 1", None, DriverError(number, sqlstate))


@pytest.mark.parametrize("sqlstate", [None, "HY000"])
@pytest.mark.parametrize(
    ("number", "conflicts", "is_away"), [(3572, True, False), (1205, True, False), (2013, False, True)]
)
def test_mysqls_number_counts_where_its_state_says_nothing(sqlstate, number, conflicts, is_away):
    error = raised(number, sqlstate)
    assert code_of(error) == str(number)
    assert (is_conflict(error), is_lost(error)) == (conflicts, is_away)


def test_a_state_that_says_something_wins_over_the_number():
    assert code_of(raised(1213, "40001")) == "40001"
