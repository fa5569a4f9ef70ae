"""`headrace tail`: shows the messages of a topic, all partitions merged by time."""
