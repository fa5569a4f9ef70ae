//! The consumers of the crate, alone and in groups, on what the producers sent.

use crate::messages::make_messages;
use crate::{named, ok};
use futures_util::StreamExt;
use iggy::consumer_ext::MessageConsumer;
use iggy::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

pub async fn run(client: &IggyClient) {
    consume(client).await;
    consume_in_a_group(client).await;
}

/// Takes so many messages from a consumer.
pub async fn take(
    consumer: &mut IggyConsumer,
    count: usize,
) -> Result<Vec<ReceivedMessage>, IggyError> {
    let mut taken = Vec::new();
    while taken.len() < count {
        match consumer.next().await {
            Some(Ok(message)) => taken.push(message),
            Some(Err(error)) => return Err(error),
            None => break,
        }
    }
    Ok(taken)
}

async fn consume(client: &IggyClient) {
    let second = NonZeroIggyDuration::ONE_SECOND;
    for (at, commit) in [
        AutoCommit::Disabled,
        AutoCommit::Interval(second),
        AutoCommit::IntervalOrWhen(second, AutoCommitWhen::ConsumingAllMessages),
        AutoCommit::IntervalOrAfter(second, AutoCommitAfter::ConsumingAllMessages),
        AutoCommit::When(AutoCommitWhen::PollingMessages),
        AutoCommit::When(AutoCommitWhen::ConsumingEachMessage),
        AutoCommit::When(AutoCommitWhen::ConsumingEveryNthMessage(10)),
        AutoCommit::After(AutoCommitAfter::ConsumingEachMessage),
        AutoCommit::After(AutoCommitAfter::ConsumingEveryNthMessage(10)),
    ]
    .into_iter()
    .enumerate()
    {
        let call = format!("consumer: {commit:?}");
        ok!(
            &call,
            async {
                let name = format!("alone-{at}");
                let made = client.consumer(&name, "high", "background", 0)?.auto_commit(commit);
                let made = made.polling_strategy(PollingStrategy::first()).batch_length(30);
                let mut made = made.poll_interval(IggyDuration::from(1000)).build();
                made.init().await?;
                let taken = take(&mut made, 50).await?;
                made.shutdown().await?;
                Ok(taken.iter().map(|each| each.message.header.offset).collect::<Vec<_>>())
            },
            |offsets| offsets.iter().copied().eq(0..50)
        );
    }
    ok!(
        "consumer: offsets by hand",
        async {
            let made = client.consumer("by-hand", "high", "background", 0)?;
            let mut made = made.auto_commit(AutoCommit::Disabled).batch_length(10).build();
            made.init().await?;
            take(&mut made, 5).await?;
            made.store_offset(4, Some(0)).await?;
            let stored = (made.get_last_consumed_offset(0), made.get_last_stored_offset(0));
            made.delete_offset(Some(0)).await?;
            made.shutdown().await?;
            Ok(stored)
        },
        |stored| *stored == (Some(4), Some(4))
    );
}

struct Counter(AtomicUsize);

impl MessageConsumer for Counter {
    async fn consume(&self, _: ReceivedMessage) -> Result<(), IggyError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn group(client: &IggyClient, name: &str) -> Result<IggyConsumer, IggyError> {
    Ok(client
        .consumer_group(name, "high", "background")?
        .create_consumer_group_if_not_exists()
        .auto_join_consumer_group()
        .polling_strategy(PollingStrategy::next())
        .auto_commit(AutoCommit::When(AutoCommitWhen::PollingMessages))
        .poll_interval(IggyDuration::from(1000))
        .polling_retry_interval(NonZeroIggyDuration::ONE_SECOND)
        .init_retries(3, NonZeroIggyDuration::ONE_SECOND)
        .build())
}

async fn consume_in_a_group(client: &IggyClient) {
    ok!(
        "consumer_group",
        async {
            let mut made = group(client, "together")?;
            made.init().await?;
            let taken = take(&mut made, 200).await?;
            made.shutdown().await?;
            Ok(taken.len())
        },
        |count| *count == 200
    );
    ok!("consume_messages", async {
        let counter: &'static Counter = Box::leak(Box::new(Counter(AtomicUsize::new(0))));
        let mut made = group(client, "counted")?;
        made.init().await?;
        let (stop, stopped) = oneshot::channel();
        let reading = tokio::spawn(async move {
            let read = made.consume_messages(counter, stopped).await;
            (made, read)
        });
        while counter.0.load(Ordering::SeqCst) < 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stop.send(()).expect("it reads");
        let (mut made, read) = reading.await.expect("it ends");
        made.shutdown().await?;
        read
    });
    ok!(
        "consumer_group: deleted while it reads",
        async {
            let mut made = group(client, "gone")?;
            made.init().await?;
            take(&mut made, 200).await?;
            let (stream, topic) = (named("high"), named("background"));
            client.delete_consumer_group(&stream, &topic, &named("gone")).await?;
            let to = Partitioning::partition_id(0);
            let mut after = make_messages(&["after"]);
            client.send_messages(&stream, &topic, &to, &mut after).await?;
            // It makes the group again and joins it. Errors on the way are the SDK's own.
            let mut is_read = false;
            while !is_read {
                match made.next().await {
                    Some(Ok(received)) => is_read = received.message.payload == "after",
                    Some(Err(error)) => eprintln!("a group that is gone: {error}"),
                    None => break,
                }
            }
            made.shutdown().await?;
            Ok(is_read)
        },
        |is_read| *is_read
    );
}
