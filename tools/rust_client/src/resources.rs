//! Streams, topics, partitions and segments. What stays is the stream `rust` with its topics.

use crate::{named, ok, refused};
use iggy::prelude::*;
use std::collections::BTreeMap;
use std::str::FromStr;

pub async fn run(client: &IggyClient) {
    run_streams(client).await;
    run_topics(client).await;
    run_partitions(client).await;
}

async fn run_streams(client: &IggyClient) {
    ok!("create_stream", client.create_stream("rust"), |made| made.name == "rust");
    refused!("create_stream: taken name", 1012, client.create_stream("rust"));
    ok!("create_stream: for a while", client.create_stream("fleeting"));
    let (fleeting, as_it_is) = (named("fleeting"), StreamUpdateOptions::default());
    ok!("update_stream", client.update_stream(&fleeting, "renamed", &as_it_is));
    ok!("get_stream", client.get_stream(&named("renamed")), |found| {
        found.as_ref().is_some_and(|found| found.topics_count == 0)
    });
    ok!("get_stream: gone name", client.get_stream(&named("fleeting")), Option::is_none);
    ok!("get_streams", client.get_streams(), |all| all.len() == 2);
    ok!("purge_stream", client.purge_stream(&named("renamed")));
    ok!("delete_stream", client.delete_stream(&named("renamed")));
    refused!("delete_stream: gone", 1009, client.delete_stream(&named("renamed")));
}

fn all_options() -> TopicCreateOptions {
    TopicCreateOptions {
        partitions_count: Some(2),
        compression_algorithm: Some(CompressionAlgorithm::Gzip),
        message_expiry: Some(IggyExpiry::ExpireDuration(IggyDuration::from(3_600_000_000))),
        max_topic_size: Some(MaxTopicSize::Custom(IggyByteSize::from(2 << 30))),
        segment_size: Some(IggyByteSize::from(16 << 20)),
        durability: Durability::Persisted,
        consumer_offset_durability: Durability::Persisted,
        messages_required_to_save: Some(512),
        size_of_messages_required_to_save: Some(IggyByteSize::from(1 << 20)),
        preallocate_segments: Some(false),
        raw: BTreeMap::new(),
    }
}

fn raw(key: &str, value: &str) -> TopicCreateOptions {
    TopicCreateOptions {
        raw: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        ..TopicCreateOptions::default()
    }
}

async fn run_topics(client: &IggyClient) {
    let stream = named("rust");
    let three = TopicCreateOptions { partitions_count: Some(3), ..TopicCreateOptions::default() };
    ok!("create_topic", client.create_topic(&stream, "events", &three), |made| {
        made.partitions_count == 3
    });
    ok!("create_topic: all options", client.create_topic(&stream, "all", &all_options()), |made| {
        made.max_topic_size == MaxTopicSize::Custom(IggyByteSize::from(2 << 30))
            && made.compression_algorithm == CompressionAlgorithm::Gzip
    });
    refused!("create_topic: taken name", 2013, client.create_topic(&stream, "events", &three));
    for (key, value) in [("segment_size", "0"), ("enforce_fsync", "true")] {
        let call = format!("create_topic: {key} {value}");
        ok!(&call, client.create_topic(&stream, key, &raw(key, value)));
    }
    let unknown = raw("colour", "red");
    refused!("create_topic: unknown option", 4041, {
        client.create_topic(&stream, "unknown", &unknown)
    });
    update_topics(client, &stream).await;
    ok!("get_topics", client.get_topics(&stream), |all| {
        all.iter().any(|each| each.name == "events")
    });
    ok!("get_topic: unknown", client.get_topic(&stream, &named("nothing")), Option::is_none);
    ok!("purge_topic", client.purge_topic(&stream, &named("events")));
    ok!("delete_topic", client.delete_topic(&stream, &named("all")));
    refused!("delete_topic: gone", 2010, client.delete_topic(&stream, &named("all")));
}

async fn update_topics(client: &IggyClient, stream: &Identifier) {
    let topic = named("all");
    let before = IggyExpiry::ExpireDuration(IggyDuration::from(3_600_000_000));
    let zeros = TopicUpdateOptions {
        max_topic_size: Some(MaxTopicSize::ServerDefault),
        message_expiry: Some(IggyExpiry::ServerDefault),
        ..TopicUpdateOptions::default()
    };
    ok!("update_topic: zeros", client.update_topic(stream, &topic, "all", &zeros));
    ok!("get_topic: as it was after zeros", client.get_topic(stream, &topic), |found| {
        found.as_ref().is_some_and(|found| {
            found.max_topic_size == MaxTopicSize::Custom(IggyByteSize::from(2 << 30))
                && found.message_expiry == before
        })
    });
    let changes = TopicUpdateOptions {
        compression_algorithm: Some(CompressionAlgorithm::None),
        message_expiry: Some(IggyExpiry::NeverExpire),
        max_topic_size: Some(MaxTopicSize::Unlimited),
        raw: BTreeMap::new(),
    };
    ok!("update_topic", client.update_topic(stream, &topic, "all", &changes));
    ok!("get_topic", client.get_topic(stream, &topic), |found| {
        found.as_ref().is_some_and(|found| {
            found.max_topic_size == MaxTopicSize::Unlimited
                && found.message_expiry == IggyExpiry::NeverExpire
                && found.compression_algorithm == CompressionAlgorithm::None
        })
    });
}

async fn run_partitions(client: &IggyClient) {
    let (stream, topic) = (named("rust"), named("events"));
    ok!("create_partitions", client.create_partitions(&stream, &topic, 2));
    ok!("get_topic: with more partitions", client.get_topic(&stream, &topic), |found| {
        found.as_ref().is_some_and(|found| found.partitions.len() == 5)
    });
    ok!("delete_partitions", client.delete_partitions(&stream, &topic, 2));
    let nothing = named("nothing");
    refused!("create_partitions: no topic", 2010, client.create_partitions(&stream, &nothing, 1));
    ok!("delete_segments", client.delete_segments(&stream, &topic, 0, 1));
    let missing = Identifier::from_str("99").expect("a number");
    refused!("delete_segments: no stream", 1009, client.delete_segments(&missing, &topic, 0, 1));
}
