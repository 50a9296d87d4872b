import pytest
import torch

from pdlrecover.learning import Dataset, load


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture(scope="session")
def features() -> Dataset:
    """Sixty-one centred features, of three classes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(60, 61, generator=generator)
    mean = x.mean(0)
    y = torch.arange(60) % 3
    return Dataset(
        name="features",
        train_x=x - mean,
        train_y=y,
        test_x=x[:30] - mean,
        test_y=y[:30],
        classes=3,
        shape=(61,),
        mean=mean,
    )
