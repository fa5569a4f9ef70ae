//! Sends, polls and the offsets of single consumers, on the topic `events` of the stream `rust`.

use crate::{named, ok, refused};
use bytes::Bytes;
use iggy::prelude::*;
use std::collections::BTreeMap;
use std::str::FromStr;

const LARGE_COUNT: u32 = 1000;
const LARGE_BYTES: usize = 20_000;
const LARGE_BATCH: u32 = 100;
const OFFSET_READS: u64 = 50;

pub async fn run(client: &IggyClient) {
    send(client).await;
    poll(client).await;
    poll_many_bytes(client).await;
    keep_offsets(client).await;
    miss_targets(client).await;
}

pub fn make_messages(words: &[&str]) -> Vec<IggyMessage> {
    words.iter().map(|word| IggyMessage::from_str(word).expect("words")).collect()
}

/// Gives headers of every kind.
pub fn make_headers() -> BTreeMap<HeaderKey, HeaderValue> {
    let values: Vec<HeaderValue> = vec![
        HeaderValue::try_from("words").expect("short"),
        HeaderValue::try_from(vec![0u8, 255]).expect("short"),
        true.into(),
        (-8i8).into(),
        (-16i16).into(),
        (-32i32).into(),
        (-64i64).into(),
        (-128i128).into(),
        8u8.into(),
        16u16.into(),
        32u32.into(),
        64u64.into(),
        128u128.into(),
        0.5f32.into(),
        0.25f64.into(),
    ];
    let keyed = values.into_iter().enumerate();
    keyed
        .map(|(at, value)| (HeaderKey::try_from(format!("key-{at}")).expect("short"), value))
        .collect()
}

async fn send(client: &IggyClient) {
    let (stream, topic) = (named("rust"), named("events"));
    for (call, partitioning) in [
        ("send_messages: partition", Partitioning::partition_id(0)),
        ("send_messages: balanced", Partitioning::balanced()),
        ("send_messages: key", Partitioning::messages_key_str("key").expect("short")),
    ] {
        let mut messages = make_messages(&["one", "two", "three"]);
        ok!(call, client.send_messages(&stream, &topic, &partitioning, &mut messages));
    }
    let whole = IggyMessage::builder()
        .id(7)
        .payload(Bytes::from_static(b"with headers"))
        .user_headers(make_headers())
        .build();
    let mut messages = vec![whole.expect("a message")];
    let to = Partitioning::partition_id(1);
    ok!("send_messages: id and headers", client.send_messages(&stream, &topic, &to, &mut messages));
    ok!("flush_unsaved_buffer", client.flush_unsaved_buffer(&stream, &topic, 0, true));
}

async fn poll(client: &IggyClient) {
    let (stream, topic) = (named("rust"), named("events"));
    let consumer = Consumer::new(named("reader"));
    let now = PollingStrategy::timestamp(IggyTimestamp::from(1));
    for (call, strategy, is_committed) in [
        ("poll_messages: offset", PollingStrategy::offset(0), false),
        ("poll_messages: timestamp", now, false),
        ("poll_messages: first", PollingStrategy::first(), false),
        ("poll_messages: last", PollingStrategy::last(), false),
        ("poll_messages: next", PollingStrategy::next(), true),
    ] {
        let polled =
            client.poll_messages(&stream, &topic, Some(0), &consumer, &strategy, 3, is_committed);
        ok!(call, polled, |polled| polled.messages.len() == 3 && polled.partition_id == 0);
    }
    let strategy = |_partition: u32| PollingStrategy::first();
    let polled = client.poll_messages_with_strategy_for(
        &stream,
        &topic,
        Some(0),
        &consumer,
        &strategy,
        1,
        false,
    );
    ok!("poll_messages_with_strategy_for", polled, |polled| polled.messages.len() == 1);
    let last = PollingStrategy::last();
    let polled = client.poll_messages(&stream, &topic, Some(1), &consumer, &last, 1, false);
    ok!("poll_messages: id and headers", polled, |polled| {
        polled.messages.first().is_some_and(|message| {
            message.header.id == 7
                && message.user_headers_map().is_ok_and(|found| found == Some(make_headers()))
        })
    });
}

