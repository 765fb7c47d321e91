import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from utterd.engines.cosyvoice.model.interpolate import interpolate


def test_it_places_samples_as_torch_does():
    """Two samples stretched to five keep their edges and mix in between."""
    x = np.array([[0.0], [10.0]], np.float32)

    assert interpolate(x, 5)[:, 0].tolist() == [0.0, 1.0, 5.0, 9.0, 10.0]


@given(length=st.integers(1, 40), target=st.integers(0, 90))
def test_a_constant_stays(length: int, target: int):
    """Stretching changes the length and no level."""
    stretched = interpolate(np.full((length, 3), 2.5, np.float32), target)

    assert stretched.shape == (target, 3)
    assert np.allclose(stretched, 2.5)
    assert stretched.dtype == np.float32


@given(length=st.integers(1, 40))
def test_the_same_length_changes_nothing(length: int):
    """Stretching to the same length gives the same numbers."""
    x = np.random.default_rng(length).standard_normal((length, 2), dtype=np.float32)

    assert np.array_equal(interpolate(x, length), x)
