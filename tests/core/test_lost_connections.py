import pytest

from eos_client.core.lost_connections import LostConnections


@pytest.mark.parametrize(
    ("losses", "understood", "since", "may_have"),
    [(0, True, 0, False), (1, True, 0, True), (1, True, 1, False), (2, True, 1, True), (0, False, 0, True)],
)
def test_a_request_may_have_been_sent_twice_after_a_loss_or_in_doubt(
    losses: int, understood: bool, since: int, may_have: bool
) -> None:
    assert LostConnections(losses, understood).may_have_sent_twice(since) is may_have


def test_every_loss_counts_since_the_handle_was_built() -> None:
    assert LostConnections(losses=1, is_understood=True).may_have_sent_twice()


@pytest.mark.parametrize("understood", [True, False])
@pytest.mark.parametrize("losses", [0, 1])
def test_only_a_reported_loss_explains_a_fence_or_overtakes_offsets(losses: int, understood: bool) -> None:
    connections = LostConnections(losses, understood)
    assert connections.explains_a_fence is (losses == 1)
    assert connections.overtakes_offsets(0) is (losses == 1)
    assert not connections.overtakes_offsets(1)
