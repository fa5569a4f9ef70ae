"""Consumer groups: membership, assignment and the cooperative hand-over of partitions."""
