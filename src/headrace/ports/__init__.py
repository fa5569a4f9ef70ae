"""The ports of the core: effects, their completion events, and the Protocols behind them.

The core never calls the outside. It takes events and returns effects: an effect is something to
carry out, in order; an event reports that something happened. Data is durable only once the event
of the disk reports it.
"""
