//! Connections, logins and what a node tells of itself.

use crate::{ROOT, make_client, make_root, named, ok, refused};
use bytes::Bytes;
use iggy::prelude::*;

const PING: u32 = 1;
const TEST: &[u8] = b"test";
const TESTS_MIN: usize = 2; // the name of the file `test.txt`, before it and in the list of all
const TESTS_STORED_MIN: usize = 3; // and the word that it holds

pub async fn run(address: &str) {
    let client = make_client(address);
    let _events = client.subscribe_events().await;
    ok!("subscribe_events", async { Ok(()) });
    ok!("connect", client.connect());
    refused!("get_streams: without a login", 40, client.get_streams());
    refused!("login_user: wrong password", 42, client.login_user(ROOT.0, "wrong"));
    ok!("login_user", client.login_user(ROOT.0, ROOT.1), |identity| identity.user_id == 0);
    ask_system(&client).await;
    take_snapshots(&client).await;
    connect_in_other_ways(address).await;
    ok!("logout_user", client.logout_user());
    refused!("get_streams: after the logout", 40, client.get_streams());
    ok!("disconnect", client.disconnect());
}

async fn ask_system(client: &IggyClient) {
    ok!("ping", client.ping());
    ok!("heartbeat_interval", async { Ok(client.heartbeat_interval().await) });
    ok!("refresh_consumer_group_assignments", async {
        client.refresh_consumer_group_assignments().await;
        Ok(())
    });
    ok!("get_stats", client.get_stats(), |stats| stats.clients_count > 0 && stats.process_id > 0);
    let me = ok!("get_me", client.get_me(), |me| me.user_id == Some(0) && me.transport == "TCP");
    if let Some(me) = me {
        ok!("get_client", client.get_client(me.client_id), |found| {
            found.as_ref().is_some_and(|found| found.address == me.address)
        });
        ok!("get_clients", client.get_clients(), |all| {
            all.iter().any(|each| each.client_id == me.client_id)
        });
    }
    ok!("get_client: unknown", client.get_client(u32::MAX), Option::is_none);
    for scope in [OptionsScope::Topic, OptionsScope::Stream, OptionsScope::User] {
        let call = format!("describe_options: {scope:?}");
        ok!(&call, client.describe_options(scope), |specs| {
            matches!(scope, OptionsScope::Topic) != specs.is_empty()
        });
    }
    ok!("get_cluster_metadata", client.get_cluster_metadata(), |cluster| {
        cluster.nodes.len() == 1
    });
    ok!("send_binary_request", client.send_binary_request(PING, Bytes::new()), Bytes::is_empty);
    ok!("get_connection_info", async { Ok(client.get_connection_info().await) }, |info| {
        info.protocol == TransportProtocol::Tcp
    });
}

async fn take_snapshots(client: &IggyClient) {
    for compression in [
        SnapshotCompression::Stored,
        SnapshotCompression::Deflated,
        SnapshotCompression::Bzip2,
        SnapshotCompression::Lzma,
        SnapshotCompression::Xz,
        SnapshotCompression::Zstd,
    ] {
        let call = format!("snapshot: {compression}");
        ok!(&call, client.snapshot(compression, vec![SystemSnapshotType::Test]), |snapshot| {
            let count = snapshot.0.windows(TEST.len()).filter(|each| *each == TEST).count();
            let is_stored = matches!(compression, SnapshotCompression::Stored);
            count >= if is_stored { TESTS_STORED_MIN } else { TESTS_MIN }
        });
    }
    for kind in [
        SystemSnapshotType::FilesystemOverview,
        SystemSnapshotType::ProcessList,
        SystemSnapshotType::ResourceUsage,
        SystemSnapshotType::ServerLogs,
        SystemSnapshotType::ServerConfig,
        SystemSnapshotType::All,
    ] {
        let call = format!("snapshot: {kind}");
        let taken = client.snapshot(SnapshotCompression::Deflated, vec![kind]);
        ok!(&call, taken, |snapshot| snapshot.0.starts_with(b"PK"));
    }
}

async fn connect_in_other_ways(address: &str) {
    let words = format!("iggy://{}:{}@{address}", ROOT.0, ROOT.1);
    if let Some(client) = ok!("connect: by a connection string", async {
        let client = IggyClient::from_connection_string(&words)?;
        client.connect().await?;
        Ok(client)
    }) {
        ok!("get_streams: after a login by itself", client.get_streams());
        ok!("shutdown: of another client", client.shutdown());
    }
    ok!(
        "connect: again after disconnect",
        async {
            let client = make_root(address).await?;
            client.disconnect().await?;
            client.connect().await?;
            client.login_user(ROOT.0, ROOT.1).await?;
            client.get_stream(&named("nothing")).await
        },
        Option::is_none
    );
}