async fn poll_many_bytes(client: &IggyClient) {
    let (stream, as_usual) = (named("rust"), TopicCreateOptions::default());
    ok!("create_topic: for large polls", client.create_topic(&stream, "large", &as_usual));
    let topic = named("large");
    let large = "x".repeat(LARGE_BYTES);
    ok!("send_messages: large", async {
        for _ in 0..LARGE_COUNT / LARGE_BATCH {
            let mut messages = make_messages(&[large.as_str(); LARGE_BATCH as usize]);
            let to = Partitioning::partition_id(0);
            client.send_messages(&stream, &topic, &to, &mut messages).await?;
        }
        Ok(())
    });
    let consumer = Consumer::new(named("reader"));
    let first = PollingStrategy::first();
    let polled =
        client.poll_messages(&stream, &topic, Some(0), &consumer, &first, LARGE_COUNT, false);
    ok!("poll_messages: 1000 of 20 KB", async { Ok(polled.await?.messages.len()) }, |count| {
        *count == LARGE_COUNT as usize
    });
}

async fn keep_offsets(client: &IggyClient) {
    let (stream, topic) = (named("rust"), named("large"));
    let consumer = Consumer::new(named("keeper"));
    let partition = Some(0);
    let nothing = client.get_consumer_offset(&consumer, &stream, &topic, partition);
    ok!("get_consumer_offset: none", nothing, Option::is_none);
    ok!("store_consumer_offset", {
        client.store_consumer_offset(&consumer, &stream, &topic, partition, 3)
    });
    ok!(
        "get_consumer_offset",
        client.get_consumer_offset(&consumer, &stream, &topic, partition),
        |found| found.as_ref().is_some_and(|found| found.stored_offset == 3)
    );
    ok!("delete_consumer_offset", {
        client.delete_consumer_offset(&consumer, &stream, &topic, partition)
    });
    ok!(
        "get_consumer_offset: deleted",
        client.get_consumer_offset(&consumer, &stream, &topic, partition),
        Option::is_none
    );
    ok!(
        "get_consumer_offset: after polls that commit",
        async {
            let mut stale = 0;
            for offset in 0..OFFSET_READS {
                let next = PollingStrategy::next();
                client.poll_messages(&stream, &topic, partition, &consumer, &next, 1, true).await?;
                let found =
                    client.get_consumer_offset(&consumer, &stream, &topic, partition).await?;
                stale += u64::from(found.is_none_or(|found| found.stored_offset != offset));
            }
            Ok(stale)
        },
        |stale| *stale == 0
    );
}

async fn miss_targets(client: &IggyClient) {
    let (stream, topic, nothing) = (named("rust"), named("events"), named("nothing"));
    let consumer = Consumer::new(named("reader"));
    let to = Partitioning::partition_id(0);
    let mut one = make_messages(&["lost"]);
    refused!("send_messages: no stream", 20, client.send_messages(&nothing, &topic, &to, &mut one));
    let mut one = make_messages(&["lost"]);
    refused!("send_messages: no topic", 20, client.send_messages(&stream, &nothing, &to, &mut one));
    let mut one = make_messages(&["lost"]);
    let far = Partitioning::partition_id(99);
    refused!("send_messages: no partition", 20, {
        client.send_messages(&stream, &topic, &far, &mut one)
    });
    refused!("delete_consumer_offset: no topic", 20, {
        client.delete_consumer_offset(&consumer, &stream, &nothing, Some(0))
    });
    refused!("delete_consumer_offset: no partition", 20, {
        client.delete_consumer_offset(&consumer, &stream, &topic, Some(99))
    });
}
