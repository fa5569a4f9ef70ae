"""The entry point: every subcommand by name, loaded when it is called.

`headrace --help` and `--version` load nothing but click, to start fast.
"""

import os
import sys
from typing import NoReturn

import click

from headrace import __version__
from headrace.cli.exits import CommandError, Exit
from headrace.cli.tree import Entry, Lazy

SECTIONS = {
    "A node": {
        "dev": Entry(
            "headrace.cli.node.run:dev", "Start a node to try things out: loopback, user iggy/iggy."
        ),
        "serve": Entry("headrace.cli.node.run:serve", "Start a node."),
        "node": Entry("headrace.cli.node.operate:node", "What an operator does on a running node."),
        "config": Entry("headrace.cli.node.config:config", "Show and check the configuration."),
        "doctor": Entry(
            "headrace.cli.node.doctor:doctor", "Check a data folder while no node runs."
        ),
    },
    "Messages": {
        "produce": Entry(
            "headrace.cli.produce.command:produce", "Send lines of the input to a topic."
        ),
        "tail": Entry(
            "headrace.cli.tail.command:tail", "Show the messages of a topic, and follow it."
        ),
        "message": Entry(
            "headrace.cli.nouns.message:message", "Messages: send, poll or flush once.", ("m",)
        ),
        "pipeline": Entry(
            "headrace.pipelines.cli:pipeline",
            "Jobs from topics through Spark to tables.",
            extra="spark",
        ),
    },
    "What a node holds": {
        "stream": Entry(
            "headrace.cli.nouns.stream:stream",
            "Streams: the namespaces that topics live in.",
            ("s",),
        ),
        "topic": Entry("headrace.cli.nouns.topic:topic", "Topics: where messages go.", ("t",)),
        "partition": Entry(
            "headrace.cli.nouns.partition:partition", "Partitions: the parts of a topic.", ("p",)
        ),
        "segment": Entry(
            "headrace.cli.nouns.segment:segment", "Segments: the files of a partition.", ("seg",)
        ),
        "group": Entry(
            "headrace.cli.nouns.group:group",
            "Consumer groups: who shares a topic, and how far behind.",
            ("g", "consumer-group"),
        ),
        "offset": Entry(
            "headrace.cli.nouns.offset:offset",
            "Offsets: how far consumers and groups have read.",
            ("o", "consumer-offset"),
        ),
    },
    "Who may": {
        "user": Entry("headrace.cli.nouns.user:user", "Users and their permissions.", ("u",)),
        "pat": Entry("headrace.cli.nouns.pat:pat", "Personal access tokens of your own user."),
        "login": Entry(
            "headrace.cli.connect.login:login", "Log in once, for later commands.", ("li",)
        ),
        "logout": Entry(
            "headrace.cli.connect.login:logout", "Forget the login, here and there.", ("lo",)
        ),
        "session": Entry("headrace.cli.connect.session:session", "The login that is stored here."),
        "context": Entry(
            "headrace.cli.connect.context:context", "Named nodes, and which one is meant.", ("ctx",)
        ),
    },
    "Looking": {
        "ping": Entry("headrace.cli.connect.ping:ping", "Measure the round trip to a node."),
        "stats": Entry("headrace.cli.nouns.stats:stats", "Show a node in numbers."),
        "me": Entry("headrace.cli.nouns.me:me", "Show this connection as the node sees it."),
        "client": Entry("headrace.cli.nouns.client:client", "Clients: who is connected.", ("c",)),
        "cluster": Entry("headrace.cli.nouns.cluster:cluster", "The nodes of the cluster."),
        "options": Entry(
            "headrace.cli.nouns.options:options", "Show the options that topics can have."
        ),
        "completion": Entry(
            "headrace.cli.completion:completion", "Print the completion script of a shell."
        ),
    },
}


class Headrace(Lazy):
    """The whole command."""

    sections = SECTIONS

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; a reader that closes the pipe early is not an error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # Caught here: click would end the process with 1.
            # The interpreter flushes the rest at exit, which must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return Exit.OK


@click.group(cls=Headrace, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="headrace %(version)s")
def headrace() -> None:
    """A persistent message-streaming platform with Spark built in."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and end the process with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run the command; return its exit code. An error is printed as one sentence on stderr."""
    try:
        code = headrace.main(arguments, prog_name="headrace", standalone_mode=False)
    except CommandError as error:
        click.echo(f"headrace: {error}", err=True)
        return error.code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130  # the exit code that shells use for an interrupted command
    except OSError as error:
        click.echo(f"headrace: {error}", err=True)
        return Exit.FAILED
    return code if isinstance(code, int) else Exit.OK
