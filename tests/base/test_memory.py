from headrace.base.limits import MIB
from headrace.base.memory import new_frame


def test_new_frame_has_the_size() -> None:
    assert len(new_frame(MIB)) == MIB
    assert new_frame(0) == b""
