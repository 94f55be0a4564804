"""When and where a run happens."""

from clawback.jobs.background import maybe_train, start
from clawback.jobs.training import Outcome, train_once

__all__ = ["Outcome", "maybe_train", "start", "train_once"]
