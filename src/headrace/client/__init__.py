"""The SDK: one sans-IO session with a sync and an async face."""
