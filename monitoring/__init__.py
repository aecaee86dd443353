"""Metrics exporter, alert rules, dashboards."""

import workspace as workspace
