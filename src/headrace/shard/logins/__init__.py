"""Who gets in: login, lockout of password guessing, revocation of sessions, audit log.

It may import `front`, whose connections hold the sessions, and everything below that. Only the
shard that has the metadata group has this room.
"""
