import pytest

import tidegate


@pytest.fixture
def cache():
    with tidegate.Cache(memory="32MiB") as made:
        yield made
