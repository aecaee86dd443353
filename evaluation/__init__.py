"""Models -> verified scores, statistics, reports."""

import workspace as workspace
