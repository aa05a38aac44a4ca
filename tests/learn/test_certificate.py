"""What a certificate says of given residuals."""

from __future__ import annotations

import numpy as np
import pytest

from figrl.learn.certificate import make_certificate


@pytest.mark.parametrize(
    ("residual", "depth", "grade", "advice"),
    [
        (0.0, 8, "good", "Good: the dimensions are close to exact eigenvectors. 4 dimensions"),
        (0.1, 3, "usual", "a depth of 8 in place of 3 is more exact"),
        (0.2, 8, "usual", "a depth of 16 in place of 8"),
        (0.4, 1, "poor", "Poor: the sketch is too shallow for so many dimensions. Take a depth"),
    ],
)
def test_a_judgement_comes_first_and_says_what_to_change(residual, depth, grade, advice):
    values = np.full(4, 0.5)
    found = {"eigenvalues": values.tolist(), "residuals": [residual] * 4}
    certificate = make_certificate(found, 100.0, 4, depth)
    assert certificate["grade"] == grade
    assert certificate["share_outside"] == pytest.approx(residual**2 / (0.25 + residual**2))
    assert certificate["share_captured"] == pytest.approx(0.04 * (0.25 + residual**2))
    assert advice in certificate["meaning"]
    assert certificate["meaning"].endswith(f"half of them to within {residual:.2g}.")
