"""Where core and real world are joined: configuration, bootstrap, supervisor."""
