"""Documents -> corpus tables: pages, elements, tables, images, chunks, summaries, RTL modules."""

import workspace as workspace
