"""What to be told of: alert rules for Prometheus over the metrics of the node agents.

The rules are in `alerts.yml`, for Prometheus' `rule_files`. The metrics themselves are served by
`training.cluster.agent_metrics`. Dashboards there are none: a run's curves are on its own page.
"""

import workspace as workspace
