"""`headrace user`: users, their passwords and permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.confirming import Sure, with_yes
from headrace.cli.connect.target import read_secret, with_client
from headrace.cli.names import read_identifier
from headrace.cli.nouns.permissions import describe_permissions, read_permissions
from headrace.cli.show.output import Done, Record, Rows, Values, with_output
from headrace.cli.tree import Noun
from headrace.wire.numbers import UserStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client.sync.client import Client
    from headrace.wire.commands.users import User
    from headrace.wire.identifiers import Identifier

_STATUSES = {status.name.lower(): status for status in UserStatus}

user_argument = click.argument("user", callback=read_identifier, metavar="USER")


def _permission_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--stream",
            "streams",
            metavar="STREAM:LIST#TOPIC:LIST",
            multiple=True,
            help="What it may do in a stream and in topics of it; may be given more than once.",
        ),
        click.option("--global", "everywhere", metavar="LIST", help="What it may do everywhere."),
    ):
        command = option(command)
    return command


@click.group(cls=Noun, short_help="Users and their permissions.")
def user() -> None:
    """Users and their permissions. USER is a name or a number."""


@user.command("list", short_help="List all users.")
@with_output
@with_client
def list_users(client: Client) -> Rows:
    """List all users.

    Example: headrace user list
    """
    return Rows([_describe(each) for each in client.get_users()])


@user.command("get", short_help="Show a user and its permissions.")
@user_argument
@with_output
@with_client
def get_user(client: Client, user: Identifier) -> Record:
    """Show a user and what it may do; the root user, number 0, may do everything.

    Example: headrace user get ada
    """
    found = client.get_user(user)
    return Record({**_describe(found.user), "permissions": describe_permissions(found.permissions)})


@user.command("create", short_help="Create a user.")
@click.argument("name")
@click.argument("new_password", required=False, metavar="[PASSWORD]")
@click.option("--inactive", is_flag=True, help="It may not log in yet.")
@_permission_options
@with_output
@with_client
def create_user(
    client: Client,
    name: str,
    new_password: str | None,
    inactive: bool,  # noqa: FBT001 - as click gives it
    everywhere: str | None,
    streams: tuple[str, ...],
) -> Record:
    """Create a user and show it. Without PASSWORD it is asked for, or read from the input.

    Without permissions a user may do nothing but log in. LIST has names such as read_streams or
    send_messages with commas between, or their short forms r_str and s_msg.

    Example: headrace user create ada --global read_streams --stream shop:p_msg,s_msg
    """
    permissions = read_permissions(client, everywhere, streams)
    password = new_password or read_secret(f"Password of {name}", confirm=True)
    status = UserStatus.INACTIVE if inactive else UserStatus.ACTIVE
    made = client.create_user(name, password, permissions=permissions, status=status)
    return Record({**_describe(made.user), "permissions": describe_permissions(made.permissions)})


@user.command("delete", short_help="Delete a user with its tokens.")
@user_argument
@with_yes
@with_output
@with_client
def delete_user(client: Client, user: Identifier, be_sure: Sure) -> Done:
    """Delete a user with its tokens.

    Example: headrace user delete ada --yes
    """
    be_sure(f"delete the user {client.get_user(user).user.username}")
    client.delete_user(user)
    return Done(f"The user {user} is deleted.", {"user": user, "is_deleted": True})


@user.command("name", short_help="Rename a user.")
@user_argument
@click.argument("name")
@with_output
@with_client
def name_user(client: Client, user: Identifier, name: str) -> Done:
    """Rename a user.

    Example: headrace user name ada grace
    """
    client.update_user(user, username=name)
    return Done(f"The user {user} is now named {name}.", {"user": user, "name": name})


@user.command("status", short_help="Let a user log in, or no longer.")
@user_argument
@click.argument("status", type=click.Choice(list(_STATUSES)))
@with_output
@with_client
def set_status(client: Client, user: Identifier, status: str) -> Done:
    """Let a user log in (active), or no longer (inactive).

    Example: headrace user status ada inactive
    """
    client.update_user(user, status=_STATUSES[status])
    return Done(f"The user {user} is {status} now.", {"user": user, "status": status})


@user.command("password", short_help="Change the password of a user.")
@user_argument
@click.argument("current", required=False)
@click.argument("new", required=False)
@with_output
@with_client
def change_password(client: Client, user: Identifier, current: str | None, new: str | None) -> Done:
    """Change the password of a user. What is not given is asked for, or read from the input.

    Example: headrace user password ada
    """
    old = current or read_secret("Current password")
    client.change_password(user, current=old, new=new or read_secret("New password", confirm=True))
    return Done(f"The password of {user} is changed.", {"user": user, "is_changed": True})


@user.command("permissions", short_help="Replace what a user may do.")
@user_argument
@_permission_options
@with_output
@with_client
def set_permissions(
    client: Client, user: Identifier, everywhere: str | None, streams: tuple[str, ...]
) -> Done:
    """Replace all permissions of a user; without flags they are removed.

    Example: headrace user permissions ada --stream "shop:read_stream#orders:poll_messages"
    """
    permissions = read_permissions(client, everywhere, streams)
    client.update_permissions(user, permissions)
    return Done(
        f"The permissions of {user} are replaced.",
        {"user": user, "permissions": describe_permissions(permissions)},
    )


def _describe(found: User) -> Values:
    return {
        "id": found.id,
        "name": found.username,
        "status": found.status.name.lower(),
        "created_at": found.created_at,
    }
