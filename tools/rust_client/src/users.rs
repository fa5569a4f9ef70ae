//! Users, permissions and personal access tokens.

use crate::{make_client, named, ok, refused};
use iggy::prelude::*;
use std::collections::BTreeMap;

const PASSWORD: &str = "hush-hush-rust";
const PASSWORD_NEW: &str = "hush-hush-rust-new";
const PASSWORD_SHORT: &str = "abc";

pub async fn run(client: &IggyClient, address: &str) {
    run_users(client).await;
    run_as_user(client, address).await;
    run_tokens(client, address).await;
    ok!("delete_user", client.delete_user(&named("reader-2")));
    refused!("delete_user: gone", 20, client.delete_user(&named("reader-2")));
}

fn may_read(stream: usize) -> Permissions {
    let of_topic = TopicPermissions { read_topic: true, ..TopicPermissions::default() };
    let of_stream = StreamPermissions {
        read_stream: true,
        poll_messages: true,
        topics: Some(BTreeMap::from([(0, of_topic)])),
        ..StreamPermissions::default()
    };
    Permissions {
        global: GlobalPermissions { read_servers: true, ..GlobalPermissions::default() },
        streams: Some(BTreeMap::from([(stream, of_stream)])),
    }
}

async fn run_users(client: &IggyClient) {
    let stream = client.get_stream(&named("rust")).await.ok().flatten();
    let stream = stream.map_or(0, |stream| stream.id as usize);
    ok!("get_user: root", client.get_user(&named("iggy")), |found| {
        found.as_ref().is_some_and(|found| found.permissions == Some(Permissions::root()))
    });
    ok!(
        "create_user",
        client.create_user("reader", PASSWORD, UserStatus::Active, Some(may_read(stream))),
        |made| made.permissions == Some(may_read(stream))
    );
    ok!("create_user: a short password", {
        client.create_user("short", PASSWORD_SHORT, UserStatus::Inactive, None)
    });
    refused!("create_user: taken name", 46, {
        client.create_user("reader", PASSWORD, UserStatus::Active, None)
    });
    ok!("get_user", client.get_user(&named("reader")), |found| {
        found.as_ref().is_some_and(|found| found.permissions == Some(may_read(stream)))
    });
    ok!("get_user: unknown", client.get_user(&named("nobody")), Option::is_none);
    ok!("get_users", client.get_users(), |all| all.len() >= 2);
    let (before, user) = (named("reader"), named("reader-2"));
    let options = UserUpdateOptions::default();
    ok!("update_user", {
        client.update_user(&before, Some("reader-2"), Some(UserStatus::Active), &options)
    });
    ok!("change_password", client.change_password(&user, PASSWORD, PASSWORD_NEW));
    refused!("change_password: wrong one", 42, {
        client.change_password(&user, PASSWORD, PASSWORD_NEW)
    });
    ok!("update_permissions: none", client.update_permissions(&user, None));
    ok!("update_permissions", client.update_permissions(&user, Some(may_read(stream))));
}

async fn run_as_user(client: &IggyClient, address: &str) {
    let other = make_client(address);
    ok!("connect: as a user", other.connect());
    ok!("login_user: as a user", other.login_user("reader-2", PASSWORD_NEW));
    ok!("get_stream: permitted", other.get_stream(&named("rust")), Option::is_some);
    refused!("create_stream: not permitted", 41, other.create_stream("forbidden"));
    refused!("get_users: not permitted", 41, other.get_users());
    let user = named("reader-2");
    ok!("update_permissions: of a session that runs", {
        client.update_permissions(&user, Some(Permissions::root()))
    });
    ok!("get_users: permitted by now", other.get_users());
    ok!("logout_user: of a user", other.logout_user());
    ok!("shutdown: of a user", other.shutdown());
}

async fn run_tokens(client: &IggyClient, address: &str) {
    let hour = IggyExpiry::ExpireDuration(IggyDuration::from(3_600_000_000));
    let made = ok!(
        "create_personal_access_token",
        client.create_personal_access_token("night", hour),
        |made| !made.token.is_empty()
    );
    ok!("create_personal_access_token: without an end", {
        client.create_personal_access_token("other", IggyExpiry::NeverExpire)
    });
    refused!("create_personal_access_token: taken name", 51, {
        client.create_personal_access_token("night", hour)
    });
    ok!("get_personal_access_tokens", client.get_personal_access_tokens(), |all| all.len() == 2);
    ok!("delete_personal_access_token", client.delete_personal_access_token("other"));
    let Some(made) = made else { return };
    let other = make_client(address);
    ok!("connect: with a token", other.connect());
    refused!("login_with_personal_access_token: wrong", 53, {
        other.login_with_personal_access_token("not a token")
    });
    ok!("login_with_personal_access_token", {
        other.login_with_personal_access_token(&made.token)
    });
    ok!("get_streams: with a token", other.get_streams());
    ok!("delete_personal_access_token: its own", other.delete_personal_access_token("night"));
    ok!("logout_user: after it deleted its token", other.logout_user());
    ok!("shutdown: after it deleted its token", other.shutdown());
}
