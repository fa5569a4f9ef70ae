"""`headrace produce`: sends lines of a file or of the input to a topic."""
