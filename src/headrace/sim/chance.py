"""How often something strikes."""

from headrace.base.prng import Prng

RATE = 1 << 14  # rates are parts of this


def strikes(prng: Prng, rate: int) -> bool:
    """Whether something of that rate happens now; nothing is drawn for what never does."""
    return rate > 0 and prng.u64() & RATE - 1 < rate
