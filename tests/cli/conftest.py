import logging
from typing import Any

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logs_as_before() -> Any:
    """Commands configure logging for their whole process; a test gives it back."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()
