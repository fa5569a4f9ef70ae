"""What is carried out for the core: effects, their completion events, the Protocols behind."""
