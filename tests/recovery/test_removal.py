import pytest

from pdlrecover.errors import PlanError
from pdlrecover.recovery.removal import check_removal
from pdlrecover.sharing import Tolerance


@pytest.mark.parametrize(
    ("remove", "dropouts", "said"),
    [
        ([2], 0, "1 peer is to be removed and .* survive 0 dropouts; set it up with dropouts=1"),
        (
            [2, 3],
            1,
            "2 peers are .* survive 1 dropouts; remove fewer, or set it up with dropouts=2",
        ),
    ],
)
def test_more_removals_than_dropouts_are_refused_with_what_can_be_done(remove, dropouts, said):
    tolerance = Tolerance(colluders=1, dropouts=dropouts)
    with pytest.raises(PlanError, match=said):
        check_removal(remove, peers=6, tolerance=tolerance, reason="malicious")
