"""What the tests of databases share: a table of numbers on a server, and a stage for a loop."""

from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from tests.databases.stage import Stage


class Numbers:
    """A table with one column, on a server by its URL."""

    def __init__(self, url):
        self.engine = sa.create_engine(url, poolclass=sa.NullPool)
        self.table = sa.Table("numbers", sa.MetaData(), sa.Column("n", sa.Integer, primary_key=True))

    def create(self):
        self.table.metadata.create_all(self.engine)
        return self

    def add(self, number):
        with self.engine.begin() as connection:
            connection.execute(sa.insert(self.table), {"n": number})

    @contextmanager
    def added_and_not_committed(self, number):
        """An open transaction; the death of its server is no error."""
        connection = self.engine.connect()
        connection.execute(sa.insert(self.table), {"n": number})
        try:
            yield
        finally:
            connection.invalidate()
            connection.close()

    def all(self):
        with self.engine.connect() as connection:
            return sorted(connection.execute(sa.select(self.table.c.n)).scalars())

    def answer(self, question):
        with self.engine.connect() as connection:
            return connection.execute(sa.text(question)).scalar()


@pytest.fixture
def numbers():
    """A function that returns the table of a server."""
    return lambda server: Numbers(server.url)


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)
