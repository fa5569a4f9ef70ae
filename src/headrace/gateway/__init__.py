"""A process that joins the bus and owns no partition: HTTP API, metrics, console assets."""
