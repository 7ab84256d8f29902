"""PipeDream: 1F1B without a flush; each microbatch updates the weights, and reads one version of them both ways."""

from symcomm.core.program.orders import Schedule
from symcomm.core.program.schedules.one_forward_one_backward import order

SCHEDULE = Schedule(
    "pipedream", "As 1F1B, but each microbatch updates the weights; a stage keeps the weights that each microbatch in "
                 "flight has read.",
    order, "Narayanan et al., PipeDream, SOSP 2019, section 3.3 (arXiv 1806.03377)", stashes=True,
)  # fmt: skip
