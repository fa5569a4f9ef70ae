"""What is carried out for the core: effects, their completion events, the Protocols behind.

The core is told and answers; it never asks. An effect says what must now happen, in order; an event
says that something did. Something is durable only once the disk's event says so.
"""
