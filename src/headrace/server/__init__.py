"""Where core and real world are joined: configuration, node, bootstrap, doctor."""
