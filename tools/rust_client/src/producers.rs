//! The producers of the crate, which make the stream `high` and its topics.

use crate::messages::make_messages;
use crate::{named, ok, refused};
use iggy::clients::producer_config::BackpressureMode;
use iggy::prelude::*;
use std::sync::Arc;

/// Gives the builder of a producer that makes its stream and a topic of two partitions.
pub fn producer(client: &IggyClient, topic: &str) -> Result<IggyProducerBuilder, IggyError> {
    let made = client.producer("high", topic)?.create_stream_if_not_exists();
    let one = NonZeroIggyDuration::ONE_SECOND;
    Ok(made
        .create_topic_if_not_exists(2, IggyExpiry::ServerDefault, MaxTopicSize::ServerDefault)
        .send_retries(Some(3), Some(one)))
}

/// Gives how many messages a topic has.
async fn count(client: &IggyClient, topic: &str) -> Result<u64, IggyError> {
    let found = client.get_topic(&named("high"), &named(topic)).await?;
    Ok(found.map_or(0, |found| found.messages_count))
}

pub async fn run(client: &IggyClient) {
    ok!(
        "producer: direct",
        async {
            let direct = DirectConfig::builder().batch_length(2).build();
            let made = producer(client, "direct")?.direct(direct).build();
            made.init().await?;
            made.send(make_messages(&["one", "two", "three"])).await?;
            made.send_one("four".into()).await?;
            let to = Arc::new(Partitioning::partition_id(1));
            made.send_with_partitioning(make_messages(&["five"]), Some(to.clone())).await?;
            let (stream, topic) = (Arc::new(named("high")), Arc::new(named("direct")));
            made.send_to(stream, topic, make_messages(&["six"]), Some(to)).await?;
            made.shutdown().await;
            count(client, "direct").await
        },
        |count| *count == 6
    );
    ok!(
        "producer: background",
        async {
            let background = BackgroundConfig::builder()
                .num_shards(2)
                .sharding(Box::new(BalancedSharding::default()))
                .max_in_flight(2)
                .failure_mode(BackpressureMode::BlockWithTimeout(IggyDuration::ONE_SECOND))
                .build();
            let made = producer(client, "background")?.background(background).build();
            made.init().await?;
            for _ in 0..100 {
                made.send(make_messages(&["one", "two"])).await?;
            }
            made.shutdown().await;
            count(client, "background").await
        },
        |count| *count == 200
    );
    ok!(
        "producer: partitioner",
        async {
            let made = producer(client, "direct")?.partitioner(Arc::new(Last)).build();
            made.init().await?;
            made.send_one("seven".into()).await
        },
        |answer| answer.confirmations.iter().all(|each| each.partition_id == 1)
    );
    refused!("producer: nothing is made", 1010, async {
        let made = client.producer("nothing", "nothing")?;
        made.do_not_create_stream_if_not_exists().build().init().await
    });
}

#[derive(Debug)]
struct Last;

impl Partitioner for Last {
    fn calculate_partition_id(
        &self,
        _: &Identifier,
        _: &Identifier,
        _: &[IggyMessage],
    ) -> Result<u32, IggyError> {
        Ok(1)
    }
}
