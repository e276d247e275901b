"""Shared by the tests of training."""

import pytest


@pytest.fixture(autouse=True)
def page(request, monkeypatch):
    """Figures take longer than the tiny trainings: only tests that ask for `with_page` draw them."""
    if "with_page" not in request.fixturenames:
        monkeypatch.setattr("seedbed.api.write_page", lambda *args, **kwargs: None)


@pytest.fixture
def with_page() -> None:
    """Asked for by tests that look at report.html."""
