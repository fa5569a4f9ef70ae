//! Consumer groups by their single calls, on the topic `events` of the stream `rust`.

use crate::messages::make_messages;
use crate::{make_root, named, ok, refused};
use iggy::prelude::*;

pub async fn run(client: &IggyClient, address: &str) {
    let (stream, topic, group) = (named("rust"), named("events"), named("readers"));
    ok!(
        "create_consumer_group",
        client.create_consumer_group(&stream, &topic, "readers"),
        |made| { made.partitions_count == 3 && made.members_count == 0 }
    );
    refused!("create_consumer_group: taken name", 5004, {
        client.create_consumer_group(&stream, &topic, "readers")
    });
    ok!("join_consumer_group", client.join_consumer_group(&stream, &topic, &group));
    ok!("get_consumer_group", client.get_consumer_group(&stream, &topic, &group), |found| {
        found
            .as_ref()
            .is_some_and(|found| found.members.len() == 1 && found.members[0].partitions.len() == 3)
    });
    ok!("get_consumer_groups", client.get_consumer_groups(&stream, &topic), |all| all.len() == 1);
    ok!("get_me: in a group", client.get_me(), |me| me.consumer_groups.len() == 1);
    read_as_member(client, &stream, &topic, &group).await;
    share(client, address).await;
    ok!("leave_consumer_group", client.leave_consumer_group(&stream, &topic, &group));
    ok!("delete_consumer_group", client.delete_consumer_group(&stream, &topic, &group));
    miss_the_group(client).await;
}

async fn read_as_member(
    client: &IggyClient,
    stream: &Identifier,
    topic: &Identifier,
    group: &Identifier,
) {
    let consumer = Consumer::group(group.clone());
    let next = PollingStrategy::next();
    ok!(
        "poll_messages: as a member",
        async {
            for partition in 0..3 {
                let to = Partitioning::partition_id(partition);
                let mut messages = make_messages(&["for a member"]);
                client.send_messages(stream, topic, &to, &mut messages).await?;
            }
            let mut count = 0;
            loop {
                let polled =
                    client.poll_messages(stream, topic, None, &consumer, &next, 100, true).await?;
                if polled.messages.is_empty() {
                    return Ok(count);
                }
                count += polled.messages.len();
            }
        },
        |count| *count >= 3
    );
    let strategy = |_partition: u32| PollingStrategy::first();
    ok!(
        "poll_messages_with_strategy_for: as a member",
        {
            client.poll_messages_with_strategy_for(
                stream, topic, None, &consumer, &strategy, 1, false,
            )
        },
        |polled| polled.messages.len() == 1
    );
    ok!("store_consumer_offset: of a group", {
        client.store_consumer_offset(&consumer, stream, topic, Some(0), 0)
    });
    ok!(
        "get_consumer_offset: of a group",
        client.get_consumer_offset(&consumer, stream, topic, Some(0)),
        |found| found.as_ref().is_some_and(|found| found.stored_offset == 0)
    );
    ok!("delete_consumer_offset: of a group", {
        client.delete_consumer_offset(&consumer, stream, topic, Some(0))
    });
}

/// A second member comes and goes; each time all partitions have an owner.
async fn share(client: &IggyClient, address: &str) {
    let (stream, topic, group) = (named("rust"), named("events"), named("readers"));
    let owned = async |client: &IggyClient| {
        let found = client.get_consumer_group(&stream, &topic, &group).await?;
        let members = found.map(|found| found.members).unwrap_or_default();
        Ok(members.iter().map(|member| member.partitions.len()).collect::<Vec<_>>())
    };
    let Some(other) = ok!("connect: a second member", make_root(address)) else {
        return;
    };
    ok!("join_consumer_group: a second member", {
        other.join_consumer_group(&stream, &topic, &group)
    });
    ok!("get_consumer_group: two members", owned(client), |owned| {
        owned.len() == 2 && owned.iter().sum::<usize>() == 3
    });
    ok!("shutdown: a member that does not leave", other.shutdown());
    ok!("get_consumer_group: its partitions are dealt again", async {
        loop {
            let now = owned(client).await?;
            if now == [3] {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
}

async fn miss_the_group(client: &IggyClient) {
    let (stream, topic, group) = (named("rust"), named("events"), named("readers"));
    let consumer = Consumer::group(group.clone());
    ok!("get_consumer_group: gone", client.get_consumer_group(&stream, &topic, &group), |found| {
        found.is_none()
    });
    refused!(
        "join_consumer_group: gone",
        5000,
        client.join_consumer_group(&stream, &topic, &group)
    );
    refused!("delete_consumer_group: gone", 5000, {
        client.delete_consumer_group(&stream, &topic, &group)
    });
    let next = PollingStrategy::next();
    // The SDK is told that it is no member, and gives the error of that.
    refused!("poll_messages: group gone", 5006, {
        client.poll_messages(&stream, &topic, None, &consumer, &next, 1, false)
    });
    ok!("get_streams: after the group went", client.get_streams());
}
