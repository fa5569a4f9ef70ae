"""Every command of `iggy`, the terminal of Apache Iggy, with what is to come of it on a new node.

The commands stand in the order in which they are run: later ones need what earlier ones made.
"""

from dataclasses import dataclass

PASSWORD = "hush-hush-terminal"  # noqa: S105 - of a user on a node that lives for a moment
PASSWORD_NEW = "hush-hush-terminal-new"  # noqa: S105 - as above


@dataclass(frozen=True)
class Command:
    """A command of the terminal; `{place}` in it is filled in from what others said."""

    line: str
    says: str = ""  # a pattern that is in what it prints, small and capital letters being one
    fails: bool = False
    keeps: tuple[str, str] = ("", "")  # a place, and the pattern whose group fills it
    feeds: str = ""  # its input
    as_user: str = "-u iggy -p iggy"


COMMANDS = (
    Command("ping --count 2", "Ping"),
    Command("me", r"User ID\W+0\b"),
    Command("me", fails=True, as_user=""),
    Command("me", fails=True, as_user="-u iggy -p wrong"),
    *(Command(f"options {scope}") for scope in ("topic", "stream", "user")),
    *(Command(f"stats --output {mode}", "9") for mode in ("table", "list", "json", "toml")),
    Command("cluster metadata", "127.0.0.1"),
    Command("cluster metadata -l list", "127.0.0.1"),
    Command("snapshot -o {folder}", "snapshot_"),
    *(
        Command(f"snapshot -c {kind} -s test -o {{folder}}", "snapshot_")
        for kind in ("stored", "deflated", "bzip2", "zstd", "lzma", "xz")
    ),
    *(
        Command(f"snapshot -s {kind} -o {{folder}}", "snapshot_")
        for kind in (
            "filesystem_overview",
            "process_list",
            "resource_usage",
            "server_logs",
            "server_config",
            "all",
        )
    ),
    # Streams
    Command("stream create night", "created"),
    Command("stream create night", fails=True),
    Command("stream create fleeting", "created"),
    Command("stream update fleeting renamed", "updated"),
    Command("stream get night", "night", keeps=("stream", r"Stream ID\W+(\d+)")),
    Command("stream get nothing", "not found"),
    Command("stream list", "renamed"),
    Command("stream list -l list", "renamed"),
    Command("stream purge renamed", "purged"),
    Command("stream delete renamed", "deleted"),
    Command("stream delete renamed", fails=True),
    # Topics
    Command("topic create night orders 3 gzip", "created"),
    Command("topic create night orders 3 none", fails=True),
    Command("topic create -m 2GiB --durability persisted night old 1 none 1day", "created"),
    Command("topic create night set 1 none --set segment_size=16MiB", "created"),
    Command("topic create night wrong 1 none --set colour=red", fails=True),
    Command("topic get night orders", "orders", keeps=("topic", r"Topic id\W+(\d+)")),
    Command("topic get night nothing", "not found"),
    Command("topic list night", "orders"),
    Command("topic list night -l list", "orders"),
    Command("topic update night old older none 2days", "updated"),
    Command("topic get night older", r"Message expiry\W+2days"),
    Command("topic get night older", r"Max topic size\W+2\.\d+ GB"),  # not named: as it was
    Command("topic update -m 3GiB night older older gzip", "updated"),
    Command("topic get night older", r"Message expiry\W+2days"),
    Command("topic purge night older", "purged"),
    Command("topic delete night older", "deleted"),
    # Partitions and segments
    Command("partition create night orders 2", "2 partitions"),
    Command("partition delete night orders 2", "2 partitions"),
    Command("partition create night nothing 1", fails=True),
    Command("segment delete night orders 0 1", "Deleted 1 segment"),
    # Messages
    Command("message send -p 0 night orders one two three", "sent"),
    Command("message send -m key night orders keyed", "sent"),
    Command("message send night orders balanced", "sent"),
    Command("message send -p 1 -H key:string:value,number:uint64:7 night orders headers", "sent"),
    Command("message send -p 2 night orders", "sent", feeds="from the input\n"),
    Command("message send -p 9 night orders lost", fails=True),
    Command("message poll --first -m 3 night orders 0", "two"),
    Command("message poll --last night orders 0", "Polled 1 message"),
    Command("message poll --offset 1 night orders 0", "two"),
    Command("message poll --next -a -c terminal night orders 0", "one"),
    Command("consumer-offset get terminal night orders 0", r"Stored offset\W+0\b"),
    Command("message poll --next -a -c terminal night orders 0", "two"),
    Command("message poll --first --show-headers night orders 1", "Header: "),
    Command("message poll --first -m 9 --output-file {folder}/polled night orders 0", "Stored"),
    Command("message send -p 2 --input-file {folder}/polled night orders", "sent"),
    Command("message flush night orders 0", "Flushed"),
    Command(
        "--encryption-key {key} message send -p 2 -H key:string:value night orders secret", "sent"
    ),
    Command("--encryption-key {key} message poll --last night orders 2", "secret"),
    # Offsets and groups
    Command("consumer-offset set terminal night orders 0 1", "set to 1"),
    Command("consumer-offset get terminal night orders 0", r"Stored offset\W+1\b"),
    Command("consumer-group create night orders readers", "created"),
    Command("consumer-group get night orders readers", "readers"),
    Command("consumer-group list night orders", "readers"),
    Command("consumer-group list night orders -l list", "readers"),
    Command("consumer-offset get readers night orders 0 --kind consumer-group"),
    Command("consumer-group delete night orders readers", "deleted"),
    Command("consumer-group delete night orders readers", fails=True),
    # Clients
    Command("client list", "TCP"),
    Command("client list -l list", "TCP", keeps=("client", r"(?m)(\d+)\|0\|[^|]*\|TCP")),
    Command("client get {client}", "TCP"),
    Command("client get 4294967295", "not found"),
    # Users
    Command(f"user create reader {PASSWORD} -g r_srv,r_usr", "created"),
    Command(f"user create waiting {PASSWORD} --user-status inactive", "created"),
    Command("user create short abc", "created"),
    Command(f"user create reader {PASSWORD}", fails=True),
    Command("user get reader", "reader"),
    Command("user get iggy", "Global"),
    Command("user get nobody", "not found"),
    Command("user list", "waiting"),
    Command("user list -l list", "waiting"),
    Command("user name waiting patient", "updated"),
    Command("user status patient active", "updated"),
    Command(f"user password reader {PASSWORD} {PASSWORD_NEW}", "changed"),
    Command("user password patient", feeds=f"{PASSWORD}\n{PASSWORD_NEW}\n"),
    Command(f"user password reader wrong-{PASSWORD} {PASSWORD_NEW}", fails=True),
    Command("user permissions reader -s {stream}:r_str,p_msg#{topic}:r_top", "updated"),
    Command("stream get night", "night", as_user=f"-u reader -p {PASSWORD_NEW}"),
    Command("stream create forbidden", fails=True, as_user=f"-u reader -p {PASSWORD_NEW}"),
    Command("user delete reader", "deleted"),
    Command("user delete nobody", fails=True),
    # Personal access tokens
    Command("-q pat create night 1day", keeps=("token", r"(\S+)\s*$")),
    Command("pat create second", "created"),
    Command("pat list", "night"),
    Command("pat list -l list", "night"),
    Command("stream list", "night", as_user="-t {token}"),
    Command("stream list", fails=True, as_user="-t not-a-token"),
    # The node deletes them; then the terminal asks for a key ring, which it is not given here.
    Command("pat delete second", "No default store", fails=True),
    Command("pat list", r"(?s)\A(?!.*second).*night"),
    Command("pat delete night", "No default store", fails=True, as_user="-t {token}"),
    Command("stream list", "Invalid personal access token", fails=True, as_user="-t {token}"),
    # Contexts
    Command("context create here --transport tcp --tcp-server-address {tcp} -u iggy -p iggy"),
    Command("context list", "here"),
    Command("context list -l list", "here"),
    Command("context show here", "{tcp}"),
    Command("context use here", "here"),
    Command("stream list", "night", as_user=""),
    Command("context use default"),
    Command("context delete here"),
    Command("stream delete night", "deleted"),
)

# What the help lists and the lane leaves out, with the reason.
LEFT_OUT = {
    "login": "needs a key ring of the desktop",
    "logout": "needs a key ring of the desktop",
    "session status": "needs a key ring of the desktop",
}
# Not commands but ways of connecting; each needs what a node does not serve yet.
TRANSPORTS_LEFT_OUT = {
    "--transport quic": "needs the QUIC transport",
    "--transport http": "needs the HTTP API",
    "--transport ws": "needs the WebSocket transport",
    "--tcp-tls-enabled true": "needs TLS on the TCP transport",
}
