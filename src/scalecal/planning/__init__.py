"""How many cases a study needs, before any data exist.

`plan`: for an audit to detect an error, by simulation. `plan_votes`: cases with readers' votes for a panel,
by simulation. `plan_precision`: for intervals of a given width, by formula.
"""

from scalecal.planning.power import Plan, VotePlan, plan, plan_votes
from scalecal.planning.precision import PrecisionPlan, plan_precision

__all__ = [
    "Plan",
    "PrecisionPlan",
    "VotePlan",
    "plan",
    "plan_precision",
    "plan_votes",
]
